"""Sound backups of a real MariaDB server: what the attacks that reach a server are made of.

Knows: how such a server's folder becomes a backup, under backupd's own lock and with its own words about the server.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from backupd.config import LockConfig
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.locks import ServerLock
from backupd.mysql.server import MysqlServer
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.volumes import Layout
from tests.contract.mariadb import MariadbServer, mariadb
from tests.fakes.target import MACHINE
from tests.hostile.backups import BINLOG, FIRST_OBJECT, RUN, SECTION, Backup, document_of
from tests.hostile.tarring import Entry, file, folder

_LEFT_OUT = ("ib_buffer_pool", "ibtmp1", "pid", "aria_log_control.lock")


def server() -> Backup:
    """Of a server with three tables, one of each engine; of an unknown machine."""
    with mariadb() as running:
        return backup_of(running, machine=MACHINE, created_at=datetime(2026, 1, 2, tzinfo=UTC))


def backup_of(
    running: MariadbServer, *, machine: str, created_at: datetime | None = None, run: str = RUN, locked: bool = True
) -> Backup:
    """Of a server as it is now, under the lock or as of a power cut; of this machine's job `nightly`."""
    canary = MysqlCanary(running.connect())
    canary.before(run)
    copy = running.folder / f"copy-{run}"
    position, lsn = _copied(running, copy) if locked else _cut_off(running, copy)
    at = created_at or datetime.now(UTC)
    canary.after(run)
    facts = dataclasses.replace(MysqlServer(running.connect()).facts(), socket=None)
    manifest = Manifest(
        run_id=run,
        job="nightly",
        host="db1",
        machine=machine,
        created_at=at,
        objects=(),
        server=facts,
        position=position,
        lsn=lsn,
        locked=locked,
        layout=Layout.LINEAR,
        volume="vg/data",
        datadir="",
        run=SECTION if created_at else dataclasses.replace(SECTION, started_at=at, phases={}),
        binlog=position.binlog_file,
        canary="backupd_canary.canary",
    )
    made = Backup(document_of(manifest))
    made.put(FIRST_OBJECT, [folder(".", mode=0o750), *_members(copy)])
    made.put(BINLOG, _binlogs(copy, str(position.binlog_file), position.binlog_offset))
    shutil.rmtree(copy)
    return made


def _copied(running: MariadbServer, copy: Path) -> tuple[Position, int | None]:
    limits = LockConfig(wait_timeout_seconds=20, hold_budget_seconds=20, tries=1)
    with ServerLock(running.connect(), limits).held(running.datadir) as held, running.frozen():
        shutil.copytree(running.datadir, copy)
    return held.position, held.receipt.lsn


def _cut_off(running: MariadbServer, copy: Path) -> tuple[Position, None]:
    """In the middle of whatever it was doing: only the newest binlog's name is known."""
    with running.frozen():
        shutil.copytree(running.datadir, copy)
    return Position(max(path.name for path in copy.glob("bin.0*"))), None


def _members(datadir: Path) -> Iterator[Entry]:
    for at, folders, files in sorted(os.walk(datadir)):
        folders.sort()
        inside = Path(at).relative_to(datadir)
        if str(inside) != ".":
            yield folder(str(inside), mode=0o700)
        for name in sorted(files):
            if name not in _LEFT_OUT and not name.startswith("bin."):
                yield file(str(inside / name), (Path(at) / name).read_bytes(), mode=0o660)


def _binlogs(datadir: Path, named: str, end: int | None) -> list[Entry]:
    return [
        file(named, (datadir / named).read_bytes()[:end], mode=0o660),
        file("bin.index", f"./{named}\n".encode(), mode=0o660),
    ]
