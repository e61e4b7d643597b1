"""A host with a server, an archive of its binlog and a target in a folder, as a person has it: all of it is real.

Knows: how a backup of that server comes to be there without a volume of LVM's.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from backupd.mysql.binlog.source import BinlogSource, binlog_source
from backupd.mysql.session import Session
from backupd.policy import gtid
from backupd.vocabulary.binlogs import BinlogPlace
from tests.contract.mariadb import MariadbServer, wait_until
from tests.hostile.backups import RUN, Backup
from tests.hostile.sound import backup_of
from tests.hostile.trusting import signer_in

Rows = Mapping[str, str | None]


@dataclass(frozen=True)
class Moment:
    """What the server had, and where its log was."""

    at: datetime  # no transaction was committed within the second before and after it
    place: str
    gtid: str
    rows: Rows


class Site:
    """A host with a server, an archive and a target."""

    def __init__(
        self, base: Path, server: MariadbServer, *, programs: Path | None = None, keys: str = 'segment_age = "1s"'
    ) -> None:
        """`programs` is a folder with the server's programs, where they are not this machine's own; `keys` are further
        ones of the archive.
        """
        self.base, self.server, self.vault = base, server, base / "vault"
        self.module: tuple[str, ...] = ("-m", "backupd")
        self._environment = dict(os.environ)
        if programs is not None:
            self._environment["PATH"] = f"{programs}:{self._environment['PATH']}"
        self.vault.mkdir()
        self.configuration = base / "backupd.toml"
        self.configuration.write_text(
            f"""
            [catalogue]
            path = "{base}/state/catalogue.sqlite"
            [paths]
            run = "{base}/run"
            staging = "{base}/staging"
            log = "{base}/log"
            [hosts.db1]
            socket = "{server.socket}"
            user = "root"
            [targets.vault]
            type = "directory"
            path = "{self.vault}"
            [jobs.nightly]
            host = "db1"
            targets = ["vault"]
            [jobs.nightly.binlog]
            spool = "{base}/spool"
            {keys}
            """
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-P", *self.module, "--config", str(self.configuration), *words]

    def run(self, *words: str, expect: int = 0, **variables: str) -> "subprocess.CompletedProcess[str]":
        """`variables` are further ones of its environment."""
        command, environment = self.command(*words), {**self._environment, **variables}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    def back_up(self, run: str = RUN, *, locked: bool = True) -> Backup:
        """As a run would have: under the lock unless told otherwise, signed by this machine, known to its catalogue."""
        machine, adopted = self.machine, any(self.vault.glob("*/nightly/*/manifest.json"))
        backup = backup_of(self.server, machine=machine, run=run, locked=locked)
        backup.sign(signer_in(self.base / "state"))
        backup.lay(self.vault / machine / "nightly" / run)
        self.run("catalogue", "rebuild", "--target", "vault", "--set-back", "--trust", backup.body["signature"]["key"])
        if not adopted:
            self.run("identity", "adopt", "--yes")
        return backup

    @cached_property
    def machine(self) -> str:
        return self.run("identity", "show").stdout.split()[1]

    @contextmanager
    def archiving(self, *, refused: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
        """For the length of the block, in which the server is being received from, unless its log is `refused`."""
        log, before = self.base / "receiver.log", self.connections()
        with log.open("ab") as said:
            command = self.command("-v", "binlog", "receive", "nightly")
            process = subprocess.Popen(command, stderr=said, env=self._environment)
            try:
                wait_until(lambda: refused or self.connections() > before)
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)

    def stored(self, executed: str) -> bool:
        """Whether the newest segment on the target reaches so far."""
        newest = self._newest()
        return newest is not None and gtid.same(newest["gtid_end"], executed)

    def stored_to(self, end: BinlogPlace | None) -> bool:
        """Whether the newest segment on the target ends there: whatever has no GTID is archived as well."""
        newest = self._newest()
        return newest is not None and end == BinlogPlace(newest["file"], newest["end"])

    def _newest(self) -> dict[str, Any] | None:
        """What the newest segment on the target says of itself."""
        newest = max(self.vault.glob("*/nightly/binlog/*.binlog"), default=None)
        if newest is None:
            return None
        with newest.open("rb") as file:
            described: dict[str, Any] = json.loads(file.readline())
        return described

    def connections(self) -> int:
        """How often the archive has begun to receive, by its log."""
        log = self.base / "receiver.log"
        return log.read_text().count("receiving from ") if log.exists() else 0

    def moment(self) -> Moment:
        with self.server.session() as root:
            another_second()
            now = datetime.now(UTC)
            source = binlog_source(root)
            rows = rows_of(root)
            another_second()
        return Moment(now, _place(source), source.gtid, rows)


def another_second() -> None:
    """What is committed from now on has another time than what was: MariaDB tells only the second of a commit."""
    time.sleep(1.1)


def _place(source: BinlogSource) -> str:
    assert source.end is not None
    return f"{source.end.file}:{source.end.offset}"


@contextmanager
def started_on(datadir: Path, *options: str) -> Iterator[MariadbServer]:
    """A server of this machine's on restored files, as a person would start one."""
    with serving(datadir, lambda folder: MariadbServer(folder, "--skip-slave-start", *options)) as server:
        yield server


@contextmanager
def serving(datadir: Path, made: Callable[[Path], MariadbServer]) -> Iterator[MariadbServer]:
    """The server is at work on these files; its socket has a short path, as it has to."""
    with tempfile.TemporaryDirectory(prefix="bk-") as folder:
        server = made(Path(folder))
        server.datadir = datadir
        server.start()
        try:
            yield server
        finally:
            server.stop()


def rows_of(session: Session) -> Rows:
    """The checksum of every table that a person made."""
    named = session.query("SELECT TABLE_NAME AS n FROM information_schema.TABLES WHERE TABLE_SCHEMA = 't' ORDER BY 1")
    return {str(row["n"]): (session.one(f"CHECKSUM TABLE t.`{row['n']}`") or {})["Checksum"] for row in named}
