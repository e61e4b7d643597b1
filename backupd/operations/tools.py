"""What a story works with: one field per contract, so that a test can hand in a fake and `wiring` the real thing."""

import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.host.claims import Claims
from backupd.host.filesystem import share_that_stays_free
from backupd.host.holdings import Releases
from backupd.load import BenchLoad, Counters, FileProbe, SnapshotReader, WriteProbe
from backupd.lvm import Mounts, ScratchDisks, ScratchVolumes, Snapshots
from backupd.mysql import Applier, Canary, Flusher, Lock, Server, WorkCounters
from backupd.targets import Target
from backupd.vocabulary.gauges import DiskCounters, FileLoad, InFlight
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import RUN_ID, Holding
from backupd.vocabulary.scratch_layouts import Medium
from backupd.vocabulary.units import compared_sizes, rounded_size
from backupd.vocabulary.volumes import DeviceNumber, FileIdentity, MountPoint

if TYPE_CHECKING:
    from backupd.vocabulary.benches import BenchHost

_PROBE_PREFIX, _DRILL_PREFIX = ".backupd-probe-", "drill-"


@dataclass(frozen=True, slots=True)
class FilesystemRoom:
    """What a file system has left, in bytes, and whether it takes writes."""

    free: int
    total: int
    read_only: bool

    def lack_for_probe(self, size: int, at: Path) -> str:
        """Why no probe's file of so many bytes may be written there, in words; empty where it may.

        A server that runs out of room stops. A hundredth of what is free brings none any nearer to that.
        """
        stays = share_that_stays_free(self.total)
        if self.free - size >= stays or size <= self.free // 100:
            return ""
        wanted, there = compared_sizes(size, self.free)
        return (
            f"not enough space: the probe's file needs {wanted}, {at} has {there} free;"
            f" {rounded_size(stays)} must stay free"
        )


@dataclass(frozen=True, slots=True)
class HostFiles:
    """The host's file systems, as the kernel tells them."""

    mount_of: Callable[[Path], MountPoint]  # which mounted file system a path is on
    mounts_below: Callable[[Path], tuple[Path, ...]]  # where something is mounted within a folder
    identity: Callable[[Path], FileIdentity]  # raises OSError
    sync: Callable[[Path], None]
    used_bytes: Callable[[Path], int]
    room: Callable[[Path], FilesystemRoom]
    write_counters: Callable[[DeviceNumber], DiskCounters]  # what the kernel has counted of a block device
    disk_counters: Callable[[Path], DiskCounters]  # the same, of the one that a path names
    in_flight: Callable[[DeviceNumber], InFlight]  # what a block device has taken and not answered yet
    roots: Callable[[], tuple[Path, ...]] = tuple  # mount points of the file systems that a probe folder can be on
    remove_abandoned: Callable[[], tuple[Path, ...]] = tuple  # temporary folders of killed processes; raises OSError


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of ours on the host; none but the probe's may lie on the snapshotted volume."""

    run: Path  # lock files and mount points
    staging: Path  # drills
    catalogue: Path
    spools: tuple[Path, ...] = ()  # of all jobs

    @staticmethod
    def probe_folder(root: Path, run_id: str) -> Path:
        """At the root of the volume's file system: never in the archive, and no schema of the server's."""
        return root / f"{_PROBE_PREFIX}{run_id}"

    @staticmethod
    def probed_by(root: Path) -> tuple[str, ...]:
        """The runs whose probe folder is at this root, where a restored binlog or a target's objects may be, too.

        We have made it, or whoever owns the root has for us: in a `/tmp`, any user makes folders of any name. A file
        that is mounted alone, such as a container's `/etc/hosts`, holds none.

        Raises:
            OSError: nobody can tell.
        """
        try:
            return _runs_with_folders(root, _PROBE_PREFIX, {os.geteuid(), root.stat().st_uid})
        except (FileNotFoundError, NotADirectoryError):
            return ()

    @staticmethod
    def spool_folder(root: Path, machine: str, run_id: str) -> Path:
        """Where a run's objects wait; it bears the machine's name, as all does that recovery removes without a row."""
        return root / f"backupd-{machine}-{run_id}"

    @staticmethod
    def spooled(root: Path, machine: str) -> tuple[tuple[str, Path], ...]:
        """Runs of this machine whose spool folder is in this root, each with its folder; all else there is not ours.

        Raises:
            OSError: nobody can tell; no root at all holds nothing.
        """
        start = f"backupd-{machine}-"
        try:
            return tuple(
                (run_id, root / f"{start}{run_id}") for run_id in _runs_with_folders(root, start, {os.geteuid()})
            )
        except FileNotFoundError:
            return ()

    def drill_folder(self, run_id: str) -> Path:
        """Where a backup is restored for its drill."""
        return self.staging / f"{_DRILL_PREFIX}{run_id}"

    def drill_folders(self) -> tuple[Path, ...]:
        """Those that are there: of live drills, and of dead ones."""
        return tuple(self.staging.glob(f"{_DRILL_PREFIX}*"))

    def mount_point(self, run_id: str) -> Path:
        """Where a run's snapshot is mounted; known from its id alone, so that recovery needs no row."""
        return self.run / "mnt" / run_id


def _runs_with_folders(root: Path, start: str, owners: Set[int]) -> tuple[str, ...]:
    """The runs after which folders of these owners are named there, behind this `start`."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(start) and _is_folder_of(entry, owners)]
    return tuple(run_id for name in sorted(names) if RUN_ID.fullmatch(run_id := name.removeprefix(start)))


def _is_folder_of(entry: "os.DirEntry[str]", owners: Set[int]) -> bool:
    return entry.is_dir(follow_symlinks=False) and _owner(entry) in owners


def _owner(entry: "os.DirEntry[str]") -> int:
    return entry.stat(follow_symlinks=False).st_uid


@dataclass(frozen=True, slots=True)
class HostTools:
    """What acts on the host whatever the job: enough to give back what a dead run left."""

    snapshots: Snapshots
    mounts: Mounts
    files: HostFiles
    places: Places
    claims: Claims
    releases: Releases
    scratch_disks: ScratchDisks
    target_of: Callable[[Holding], Target]  # on which objects or an upload lie; raises UsageError where it is not known
    machine: Machine  # the one that this is, whatever the catalogue says
    renewal_seconds: float  # between two owner records of a live run


@dataclass(frozen=True, slots=True)
class Tools(HostTools):
    """Everything that acts, for one job."""

    server: Server
    lock: Lock
    applier: Applier | None  # None: the job lets it run
    flusher: Flusher | None  # None: the job leaves the dirty pages to the server
    canary: Canary | None
    work_counters: WorkCounters
    undisturbed_seconds: float  # for how long a run watches the server before it disturbs it
    probe: WriteProbe | None  # None: the job's gate watches the COW area only
    targets: tuple[Target, ...]  # in the job's order


@dataclass(frozen=True, slots=True)
class Versions:
    """What a figure may depend on besides the disks."""

    kernel: str
    lvm: str
    sysbench: str | None


@dataclass(frozen=True, slots=True)
class Instruments:
    """What `measure` measures with."""

    file_probe: Callable[[FileLoad], FileProbe]
    reader: SnapshotReader
    counters: Counters
    load_average: Callable[[], float]  # over the last minute
    versions: Callable[[bool], Versions]  # told whether sysbench is needed; raises CommandError where it is missing


@dataclass(frozen=True, slots=True)
class BenchTools:
    """What `bench` works with, beside what acts on the host whatever is done."""

    volumes: ScratchVolumes
    loads: Mapping[Medium, BenchLoad]
    counters: Counters
    sector_size: Callable[[Path], int]  # of a disk, bytes: the least that can be read or written past the page cache
    load_average: Callable[[], float]  # over the last minute
    host: (
        "Callable[[bool, bool], BenchHost]"  # told whether fio and mdadm are needed; raises CommandError for a missing
    )
    probing: Instruments  # of the probe on each layout
