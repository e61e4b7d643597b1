"""What a story works with: one field per contract, so that a test can hand in a fake and `wiring` the real thing."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backupd.claims import Claims
from backupd.holding import Releases
from backupd.model import MountPoint
from backupd.mysql import Canary, Lock, Server
from backupd.probe import WriteProbe
from backupd.snapshots import Mounts, Snapshots
from backupd.targets import Target


@dataclass(frozen=True, slots=True)
class HostFiles:
    """The host's file systems, as the kernel tells them."""

    mount_of: Callable[[Path], MountPoint]  # which mounted file system a path lies on
    sync: Callable[[Path], None]
    used_bytes: Callable[[Path], int]


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of ours on the host; none may lie on the snapshotted volume."""

    run: Path  # lock files and mount points
    staging: Path  # drills
    catalogue: Path

    def mount_point(self, run_id: str) -> Path:
        """Where a run's snapshot is mounted; known from its id alone, so that recovery needs no row."""
        return self.run / "mnt" / run_id


@dataclass(frozen=True, slots=True)
class HostTools:
    """What acts on the host whatever the job: enough to give back what a dead run left."""

    snapshots: Snapshots
    mounts: Mounts
    files: HostFiles
    places: Places
    claims: Claims
    releases: Releases


@dataclass(frozen=True, slots=True)
class Tools(HostTools):
    """Everything that acts, for one job."""

    server: Server
    lock: Lock
    canary: Canary | None
    probe: WriteProbe | None  # None: the job's gate watches the COW area only
    target: Target
