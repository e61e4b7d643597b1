"""What a command can leave in the machine, asked of LVM, the kernel, the server and the file systems, not of backupd.

Knows: what stays on purpose: published backups that the catalogue lists, owner records, segments, lock files of jobs,
volume groups and targets, logs. Everything else that was not there before is left.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pymysql

from backupd.mysql.flushing import LOW_WATER_MARK, MAX_DIRTY
from tests.fire.judging import Row, Things
from tests.fire.world import RUN_FOLDER, SITE, World
from tests.lab.inside.host import mounted, tool

ACCOUNT = "fire"  # of the server, which may see everything
SET_BY_US = frozenset({MAX_DIRTY, LOW_WATER_MARK})  # variables that a run sets, and puts back
_LASTING_LOCKS = ("job-", "vg-", "owner-", "the-", "disk-", "binlog-", "backup-", "segments-")
_DM = Path("/sys/block")
_MACHINE_AND_JOB = 2  # parts of a path; the folders of both may be empty


def volumes() -> dict[str, str]:
    """Every logical volume, with its uuid and its tags."""
    words = ("lvs", "--reportformat", "json", "--options", "lv_full_name,lv_uuid,lv_tags,origin")
    [report] = json.loads(tool(*words))["report"]
    return {lv["lv_full_name"]: f"{lv['lv_uuid']} {lv['lv_tags']} {lv['origin']}".strip() for lv in report["lv"]}


def things(world: World, server: "Server", all_volumes: Mapping[str, str], *, others: frozenset[int]) -> Things:
    """What there is now, by kind. `others` are children of ours that no command has started."""
    return {
        "volumes": frozenset(f"{name} {told}" for name, told in all_volumes.items()),
        "devices": frozenset(_devices()),
        "mounts": frozenset(mounted()),
        "files": frozenset(map(str, _files(world))),
        "backups that the catalogue does not have": frozenset(_unknown_backups(world)),
        "uploads": frozenset(str(path) for path in world.metadata.rglob("*") if "multipart" in str(path).lower()),
        "variables": frozenset(server.variables()),
        "replica": frozenset(server.replica()),
        "sessions": frozenset(server.sessions()),
        "schemas": frozenset(server.schemas()),
        "holdings": frozenset(_rows(world, _HELD)),
        "runs that are said to go on": frozenset(_rows(world, _GOING_ON)),
        "processes": frozenset(_processes(others)),
    }


def runs(world: World) -> dict[str, Row]:
    """All that the catalogue says of runs of backups, by their ids."""
    copies: dict[str, set[str]] = {}
    for run_id, target in _query(world, f"{_KEPT} AND broken = ''"):
        copies.setdefault(run_id, set()).add(target)
    hints = dict(_query(world, "SELECT run_id, hint FROM errors"))
    return {
        run_id: Row(run_id, job, status, frozenset(copies.get(run_id, ())), hints.get(run_id))
        for run_id, job, status in _query(world, "SELECT run_id, job, status FROM runs")
    }


class Server:
    """The server, asked over a connection of our own."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._changing: frozenset[str] = frozenset()

    @classmethod
    def at_hand(cls) -> "Server":
        """The lab's own."""
        return cls(lambda: pymysql.connect(unix_socket=str(SITE.socket), user=ACCOUNT, autocommit=True))

    def pass_over_what_changes(self, before: frozenset[str]) -> None:
        """Variables that are others now than they were are the server's own affair from now on.

        Raises:
            RuntimeError: backupd sets one of them, and runs without a fault have not put it back.
        """
        changed = {told.partition("=")[0] for told in before ^ frozenset(self.variables())}
        if left := changed & SET_BY_US:
            raise RuntimeError(f"runs without a fault have not put back {', '.join(sorted(left))}")
        self._changing |= changed

    def variables(self) -> Iterator[str]:
        """Every global one that does not change by itself."""
        for name, value in self.ask("SHOW GLOBAL VARIABLES"):
            if name not in self._changing:
                yield f"{name}={value}"

    def replica(self) -> Iterator[str]:
        """A replica's applier that stands still: one that runs is as it has to be."""
        for row in self.ask("SHOW ALL SLAVES STATUS"):
            if row[13] != "Yes":  # Slave_SQL_Running
                yield "its applier is stopped"

    def sessions(self) -> Iterator[str]:
        """Those of the backup account."""
        asked = "SELECT id, state FROM information_schema.processlist WHERE user = 'backupd'"
        return (f"{row[0]} {row[1]}" for row in self.ask(asked))

    def written(self) -> tuple[str, int]:
        """How far its binlog goes: a file, an offset."""
        [row] = self.ask("SHOW MASTER STATUS")
        return row[0], row[1]

    def schemas(self) -> Iterator[str]:
        """By their names."""
        return (row[0] for row in self.ask("SHOW DATABASES"))

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows."""
        for last in (False, True):
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection.cursor() as cursor:
                    cursor.execute(statement)
                    return list(cursor.fetchall())
            except pymysql.MySQLError:
                self._connection = None
                if last:
                    raise
        raise AssertionError("the second try returns or raises")


def suspended() -> list[str]:
    """Device-mapper devices in which all I/O stands still."""
    return [told for told in _devices() if told.endswith(" suspended")]


def is_published(folder: Path) -> bool:
    """Whether it is a backup's."""
    return (folder / "manifest.json").exists()


def lacking(root: Path, run_id: str) -> str:
    """What a target's folder lacks of that run's backup, by its manifest and the sizes of its files; empty: nothing."""
    folders = [manifest.parent for manifest in root.glob(f"*/*/{run_id}/manifest.json")]
    if not folders:
        return "its manifest is gone"
    for stored in json.loads((folders[0] / "manifest.json").read_text(encoding="utf-8"))["objects"]:
        path = folders[0] / stored["name"]
        if not path.is_file():
            return f"{stored['name']} is gone"
        if path.stat().st_size != stored["stored_bytes"]:
            return f"{stored['name']} has {path.stat().st_size} bytes of {stored['stored_bytes']}"
    return ""


_KEPT = "SELECT run_id, target FROM backups WHERE removed_at IS NULL"
_HELD = "SELECT run_id || ' ' || kind || ' ' || name FROM holdings WHERE released_at IS NULL"
_GOING_ON = """
    SELECT run_id FROM runs WHERE status = 'running' UNION SELECT run_id || ' (manifest)' FROM pending_manifests
"""


def _devices() -> Iterator[str]:
    for folder in sorted(_DM.glob("dm-*/dm")):
        with suppress(FileNotFoundError):
            name, stands = (folder / "name").read_text().strip(), (folder / "suspended").read_text().strip() == "1"
            yield f"{name}{' suspended' if stands else ''}"


def _files(world: World) -> Iterator[Path]:
    for path in RUN_FOLDER.rglob("*"):
        if path.is_file() and not (path.parent.name == "lock" and path.name.startswith(_LASTING_LOCKS)):
            yield path
    yield from (path for path in (RUN_FOLDER / "mnt").glob("*"))
    for folder in (world.spool, world.staging):
        yield from folder.rglob("*")
    yield from SITE.mount_point.glob(".backupd-*")
    for root in world.targets.values():
        yield from _unfinished(root)


def _unfinished(root: Path) -> Iterator[Path]:
    """Whatever is neither a published backup's nor an owner record nor a segment, and every temporary name."""
    for path in root.rglob("*"):
        if path.is_dir():
            is_left = not any(path.iterdir()) and len(path.relative_to(root).parts) > _MACHINE_AND_JOB
        else:
            if path.name.startswith(".backupd-writable-"):  # the next use of the target but for an hour removes it
                continue
            if path.parent.name == "owner":  # of an unfinished record the next but one makes an end
                continue
            temporary = path.name.startswith(".") or path.name.endswith(".partial")
            is_left = temporary or not (is_published(path.parent) or path.parent.name == "binlog")
        if is_left:
            yield path


def _unknown_backups(world: World) -> Iterator[str]:
    known = {f"{target}/{run_id}" for run_id, target in _query(world, _KEPT)}
    for name, root in world.targets.items():
        for manifest in root.glob("*/*/*/manifest.json"):
            if f"{name}/{manifest.parent.name}" not in known:
                yield str(manifest.parent)


def _processes(others: frozenset[int]) -> Iterator[str]:
    """Those that a command of ours has started and left: they are our children then."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if parent == os.getpid() and words and int(folder.name) not in others:
                yield f"{folder.name} {words[:120]}"


def _rows(world: World, statement: str) -> Iterator[str]:
    return (str(row[0]) for row in _query(world, statement))


def _query(world: World, statement: str) -> list[tuple[Any, ...]]:
    if not world.catalogue.exists():
        return []
    with closing(sqlite3.connect(world.catalogue, timeout=10)) as connection:
        return connection.execute(statement).fetchall()
