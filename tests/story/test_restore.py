"""From the target back into a folder: whole and equal, or as empty as it was."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backupd.host.signals import cancellable
from backupd.operations.restore.into_folder import require_room, restore
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import Cancelled, TargetError, UsageError, VerificationError
from backupd.vocabulary.storage import MARKER
from tests.fakes.target import BELIEVED, MACHINE
from tests.story.world import FILES, World

PATH_MAX = os.pathconf("/", "PC_PATH_MAX")


@pytest.fixture
def backed_up(world: World) -> World:
    """The run `r1` has a backup of this world."""
    world.back_up()
    return world


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copies(world: World) -> list[BackupSource]:
    return [BackupSource(world.target, "nightly", "r1", BELIEVED)]


def damage(world: World, name: str) -> None:
    stored = world.backups / "r1" / name
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)


@pytest.mark.parametrize("exists", [True, False])
def test_a_backup_comes_back_whole(backed_up: World, tmp_path: Path, exists: bool) -> None:
    to = tmp_path / "restored"
    if exists:
        to.mkdir()
    told: list[tuple[int, int]] = []
    manifest = restore(copies(backed_up), to=to, copied=lambda *now: told.append(now))
    expected = {n: (backed_up.datadir / n).read_bytes() for n in FILES if not n.startswith(("bin.", "ibtmp1"))}
    position = (backed_up.datadir / "bin.000001").read_bytes()[:1100]
    assert files_in(to) == {**expected, "bin.000001": position, "bin.index": b"./bin.000001\n"}
    assert manifest.run_id == "r1"
    assert told[-1][0] == told[-1][1] > 0


def test_an_empty_mount_point_is_an_empty_folder(backed_up: World, tmp_path: Path) -> None:
    to = tmp_path / "restored"
    (to / "lost+found").mkdir(parents=True)
    restore(copies(backed_up), to=to)
    assert (to / "ibdata1").exists()


def test_a_folder_that_is_not_empty_is_refused_and_stays_as_it_is(backed_up: World, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine").write_text("keep me")
    with pytest.raises(UsageError, match="is not empty") as refused:
        restore(copies(backed_up), to=tmp_path / "to")
    assert files_in(tmp_path / "to") == {"mine": b"keep me"}
    assert "move that aside" in refused.value.hint, "whoever is to have an empty folder may empty one"


def test_a_restore_that_was_cut_short_is_told_apart_and_left_alone(backed_up: World, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / MARKER).write_text("{}")
    (tmp_path / "to" / "ibdata1").write_text("half")
    with pytest.raises(UsageError, match="interrupted restore") as refused:
        restore(copies(backed_up), to=tmp_path / "to")
    assert "rm -r" in refused.value.hint
    assert set(files_in(tmp_path / "to")) == {MARKER, "ibdata1"}


def test_a_file_in_the_way_is_a_sentence(backed_up: World, tmp_path: Path) -> None:
    (tmp_path / "to").write_text("mine")
    with pytest.raises(UsageError, match="cannot be read"):
        restore(copies(backed_up), to=tmp_path / "to")
    assert (tmp_path / "to").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_a_sentence(backed_up: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot be"):
        restore(copies(backed_up), to=tmp_path / "file" / "to")


@pytest.mark.parametrize("name", ["data-1.tar.zst", "binlog.tar.zst"])
@pytest.mark.parametrize("exists", [True, False])
def test_damage_leaves_the_folder_as_it_was(backed_up: World, tmp_path: Path, name: str, exists: bool) -> None:
    to = tmp_path / "restored"
    if exists:
        (to / "lost+found").mkdir(parents=True)
    damage(backed_up, name)
    with pytest.raises(VerificationError, match=name):
        restore(copies(backed_up), to=to)
    assert to.exists() == exists
    assert files_in(tmp_path / "restored") == {}
    assert not exists or [path.name for path in to.iterdir()] == ["lost+found"]


def test_an_unfinished_backup_is_never_restored(backed_up: World, tmp_path: Path) -> None:
    (backed_up.backups / "r1" / "manifest.json").unlink()
    with pytest.raises(TargetError, match="unfinished"):
        restore(copies(backed_up), to=tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(backed_up: World, tmp_path: Path) -> None:
    to = tmp_path
    while room := max(0, PATH_MAX - len(MARKER) - len(str(to)) - 1):  # a path with no room for any name below it
        to = to / ("x" * min(200, room))
        to.mkdir()
    with pytest.raises(UsageError, match="cannot be"):
        restore(copies(backed_up), to=to)
    assert list(to.iterdir()) == []


class StoppedAtTheBeginning(DirectoryTarget):
    """SIGTERM comes when an object is asked for; nothing else comes any more."""

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)
        yield nothing()


def nothing() -> Iterator[bytes]:
    while True:
        time.sleep(0.001)
        yield b""


@pytest.mark.parametrize("exists", [True, False])
def test_a_restore_that_is_cancelled_at_once_leaves_the_folder_as_it_was(
    backed_up: World, tmp_path: Path, exists: bool
) -> None:
    to = tmp_path / "restored"
    if exists:
        to.mkdir()
    with pytest.raises(Cancelled), cancellable():
        restore(
            [BackupSource(StoppedAtTheBeginning("vault", backed_up.vault, machine=MACHINE), "nightly", "r1", BELIEVED)],
            to=to,
        )
    assert to.exists() == exists
    assert not exists or list(to.iterdir()) == []


def test_while_it_is_not_whole_the_folder_says_so(backed_up: World, tmp_path: Path) -> None:
    marked: list[bool] = []
    backed_up.at["target.reading"] = lambda: marked.append((tmp_path / "restored" / MARKER).exists())
    restore(copies(backed_up), to=tmp_path / "restored")
    assert marked == [True, True, True]  # the index too, by which it is compared before the marker goes
    assert not (tmp_path / "restored" / MARKER).exists()


def test_a_folder_without_room_is_refused_before_anything_is_read(backed_up: World, tmp_path: Path) -> None:
    manifest = backed_up.target.manifest("nightly", "r1")
    require_room(tmp_path / "to" / "be" / "made", manifest)
    free = shutil.disk_usage(tmp_path).free
    huge = replace(manifest, objects=(replace(manifest.objects[0], plain_bytes=2 * free),))
    with pytest.raises(UsageError, match="and the backup needs"):
        require_room(tmp_path / "to" / "be" / "made", huge)
