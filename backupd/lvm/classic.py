"""Snapshots with a COW area of their own. Implements the contract `Method`.

The COW area is made before the lock, cleared and tagged. Under it there is then one commit of LVM's metadata and no
allocation: on disks with a queue that is a fifth less than `lvcreate -s` in the same shell (lab, `hdd`).
"""

from backupd.lvm import Mark, devicemapper
from backupd.lvm.method import SETTINGS, ShellStep, live, origin_uuid, snapshot_at
from backupd.vocabulary.volumes import CowUsage, Snapshot, SnapshotPlan

REHEARSED = "converted to snapshot"


def preparing(plan: SnapshotPlan, mark: Mark) -> list[ShellStep]:
    """The COW area is there, its header cleared, since the kernel takes an old one for a snapshot's.

    And it is inactive, which spares the conversion a deactivation. LVM clears nothing that it makes inactive ("Cannot
    zero inactive logical volume", met in 2.03.16, with status 0), and says nothing when it has deactivated something.
    """
    head = ["lvcreate", "-y", "-Zy", "-Wn", "--config", SETTINGS, *mark.tag_words]
    stripes = _stripe_words(len(plan.striped_over), plan.chunk_size)
    where = plan.striped_over or plan.pvs
    made = [*head, "-l", str(plan.extents), *stripes, "-n", plan.name, plan.origin.vg, *where]
    deactivated = ["lvchange", "-an", "--config", SETTINGS, f"{plan.origin.vg}/{plan.name}"]
    device = devicemapper.lvm_name(plan.origin.vg, plan.name)
    return [
        ShellStep(made, lambda said: "created." in said),
        ShellStep(deactivated, lambda _said: devicemapper.by_name(device) is None),
    ]


def line_argv(plan: SnapshotPlan, mark: Mark, *, rehearsal: bool = False) -> list[str]:  # noqa: ARG001 - the contract's
    """The COW area becomes a snapshot. `-Zn` because it is cleared already."""
    test = ["--test"] if rehearsal else []
    head = ["lvconvert", *test, "-y", "--type", "snapshot", "-Zn", "--config", SETTINGS]
    return [*head, "-c", f"{plan.chunk_size}b", plan.origin.full_name, f"{plan.origin.vg}/{plan.name}"]


def extending_argv(snapshot: Snapshot, extents: int, pvs: tuple[str, ...], *, stripes: int) -> list[str]:
    """More extents for a COW area in use; what dmeventd does for `snapshot_autoextend_percent`.

    How many stripes is always said: LVM would go on as the last segment is, and finds no room where that has more of
    them than there are PVs (lvextend(8), `--stripes`).
    """
    head = ["lvextend", "-y", "--config", SETTINGS, "-l", f"+{extents}"]
    words = _stripe_words(stripes, snapshot.chunk_size) or ["--stripes", "1"]
    return [*head, *words, snapshot.full_name, *pvs]


def confirmed(plan: SnapshotPlan, uuid_prefix: str) -> Snapshot | None:
    """The snapshot, if its own table is a snapshot's, and its origin's is a snapshot's origin.

    LVM loads the new tables before it suspends, and the COW area was a plain volume of the same name. Neither
    counts here: only live tables are seen, both must fit, and name the same device beneath.
    """
    found = live(plan, uuid_prefix, kind="snapshot")
    origin = devicemapper.by_uuid(origin_uuid(plan, uuid_prefix), table=True)
    if found is None or found.only is None or origin is None or origin.suspended:
        return None
    beneath, _, _ = found.only.words.partition(" ")
    if origin.only is None or origin.only.kind != "snapshot-origin" or origin.only.words.strip() != beneath:
        return None
    usage = devicemapper.cow_usage(devicemapper.by_uuid(found.uuid))
    return snapshot_at(plan, found, usage.total) if usage.intact else None


def _stripe_words(stripes: int, chunk_size: int) -> list[str]:
    """None for a linear COW area. A stripe is a chunk long, so that each copied chunk is one request to one disk.

    Where that is more than an extent LVM takes an extent instead, and says so.
    """
    return ["--stripes", str(stripes), "--stripesize", f"{chunk_size >> 10}k"] if stripes > 1 else []


def usage(snapshot: Snapshot) -> CowUsage:
    """The fill of its COW area."""
    return devicemapper.cow_usage(devicemapper.by_uuid(snapshot.uuid))
