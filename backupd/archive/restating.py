"""What of a member is restored, and its header in our own words: the only ones that tar is given.

Knows: that nothing is restored by which a file would act as its owner, or as the kernel's policy: no set-id bits of
files, no `security` attribute (capabilities are one), no `trusted` one. A folder keeps its set-group-id bit, by which
new files get its group, and nobody any right. What is whose is told in numbers. Refuses to judge names (`members`).
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from backupd.archive import pax
from backupd.archive.index import Member, MemberKind, Recorded

PRIVATE = 0o700  # of the restored folder until it is whole

ATTRIBUTES = ("user.", "system.posix_acl_")  # that are restored begin so
_KINDS = {
    MemberKind.FILE: pax.HeaderType.FILE,
    MemberKind.FOLDER: pax.HeaderType.FOLDER,
    MemberKind.SYMLINK: pax.HeaderType.SYMLINK,
    MemberKind.HARD_LINK: pax.HeaderType.HARD_LINK,
}


class _Facts(NamedTuple):
    st_mode: int
    st_uid: int
    st_gid: int
    st_mtime_ns: int


def is_root(name: str) -> bool:
    """Whether a member of that name is the restored folder itself."""
    return not _within(name)


def restored_mode(recorded: Recorded) -> int:
    """The mode that it gets."""
    return recorded.mode & (0o3777 if recorded.kind is MemberKind.FOLDER else 0o1777)


def restored_attributes(recorded: Recorded) -> Mapping[str, bytes]:
    """The attributes that it gets."""
    return {name: value for name, value in recorded.xattrs.items() if name.startswith(ATTRIBUTES)}


def restated(member: Member, content: int, *, sparse: bool) -> bytes:
    """The member's header, which `content` bytes follow; `sparse`: they begin with a map of a file with holes.

    The restored folder is ours alone: others are let in once it is whole. In the folders within it others of our tars
    write at the same time: what they would inherit, and what would keep them out, is set in the end (`ondisk`).
    """
    recorded, name = member.recorded, _within(member.name)
    assert recorded.kind is not None
    facts = _Facts(restored_mode(recorded), recorded.uid, recorded.gid, recorded.mtime_ns)
    attributes = restored_attributes(recorded)
    if recorded.kind is MemberKind.FOLDER:
        facts = facts._replace(st_mode=facts.st_mode | PRIVATE)
        attributes = {each: value for each, value in attributes.items() if not each.startswith("system.")}
    if not name:
        name, facts, attributes = ".", _Facts(PRIVATE, os.geteuid(), os.getegid(), recorded.mtime_ns), {}
    return pax.Header(
        os.fsencode(name),
        _KINDS[recorded.kind],
        facts,
        size=content,
        target=os.fsencode(_within(recorded.target) if recorded.kind is MemberKind.HARD_LINK else recorded.target),
        xattrs={os.fsencode(name): value for name, value in attributes.items()},
        real_size=recorded.size if sparse else None,
    ).encoded()


def _within(name: str) -> str:
    """As it is from the restored folder on; empty for the folder itself."""
    return "/".join([part for part in name.split("/") if part not in ("", ".")])
