"""Scheduled events on a copy that a log was applied to: none runs that its server had switched off."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.mysql.binlog.applying import apply
from backupd.mysql.binlog.relay_logs import laid_down
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.session import Session
from backupd.operations.restore.moment.events_in_log import EventsInLog
from tests.binlog_segments import FIRST
from tests.contract.mariadb import mariadb
from tests.contract.test_applying import Witness, place
from tests.contract.test_scratch import taken

MADE = "CREATE EVENT t.`{}` ON SCHEDULE EVERY 1 DAY DO DELETE FROM t.innodb"


def events_of(session: Session) -> dict[str | None, str | None]:
    found = session.query("SELECT CONCAT(db, '.', name) AS name, status FROM mysql.event")
    return {row["name"]: row["status"] for row in found}


def applied(witness: Witness, to: Path, end: Session) -> tuple[dict[str | None, str | None], list[tuple[str, str]]]:
    """Events of a copy that is brought to where the source is, and those that it says are left disabled."""
    at, events = place(end), EventsInLog()
    pieces = list(witness.pieces(at, at_once=1 << 20))
    for piece in pieces:
        (content,) = piece.events
        format_ = base64.b64encode(piece.format).decode()
        origin = replace(FIRST.origin, server_id=7)
        events.look(replace(FIRST, file=piece.file, format=format_, origin=origin, all_changes=False), 0, content)
    copy = witness.restored(to)
    scratch = ScratchServer(to, witness.manifest, start_seconds=50, applying=True)
    with laid_down(pieces, copy) as logs, scratch.running() as server:
        events.begin(server.session)
        apply(server, logs, start=witness.start, end=at)
        left = events.put_back(server.session)
        return events_of(server.session), left


@pytest.mark.parametrize(
    ("host", "other"), [("db1.example.com", True), ("127.0.0.1", False)], ids=["beside another", "alone"]
)
def test_an_event_that_was_switched_off_stays_so_whatever_host_its_definer_has(
    tmp_path: Path, host: str, other: bool
) -> None:
    with mariadb("--binlog-format=ROW") as source, source.session() as root:
        root.execute(MADE.format("purge"))
        image = taken(source, tmp_path / "image")
        root.execute(f"ALTER DEFINER=root@{host} EVENT t.purge DISABLE")
        if other:
            root.execute(MADE.format("other"))
        witness = Witness(image.folder, image.manifest, source.datadir)
        assert applied(witness, tmp_path / "to", root) == (events_of(root), [])


def test_events_of_schemas_that_differ_in_case_are_told_apart_and_one_that_is_not_ascii_does_not_run(
    tmp_path: Path,
) -> None:
    """Which events a server takes that for its collation tells: "é" is "e"."""
    with mariadb("--binlog-format=ROW") as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        root.execute(MADE.format("für"))
        for schema, status in (("A", "DISABLE"), ("a", "ENABLE")):
            root.execute(f"CREATE DATABASE {schema}")
            root.execute(f"CREATE EVENT {schema}.p ON SCHEDULE EVERY 1 DAY {status} DO SELECT 1")
        witness = Witness(image.folder, image.manifest, source.datadir)
        found, left = applied(witness, tmp_path / "to", root)
    assert found == {"t.für": "SLAVESIDE_DISABLED", "A.p": "DISABLED", "a.p": "ENABLED"}
    assert left == [("t", "für")]


def test_events_of_a_database_that_was_replaced_are_those_made_since(tmp_path: Path) -> None:
    with mariadb("--binlog-format=ROW") as source, source.session() as root:
        root.execute("CREATE DATABASE d")
        root.execute("CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1")
        image = taken(source, tmp_path / "image")
        root.execute("CREATE OR REPLACE DATABASE d")
        root.execute("CREATE EVENT IF NOT EXISTS d.e ON SCHEDULE EVERY 1 DAY DO SELECT 1")
        witness = Witness(image.folder, image.manifest, source.datadir)
        assert applied(witness, tmp_path / "to", root) == ({"d.e": "ENABLED"}, [])


def test_an_event_whose_name_was_not_understood_does_not_run_and_is_told(tmp_path: Path) -> None:
    """A client of another character set wrote it: no text of the log has the name that the server has."""
    with mariadb("--binlog-format=ROW") as source, source.session() as root:
        root.execute("SET NAMES latin1")  # and what is sent is UTF-8
        root.execute(MADE.format("für"))
        root.execute(MADE.format("purge"))
        image = taken(source, tmp_path / "image")
        root.execute("ALTER EVENT t.purge COMMENT 'not switched off'")
        root.execute("ALTER EVENT t.`für` DISABLE")
        witness = Witness(image.folder, image.manifest, source.datadir)
        found, left = applied(witness, tmp_path / "to", root)
    assert found == {"t.fÃ¼r": "SLAVESIDE_DISABLED", "t.purge": "ENABLED"}
    assert left == [("t", "fÃ¼r")]
