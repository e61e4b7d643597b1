"""More room for a snapshot that is being used: its COW area is extended where its volume group has room.

Knows: what there is room for, on the PVs that the job allows.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from backupd.lvm import Snapshots
from backupd.policy.snapshot_plan import complete_cow_bytes, further_extents
from backupd.vocabulary.volumes import Snapshot, SnapshotPlan, VolumeGroup

log = logging.getLogger(__name__)

_MIB = 1 << 20


def further_bytes(plan: SnapshotPlan, group: VolumeGroup) -> int:
    """By how much the COW area can be extended at most; `group` is as it was before the snapshot."""
    linear = replace(plan, striped_over=())  # a striped one goes on as a linear one where that gives more
    complete = complete_cow_bytes(plan.origin.size, plan.chunk_size)
    return max(0, further_extents(linear, group, total=0, wanted=complete).extents - plan.extents) * group.extent_size


def extension(snapshots: Snapshots, snapshot: Snapshot, plan: SnapshotPlan) -> Callable[[int, int], int]:
    """A function of how large the COW area is and how large it should be: extends it, and says by how many bytes.

    0 where there is no room for more, or the area holds a complete copy already. It raises a SnapshotError where LVM
    would not; the area is as large as before then.
    """

    def extend(total: int, wanted: int) -> int:
        group = snapshots.group(snapshot.origin.vg, promptly=True)
        further = further_extents(plan, group, total=total, wanted=wanted)
        if not further.extents:
            return 0
        snapshots.extend(snapshot, further.extents, further.pvs, stripes=further.stripes)
        added = further.extents * group.extent_size
        log.info("the COW area was filling up: extended by %d MiB to %d MiB", added // _MIB, (total + added) // _MIB)
        return added

    return extend
