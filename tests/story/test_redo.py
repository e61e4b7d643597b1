"""Of the redo log only what recovery needs is read, told, and stored; wherever that is not certain, all of it."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.mysql.tablefiles import Table
from backupd.operations.restore.into_folder import restore
from backupd.targets import BackupSource
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.servers import Flavour
from tests.fakes.redo import redo_head
from tests.fakes.target import BELIEVED
from tests.story.test_good_run import unpacked
from tests.story.test_restore_resumed import has_free
from tests.story.world import World

MIB = 1 << 20
HEAD = redo_head((40 * MIB, 40 * MIB), (39 * MIB, 39 * MIB))
TOLD = 41 * MIB
SIZE = 16 * MIB


def with_log(world: World, head: bytes = HEAD) -> bytes:
    content = head + random.Random(1).randbytes(SIZE - len(head))
    (world.datadir / "ib_logfile0").write_bytes(content)
    return content


def stored_log(world: World) -> bytes:
    return unpacked(world.backups / "r1" / "data-1.tar.zst")["ib_logfile0"]


def left_out(world: World) -> int:
    """As the record and the manifest say alike."""
    snapshot, section = world.row().snapshot, world.target.manifest("nightly", "r1").run.snapshot
    assert snapshot is not None
    assert section is not None
    assert section.redo_left_out == snapshot.redo_left_out
    return snapshot.redo_left_out


@pytest.mark.parametrize("version", [(10, 11, 6), (11, 8, 6)])
def test_what_recovery_needs_of_the_redo_log_is_stored_and_the_rest_is_a_hole(
    world: World, version: tuple[int, int, int]
) -> None:
    was = with_log(world)
    world.database.facts = replace(world.database.facts, version_number=version)
    world.database.lsn = TOLD
    world.back_up()
    now = stored_log(world)
    assert len(now) == SIZE
    begin, end = (12288 + (lsn - 12288) % (SIZE - 12288) for lsn in (39 * MIB, TOLD + 4 * MIB))
    assert begin < end
    assert now[begin:end] == was[begin:end]
    assert now[: len(HEAD)] == HEAD
    assert 9 * MIB < left_out(world) < 10 * MIB
    assert now.count(0) > 9 * MIB


@pytest.mark.parametrize(
    ("lsn", "head", "changes"),
    [
        (None, HEAD, {}),
        (30 * MIB, HEAD, {}),
        (TOLD, HEAD[:4096] + b"x" + HEAD[4097:], {}),
        (TOLD, HEAD, {"version_number": (11, 4, 3)}),
        (TOLD, HEAD, {"flavour": Flavour.MYSQL, "version_number": (9, 7, 4)}),
    ],
    ids=["no LSN", "an LSN before the checkpoint", "damaged", "another version", "MySQL"],
)
def test_where_that_is_not_certain_the_whole_log_is_stored(
    world: World, lsn: int | None, head: bytes, changes: dict[str, object]
) -> None:
    was = with_log(world, head)
    world.database.lsn = lsn
    world.database.facts = replace(world.database.facts, **changes)  # type: ignore[arg-type]
    world.back_up()
    assert stored_log(world) == was
    assert left_out(world) == 0


def test_a_log_that_is_a_link_is_not_looked_into(world: World) -> None:
    was = with_log(world)
    (world.datadir / "ib_logfile0").rename(world.datadir / "log")
    (world.datadir / "ib_logfile0").symlink_to("log")
    world.database.lsn = TOLD
    world.back_up()
    assert unpacked(world.backups / "r1" / "data-1.tar.zst")["log"] == was
    assert left_out(world) == 0


@pytest.mark.parametrize("tables", [(), (Table("shop", "orders"),)], ids=["everything", "a table"])
def test_a_restore_needs_room_for_the_hole_too_for_a_server_fills_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: tuple[Table, ...]
) -> None:
    with_log(world)
    world.database.lsn = TOLD
    world.back_up()
    source = BackupSource(world.target, "nightly", "r1", BELIEVED)
    restore([source], to=tmp_path / "first", tables=tables)
    held = sum(path.stat().st_blocks * 512 for path in (tmp_path / "first").rglob("*") if path.is_file())
    has_free(monkeypatch, held + left_out(world) // 2)
    with pytest.raises(UsageError, match="and the backup needs"):
        restore([source], to=tmp_path / "second", tables=tables)
