"""From the mounted snapshot to bytes on the targets, or in the spool, and from the spool to the targets.

Knows: what of the image is stored, what holds the copy back, and what it records of itself. How an object is made is in
`storing`, where the bytes go in `copies`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from backupd.archive.governor import CopyGovernor
from backupd.archive.packing import CopyManner
from backupd.archive.restraint import Restraint, SnapshotOutlook
from backupd.archive.sources import list_members
from backupd.archive.spool import Spool
from backupd.host.holdings import held
from backupd.load.observer import Observer
from backupd.operations.backup import contents, image
from backupd.operations.backup.attempt import Attempt
from backupd.operations.backup.point_in_time import PointInTime, tablespaces_of
from backupd.operations.backup.storing import Contents, StoredContents, Storing
from backupd.policy.pacing import Budgets, Pace
from backupd.report.words import speed
from backupd.vocabulary.errors import SnapshotError, SnapshotVoid
from backupd.vocabulary.penalty import PaceChange
from backupd.vocabulary.records import Holding, HoldingKind, Phase
from backupd.vocabulary.storage import StoredObject
from backupd.vocabulary.volumes import Snapshot


@dataclass(frozen=True, slots=True)
class Copied:
    """What was read from the snapshot: on the targets, or some of it in the spool."""

    stored: StoredContents
    storing: Storing | None = None  # what sends the rest


def copy_snapshot(
    attempt: Attempt, owed: ExitStack, point: PointInTime, observer: Observer, spool: Spool | None
) -> Copied:
    """Read the mounted snapshot, into the spool or on to the targets; the observer ends it when a limit is passed.

    Where the server stood without a lock only the mounted image can tell, and only the file.
    """
    job, tools, run, ready = attempt.job, attempt.tools, attempt.run, attempt.ready
    observer.stage = "copy"
    at = tools.places.mount_point(run.run_id)
    owed.enter_context(held(run, Holding(HoldingKind.MOUNT, str(at), {"run": run.run_id}), tools.releases))
    tools.mounts.mount(point.snapshot, at, ledger=run)
    image.require_same_files(ready, at, tools.files.identity)
    root = at / ready.mount.inside(ready.root)
    tail = contents.BinlogTail(point.position)
    if not point.locked:
        tail = contents.tail_in_image(ready, root)
        run.position(tail.position)
    exclusions = contents.exclusions(ready, tail, include_binlogs=job.copy.include_binlogs)
    redo = contents.redo_cut(ready, root, told_lsn=point.told_lsn)
    listing = list_members(root, exclusions, redo)
    if redo is not None:
        run.redo_left_out(redo.left_out)
    image.require_no_table_elsewhere(ready, listing)
    if words := image.require_tablespaces(
        *(ready, root, listing, point.tablespaces), again=lambda: tablespaces_of(attempt)
    ):
        attempt.run.attention(words)
    tail = contents.earlier_stored(ready, tail, listing)
    kept = Contents(root, listing, contents.binlog_cut(ready, tail, root, live=point.binlogs))
    size = kept.size
    changes: list[PaceChange] = []
    restraint = _restraint(attempt, observer, changes.append)
    governor = _governor(
        attempt,
        size,
        sent_later=min(size, spool.room) if spool is not None else 0,
        observer=observer,
        restraint=restraint,
    )
    used = tools.files.used_bytes(ready.mount.path)
    storing = Storing(kept, attempt.copies.open_object, job.copy, spool)
    try:
        with _void_where_it_is(attempt, point.snapshot):
            stored = storing.store(_manner(attempt, governor))
    finally:  # the next gate learns from a copy that failed too
        run.paced(changes)
        run.copied(min(governor.paced, size), of_bytes=size, used_bytes=used)
    if governor.outran_area and job.copy.max_rate is not None:
        run.attention(
            f"the copy exceeded copy.max_rate ({speed(job.copy.max_rate)}): at that rate the COW area would have"
            " been full before it was done"
        )
    if restraint is not None and restraint.trouble is not None:
        run.attention(restraint.trouble)
    for trouble in spool.trouble if spool is not None else ():
        run.attention(f"{trouble}; the rest was streamed while the snapshot existed")
    return Copied(stored, storing)


def send_spooled(attempt: Attempt, copied: Copied) -> tuple[StoredObject, ...]:
    """All objects, with those that waited in the spool: the server pays nothing any more."""
    stored = copied.stored
    if copied.storing is not None and stored.spooled:
        with attempt.phases.enter(Phase.SEND):
            manner = _manner(attempt, _governor(attempt, stored.spooled_bytes))
            stored = copied.storing.send(stored, manner)
    attempt.run.throughput((*stored.throughput, *attempt.copies.throughput))
    return stored.objects


@contextmanager
def _void_where_it_is(attempt: Attempt, snapshot: Snapshot) -> Iterator[None]:
    """A file that cannot be read is no fault of its own where the snapshot is not intact any more.

    Raises:
        SnapshotVoid: it is not.
    """
    try:
        yield
    except SnapshotVoid:
        raise
    except SnapshotError as error:
        try:
            attempt.tools.snapshots.require_intact(snapshot)
        except SnapshotVoid as void:
            raise void from error
        raise


def _restraint(attempt: Attempt, observer: Observer, told: Callable[[PaceChange], None]) -> Restraint | None:
    """What holds the copy's reads back for the job's budgets; None where it has none.

    In the lab one that yielded took 20 s where full speed took 12, and the snapshot is paid for as long as it lives.
    """
    limits, files, device = attempt.job.limits, attempt.tools.files, attempt.ready.mount.device
    budgets = Budgets(limits.max_latency, limits.max_replica_lag_seconds, limits.max_penalty_seconds)
    if budgets == Budgets():
        return None
    return Restraint(
        Pace.at_first(
            observer.usual_seconds, budgets, slowdown=observer.slowdown, penalty_seconds=observer.penalty_seconds
        ),
        counters=lambda: files.write_counters(device),
        in_flight=lambda: files.in_flight(device),
        outlook=lambda: SnapshotOutlook(observer.lag_seconds, observer.cow_seconds, observer.measuring),
        told=told,
        since_snapshot=lambda: observer.seconds,
    )


def _governor(
    attempt: Attempt,
    size: int,
    *,
    sent_later: int = 0,
    observer: Observer | None = None,
    restraint: Restraint | None = None,
) -> CopyGovernor:
    """For `size` plain bytes, as fast as the job lets them; with an observer only while the server does not suffer.

    The deadline is that of the last byte sent: `sent_later` of them have to pass once more by then, from the spool.
    """
    return CopyGovernor(
        check=observer.require_within_limits if observer is not None else lambda: None,
        max_rate=attempt.job.copy.max_rate,
        must_finish_by=attempt.must_finish_by,
        total_bytes=size + sent_later,
        later_bytes=sent_later,
        area_seconds=lambda: observer.cow_seconds if observer is not None else None,
        restraint=restraint,
        on_progress=lambda done: attempt.phases.telling.copied(min(done, size), size),
    )


def _manner(attempt: Attempt, governor: CopyGovernor) -> CopyManner:
    copy = attempt.job.copy
    return CopyManner(
        governor=governor,
        level=copy.level,
        threads=copy.threads,
        recipients=attempt.job.encryption.recipients,
        give_up=attempt.copies.give_up,
    )
