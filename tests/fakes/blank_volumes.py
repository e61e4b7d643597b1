"""Volumes that a restore fills, in memory: the contract `BlankVolumes`, for stories that have no LVM.

One `FakeBlankVolumes` knows what is on each device and what is mounted where; any verb can be made to fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from backupd.host.process import ChildLedger
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.volumes import Volume


@dataclass
class FakeBlankVolumes:
    """What is on which device now; a mount point's files are those of the device."""

    held: dict[Path, str] = field(default_factory=dict)  # device -> uuid, or what somebody else has on it
    mounted: dict[Path, Path] = field(default_factory=dict)  # mount point -> device
    kinds: dict[Path, str] = field(default_factory=dict)  # device -> type of its file system
    files: dict[Path, int] = field(default_factory=dict)  # device -> how many its file system can have
    leftovers: set[Path] = field(default_factory=set)  # devices with data in no known format
    overwrite_leftovers: bool = False
    fails: str = ""  # this verb
    happened: Callable[[str], None] = lambda verb: None

    def taken(self, overwrite_leftovers: bool) -> "FakeBlankVolumes":
        """These volumes, by a person who says whether nobody needs the leftovers."""
        self.overwrite_leftovers = overwrite_leftovers
        return self

    def require_blank(self, volume: Volume) -> None:
        """Nothing is known to be on it."""
        self._called("require_blank")
        if volume.path in self.held:
            raise Refused(f"{volume.full_name} is not blank: it has {self.held[volume.path]}", hint="wipefs")
        if volume.path in self.leftovers and not self.overwrite_leftovers:
            raise Refused(f"{volume.full_name} is not blank: it has data", hint="add --overwrite-leftovers")

    def make(
        self, volume: Volume, filesystem: str, *, uuid: str, files: int = 0, ledger: ChildLedger | None = None
    ) -> None:
        """It bears this uuid, also where the rest went wrong."""
        self.held[volume.path] = uuid
        self.files[volume.path] = files
        self.kinds[volume.path] = filesystem
        self._called("make")

    def mount(self, volume: Volume, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """An empty folder."""
        self._called("mount")
        assert self.kinds[volume.path] == filesystem
        at.mkdir(parents=True)
        self.mounted[at] = volume.path

    def wipe(self, path: Path, uuid: str) -> None:
        """Only what bears this uuid, and not while it is mounted."""
        self._called("wipe")
        if self.held.get(path) == uuid:
            if path in self.mounted.values():
                raise SnapshotError(f"{path} is busy", hint="unmount it")
            del self.held[path]

    def unmount(self, at: Path) -> None:
        """What `Mounts.unmount` does; the files stay in the folder, as they stay on the device."""
        self._called("unmount")
        self.mounted.pop(at, None)

    def _called(self, verb: str) -> None:
        self.happened(verb)
        if verb == self.fails:
            raise SnapshotError(f"{verb} failed, as told")
