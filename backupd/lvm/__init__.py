"""Volumes and their snapshots, as the stories need them. The contracts, and what marks a thing as ours.

`snapshots`, `mounting`, `blank`, `scratch` and `scratch_disks` implement them, and so does `tests/fakes`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backupd.host.process import ChildLedger
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import ScratchLayout
from backupd.vocabulary.volumes import CowUsage, DeviceNumber, Snapshot, SnapshotPlan, Volume, VolumeGroup

TAG = "backupd"  # on every LV and volume group of ours
MACHINE_TAG = "backupd.machine="  # followed by the machine's name: another host may see the same volume group
RUN_TAG = "backupd.run="  # followed by the run id


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose a thing is that backupd has made on a host: a run's, of a machine."""

    machine: str
    run_id: str

    @property
    def tags(self) -> tuple[str, ...]:
        """What an LV or a volume group of that run bears."""
        return TAG, f"{MACHINE_TAG}{self.machine}", f"{RUN_TAG}{self.run_id}"

    @property
    def tag_words(self) -> tuple[str, ...]:
        """The words with which LVM tags what it makes from its first instant."""
        return tuple(word for tag in self.tags for word in ("--addtag", tag))


def mark_of_tags(tags: frozenset[str]) -> Mark | None:
    """Whose tags these are, be it this machine or another; None for what backupd has not made.

    All three must be there, and name one machine and one run only.
    """
    machines = [tag.removeprefix(MACHINE_TAG) for tag in tags if tag.startswith(MACHINE_TAG)]
    runs = [tag.removeprefix(RUN_TAG) for tag in tags if tag.startswith(RUN_TAG)]
    return Mark(machines[0], runs[0]) if TAG in tags and len(machines) == len(runs) == 1 else None


def run_of_tags(tags: frozenset[str], machine: str) -> str | None:
    """The run of this machine whose tags these are; None for anybody else's."""
    mark = mark_of_tags(tags)
    return mark.run_id if mark is not None and mark.machine == machine else None


def scratch_name(run_id: str) -> str:
    """What a run calls its group, and its array, on disks that a person named: it has one of each at a time."""
    return f"{TAG}-{run_id}"


def holding_on_disks(kind: HoldingKind, disks: tuple[str, ...], run_id: str) -> Holding:
    """A group or an array of a run on named disks, as the holding that it is; `disks_of` tells the disks again."""
    return Holding(kind, scratch_name(run_id), {"disks": " ".join(disks), "run": run_id})


def disks_of(holding: Holding) -> tuple[str, ...]:
    """The disks on which a group or an array of ours was made. No path of theirs has a blank in it."""
    return tuple(holding.detail["disks"].split())


class SnapshotCreator(Protocol):
    """A snapshot that is one line away: whatever could be done before the lock has been done."""

    def create(self) -> Snapshot:
        """Take it. Afterwards it exists with our tags and was seen by its device-mapper uuid.

        Raises:
            SnapshotError: it could not be confirmed; there may be something for the release of its holding to remove.
        """

    def settle(self, waiting: Callable[[], None]) -> None:
        """LVM has ended what `create` began: the snapshot's path is there. Nothing more is created.

        `waiting` is called meanwhile, and may raise: LVM can hang, and the snapshot exists. The end of `prepared` waits
        for it too, but where nobody watches the snapshot and nobody can cancel.
        """


class Snapshots(Protocol):
    """The volumes of a host and the snapshots that are ours."""

    def volume_at(self, device: DeviceNumber) -> Volume:
        """The LV that is this block device.

        Raises:
            SnapshotError: it is no LV, or there is a layer (LUKS, md, bcache) between.
        """

    def volume_and_group_at(self, device: DeviceNumber) -> tuple[Volume, VolumeGroup]:
        """The LV that is this block device, and its group with the free extents, both as they are now.

        Raises:
            SnapshotError: as with `volume_at` and `group`.
        """

    def volume(self, vg: str, name: str) -> Volume:
        """The LV of this name, as it is now.

        Raises:
            SnapshotError: there is none.
        """

    def group(self, vg: str, *, promptly: bool = False) -> VolumeGroup:
        """The volume group and its free extents, as they are now; `promptly` within seconds or not at all.

        Raises:
            SnapshotError: there is no such group, or it could not be asked; promptly: another command holds it.
        """

    def prepared(
        self, plan: SnapshotPlan, ledger: ChildLedger | None = None
    ) -> AbstractContextManager[SnapshotCreator]:
        """Everything done for `create` to take milliseconds; the server has felt nothing yet.

        What it made bears our tags and is left to `remove`, whether or not `create` is called. `ledger` is told of
        LVM's programs: of one that lives until the block's end, too.

        Raises:
            SnapshotError: it is refused; there may be something for `remove`.
        """

    def usage(self, snapshot: Snapshot) -> CowUsage:
        """How full the COW area is, or the pool of a thin snapshot; asks the kernel, so it may be called every second.

        It is not intact either where the pool gives out: nothing is wrong with what was read, but the run must end.
        """

    def require_intact(self, snapshot: Snapshot) -> CowUsage:
        """Prove that what was read so far was the snapshot.

        Raises:
            SnapshotVoid: it overflowed, failed, or is gone, or its pool gives out.
        """

    def extend(self, snapshot: Snapshot, extents: int, pvs: tuple[str, ...] = (), *, stripes: int = 1) -> None:
        """The COW area of a live snapshot has so many extents more, on these PVs or anywhere, in so many stripes.

        `extents` is a multiple of the stripes. The stripes of what was there before do not matter.

        The origin's writes stand still for the moment that LVM needs for it. A group that another command holds is
        waited for for seconds only.

        Raises:
            SnapshotError: the snapshot is thin, gone, or none of ours; or LVM would not. It is as large as before then.
        """

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        """`(vg, name, run id)` of every LV that bears this machine's tags; COW areas without a snapshot too.

        Nothing of another machine, which may be at work on it: a volume group can be seen by more than one host.
        """

    def remove(self, vg: str, name: str, run_id: str) -> None:
        """Remove a snapshot, COW area or scratch volume of ours; nothing happens when it is gone already.

        A scratch volume takes with it the snapshots that it has, when all of them bear tags of ours: those of a probe
        that died.

        Raises:
            SnapshotError: it has no tag of that run of this machine, or somebody else has a snapshot of it (then
                nothing is touched), or LVM failed.
        """


class Mounts(Protocol):
    """Where a snapshot's file system can be read."""

    def mount(self, snapshot: Snapshot, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """Mount it read-only by its device path at this folder, which is made if need be.

        `ledger` is told of the program: where we die, it goes on.

        Raises:
            SnapshotError: the file system is none that we know, or mount failed; there may be something for `unmount`.
        """

    def unmount(self, at: Path) -> None:
        """Unmount and remove the folder; nothing happens when neither is there.

        Raises:
            SnapshotError: it is in use; the message names by whom where that can be told.
        """


class BlankVolumes(Protocol):
    """Volumes of somebody's that hold nothing, to be filled by a restore."""

    def require_blank(self, volume: Volume) -> None:
        """Prove that nobody uses it and that nothing is on it.

        Raises:
            Refused: naming what is in the way.
            SnapshotError: it cannot be read.
        """

    def make(
        self, volume: Volume, filesystem: str, *, uuid: str, files: int = 0, ledger: ChildLedger | None = None
    ) -> None:
        """A file system of this uuid is on it, which can have so many files; nothing was asked of what had been there.

        `ledger` is told of the program: where we die, it goes on.

        Raises:
            SnapshotError: it could not be made; there may be something for `wipe`.
        """

    def mount(self, volume: Volume, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """Mount it to be written at this folder, which is made if need be; `Mounts.unmount` ends that.

        `ledger` as of `make`.

        Raises:
            SnapshotError: mount failed; there may be something for `Mounts.unmount`.
        """

    def wipe(self, path: Path, uuid: str) -> None:
        """The device has no file system of this uuid; anything else on it is left alone, and it need not be there.

        Raises:
            SnapshotError: it could not be wiped.
        """


class ScratchVolumes(Protocol):
    """Volumes that hold nothing but a bench's own file, in the free extents of a group: nothing there is touched.

    They bear the tags of a run as its snapshots do; `Snapshots.ours` names them, and `Snapshots.remove` removes them.
    A `ledger` is told of the program that does it: where we die, it goes on.
    """

    def require_unused(self, vg: str, name: str) -> None:
        """Nothing in the group has this name.

        Raises:
            Refused: something has: it is not ours to replace.
        """

    def create(
        self,
        vg: str,
        name: str,
        layout: ScratchLayout,
        *,
        size: int,
        run_id: str,
        ledger: ChildLedger | None = None,
    ) -> Path:
        """An LV of this layout is there, with our tags, and nothing of what had been on its extents shows.

        Returns its device. `size` is bytes: whole extents on each stripe.

        Raises:
            SnapshotError: LVM would not; there may be something for `Snapshots.remove`.
        """

    def format(
        self, device: Path, layout: ScratchLayout, filesystem: str, *, ledger: ChildLedger | None = None
    ) -> None:
        """A file system is on it, aligned to the layout's stripes.

        Raises:
            SnapshotError: it could not be made.
        """

    def mount(self, device: Path, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """It is mounted at this folder, which is made if need be; `Mounts.unmount` ends that.

        Raises:
            SnapshotError: mount failed; there may be something for `Mounts.unmount`.
        """


class ScratchDisks(Protocol):
    """Whole disks that a person named, and that must be empty: groups and arrays on them, and none afterwards.

    Both say on each disk which machine's they are and which run's. So what another host made on disks that both see is
    left alone, and what a dead run of ours left is found by that, whatever the disks are called by then: `disks` of the
    removals are those that were named, and are looked at last, to prove that nothing is left.
    """

    def require_distinct(self, disks: tuple[str, ...]) -> None:
        """No two of these paths lead to the same disk.

        Raises:
            Refused: naming two that do.
        """

    def require_empty(self, disk: Path, *, overwrite_leftovers: bool = False) -> int:
        """Prove that nobody uses the disk and that nothing is on it; its size in bytes.

        `overwrite_leftovers`: data in no known format may be there. What makes a group or an array asks for no more.

        Raises:
            Refused: naming what is in the way: a signature, data, a mount, a holder, a partition, no block device.
            SnapshotError: it cannot be read.
        """

    def make_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        """A volume group of this name and our tags is on the disks.

        Raises:
            Refused: there is a group of this name already, a disk is not empty, or the run's id is none for a disk.
            SnapshotError: LVM would not; there may be something for `remove_group`.
        """

    def remove_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        """The group is gone and the disks are no PVs of ours any more: they are empty as before.

        Nothing happens when that was so; what is not ours on them is left alone.

        Raises:
            SnapshotError: the group on these disks has no tag of that run, holds a volume that bears none, or LVM
                failed.
        """

    def make_array(self, name: str, layout: ScratchLayout, run_id: str) -> Path:
        """A RAID-0 of the layout's disks and stripe size runs, and nothing of what had been on them shows; its device.

        `name` is `scratch_name(run_id)`: an array has no room for more.

        Raises:
            Refused: there is an array of this name already, a disk is not empty, or the run's id is none for a disk.
            SnapshotError: mdadm is missing or would not; there may be something for `remove_array`.
        """

    def remove_array(self, name: str, disks: tuple[str, ...], run_id: str) -> None:
        """The array is stopped and its disks are empty as before; nothing happens when that was so.

        Raises:
            SnapshotError: it is in use, or mdadm failed. What is not that run's is left alone.
        """

    def ours(self) -> tuple[tuple[Holding, str], ...]:
        """Every group and array on this host that bears our marks, as the holding that it is, with its run's id.

        Remains of one too: a disk that was marked for a group that was never made, an array that does not run.
        """
