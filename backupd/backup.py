"""One backup: lock, snapshot, unlock, wait until it is cheap, copy, verify, publish.

Read `run_backup`, then `_take`, aloud. Everything that is made on the host is entered into `owed` and given back in
reverse order, whatever happens; the lock is the inner `with` and ends first.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from datetime import time as datetime_time
from pathlib import Path

from backupd import contents, preflight, recover, replicas
from backupd.archive.governor import CopyGovernor
from backupd.archive.packing import CopyManner
from backupd.archive.sources import list_members
from backupd.catalogue import RunJournal
from backupd.catalogue.endings import as_told, status_of
from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, LockStrategy
from backupd.copies import Copies
from backupd.errors import (
    CatalogueError,
    CommandError,
    GaveUp,
    ServerError,
    SnapshotError,
    UnexpectedOutput,
    VerificationError,
)
from backupd.holding import Claim, held
from backupd.hooks import Hooks
from backupd.interruption import shielded
from backupd.model import (
    Backup,
    Holding,
    HoldingKind,
    Manifest,
    Outcome,
    Phase,
    Position,
    Reason,
    RunStatus,
    Snapshot,
    SnapshotFacts,
    SnapshotPlan,
    StoredObject,
    Verdict,
    Volume,
)
from backupd.mysql import Canary, HeldLock
from backupd.preflight import Ready
from backupd.probe.baseline import Baseline, PassiveMeter, measure_baseline, watch_baseline
from backupd.probe.observer import Observer
from backupd.probe.settle import COW_AREA, Area, SettleLimits
from backupd.rebuild import copy_on
from backupd.snapshots.plan import plan_snapshot
from backupd.storing import Contents, store
from backupd.targets import Target
from backupd.tools import Tools
from backupd.verify import verify_object

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between two looks at the COW area
_CAUTIOUS_COPY_RATE = 20 << 20  # bytes a second: half of what three slow disks gave in the lab


@dataclass(frozen=True, slots=True)
class Telling:
    """Whom a run tells how it goes: a progress bar, a test, nobody."""

    phase: Callable[[Phase], None] = lambda _phase: None
    copied: Callable[[int, int], None] = lambda _done, _total: None  # plain bytes
    begun: Callable[[tuple[str, ...]], None] = lambda _dead: None  # it has the job, and has cleaned up after these runs


def run_backup(
    job: JobConfig, tools: Tools, catalogue: Catalogue, *, run_id: str, telling: Telling | None = None
) -> None:
    """Take one backup; the catalogue has its record. Whether this returns or raises, nothing of ours is left.

    Raises:
        Busy, Refused, ServerError, SnapshotError, GaveUp, TargetError, VerificationError, Cancelled: as they say;
            there is no backup then, and the run's row keeps the error.
    """
    telling = telling or Telling()
    must_finish_by = _next_time(job.copy.must_finish_by)  # of this run: however long it waits, the hour stays the same
    with (
        tools.claims.run(run_id),  # before the row: a row without a living lock is a dead run's
        catalogue.open_run(job.name, job.host, run_id=run_id) as run,
        ExitStack() as claimed,
    ):
        claimed.enter_context(tools.claims.job(job.name, run_id))
        telling.begun(recover.dead_runs(catalogue, tools, every_disk=False).runs)
        course = claimed.enter_context(_course(job, run, telling))
        with course.phase(Phase.PREFLIGHT):
            examination = preflight.examine(job, tools, last_stored_bytes=catalogue.last_stored_bytes(job.name))
            if examination.ready is not None:  # before its findings: a live run's snapshot is one, and must be let be
                claimed.enter_context(tools.claims.volume_group(examination.ready.volume.vg, run_id))
            ready = examination.require()
            for warning in examination.warnings:
                log.warning("%s: %s; hint: %s", warning.name, warning.detail, warning.hint)
            plan = plan_snapshot(ready.volume, ready.group, run_id, job.snapshot)
        copy_seconds = _copy_forecast(job, tools, catalogue, ready)
        copies = Copies(ready.targets, job.name, run_id, ledger=run)
        attempt = _Attempt(job, tools, run, ready, plan, course, copy_seconds, must_finish_by, copies)
        with ExitStack() as unfinished:
            partial = {
                target.name: unfinished.enter_context(_held_objects(attempt, target)) for target in ready.targets
            }
            unfinished.enter_context(copies)
            with ExitStack() as owed:
                objects = _take(attempt, owed)
                with course.phase(Phase.RELEASE):
                    owed.close()  # the snapshot costs the server until it is gone, so it goes before the verification
            backups = _verify_and_publish(attempt, objects)
            _note_missing_copies(attempt, backups)
            with shielded():  # a complete run whose objects are still held is a good one to `recover` as well
                run.complete(backups)
                kept = [partial[backup.target] for backup in backups]
                for claim in kept:
                    claim.kept = True  # before any row is struck: a catalogue that fails from here on costs no copy
                for claim in kept:
                    claim.keep()


@dataclass(frozen=True, slots=True)
class _Course:
    """Where a run stands: the job's hooks, whoever is told, and the record hear of each phase, in that order."""

    run: RunJournal
    telling: Telling
    hooks: Hooks

    @contextmanager
    def phase(self, phase: Phase, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The block is this phase; `waiting` looks after the server while a hook runs."""
        self.hooks.before(phase, waiting=waiting)
        self.telling.phase(phase)
        with self.run.phase(phase):
            yield
        self.hooks.after(phase, waiting=waiting)


@contextmanager
def _course(job: JobConfig, run: RunJournal, telling: Telling) -> Iterator[_Course]:
    """The block is the run, between its first and its last hooks; the last ones hear what became of it, always."""
    hooks = Hooks(job.hooks.values(), run)
    try:
        hooks.before_run()
        yield _Course(run, telling, hooks)
    except BaseException as error:
        with shielded():  # the run is over: a signal that comes now must not take the error's place
            _tell_last_hooks(hooks, run, error)
            raise
    hooks.after_run(run.so_far().status, None)


def _tell_last_hooks(hooks: Hooks, run: RunJournal, error: BaseException) -> None:
    told = as_told(error)
    try:
        good = run.so_far().status in (RunStatus.SUCCESS, RunStatus.ATTENTION)  # the error came after its backup
        hooks.after_run(run.so_far().status if good else status_of(told), told)
    except CatalogueError as second:
        error.add_note(second.message)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the steps of one run share."""

    job: JobConfig
    tools: Tools
    run: RunJournal
    ready: Ready
    plan: SnapshotPlan
    course: _Course
    copy_seconds: float  # what the copy is expected to take
    must_finish_by: float | None  # an instant of the monotonic clock
    copies: Copies

    @property
    def canary(self) -> Canary | None:
        """None where the job wants none, and where the server takes no writes of ours."""
        return self.tools.canary if self.ready.takes_writes else None

    @property
    def meter(self) -> PassiveMeter:
        """What everybody's writes to the origin take, by the kernel's counters."""
        device = self.ready.mount.device
        return PassiveMeter(lambda: self.tools.files.write_counters(device))

    @property
    def probe_folder(self) -> Path:
        """On the volume itself: its chunks are to be copied on write as the server's are."""
        return self.tools.places.probe_folder(self.ready.mount.path, self.run.run_id)


@dataclass(frozen=True, slots=True)
class _Point:
    """The instant that the backup shows."""

    snapshot: Snapshot
    position: Position
    locked: bool  # False: `position` is empty, and what there is to know of it is in the image


def _held_objects(attempt: _Attempt, target: Target) -> AbstractContextManager[Claim]:
    """Whatever this run writes there, until it is a backup."""
    job, run_id, releases = attempt.job.name, attempt.run.run_id, attempt.tools.releases

    def remove(holding: Holding) -> None:
        attempt.copies.require_ended(target.name)
        releases[HoldingKind.PARTIAL](holding)

    detail = {"target": target.name, "job": job, "backup": run_id}
    holding = Holding(HoldingKind.PARTIAL, f"{target.name}/{job}/{run_id}", detail)
    return held(attempt.run, holding, {**releases, HoldingKind.PARTIAL: remove})


def _copy_forecast(job: JobConfig, tools: Tools, catalogue: Catalogue, ready: Ready) -> float:
    """Seconds: what the job's last copy took; for its first one a cautious guess from what the volume holds."""
    last = catalogue.last_copy_seconds(job.name)
    return last if last is not None else tools.files.used_bytes(ready.mount.path) / _CAUTIOUS_COPY_RATE


def _take(attempt: _Attempt, owed: ExitStack) -> tuple[StoredObject, ...]:
    """From the baseline to the last byte read. What is made on the host is in `owed` when this returns or raises."""
    run, tools, course = attempt.run, attempt.tools, attempt.course
    with course.phase(Phase.BASELINE):
        baseline = _measure_baseline(attempt, owed)
    course.hooks.before(Phase.LOCK_WAIT)
    course.telling.phase(Phase.LOCK_WAIT)
    point = _snapshot_under_lock(attempt, owed)
    with ExitStack() as watching:
        with shielded():  # a signal between its thread's start and the block would leave the thread behind
            observer = watching.enter_context(_observer(attempt, baseline, point.snapshot))
        in_limits = observer.require_within_limits
        try:
            course.hooks.after(Phase.LOCK_WAIT, waiting=in_limits)  # with somebody who watches the snapshot
            with course.phase(Phase.SETTLE, waiting=in_limits):
                verdict = _wait_until_cheap(attempt, observer)
            with course.phase(Phase.COPY, waiting=in_limits):
                objects = _copy(attempt, owed, point, observer)
                run.cow_peak(tools.snapshots.require_intact(point.snapshot).used)  # after the last byte was read
        finally:
            run.samples(observer.samples)
            if observer.cow_peak is not None:
                run.cow_peak(observer.cow_peak)
    _note_what_needs_attention(run, verdict, observer)
    return objects


def _measure_baseline(attempt: _Attempt, owed: ExitStack) -> Baseline:
    """What writes cost before the snapshot. The probe file must exist before it, to be copied on write as data is."""
    job, tools, run = attempt.job.settle, attempt.tools, attempt.run
    meter = attempt.meter
    baseline = None
    if tools.probe is not None and job.enabled:
        folder = attempt.probe_folder
        owed.enter_context(held(run, Holding(HoldingKind.PROBE_FILES, str(folder)), tools.releases))
        try:
            tools.probe.prepare(folder)
            baseline = measure_baseline(
                tools.probe, folder, windows=job.baseline_windows, seconds=job.window_seconds, meter=meter
            )
        except (CommandError, UnexpectedOutput) as error:
            log.warning("no probe: %s", error.message)
            run.attention(f"no probe, the gate had only the passive meter to go by: {error.message}")
    baseline = baseline or watch_baseline(meter, looks=job.baseline_windows, seconds=job.window_seconds)
    run.samples(baseline.samples)
    return baseline


def _snapshot_under_lock(attempt: _Attempt, owed: ExitStack) -> _Point:
    """The instant that the backup shows. Within `quiet` nothing of ours touches a disk."""
    run, tools, plan = attempt.run, attempt.tools, attempt.plan
    if attempt.canary is not None:
        attempt.canary.before(run.run_id)
    holding = Holding(HoldingKind.SNAPSHOT, f"{plan.origin.vg}/{plan.name}", {"run": run.run_id})
    owed.enter_context(held(run, holding, tools.releases))
    applier = tools.applier if attempt.ready.facts.is_replica else None
    with (
        tools.snapshots.prepared(plan, run) as creator,
        replicas.applier_stopped(applier, attempt.job.host, run, tools.releases),
    ):
        _sync(attempt)
        with run.quiet():
            with _lock_held(attempt) as lock:
                began = time.monotonic()
                snapshot = creator.create()
                took = time.monotonic() - began
            run.took(Phase.SNAPSHOT, took)
            run.position(lock.position)
            run.snapshot(_facts(snapshot))
    _write_canary_after(attempt)
    return _Point(snapshot, lock.position, locked=attempt.job.lock.strategy is not LockStrategy.NONE)


@contextmanager
def _lock_held(attempt: _Attempt) -> Iterator[HeldLock]:
    """The server stands still for the block. What that cost is recorded however it ends: a failed run costs as much."""
    lock: HeldLock | None = None
    try:
        with attempt.tools.lock.held() as lock:
            yield lock
    finally:
        if lock is not None:
            attempt.run.lock(lock.receipt)
            attempt.run.took(Phase.LOCK_WAIT, lock.receipt.wait_seconds)
            attempt.run.took(Phase.LOCK_HOLD, lock.receipt.hold_seconds)


def _sync(attempt: _Attempt) -> None:
    """What is dirty now would be written while the server stands still."""
    path = attempt.ready.mount.path
    try:
        attempt.tools.files.sync(path)
    except OSError as error:
        raise SnapshotError(
            f"the file system on {path} could not be synced: {error.strerror}",
            hint="its disk may be failing: look at the kernel's log before anything else",
        ) from error


def _write_canary_after(attempt: _Attempt) -> None:
    """The lock is over: a server that fails from here on takes nothing from the backup."""
    if attempt.canary is None:
        return
    try:
        attempt.canary.after(attempt.run.run_id)
    except ServerError as error:
        attempt.run.attention(f"the canary row after the unlock could not be written: {error.message}")


def _observer(attempt: _Attempt, baseline: Baseline, snapshot: Snapshot) -> Observer:
    job, tools = attempt.job, attempt.tools
    return Observer(
        probe=tools.probe,
        folder=attempt.probe_folder,
        baseline=baseline,
        read_usage=lambda: tools.snapshots.usage(snapshot),
        read_lag=tools.server.replica_lag_seconds,
        window_seconds=job.settle.window_seconds,
        duty=job.settle.duty,
        tick_seconds=LOOK_SECONDS,
        limits=SettleLimits(
            threshold=job.settle.threshold,
            windows=job.settle.windows,
            max_wait_seconds=job.settle.max_wait_seconds,
            patience=job.settle.patience,
            plateau_windows=job.settle.plateau_windows,
            plateau_looks=job.settle.plateau_looks,
            quiet_share=job.settle.quiet_share,
            max_penalty=job.limits.max_penalty,
            max_replica_lag_seconds=job.limits.max_replica_lag_seconds,
            max_cow_fill=job.limits.max_cow_fill,
            enabled=job.settle.enabled,
        ),
        area=_area(attempt.ready.volume),
        meter=attempt.meter,
        copy_seconds=attempt.copy_seconds,
    )


def _area(volume: Volume) -> Area:
    """What the snapshot's old blocks, or the new ones of a thin volume, fill."""
    if volume.pool is None:
        return COW_AREA
    pool = f"{volume.vg}/{volume.pool.name}"
    return Area(f"thin pool {pool}", f"extend the pool (lvextend --size +SIZE, or --poolmetadatasize +SIZE, {pool})")


def _wait_until_cheap(attempt: _Attempt, observer: Observer) -> Verdict:
    """Wait until the penalty is worth paying, or give the backup up rather than the server."""
    verdict = observer.wait_for_verdict()
    attempt.run.verdict(verdict)
    log.info("gate: %s (%s) after %.1f s %s", verdict.outcome, verdict.reason, verdict.waited_seconds, verdict.detail)
    if verdict.outcome is Outcome.GIVE_UP:
        raise GaveUp(
            f"the backup was given up ({verdict.reason}): {verdict.detail}",
            hint=f"see `backupd show RUN`; {_area(attempt.ready.volume).remedy}, raise the job's limits, or choose a"
            " quieter hour",
        )
    return verdict


def _copy(attempt: _Attempt, owed: ExitStack, point: _Point, observer: Observer) -> tuple[StoredObject, ...]:
    """Stream the mounted snapshot to the targets; the observer ends it when a limit is passed.

    Where the server stood without a lock only the mounted image can tell, and only the file.
    """
    job, tools, run, ready = attempt.job, attempt.tools, attempt.run, attempt.ready
    observer.stage = "copy"
    at = tools.places.mount_point(run.run_id)
    owed.enter_context(held(run, Holding(HoldingKind.MOUNT, str(at), {"run": run.run_id}), tools.releases))
    tools.mounts.mount(point.snapshot, at)
    root = at / ready.root.relative_to(ready.mount.path)
    standing = contents.Standing(point.position)
    if not point.locked:
        standing = contents.standing_in_image(ready, root)
        run.position(standing.position)
    exclusions = contents.exclusions(ready, standing, include_binlogs=job.copy.include_binlogs)
    kept = Contents(root, list_members(root, exclusions), contents.binlog_cut(ready, standing, root))
    stored = store(kept, attempt.copies.open_object, job.copy, _manner(attempt, observer, kept.listing.size))
    run.throughput((*stored.throughput, *attempt.copies.throughput))
    return stored.objects


def _manner(attempt: _Attempt, observer: Observer, size: int) -> CopyManner:
    """As fast as the job lets it, for `size` plain bytes, and only for as long as the server does not suffer."""
    copy = attempt.job.copy
    return CopyManner(
        governor=CopyGovernor(
            check=observer.require_within_limits,
            max_rate=copy.max_rate,
            must_finish_by=attempt.must_finish_by,
            total_bytes=size,
            on_progress=lambda done: attempt.course.telling.copied(min(done, size), size),
        ),
        level=copy.level,
        threads=copy.threads,
        ledger=attempt.run,
        recipients=attempt.job.encryption.recipients,
    )


def _next_time(clock: datetime_time | None) -> float | None:
    """The next instant, by the monotonic clock, at which the host's own clock shows this time."""
    if clock is None:
        return None
    now = datetime.now().astimezone()
    days = (datetime.combine(now.date() + timedelta(days=day), clock).astimezone() for day in (0, 1))
    return time.monotonic() + next((at - now).total_seconds() for at in days if at > now)


def _note_what_needs_attention(run: RunJournal, verdict: Verdict, observer: Observer) -> None:
    """A good backup that someone should look at all the same: exit status 3."""
    if verdict.reason in {Reason.MAX_WAIT, Reason.NO_DATA}:
        run.attention(f"the copy started without a settled penalty ({verdict.reason}): {verdict.detail}")
    for trouble in observer.trouble:
        run.attention(trouble)


def _verify_and_publish(attempt: _Attempt, objects: tuple[StoredObject, ...]) -> tuple[Backup, ...]:
    """Success is what was read back; the manifest is last. A target that fails here drops out like any other.

    Raises:
        TargetError, VerificationError: no target is left.
    """
    copies, job, run = attempt.copies, attempt.job.name, attempt.run
    with attempt.course.phase(Phase.VERIFY):
        for target in copies.targets:
            with copies.dropping(target):
                for stored in objects:
                    verify_object(target, job, run.run_id, stored)
        copies.require_some()
    manifest = _manifest(attempt, objects)  # its instant is that of the verification: all else has been read back
    for target in copies.targets:
        with copies.dropping(target):
            _publish(target, manifest)
    copies.require_some()
    return tuple(copy_on(target, manifest) for target in copies.targets)


def _manifest(attempt: _Attempt, objects: tuple[StoredObject, ...]) -> Manifest:
    """The same on every target."""
    job, run = attempt.job, attempt.run
    return contents.manifest(
        attempt.ready,
        run.so_far(),
        objects=objects,
        canary=attempt.canary.table if attempt.canary is not None else None,
        locked=job.lock.strategy is not LockStrategy.NONE,
        recipients=job.encryption.recipients,
        audit_head=run.audit_head(),
    )


def _publish(target: Target, manifest: Manifest) -> None:
    target.publish(manifest)
    if target.manifest(manifest.job, manifest.run_id) != manifest:
        raise VerificationError(
            f"the manifest on target {target.name} is not what was written",
            hint="look at the target's disk: it loses or changes what is written to it",
        )


def _note_missing_copies(attempt: _Attempt, backups: tuple[Backup, ...]) -> None:
    """A run that reached some of its targets only is good, and somebody should know which one lacks it."""
    reached = ", ".join(backup.target for backup in backups)
    failed = {name: error.message for name, error in attempt.copies.lost.items()}
    for name, why in {**attempt.ready.unusable, **failed}.items():
        attempt.run.attention(f"target {name} has no copy of this run: {why}; the backup is on {reached}")


def _facts(snapshot: Snapshot) -> SnapshotFacts:
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
    )
