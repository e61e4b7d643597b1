"""A snapshot's file system made readable, and which mounted file system a path is on.

Knows: mount options, who keeps a mount busy.

A volume that is ours to fill is mounted to be written. Every snapshot is mounted read-only by its device path (its
UUID is the origin's too), and its log is replayed: the LV itself is writable, so XFS and ext4 can, and the writes go
into the COW area. Only where an XFS image itself shows that there is nothing to replay is that left out (`xfs_log`): to
find that out, a mount may read for seconds. The kernel's log then says that the file system "will be inconsistent",
as it does of every mount without replay. (Measured on 600 MiB under load, 64 KiB chunks, kernel 6.1: a mount fills 3.1
MiB of the COW area with replay, 0.9 MiB without.)
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from backupd.host import process as programs
from backupd.host.mountinfo import Mounted, covering, mounts
from backupd.host.own_files import private_folder
from backupd.host.process import ChildLedger
from backupd.lvm.snapshots import active_volume
from backupd.lvm.xfs_log import needs_no_replay
from backupd.vocabulary.errors import CommandError, SnapshotError
from backupd.vocabulary.volumes import DeviceNumber, MountPoint, Snapshot

log = logging.getLogger(__name__)

# Unbindable: a container that is given `/` or `/run` while a volume is mounted would take a mount of its own along
# (Docker binds recursively and privately), which no umount of ours ends, and LVM would not remove the volume.
_OPTIONS = "ro,nodev,nosuid,noexec,noatime,unbindable"
_OPTIONS_TO_WRITE = "rw,nodev,nosuid,noexec,unbindable"
_WITHOUT_REPLAY = ",norecovery"  # XFS's; ext4's log takes no walk to find its end
# XFS refuses a second file system of the same UUID. An ext4 may say in its superblock that the kernel is to panic at an
# error (tune2fs -e panic), and a snapshot that has overflowed gives nothing but errors.
_EXTRA = {"xfs": ",nouuid", "ext4": ",errors=remount-ro"}
FILESYSTEMS = tuple(_EXTRA)
_ELSEWHERE = ("logdev=", "rtdev=")  # of XFS: its log, or files of it, are on another device (xfs(5))
_EXT4_AT, _EXT4_BYTES, _EXT4_MAGIC, _HAS_JOURNAL = 1024, 1024, 0xEF53, 0x4  # the superblock of ext4
_DEVICES = Path("/dev/block")
_PAUSE_SECONDS = 0.25
_SECONDS = 120.0  # a log replay reads from a disk that is at work
_PROCESSES = Path("/proc")
_FIRST_PROCESS = 1


class LinuxMounts:
    """Mounts of this host. Implements the contract `Mounts`.

    Who looks at a mount for a moment (a monitoring program, an indexer) is waited for, `patience_seconds` at the most.
    Nothing is unmounted lazily: it would seem gone, and still keep the snapshot busy.
    """

    def __init__(self, *, patience_seconds: float = 30.0) -> None:
        self._patience_seconds = patience_seconds

    def mount(self, snapshot: Snapshot, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """Mount it read-only at a folder, which is made if need be.

        Nobody else can enter the folder above, whatever the modes of the files in the snapshot. Where this fails it may
        be mounted all the same: mount(8) ends with status 16 when it has mounted, and could not write that down.
        """
        kind = _filesystem_of(snapshot)
        _make_place(at)
        try:
            replay = kind != "xfs" or not needs_no_replay(snapshot.path, snapshot.origin.device)
            argv = mount_argv(snapshot.path, at, filesystem=kind, replay=replay)
            programs.run(argv, timeout_seconds=_SECONDS, must_finish=True, ledger=ledger)
        except CommandError as error:
            raise SnapshotError(
                f"snapshot {snapshot.full_name} could not be mounted: {error.message}",
                hint="check the kernel log: dmesg",
            ) from error

    def unmount(self, at: Path) -> None:
        """Unmount what is there and remove the folder; neither need be there. Files in the folder are not touched."""
        deadline, told = time.monotonic() + self._patience_seconds, False
        while any(mounted.path == _resolved(at) for mounted in mounts()):
            try:
                programs.run(["umount", "--", str(at)], timeout_seconds=_SECONDS, must_finish=True)
            except CommandError as error:
                if "busy" not in error.message or time.monotonic() > deadline:
                    raise _busy(at, error) from error
                if not told:
                    log.info("%s, waiting for up to %g s", _busy(at, error).message, self._patience_seconds)
                told = True
                time.sleep(_PAUSE_SECONDS)
        try:
            at.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            raise SnapshotError(
                f"{at} is not mounted, but could not be removed: {error.strerror}",
                hint="something else put files there; check them, then remove the folder",
            ) from error


def mount_to_write(device: Path, filesystem: str, at: Path, *, called: str, ledger: ChildLedger | None = None) -> None:
    """A volume is mounted to be written, by us alone, at a folder that is made if need be; `unmount` ends that.

    `called` is the volume's name for a person.

    Raises:
        SnapshotError: mount failed; there may be something for `unmount`.
    """
    _make_place(at)
    argv = ["mount", "-t", filesystem, "-o", _OPTIONS_TO_WRITE, "--", str(device), str(at)]
    try:
        programs.run(argv, timeout_seconds=_SECONDS, must_finish=True, ledger=ledger)
    except CommandError as error:
        raise SnapshotError(
            f"{called} could not be mounted: {error.message}", hint="check the kernel log: dmesg"
        ) from error


def _make_place(at: Path) -> None:
    """The folder is there, in one that only we may enter: what is mounted brings modes of its own.

    Raises:
        SnapshotError: it cannot be made, or the one above is somebody else's.
    """
    try:
        private_folder(at.parent)
        at.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SnapshotError(
            f"{at} cannot be created as a mount point: {error.strerror}",
            hint=f"check {at.parent} (paths.run in the configuration)",
        ) from error


def mount_of(path: Path) -> MountPoint:
    """The mounted file system that a path is on, with its device as `stat` gives it.

    Raises:
        SnapshotError: the path does not exist, or nobody may look at it.
    """
    device, mounted = _mounted_above(path, mounts())
    return MountPoint(mounted.path, device, mounted.filesystem, PurePosixPath(mounted.root), _elsewhere(mounted))


def is_read_only_on_host(path: Path) -> bool:
    """Whether nobody can write where a path is, by the mounts of process 1: those that systemd gives to its services.

    A service's own may all be read-only (`ProtectSystem=strict`), and statvfs tells that of a file system which others
    write to. Its superblock alone would not tell of a bind mount that is read-only for everybody.

    Raises:
        SnapshotError: the path does not exist, or nobody may look at it.
        OSError: nobody may look at process 1.
    """
    return _mounted_above(path, mounts(_FIRST_PROCESS))[1].read_only


def _mounted_above(path: Path, mounted: Sequence[Mounted]) -> tuple[DeviceNumber, Mounted]:
    """The device of a path as `stat` gives it, and on which of these mounts the path is."""
    try:
        number = os.stat(path).st_dev  # noqa: PTH116 (follows links, as the server does)
        real = path.resolve()
    except OSError as error:
        raise SnapshotError(f"cannot read {path}: {error.strerror}") from error
    device = DeviceNumber(os.major(number), os.minor(number))
    found = covering(real, mounted, device=device)  # btrfs shows another number in mountinfo than in stat
    if found is None:
        raise SnapshotError(f"{path} is on no file system listed in mountinfo")
    return device, found


def _elsewhere(mounted: Mounted) -> tuple[str, ...]:
    """What of the file system is on another device. XFS says so by its options, ext4 in its superblock alone."""
    if mounted.filesystem == "ext4" and _has_outer_journal(_DEVICES / str(mounted.device)):
        return ("external journal",)
    return tuple(option for option in mounted.options if option.startswith(_ELSEWHERE))


def _has_outer_journal(device: Path) -> bool:
    """Whether an ext4 has a journal and no inode for it. The kernel opens such a one for one file system at a time.

    Of what cannot be read the answer is no.
    """
    try:
        with device.open("rb", buffering=0) as file:
            block = os.pread(file.fileno(), _EXT4_BYTES, _EXT4_AT)
    except OSError:
        return False
    magic, features, inode = (
        int.from_bytes(block[at : at + size], "little") for at, size in ((0x38, 2), (0x5C, 4), (0xE0, 4))
    )
    return magic == _EXT4_MAGIC and bool(features & _HAS_JOURNAL) and inode == 0


def mounted_volume(name: str) -> MountPoint:
    """Where this volume, VG/LV, is mounted.

    Raises:
        SnapshotError: there is no such volume, or it is not mounted.
    """
    vg, _, lv = name.partition("/")
    device = active_volume(vg, lv).device
    for mounted in mounts():
        if mounted.device == device:
            return MountPoint(mounted.path, device, mounted.filesystem, PurePosixPath(mounted.root))
    raise SnapshotError(f"{name} is not mounted", hint="the probe's file is on its file system: mount it")


def mounts_below(folder: Path) -> tuple[Path, ...]:
    """Where something is mounted within a (resolved) folder, by the kernel's own list: a device need not differ."""
    return tuple(m.path for m in mounts() if m.path != folder and m.path.is_relative_to(folder))


def own_roots(ours: Path) -> tuple[Path, ...]:
    """Where a probe folder can be: on no network file system, which may hang, and not on a snapshot that we mounted."""
    found = (mounted.path for mounted in mounts() if mounted.filesystem in FILESYSTEMS)
    return tuple(path for path in found if not path.is_relative_to(ours))


def mount_argv(device: Path, at: Path, *, filesystem: str, replay: bool = True) -> list[str]:
    """The command that mounts a snapshot; `replay` False only for an XFS that needs none."""
    options = _OPTIONS + _EXTRA[filesystem] + ("" if replay else _WITHOUT_REPLAY)
    return ["mount", "-t", filesystem, "-o", options, "--", str(device), str(at)]


def _filesystem_of(snapshot: Snapshot) -> str:
    """The type of the file system on a snapshot, once its path is known to lead to it: its origin's, as it is mounted.

    To ask the snapshot itself takes another program and a dozen reads, half a second on a busy disk for which the
    server pays; and a type that has become wrong since is refused by mount.
    """
    try:
        number = snapshot.path.stat().st_rdev
    except OSError as error:
        raise SnapshotError(f"snapshot {snapshot.full_name} could not be read: {error}") from error
    if DeviceNumber(os.major(number), os.minor(number)) != snapshot.device:
        raise SnapshotError(f"{snapshot.path} does not point to snapshot {snapshot.full_name}", hint="see `dmsetup ls`")
    found = next((one.filesystem for one in mounts() if one.device == snapshot.origin.device), None)
    if found is None:
        raise SnapshotError(
            f"{snapshot.origin.full_name} is no longer mounted",
            hint="it was unmounted after its snapshot was taken: mount it, and run the job again",
        )
    if found not in _EXTRA:
        raise SnapshotError(
            f"snapshot {snapshot.full_name} holds {found}",
            hint=f"backupd can mount {' and '.join(_EXTRA)} directly on a logical volume",
        )
    return found


def _resolved(at: Path) -> Path:
    """As mountinfo writes it; the last component is no link, because we made it a folder."""
    return at.parent.resolve() / at.name


def _busy(at: Path, error: CommandError) -> SnapshotError:
    holders = [f"{pid} ({name})" for pid, name in _holders(at)]
    by_whom = f"; in use by process {', '.join(holders)}" if holders else ""
    return SnapshotError(
        f"{at} could not be unmounted: {error.message}{by_whom}",
        hint=f"stop what uses it, then: umount {at}",
    )


def _holders(at: Path) -> Iterator[tuple[int, str]]:
    """Processes with an open file, working folder or root on the mount, as far as we may look at them."""
    inside = {str(at), str(_resolved(at))}
    for process in _PROCESSES.glob("[0-9]*"):
        if any(_is_inside(link, inside) for link in (process / "cwd", process / "root", *_open_files(process))):
            try:
                yield int(process.name), (process / "comm").read_text(errors="replace").strip()
            except OSError:
                continue


def _open_files(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def _is_inside(link: Path, folders: set[str]) -> bool:
    try:
        target = os.readlink(link)  # noqa: PTH115 (a deleted file's target is no path)
    except OSError:
        return False
    return any(target == folder or target.startswith(f"{folder}/") for folder in folders)
