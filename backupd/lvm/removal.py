"""Removing a volume of ours, and what must be true of it: it bears our mark, and nobody else's snapshot goes with it.

Knows: the commands, and whose a volume is by its tags. It does not decide when to try again.
"""

import re
from collections.abc import Sequence

from backupd.lvm import Mark, report
from backupd.lvm.report import WITHOUT_COMMAND_LOG
from backupd.vocabulary.errors import SnapshotError

_TAG = re.compile(r"[A-Za-z0-9_+.\-/=!:&#]+")  # lvm(8): what a tag may have; no quotes, so it can be quoted as it is


def remove_argv(vg: str, name: str) -> list[str]:
    """The command that removes an LV, and first its classic snapshots, which are nothing without it.

    It also writes the metadata backup that taking the snapshot left out.
    """
    return ["lvremove", "-y", "--config", f"activation/monitoring=0 log/silent=0 {WITHOUT_COMMAND_LOG}", f"{vg}/{name}"]


def chosen_removal_argv(vg: str, name: str, mark: Mark) -> list[str]:
    """The same if the LV bears the tags of that mark, no others, and no snapshot of it is there; nothing otherwise.

    LVM looks and removes under one lock of the group. `[…]` is a list of whole tags, all of them and none besides.

    Raises:
        SnapshotError: LVM has no tags with such letters, so that nothing bears them.
    """
    if not all(map(_TAG.fullmatch, mark.tags)):
        raise SnapshotError(f"{vg}/{name} has no tag of run {mark.run_id}, so it is not removed")
    tags = ",".join(f'"{tag}"' for tag in mark.tags)
    *head, full_name = remove_argv(vg, name)
    return [*head, "--select", f'lv_tags=[{tags}] && lv_role!="origin"', full_name]


def is_ours(there: Sequence[report.TaggedVolume], vg: str, name: str, mark: Mark) -> bool:
    """Whether the LV is there, and it and what would go with it are ours: it bears the tags of this machine's run.

    `there` are all of the group, as they are now.

    Raises:
        SnapshotError: it is there and does not, or somebody has a snapshot of it that bears no tags of this machine's.
    """
    wanted = next((lv for lv in there if lv.name == name), None)
    if wanted is None:
        return False
    if wanted.mark is not None and wanted.mark.machine != mark.machine:
        raise SnapshotError(
            f"{vg}/{name} is tagged by machine {wanted.mark.machine}, this is {mark.machine}: it is not removed",
            hint="that machine may be using it; if this one replaces it: `backupd identity adopt"
            f" {wanted.mark.machine}`, then `backupd recover`; if nobody needs it: lvremove {vg}/{name}",
        )
    if wanted.mark != mark:
        raise SnapshotError(
            f"{vg}/{name} has no tag of run {mark.run_id}, so it is not removed",
            hint=f"if it is yours to remove: lvs -o +tags {vg}/{name}; lvremove {vg}/{name}",
        )
    ours = [lv.name for lv in there if lv.mark is not None and lv.mark.machine == mark.machine]
    foreign = [lv.name for lv in there if lv.origin == name and lv.name not in ours]
    if foreign:
        raise SnapshotError(
            f"{vg}/{name} is not removed, because it has a snapshot: {', '.join(foreign)}",
            hint=f"if nobody needs it: lvremove {vg}/{foreign[0]}; then: backupd recover",
        )
    return True
