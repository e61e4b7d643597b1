"""A restore into a logical volume: whole, or as blank as before, and never on top of something."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.host.process import ChildLedger
from backupd.host.signals import cancellable
from backupd.operations.restore.into_volume import FilledVolume, needed_bytes, restore_into_volume
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    Cancelled,
    Refused,
    SnapshotError,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.records import HoldingKind
from backupd.vocabulary.storage import Backup, Manifest, StoredObject
from backupd.vocabulary.volumes import Volume
from tests.fakes.blank_volumes import FakeBlankVolumes
from tests.story.world import World
from tests.unit.test_seeding import MARIADB

MIB, GIB = 1 << 20, 1 << 30
VOLUME = "labvg/data"
DEVICE = Path("/dev/labvg/data")


class Somebody:
    """Restores the run `r1` into a volume."""

    def __init__(self, world: World) -> None:
        with world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id="r1") as run:
            run.complete((Backup("vault", "/vault/nightly/r1", bytes_read=1, bytes_stored=1, files=1, sha256=""),))
        self.world = world
        self.blanks = FakeBlankVolumes()
        world.also_released = {
            HoldingKind.MOUNT: lambda holding: self.blanks.unmount(Path(holding.name)),
            HoldingKind.FILESYSTEM: lambda holding: self.blanks.wipe(
                Path("/dev", holding.name), holding.detail["uuid"]
            ),
        }
        self.manifest = MARIADB
        self.filled: list[Path] = []

    def fill(self, folder: Path) -> None:
        """Stands for `restore`."""
        assert self.blanks.mounted == {folder: DEVICE}
        (folder / "ibdata1").write_text("restored")
        self.filled.append(folder)

    def restores(self, *, into: str = VOLUME, fill: Callable[[Path], object] | None = None) -> FilledVolume:
        with self.world.catalogue() as catalogue:
            return restore_into_volume(
                self.manifest, into, self.world.tools, self.blanks, catalogue, fill=fill or self.fill
            )

    def recovers(self) -> None:
        with self.world.catalogue() as catalogue:
            clean_up_dead_runs(catalogue, self.world.tools).require_complete()

    def held(self) -> list[HoldingKind]:
        with self.world.catalogue() as catalogue:
            return [holding.kind for _, holding in catalogue.holdings()]


@pytest.fixture
def somebody(world: World) -> Somebody:
    return Somebody(world)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data", "/data", "labvg/", "labvg/data/more", ""])
def test_what_names_no_volume_is_a_matter_of_usage(somebody: Somebody, name: str) -> None:
    with pytest.raises(UsageError, match="is not a logical volume"):
        somebody.restores(into=name)


def test_a_volume_that_is_not_there_is_answered_with_the_command_that_makes_it(somebody: Somebody) -> None:
    with pytest.raises(UsageError, match="labvg/none") as refused:
        somebody.restores(into="labvg/none")
    assert (
        refused.value.hint
        == f"make one: lvcreate --name none --size {-(-needed_bytes(somebody.manifest) // MIB)}m labvg"
    )


def test_a_volume_that_holds_something_is_left_as_it_is(somebody: Somebody) -> None:
    somebody.blanks.held[DEVICE] = "xfs"
    with pytest.raises(Refused, match="it has xfs"):
        somebody.restores()
    assert somebody.blanks.held == {DEVICE: "xfs"}
    assert somebody.filled == []
    assert somebody.held() == []


def test_the_file_system_can_have_all_the_files_of_the_backup(somebody: Somebody) -> None:
    stored = StoredObject(
        "data", plain_bytes=MIB, stored_bytes=1, plain_sha256="", stored_sha256="", files=200, frames=()
    )
    somebody.manifest = replace(somebody.manifest, objects=(stored, replace(stored, name="binlog", files=7)))
    somebody.restores()
    assert somebody.blanks.files == {DEVICE: 207}


def test_too_small_a_volume_is_refused_before_anything_is_written(somebody: Somebody) -> None:
    stored = StoredObject(
        "data", plain_bytes=GIB, stored_bytes=1, plain_sha256="", stored_sha256="", files=1, frames=()
    )
    somebody.manifest = replace(somebody.manifest, objects=(stored,))
    with pytest.raises(Refused, match=r"too small: the backup needs 1\.2 GiB, it has 600\.0 MiB") as refused:
        somebody.restores()
    assert "lvextend --size 1255m labvg/data" in refused.value.hint
    assert somebody.blanks.held == {}


def test_two_restores_of_one_run_do_not_meet(somebody: Somebody) -> None:
    with pytest.raises(Busy):
        somebody.restores(fill=lambda folder: somebody.restores())


def test_restores_of_two_runs_into_one_volume_do_not_meet(somebody: Somebody) -> None:
    """Both find it blank, until a file system is on it: the second one stands there before the first has made one."""
    make, first = somebody.blanks.make, somebody.manifest

    def beside(
        volume: Volume, filesystem: str, *, uuid: str, files: int = 0, ledger: ChildLedger | None = None
    ) -> None:
        somebody.blanks.make = make  # type: ignore[method-assign]
        somebody.manifest = replace(first, run_id="r2")
        with pytest.raises(Busy, match="the restore of run r1 into labvg/data"):
            somebody.restores()
        make(volume, filesystem, uuid=uuid, files=files, ledger=ledger)

    with somebody.world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id="r2") as run:
        run.complete((Backup("vault", "/vault/nightly/r2", bytes_read=1, bytes_stored=1, files=1, sha256=""),))
    somebody.blanks.make = beside  # type: ignore[method-assign]
    somebody.restores()
    assert len(somebody.filled) == 1


# --- what is left -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recorded", "made"), [("xfs", "xfs"), ("ext4", "ext4"), ("", "ext4")])
def test_a_filled_volume_has_the_origins_file_system_and_is_not_mounted(
    somebody: Somebody, recorded: str, made: str
) -> None:
    somebody.manifest = replace(somebody.manifest, filesystem=recorded)
    result = somebody.restores()
    assert somebody.blanks.kinds == {DEVICE: made}
    assert DEVICE in somebody.blanks.held
    assert somebody.blanks.mounted == {}
    assert somebody.held() == []
    assert result.mount_line == f"mount -t {made} /dev/labvg/data MOUNT-POINT"
    assert result.attentions == ()


@pytest.mark.parametrize("verb", ["make", "mount"])
def test_a_failure_leaves_the_volume_blank(somebody: Somebody, verb: str) -> None:
    somebody.blanks.fails = verb
    with pytest.raises(SnapshotError, match=f"{verb} failed"):
        somebody.restores()
    assert (somebody.blanks.held, somebody.blanks.mounted, somebody.held()) == ({}, {}, [])


@pytest.mark.parametrize("error", [VerificationError("damaged"), Cancelled("stop")])
def test_a_restore_that_fails_leaves_the_volume_blank(somebody: Somebody, error: BackupdError) -> None:
    def fill(folder: Path) -> None:
        somebody.fill(folder)
        raise error

    with pytest.raises(type(error)):
        somebody.restores(fill=fill)
    assert (somebody.blanks.held, somebody.blanks.mounted, somebody.held()) == ({}, {}, [])


def test_a_stop_signal_leaves_the_volume_blank(somebody: Somebody) -> None:
    with pytest.raises(Cancelled), cancellable():
        somebody.restores(fill=lambda folder: os.kill(os.getpid(), signal.SIGTERM))
    assert (somebody.blanks.held, somebody.blanks.mounted, somebody.held()) == ({}, {}, [])


def test_an_unmount_that_fails_afterwards_does_not_unmake_a_good_restore(somebody: Somebody) -> None:
    somebody.blanks.fails = "unmount"
    result = somebody.restores()
    assert "unmount failed" in result.attentions[0]
    assert DEVICE in somebody.blanks.held
    assert somebody.held() == [HoldingKind.MOUNT]
    somebody.blanks.fails = ""
    somebody.recovers()
    assert somebody.held() == []
    assert DEVICE in somebody.blanks.held


# --- after a crash ----------------------------------------------------------------------------------------------------


def dies(somebody: Somebody, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends in the middle, and no release of it runs."""
    with monkeypatch.context() as dead:
        dead.setattr("backupd.host.holdings.give_back", lambda *asked: None)
        with pytest.raises(KeyboardInterrupt):
            somebody.restores(fill=lambda folder: _gone())
    assert somebody.held() == [HoldingKind.MOUNT, HoldingKind.FILESYSTEM]
    assert DEVICE in somebody.blanks.held


def _gone() -> None:
    raise KeyboardInterrupt


def test_recovery_makes_a_half_filled_volume_blank_again(somebody: Somebody, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(somebody, monkeypatch)
    somebody.recovers()
    assert (somebody.blanks.held, somebody.blanks.mounted, somebody.held()) == ({}, {}, [])


def test_recovery_leaves_alone_what_somebody_else_has_made_there_since(
    somebody: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies(somebody, monkeypatch)
    somebody.blanks.held[DEVICE] = "theirs"
    somebody.recovers()
    assert somebody.blanks.held == {DEVICE: "theirs"}
    assert somebody.held() == []


def test_recovery_leaves_a_live_restore_alone(somebody: Somebody) -> None:
    def fill(folder: Path) -> None:
        somebody.recovers()
        somebody.fill(folder)

    somebody.restores(fill=fill)
    assert DEVICE in somebody.blanks.held


@pytest.mark.parametrize(
    ("filesystem", "plain", "files", "needed"),
    [
        ("ext4", 0, 0, 128 * MIB),
        ("xfs", 0, 0, 320 * MIB),
        ("xfs", 10 * GIB, 2000, 11 * GIB + 128 * MIB),
        ("ext4", 700 * MIB, 300_000, 700 * MIB + 300_000 * 4096 + 128 * MIB),  # a block for each is more than a tenth
    ],
)
def test_a_volume_must_hold_the_files_what_is_kept_of_them_and_a_log(
    somebody: Somebody, filesystem: str, plain: int, files: int, needed: int
) -> None:
    stored = StoredObject(
        "data", plain_bytes=plain, stored_bytes=1, plain_sha256="", stored_sha256="", files=files, frames=()
    )
    manifest: Manifest = replace(somebody.manifest, filesystem=filesystem, objects=(stored,))
    assert needed_bytes(manifest) == needed
