"""Snapshots of thin volumes, in the pool of their origin. Implements the contract `Method`.

Nothing can be made before the lock: the pool shares all blocks at the instant of the snapshot, on a message that LVM
sends it while the origin is suspended. Nor does such a snapshot overflow: when the pool is full, every volume in it
stops, the server's first. So it is the pool that is watched, and a pool that gives out ends the run.
"""

from backupd.lvm import Mark, devicemapper
from backupd.lvm.method import DM_UUID_LENGTH, SETTINGS, ShellStep, live, origin_uuid, snapshot_at
from backupd.vocabulary.volumes import CowUsage, Snapshot, SnapshotPlan, ThinPool

REHEARSED = "created."

_METADATA_BRINK = 0.95  # no limit of a job's: a pool without metadata is read-only until somebody repairs it
_PREFIX_LENGTH = DM_UUID_LENGTH - 32


def preparing(plan: SnapshotPlan, mark: Mark) -> list[ShellStep]:  # noqa: ARG001 - the contract's
    """None."""
    return []


def line_argv(plan: SnapshotPlan, mark: Mark, *, rehearsal: bool = False) -> list[str]:
    """The snapshot is made and activated now (`-K`), and by nobody later: it keeps the flag that says so.

    After a reboot a second file system of the origin's UUID would otherwise lie about until `recover` comes.
    """
    test = ["--test"] if rehearsal else []
    head = ["lvcreate", *test, "-y", "-s", "-ay", "-K", "--config", SETTINGS, *mark.tag_words]
    return [*head, "-n", plan.name, plan.origin.full_name, *plan.pvs]


def confirmed(plan: SnapshotPlan, uuid_prefix: str) -> Snapshot | None:
    """The snapshot, if it is a live volume of the pool that its origin, which runs again, is another volume of.

    LVM makes its device only after the origin was resumed, and the origin is resumed after the pool obeyed.
    """
    found = live(plan, uuid_prefix, kind="thin")
    origin = devicemapper.by_uuid(origin_uuid(plan, uuid_prefix), table=True)
    if found is None or found.only is None or origin is None or origin.suspended:
        return None
    if origin.only is None or origin.only.kind != "thin":
        return None
    pool, number, *_ = found.only.words.split()  # dm-thin.c, `thin_status`: the pool's device, the volume's number
    origins_pool, origins_number, *_ = origin.only.words.split()
    if pool != origins_pool or number == origins_number:
        return None
    snapshot = snapshot_at(plan, found, plan.size)
    return snapshot if usage(snapshot).intact else None


def usage(snapshot: Snapshot) -> CowUsage:
    """The fill of its pool. Two questions to the kernel: whether it is there, and how full the pool is."""
    device = devicemapper.by_uuid(snapshot.uuid)
    if device is None:
        return CowUsage(intact=False, state="gone")
    target = device.only
    if target is None or target.kind != "thin" or target.words.strip() in ("Fail", "Error"):
        return CowUsage(intact=False, state=f"{target.kind} {target.words}" if target is not None else "no table")
    uuid = f"{snapshot.uuid[:_PREFIX_LENGTH]}{_pool(snapshot).uuid.replace('-', '')}-tpool"
    return before_the_brink(devicemapper.pool_usage(devicemapper.by_uuid(uuid), snapshot.chunk_size))


def before_the_brink(found: CowUsage) -> CowUsage:
    """What was found; not intact where the pool's metadata is about to run out."""
    if found.intact and found.metadata_fill >= _METADATA_BRINK:
        state = f"pool metadata {found.metadata_fill:.0%} full"
        return CowUsage(False, found.used, found.total, state=state, metadata_fill=found.metadata_fill)
    return found


def _pool(snapshot: Snapshot) -> ThinPool:
    pool = snapshot.origin.pool
    if pool is None:
        raise ValueError(f"{snapshot.full_name} is not a thin snapshot")
    return pool
