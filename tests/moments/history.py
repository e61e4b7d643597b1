"""A server's history under load, archived: two backups, every kind of DDL, a large transaction, and what becomes of
servers: a rotation, a clean restart, a kill. A witness has its record; see `witness`.
"""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from backupd.mysql.binlog.source import binlog_source
from backupd.mysql.session import Session
from backupd.vocabulary.servers import Flavour
from tests.archive_site import Site
from tests.contract.mariadb import MariadbServer, wait_until
from tests.moments.clients import CLIENTS, Load
from tests.moments.server_log import Logged, logged
from tests.moments.tables import AddColumn, Change, Create, Drop, Insert, Swap, Truncate, sums_on
from tests.moments.witness import Record, recorded

BACKUPS = ("m1", "m2")
_LARGE_ROWS, _LARGE_TEXT = 1500, "large" * 400


@dataclass(frozen=True)
class Ground:
    """One kind of server."""

    flavour: Flavour
    binlog_program: Path | str
    started_on: Callable[[Path], AbstractContextManager[MariadbServer]]
    programs: Path | None = None  # None: this machine's own


@dataclass
class History:
    """What has happened, by the GTIDs of those transactions that are not like the others."""

    site: Site
    ground: Ground
    record: Record
    changes: dict[str, str] = field(default_factory=dict)  # of DDL: what it is, and its GTID
    large: str = ""
    places: dict[str, tuple[str, int]] = field(default_factory=dict)  # of the backups
    taken: dict[str, datetime] = field(default_factory=dict)
    before: str = ""  # what the server had executed, as others may have on a server that is shared

    def number(self, gtid: str) -> int:
        """Of a transaction in the log, from nought."""
        return next(number for number, one in enumerate(self.record.log) if one.gtid == gtid)


def lived(base: Path, server: MariadbServer, ground: Ground, *, seed: int) -> History:
    """Some seconds of a server's life, the first of them with 20 transactions a second, then 200, then 20."""
    site = Site(base, server, programs=ground.programs, keys='segment_age = "1s"\nsegment_size = "256KiB"')
    load = Load(server, ground.flavour, seed)
    history = History(site, ground, Record([], []))
    with server.session() as root:
        history.before = binlog_source(root).gtid
        root.execute("CREATE DATABASE w")
    for number in range(CLIENTS):
        load.run(Create(f"own{number}"))
    load.run(Create("common"))
    load.run(Create("flat", engine="MyISAM"))

    def change(what: str, change: Change) -> None:
        history.changes[what] = load.run(change)

    with load.running():
        load.go_on(10)
        _back_up(history, BACKUPS[0])
        with site.archiving():
            change("create", Create("extra"))
            load.go_on(20)
            change("alter", AddColumn("common"))
            load.per_second = 200
            load.go_on(150)
            change("create another", Create("next"))
            load.go_on(10)
            change("rename", Swap("next", "common", "former"))
            load.go_on(100)
            token = next(load.tokens)
            history.large = load.run(Insert("extra", token, _LARGE_TEXT, _LARGE_ROWS), token=token)
            load.go_on(50)
            _execute(server, "FLUSH BINARY LOGS")
            load.go_on(50)
            _back_up(history, BACKUPS[1])
            load.go_on(50)
            change("truncate", Truncate("common"))
            load.go_on(50)
            change("drop", Drop("former"))
            load.go_on(20)
            server.stop()
            server.start()
            load.go_on(100)
            server.stop(signal.SIGKILL)
            server.start()
            load.per_second = 20
            load.go_on(30)
            load.stop()
            with server.session() as root:
                end = binlog_source(root).gtid
                wait_until(lambda: site.stored(end))
                history.record = recorded(_log(history), load.attempts)
                _require_as_the_server_has_it(root, history.record)
    return history


def _back_up(history: History, run: str) -> None:
    backup = history.site.back_up(run)
    position = backup.body["position"]
    history.places[run] = (position["binlog_file"], position["binlog_offset"])
    history.taken[run] = datetime.fromisoformat(backup.body["created_at"])


def _execute(server: MariadbServer, statement: str) -> None:
    with server.session() as root:
        root.execute(statement)


def _log(history: History) -> list[Logged]:
    binlogs = sorted(path for path in history.site.server.datadir.glob("bin.0*") if path.suffix[1:].isdigit())
    return logged(history.ground.binlog_program, binlogs)


def _require_as_the_server_has_it(root: Session, record: Record) -> None:
    """Else the witness is wrong. A table without transactions may have a row that the killed server has not logged."""
    found, expected = dict(sums_on(root)), dict(record.contents[-1])
    found.pop("flat"), expected.pop("flat")
    assert found == expected
