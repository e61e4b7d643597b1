"""Volume snapshots, as the stories need them. The contract; `lvm` and `mounting` implement it, `tests/fakes` too."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from backupd.command import ChildLedger
from backupd.model import CowUsage, DeviceNumber, Snapshot, SnapshotPlan, Volume, VolumeGroup

TAG = "backupd"  # on every LV of ours
RUN_TAG = "backupd.run="  # followed by the run id


class SnapshotCreator(Protocol):
    """A snapshot that is one line away: whatever could be done before the lock has been done."""

    def create(self) -> Snapshot:
        """Take it. Afterwards it exists with our tags and was seen by its device-mapper uuid.

        Raises:
            SnapshotError: it could not be confirmed; there may be something for the release of its holding to remove.
        """


class Snapshots(Protocol):
    """The volumes of a host and the snapshots that are ours."""

    def volume_at(self, device: DeviceNumber) -> Volume:
        """The LV that is this block device.

        Raises:
            SnapshotError: it is no LV, or there is a layer (LUKS, md, bcache) between.
        """

    def volume(self, vg: str, name: str) -> Volume:
        """The LV of this name, as it is now.

        Raises:
            SnapshotError: there is none.
        """

    def group(self, vg: str) -> VolumeGroup:
        """The volume group and its free extents, as they are now."""

    def prepared(
        self, plan: SnapshotPlan, ledger: ChildLedger | None = None
    ) -> AbstractContextManager[SnapshotCreator]:
        """Everything done for `create` to take milliseconds; the server has felt nothing yet.

        What it made bears our tags and is left to `remove`, whether or not `create` is called. `ledger` is told of a
        child that lives until the block's end.

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

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        """`(vg, name, run id)` of every LV that bears our tags, on the whole host; COW areas without a snapshot too."""

    def remove(self, vg: str, name: str, run_id: str) -> None:
        """Remove a snapshot or COW area of ours; nothing happens when it is gone already.

        Raises:
            SnapshotError: it bears no tag of that run (then it is not touched), or LVM failed.
        """


class Mounts(Protocol):
    """Where a snapshot's file system can be read."""

    def mount(self, snapshot: Snapshot, at: Path) -> None:
        """Mount it read-only by its device path at this folder, which is made if need be.

        Raises:
            SnapshotError: the file system is none that we know, or mount failed.
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
            SnapshotError: it cannot be looked at.
        """

    def make(self, volume: Volume, filesystem: str, *, uuid: str) -> None:
        """A file system of this uuid is on it; nothing was asked of what had been there.

        Raises:
            SnapshotError: it could not be made; there may be something for `wipe`.
        """

    def mount(self, volume: Volume, filesystem: str, at: Path) -> None:
        """Mount it to be written at this folder, which is made if need be; `Mounts.unmount` ends that.

        Raises:
            SnapshotError: mount failed.
        """

    def wipe(self, path: Path, uuid: str) -> None:
        """The device has no file system of this uuid; anything else on it is left alone, and it need not be there.

        Raises:
            SnapshotError: it could not be wiped.
        """
