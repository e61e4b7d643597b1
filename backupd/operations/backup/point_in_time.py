"""The instant that a backup shows: the server's lock, the snapshot under it, and its position.

Knows: what must be ready before the lock, and that nothing of ours touches a disk while it is held.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from backupd.config import LockStrategy
from backupd.host.holdings import Claim, held
from backupd.mysql import HeldLock
from backupd.operations.backup import contents, image, replicas
from backupd.operations.backup.attempt import Attempt
from backupd.operations.backup.live_binlogs import LiveBinlogs, live_binlogs
from backupd.vocabulary.errors import ServerError, SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind, Phase, SnapshotFacts
from backupd.vocabulary.servers import Position
from backupd.vocabulary.volumes import Snapshot, SnapshotPlan


@dataclass(frozen=True, slots=True)
class PointInTime:
    """The instant that the backup shows."""

    snapshot: Snapshot
    position: Position
    locked: bool  # False: `position` is empty, and what there is to know of it is in the image
    tablespaces: image.Tablespaces  # that the server had just before
    binlogs: LiveBinlogs | None  # where the snapshot has none of them
    settle: Callable[[Callable[[], None]], None]  # see `SnapshotCreator`
    told_lsn: int | None  # by the server after the snapshot was taken: the redo log in it ends before


def snapshot_under_lock(attempt: Attempt, owed: ExitStack, flushed: Claim | None) -> PointInTime:
    """The instant that the backup shows. Within `quiet` nothing of ours touches a disk.

    When it ends the catalogue is written, whose disk may hang. The server is as it was by then: its appliers run, and
    the settings that `flushed` is answered for are restored. LVM may still be at work: that costs nobody anything, and
    is waited for by `settle`, once somebody watches the snapshot.
    """
    run, tools, plan = attempt.run, attempt.tools, attempt.plan
    if attempt.canary is not None:
        attempt.canary.before(run.run_id)
    tablespaces = image.Tablespaces(tablespaces_of(attempt))
    elsewhere = contents.live_folder(attempt.ready)
    binlogs = owed.enter_context(live_binlogs(*elsewhere)) if elsewhere is not None else None
    holding = Holding(HoldingKind.SNAPSHOT, f"{plan.origin.vg}/{plan.name}", {"run": run.run_id})
    owed.enter_context(held(run, holding, tools.releases))
    creator = owed.enter_context(tools.snapshots.prepared(plan, run))
    with (
        attempt.renewal.silent(),  # before the applier stands still: a target that does not answer is waited for
        _applier_stopped(attempt) as stopped,
    ):
        _sync(attempt)
        with attempt.cost_meter.silent():
            with run.quiet(), _released_after(attempt, flushed), _released_after(attempt, stopped):
                with _lock_held(attempt) as lock:
                    began = time.monotonic()
                    snapshot = creator.create()
                    took, taken_at = time.monotonic() - began, datetime.now(UTC)
                run.took(Phase.SNAPSHOT, took)
                run.position(lock.position)
                run.snapshot(_facts(snapshot, plan, taken_at))
            if binlogs is not None and lock.position.binlog_file is not None:
                _hold_binlogs(attempt, binlogs, lock.position.binlog_file)
    locked = attempt.job.lock.strategy is not LockStrategy.NONE
    return PointInTime(
        snapshot,
        lock.position,
        locked=locked,
        tablespaces=tablespaces,
        binlogs=binlogs,
        settle=creator.settle,
        told_lsn=lock.reached_lsn,
    )


@contextmanager
def _applier_stopped(attempt: Attempt) -> Iterator[Claim | None]:
    """A replica's appliers stand still; most of what is to be synced is on the disk before they do."""
    applier = attempt.tools.applier if attempt.ready.facts.is_replica else None
    if applier is not None:
        _sync(attempt)
    with replicas.applier_stopped(applier, attempt.job.host, attempt.run, attempt.tools.releases) as stopped:
        yield stopped


def _released_after(attempt: Attempt, claim: Claim | None) -> AbstractContextManager[None]:
    return nullcontext() if claim is None else claim.released_after(attempt.tools.releases)


def _hold_binlogs(attempt: Attempt, binlogs: LiveBinlogs, named: str) -> None:
    """At once after the lock, before anybody purges them: the copy comes to them last."""
    binlogs.hold(named, with_earlier=attempt.job.copy.include_binlogs)
    if binlogs.left_out:
        attempt.run.attention(binlogs.left_out)


def tablespaces_of(attempt: Attempt) -> Mapping[str, int]:
    """Those that the server names now, each with its space id."""
    return attempt.tools.server.tablespaces(attempt.ready.facts)


@contextmanager
def _lock_held(attempt: Attempt) -> Iterator[HeldLock]:
    """The server stands still for the block. What that cost is recorded however it ends: a failed run costs as much."""
    lock: HeldLock | None = None
    try:
        with attempt.tools.lock.held(attempt.ready.facts.datadir) as lock:
            yield lock
    finally:
        if lock is not None:
            attempt.run.lock(lock.receipt)
            attempt.run.took(Phase.LOCK_WAIT, lock.receipt.wait_seconds)
            attempt.run.took(Phase.LOCK_HOLD, lock.receipt.hold_seconds)


def _sync(attempt: Attempt) -> None:
    """What is dirty now would be written while the server stands still."""
    path = attempt.ready.mount.path
    try:
        attempt.tools.files.sync(path)
    except OSError as error:
        raise SnapshotError(
            f"the file system on {path} could not be synced: {error.strerror}",
            hint="its disk may be failing: check the kernel log first (dmesg)",
        ) from error


def write_canary_after(attempt: Attempt) -> None:
    """The lock is over: a server that fails from here on takes nothing from the backup."""
    if attempt.canary is None:
        return
    try:
        attempt.canary.after(attempt.run.run_id)
    except ServerError as error:
        attempt.run.attention(f"the canary row after the unlock could not be written: {error.message}")


def _facts(snapshot: Snapshot, plan: SnapshotPlan, taken_at: datetime) -> SnapshotFacts:
    origin = snapshot.origin
    return SnapshotFacts(
        name=snapshot.name,
        volume=origin.full_name,
        layout=origin.layout,
        stripes=origin.stripes,
        stripe_size=origin.stripe_size,
        chunk_size=snapshot.chunk_size,
        cow_size=snapshot.size,
        pool=f"{origin.vg}/{origin.pool.name}" if origin.pool is not None else None,
        chunk_reason=plan.chunk_reason,
        size_reason=plan.size_reason,
        taken_at=taken_at,
    )
