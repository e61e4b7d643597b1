"""Which PVs of today a job means that names them by path or by uuid, and why one cannot be used. Pure.

Knows: that a path goes to whichever disk the kernel finds first, while LVM's uuid stays with the PV.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from backupd.vocabulary.volumes import VolumeGroup


@dataclass(frozen=True, slots=True)
class NamedPvs:
    """The PVs of a group that some names mean."""

    paths: tuple[str, ...]  # of today, in the order of the names; of those that can be used
    gone: tuple[str, ...] = ()  # for each of the others: its name, and why


def named_pvs(names: Iterable[str], group: VolumeGroup) -> NamedPvs:
    """Each name's PV in this group. One that takes no extents, or that two devices claim to be, cannot be used."""
    paths: dict[str, None] = {}
    gone = []
    for name in names:
        found = group.named(name)
        if len(found) == 1 and found[0] in group.free_by_pv:
            paths[found[0]] = None
        else:
            gone.append(f"{name} {_why(name, found, group)}")
    return NamedPvs(tuple(paths), tuple(gone))


def _why(name: str, found: tuple[str, ...], group: VolumeGroup) -> str:
    if len(found) > 1:
        return f"is the uuid of {' and of '.join(found)}"
    if found:
        return "takes no new extents" if found[0] == name else f"({found[0]}) takes no new extents"
    return f"is missing from {group.name}" if name in group.missing else f"is not a PV of {group.name}"
