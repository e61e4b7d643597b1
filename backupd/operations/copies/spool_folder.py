"""The spool's folder: whether a run may put what it reads there, and how much.

Knows: what makes a folder safe for the plain data of a server, that some room is left to others, which disks it must
not share and which it had better not, that a disk which is not mounted has given nothing back.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backupd.archive.spool import Spool, spool_error
from backupd.config import CopyConfig
from backupd.host.filesystem import existing, identity, remove_tree
from backupd.host.holdings import HoldingJournal, held, not_waiting_for_ever
from backupd.mysql import KEYS
from backupd.operations.findings import HOST_FAULTS, ok, reason
from backupd.operations.tools import HostTools
from backupd.report.words import size
from backupd.targets import Target
from backupd.vocabulary.errors import CleanupIncomplete, SpoolError
from backupd.vocabulary.records import Finding, Holding, HoldingKind, Level
from backupd.vocabulary.servers import DataPath
from backupd.vocabulary.volumes import DeviceNumber, MountPoint, Volume

_LEFT_BYTES, _LEFT_SHARE = 1 << 30, 10  # a tenth of the file system, at least a gibibyte, is left to others
_OWNER_S = stat.S_IRWXU
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_USEFUL_BYTES = 16 << 20


@contextmanager
def spool_of(
    copy: CopyConfig, tools: HostTools, journal: HoldingJournal, *, machine: str, run_id: str
) -> Iterator[Spool | None]:
    """A run's part of the spool for the length of the block; None where the job has none.

    Its folder is this user's alone, entered before it is made, and removed with all that is in it. Where its disk does
    not let it be made nothing is spooled, and the spool's `trouble` says why.

    Raises:
        SpoolError: it is not safe.
    """
    if copy.spool is None:
        yield None
        return
    root = copy.spool
    folder = tools.places.spool_folder(root, machine, run_id)
    spool = Spool(folder, size=copy.spool_size, room=lambda: _room(root, tools))
    with ExitStack() as owed:
        try:
            _require_safe(root)
            holding = Holding(HoldingKind.SPOOL, str(folder), {"run": run_id, "root": _known_by(root)})
            release = not_waiting_for_ever(tools.releases[HoldingKind.SPOOL], where=f"the spool {root}")
            owed.enter_context(held(journal, holding, {**tools.releases, HoldingKind.SPOOL: release}))
            folder.mkdir(mode=0o700)
        except OSError as error:
            spool.close(spool_error(error, "used"))
        yield spool


def remove(holding: Holding) -> None:
    """A run's folder is gone with all that is in it; nothing happens when it was.

    Raises:
        CleanupIncomplete: something in it could not be removed, or nobody can tell, as its disk is not mounted.
    """
    folder = Path(holding.name)
    try:
        if not _is_there(folder) and not _is_there(folder.parent, known_by=holding.detail["root"]):
            raise CleanupIncomplete(
                f"{folder} may still be there: the spool's file system is not mounted",
                hint=f"mount it on {folder.parent}, then `backupd recover`",
            )
    except OSError as error:
        message = f"{folder} cannot be read: {error.strerror}"
        raise CleanupIncomplete(message, hint="repair the spool's disk, then `backupd recover`") from error
    remove_tree(folder)


def left_by(tools: HostTools, machine: str, root: Path) -> Iterator[tuple[Holding, str]]:
    """What runs of this machine, of live ones and dead ones, have read and not sent yet, each with its run's id.

    Raises:
        OSError: nobody can tell.
    """
    for run_id, folder in tools.places.spooled(root, machine):
        yield Holding(HoldingKind.SPOOL, str(folder), {"run": run_id, "root": _known_by(root)}), run_id


def examine(
    copy: CopyConfig,
    tools: HostTools,
    targets: Sequence[Target],
    *,
    mount: MountPoint,
    volume: Volume,
    paths: Sequence[DataPath],
) -> Iterator[Finding]:
    """Whether a run could use the spool, and whether it has room for what is on `volume`, which is mounted there.

    `paths` is where the server's files are, the live ones outside of the volume as well.
    """
    if copy.spool is None:
        return
    root = copy.spool
    try:
        _require_safe(root)
        there = tools.files.mount_of(root)
        shared = tuple(_of_place(root, there, tools, targets, mount=mount, volume=volume, paths=paths))
        yield from shared or [_of_room(copy, tools, used=tools.files.used_bytes(mount.path))]
    except SpoolError as error:
        yield Finding("spool", Level.REFUSED, error.message, error.hint)
    except (OSError, *HOST_FAULTS) as error:
        yield Finding(
            "spool",
            Level.WARNING,
            f"{root} cannot be used ({reason(error)}): everything would be streamed, as without a spool",
            "check its disk, or remove copy.spool",
        )


def _of_place(
    root: Path,
    there: MountPoint,
    tools: HostTools,
    targets: Sequence[Target],
    *,
    mount: MountPoint,
    volume: Volume,
    paths: Sequence[DataPath],
) -> Iterator[Finding]:
    """Whose disks it shares.

    Raises:
        SpoolError: the server's: with them it stands still when the spool fills up, or hangs.
    """
    elsewhere = "move it to other disks, or remove copy.spool"
    if there.device == mount.device:
        raise SpoolError(f"{root} is on the volume that is snapshotted ({volume.full_name})", hint=elsewhere)
    for path in paths:
        if path.role != KEYS and tools.files.mount_of(path.path).device == there.device:
            whose = f"the server's {path.role} ({path.path})"
            raise SpoolError(f"{root} is on the file system of {whose}", hint=elsewhere)
    for target in targets:
        if target.folder and _device_of(target.folder, tools) == there.device:
            shares = (
                f"{root} is on the file system of target {target.name}, which reads and writes while backups are sent"
            )
            yield Finding("spool", Level.WARNING, shares, "move it to other disks")
    shared = _shared_disks(tools, there, volume)
    if shared:
        yield Finding(
            "spool",
            Level.WARNING,
            f"{root} shares {', '.join(shared)} with {volume.full_name}: writing there slows down the server",
            "move it to other disks",
        )


def _device_of(folder: Path, tools: HostTools) -> DeviceNumber | None:
    """None where nobody can look: the target's own finding says why."""
    try:
        return tools.files.mount_of(existing(folder)).device
    except (OSError, *HOST_FAULTS):
        return None


def _of_room(copy: CopyConfig, tools: HostTools, *, used: int) -> Finding:
    assert copy.spool is not None
    room = _room(copy.spool, tools)
    room = room if copy.spool_size is None else min(room, copy.spool_size)
    if room < _USEFUL_BYTES:
        hint = "free some space there, or remove copy.spool"
        full = f"{copy.spool} has no free space: everything would be streamed, as without a spool"
        return Finding("spool", Level.WARNING, full, hint)
    if room < used:
        rest = f"{size(room)} of at most {size(used)} fit: the rest is streamed while the snapshot exists"
        return ok("spool", f"{copy.spool}, {rest}")
    return ok("spool", f"{copy.spool}, {size(room)} available, at most {size(used)} needed")


def _room(root: Path, tools: HostTools) -> int:
    """Bytes beyond those that are left to others; less than 0 where others have not even these."""
    found = tools.files.room(root)
    return 0 if found.read_only else found.free - max(_LEFT_BYTES, found.total // _LEFT_SHARE)


def _shared_disks(tools: HostTools, there: MountPoint, volume: Volume) -> list[str]:
    """PVs that the spool's file system is on as well; what is no logical volume is not known to share any."""
    try:
        other = tools.snapshots.volume_at(there.device)
    except HOST_FAULTS:
        return []
    return sorted({*volume.devices} & {*other.devices})


def _require_safe(root: Path) -> None:
    """It is there, and nobody else can put anything there, or something else in its place.

    Raises:
        SpoolError: it is not there, a link or no folder, another user's, or others may write to it, or we may not.
        OSError: nobody may look at it, or its disk failed.
    """
    try:
        found = root.lstat()
    except FileNotFoundError:
        raise SpoolError(
            f"{root} does not exist: is its file system not mounted?",
            hint=f"mount it, or make the folder: install --directory --mode 0700 {root}",
        ) from None
    if stat.S_ISLNK(found.st_mode):
        raise SpoolError(f"{root} is a symbolic link", hint="name the folder itself in copy.spool")
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolError(f"{root} is not a folder", hint="name a folder in copy.spool")
    if found.st_uid != os.geteuid():
        raise SpoolError(f"{root} is owned by another user ({found.st_uid})", hint=f"chown {os.geteuid()} {root}")
    if found.st_mode & _OTHERS_WRITE:
        raise SpoolError(f"{root} can be written by other users", hint=f"chmod 700 {root}")
    if found.st_mode & _OWNER_S != _OWNER_S:
        raise SpoolError(f"{root} is not writable", hint=f"chmod 700 {root}")


def _known_by(root: Path) -> str:
    """By what the same folder is known again after a boot, when its disk may have another number."""
    found = identity(root)
    return f"{found.inode}.{found.generation}"


def _is_there(folder: Path, *, known_by: str | None = None) -> bool:
    """Raises OSError: nobody can tell."""
    try:
        folder.lstat()
        return known_by is None or _known_by(folder) == known_by
    except FileNotFoundError:
        return False
