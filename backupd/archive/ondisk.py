"""Whether what stands on a disk is what an archive has recorded of it.

Knows: what can be different, and what a person who is not root cannot restore.

Owners and folders' set-group-id bits are root's to restore: for everybody else they are not compared. What nobody
restores (`restating`) is not compared either. A folder's time, mode and access lists are not compared but set: what is
unpacked into it beside its own archive changes its time, inherits its list, and needs to be let in. The restored folder
itself is not compared: it is ours alone until all else is as it was recorded and nothing is left to do in it, and then
it is `opened`.
"""

import os
import stat
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.archive.index import Member, MemberKind, Recorded
from backupd.archive.members import leads_outside
from backupd.archive.restating import is_root, restored_attributes, restored_mode

_LISTS = ("system.posix_acl_access", "system.posix_acl_default")
_ONE_SECOND = 10**9
_KIND_BITS = {MemberKind.FILE: stat.S_IFREG, MemberKind.FOLDER: stat.S_IFDIR, MemberKind.SYMLINK: stat.S_IFLNK}


@dataclass(frozen=True, slots=True)
class MemberDifference:
    """What one member has become."""

    name: str
    wrong: str
    only_beside: bool = False  # what it is and holds is as recorded; its mode, owner, time or attributes are not

    def __str__(self) -> str:
        return f"{self.name}: {self.wrong}"


def differences(to: Path, members: Iterable[Member]) -> Iterator[MemberDifference]:
    """Every member that does not stand in the folder as it was recorded; folders have their times afterwards.

    No link in the folder may lead out of it (`filesystem.require_no_way_out`). All of them must have been
    unpacked. A member of a kind that only a later backupd knows is passed over.
    """
    as_root = os.geteuid() == 0
    for member in members:
        if is_root(member.name):
            continue
        wrong, beside = _wrong(to, member, as_root=as_root)
        if wrong or beside:
            yield MemberDifference(member.name, ", ".join((*wrong, *beside)), only_beside=not wrong)


def opened(to: Path, recorded: Recorded) -> None:
    """The restored folder has its owner, its attributes and its mode: whoever they let in may come in, and nobody else.

    Raises:
        OSError: it cannot have them.
    """
    descriptor = os.open(to, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, recorded.uid, recorded.gid)
        wanted = restored_attributes(recorded)
        remove_lists(descriptor, but=wanted)
        os.fchmod(descriptor, restored_mode(recorded))
        for name, value in wanted.items():
            os.setxattr(descriptor, name, value)
    finally:
        os.close(descriptor)


def remove_lists(folder: int, *, but: Container[str] = ()) -> None:
    """The open folder has no access list but these: its mode alone tells who may enter, and new files inherit none.

    Raises:
        OSError: it keeps one.
    """
    for name in _names(folder):
        if name in _LISTS and name not in but:
            os.removexattr(folder, name)


def _wrong(to: Path, member: Member, *, as_root: bool) -> tuple[Sequence[str], Sequence[str]]:
    """What is wrong with what it is and holds, and what with all that is kept beside that."""
    path, recorded = os.path.join(to, member.name), member.recorded  # noqa: PTH118 - a million of them
    if leads_outside(member.name):
        return ("its name leads outside",), ()
    try:
        found = os.lstat(path)
        if recorded.kind is MemberKind.HARD_LINK:
            return tuple(_not_the_same(found, to, recorded.target)), ()
        if recorded.kind is None:
            return (), ()
        if stat.S_IFMT(found.st_mode) != _KIND_BITS[recorded.kind]:
            return (f"is no {recorded.kind}",), ()
        if recorded.kind is MemberKind.FOLDER:
            found = _set_folder(path, found, recorded)
        beside = (*_facts(found, recorded, as_root=as_root), *_attributes(path, recorded))
        return tuple(_content(path, found, recorded)), beside
    except FileNotFoundError:
        return ("is missing",), ()
    except OSError as error:
        return (), (f"cannot be read: {error.strerror}",)


def _set_folder(path: str, found: os.stat_result, recorded: Recorded) -> os.stat_result:
    """The folder has what it could not have while others wrote in it."""
    mode = restored_mode(recorded)
    if stat.S_IMODE(found.st_mode) != mode:
        os.chmod(path, mode)  # noqa: PTH101
    for name, value in restored_attributes(recorded).items():
        if name in _LISTS:
            os.setxattr(path, name, value, follow_symlinks=False)
    os.utime(path, ns=(found.st_atime_ns, recorded.mtime_ns), follow_symlinks=False)
    return os.lstat(path)


def _not_the_same(found: os.stat_result, to: Path, target: str) -> Iterator[str]:
    if not os.path.samestat(found, os.lstat(os.path.join(to, target))):  # noqa: PTH118
        yield f"is another file than {target}"


def _content(path: str, found: os.stat_result, recorded: Recorded) -> Iterator[str]:
    if recorded.kind is MemberKind.FILE and found.st_size != recorded.size:
        yield f"{found.st_size} bytes instead of {recorded.size}"
    if recorded.kind is MemberKind.SYMLINK and (target := os.readlink(path)) != recorded.target:  # noqa: PTH115
        yield f"leads to {target} instead of {recorded.target}"


def _facts(found: os.stat_result, recorded: Recorded, *, as_root: bool) -> Iterator[str]:
    bits, mode = 0o7777 if as_root else 0o1777, restored_mode(recorded)
    if recorded.kind is not MemberKind.SYMLINK and (found.st_mode ^ mode) & bits:
        yield f"mode {found.st_mode & 0o7777:04o} instead of {mode:04o}"
    if as_root and (found.st_uid, found.st_gid) != (recorded.uid, recorded.gid):
        yield f"owner {found.st_uid}:{found.st_gid} instead of {recorded.uid}:{recorded.gid}"
    if recorded.kind is not MemberKind.FOLDER and not _same_time(found.st_mtime_ns, recorded.mtime_ns):
        yield f"time {found.st_mtime_ns} ns instead of {recorded.mtime_ns}"


def _same_time(found: int, recorded: int) -> bool:
    """Some file systems keep whole seconds."""
    return found == recorded or found == recorded // _ONE_SECOND * _ONE_SECOND


def _attributes(path: str, recorded: Recorded) -> Iterator[str]:
    there = _names(path, follow_symlinks=False)
    wanted = restored_attributes(recorded)
    for name, value in wanted.items():
        if name not in there:
            yield f"attribute missing: {name}"
        elif os.getxattr(path, name, follow_symlinks=False) != value:
            yield f"another attribute {name}"
    for name in _LISTS:
        if name in there and name not in wanted:
            yield f"unexpected attribute: {name}"


def _names(of: str | int, *, follow_symlinks: bool = True) -> list[str]:
    try:
        return os.listxattr(of, follow_symlinks=follow_symlinks)
    except OSError:  # a file system that has none
        return []
