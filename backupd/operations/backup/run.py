"""One backup: lock, snapshot, unlock, wait until it is cheap, copy, send what was spooled, verify, publish.

Read `run_backup`, then `_take`, aloud. Everything that is made on the host is entered into `owed` and released in
reverse order, whatever happens; the lock is the inner `with` and ends first.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from backupd.archive.governor import CopyGovernor
from backupd.archive.packing import CopyManner
from backupd.archive.restraint import Restraint, SnapshotOutlook
from backupd.archive.sources import list_members
from backupd.archive.spool import Spool
from backupd.catalogue import RunJournal
from backupd.catalogue.endings import as_told, status_of
from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, LockStrategy
from backupd.host.holdings import Claim, held
from backupd.host.hooks import Hooks
from backupd.host.signals import require_going_on, shielded
from backupd.load import WriteProbe
from backupd.load.baseline import Baseline, PassiveMeter, measure_baseline, watch_baseline
from backupd.load.observer import Observer
from backupd.lvm.extending import extension, further_bytes
from backupd.mysql import Canary, HeldLock
from backupd.operations.backup import contents, image, preflight, preflush, replicas, spool_folder
from backupd.operations.backup.copies import Copies
from backupd.operations.backup.live_binlogs import LiveBinlogs, live_binlogs
from backupd.operations.backup.meter import Billing
from backupd.operations.backup.preflight import Ready
from backupd.operations.backup.publishing import Published, publish_copies
from backupd.operations.backup.storing import Contents, StoredContents, Storing
from backupd.operations.tools import Tools
from backupd.operations.upkeep import recover
from backupd.operations.upkeep.ownership import Ownership, Renewal, ownership_of
from backupd.policy import manifest as manifests
from backupd.policy.deadline import seconds_until
from backupd.policy.pacing import Budgets, Pace
from backupd.policy.settle_gate import COW_AREA, Area, SettleLimits, waiting_may_pay
from backupd.policy.signing import Signer
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.report.gate_words import gate_words
from backupd.targets import Target
from backupd.targets.listing import unknown_beside
from backupd.vocabulary.errors import (
    CatalogueError,
    CommandError,
    GaveUp,
    Refused,
    ServerError,
    SnapshotError,
    SnapshotVoid,
    TargetError,
    UnexpectedOutput,
)
from backupd.vocabulary.penalty import GateOutcome, PaceChange, Reason, Verdict
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunStatus, SnapshotFacts
from backupd.vocabulary.schedule import Deadline
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup, Manifest, StoredObject
from backupd.vocabulary.volumes import AUTO, Snapshot, SnapshotPlan, Volume

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between two looks at the COW area
_CAUTIOUS_COPY_RATE = 20 << 20  # bytes a second, to guess by: half of what three slow disks gave in the lab


@dataclass(frozen=True, slots=True)
class BackupTelling:
    """Whom a run tells how it goes: a progress bar, a test, nobody."""

    phase: Callable[[Phase], None] = lambda _phase: None
    copied: Callable[[int, int], None] = lambda _done, _total: None  # plain bytes
    begun: Callable[[tuple[str, ...]], None] = lambda _dead: None  # it has the job, and has cleaned up after these runs


def run_backup(
    job: JobConfig, tools: Tools, catalogue: Catalogue, *, run_id: str, telling: BackupTelling | None = None
) -> None:
    """Take one backup; the catalogue has its record. Whether this returns or raises, nothing of ours is left.

    Raises:
        Busy, Refused, ServerError, SnapshotError, GaveUp, TargetError, VerificationError, Cancelled: as they say;
            there is no backup then, and the run's row keeps the error.
    """
    telling = telling or BackupTelling()
    ownership = ownership_of(catalogue, tools)
    signer = ownership.signer()  # before the row: the catalogue of another machine stays as it is
    must_finish_by = _must_finish_by(
        job.copy.must_finish_by
    )  # of this run: however long it waits, the instant stays the same
    with (
        tools.claims.run(run_id),  # before the row: a row without a living lock is a dead run's
        catalogue.open_run(job.name, job.host, run_id=run_id) as run,
        ExitStack() as claimed,
    ):
        claimed.enter_context(tools.claims.job(job.name, run_id))
        billing = Billing(
            run,
            tools.work_counters,
            read_disk=tools.files.disk_counters,
            undisturbed_seconds=tools.undisturbed_seconds,
        )
        with shielded():  # a signal between its thread's start and the block would leave the thread behind
            claimed.enter_context(billing.companion)
        telling.begun(recover.dead_runs(catalogue, tools, every_disk=False, spool=job.copy.spool).runs)
        course = claimed.enter_context(_course(job, run, telling))
        with course.phase(Phase.PREFLIGHT):
            last = catalogue.last_stored_bytes(job.name)
            past, tunings = catalogue.snapshot_lives(job.name), catalogue.tunings()
            examination = preflight.examine(
                job, tools, last_stored_bytes=last, past=past, tunings=tunings, require_ours=ownership.require_ours
            )
            if examination.ready is not None:  # before its findings: a live run's snapshot is one, and must be let be
                claimed.enter_context(tools.claims.volume_group(examination.ready.volume.vg, run_id))
            ready = examination.require()
            for warning in examination.warnings:
                log.warning("%s: %s; hint: %s", warning.name, warning.detail, warning.hint)
            plan = plan_snapshot(
                ready.volume, ready.group, run_id, job.snapshot, past, tuning=tunings.get(ready.volume.uuid)
            )
            ready = _taken(ready, ownership)  # last: a run that is refused has written nothing there
        copy_seconds = _copy_forecast(job, tools, catalogue, ready)
        copies = Copies(ready.targets, job.name, run_id, ledger=run)
        renewal = ownership.renewal(ready.targets, lost=copies.drop)
        attempt = _Attempt(
            *(job, tools, run, ready, plan, course, copy_seconds, must_finish_by, copies),
            ownership=ownership,
            signer=signer,
            renewal=renewal,
            billing=billing,
        )
        with ExitStack() as unfinished:
            partial = {
                target.name: unfinished.enter_context(_held_objects(attempt, target)) for target in ready.targets
            }
            unfinished.enter_context(copies)
            with shielded():  # a signal between its thread's start and the block would leave the thread behind
                unfinished.enter_context(renewal.companion)
            with _spool(attempt) as spool:
                with billing.settled(ready.volume), ExitStack() as owed:
                    copied = _take(attempt, owed, spool)
                    with course.phase(Phase.RELEASE):
                        owed.close()  # the snapshot costs the server until it is gone, so it goes before what can wait
                objects = _send(attempt, copied)
            backups = _verify_and_publish(attempt, objects, partial)
            _note_missing_copies(attempt, backups)
            billing.told_after()
            run.complete(backups)


@dataclass(frozen=True, slots=True)
class _Course:
    """Where a run stands: the job's hooks, whoever is told, and the record hear of each phase, in that order."""

    run: RunJournal
    telling: BackupTelling
    hooks: Hooks

    @contextmanager
    def phase(self, phase: Phase, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The block is this phase; `waiting` looks after the server while a hook runs."""
        require_going_on()
        self.hooks.before(phase, waiting=waiting)
        self.telling.phase(phase)
        with self.run.phase(phase):
            yield
        self.hooks.after(phase, waiting=waiting)


@contextmanager
def _course(job: JobConfig, run: RunJournal, telling: BackupTelling) -> Iterator[_Course]:
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
        row = run.so_far()
        if row.status is RunStatus.RUNNING:
            hooks.after_run(RunStatus.ATTENTION if row.backups else status_of(told), told)
        else:  # the error came after the run was complete
            hooks.after_run(row.status, told)
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
    copy_seconds: float | None  # what the copy is expected to take; None: there is nothing to go by
    must_finish_by: float | None  # an instant of the monotonic clock
    copies: Copies
    ownership: Ownership
    signer: Signer
    renewal: Renewal  # of this machine's owner records on the targets
    billing: Billing

    @property
    def canary(self) -> Canary | None:
        """None where the job wants none, and where the server takes no writes of ours."""
        return self.tools.canary if self.ready.takes_writes else None

    @property
    def meter(self) -> PassiveMeter:
        """Average latency of writes to the origin, by the kernel's counters."""
        device = self.ready.mount.device
        return PassiveMeter(lambda: self.tools.files.write_counters(device))

    @property
    def guess_seconds(self) -> float:
        """What the copy takes, by nothing but what the volume holds."""
        return self.tools.files.used_bytes(self.ready.mount.path) / _CAUTIOUS_COPY_RATE

    @property
    def settle_limits(self) -> SettleLimits:
        """What the gate goes by."""
        settle, limits = self.job.settle, self.job.limits
        return SettleLimits(
            threshold=settle.threshold,
            windows=settle.windows,
            max_wait_seconds=settle.max_wait_seconds,
            patience=settle.patience,
            plateau_windows=settle.plateau_windows,
            plateau_looks=settle.plateau_looks,
            quiet_share=settle.quiet_share,
            max_penalty=limits.max_penalty,
            max_replica_lag_seconds=limits.max_replica_lag_seconds,
            max_cow_fill=limits.max_cow_fill,
            enabled=settle.enabled,
        )

    @property
    def probe(self) -> WriteProbe | None:
        """None where the job wants none; and, unless it insists, where what a probe says would change nothing."""
        if self.job.settle.probe != AUTO or self.job.limits.max_penalty is not None:
            return self.tools.probe
        copy_seconds = self.copy_seconds if self.copy_seconds is not None else self.guess_seconds
        return self.tools.probe if waiting_may_pay(self.settle_limits, copy_seconds) else None

    @property
    def probe_folder(self) -> Path:
        """On the volume itself: its chunks are to be copied on write as the server's are."""
        return self.tools.places.probe_folder(self.ready.mount.path, self.run.run_id)


@dataclass(frozen=True, slots=True)
class Copied:
    """What was read from the snapshot: on the targets, or some of it in the spool."""

    stored: StoredContents
    storing: Storing | None = None  # what sends the rest


@dataclass(frozen=True, slots=True)
class _Point:
    """The instant that the backup shows."""

    snapshot: Snapshot
    position: Position
    locked: bool  # False: `position` is empty, and what there is to know of it is in the image
    tablespaces: image.Tablespaces  # that the server had just before
    binlogs: LiveBinlogs | None  # where the snapshot has none of them
    told_lsn: int | None  # by the server after the snapshot was taken: the redo log in it ends before


def _taken(ready: Ready, ownership: Ownership) -> Ready:
    """This machine's folders on the targets are its own to write to; a target where one is not is unusable.

    Raises:
        Refused: no target is left; this is what the last one said.
    """
    usable: list[Target] = []
    unusable = dict(ready.unusable)
    for target in ready.targets:
        try:
            ownership.take(target)
        except TargetError as error:
            if target is ready.targets[-1] and not usable:
                raise Refused(f"target {target.name}: {error.message}", hint=error.hint) from error
            unusable[target.name] = error.message
        else:
            usable.append(target)
    return replace(ready, targets=tuple(usable), unusable=unusable)


def _held_objects(attempt: _Attempt, target: Target) -> AbstractContextManager[Claim]:
    """Whatever this run writes there, until it is a backup."""
    job, run_id, releases = attempt.job.name, attempt.run.run_id, attempt.tools.releases

    def remove(holding: Holding) -> None:
        attempt.copies.require_ended(target.name)
        attempt.ownership.require_ours(target)  # else it may be another machine's by now, whole and published
        releases[HoldingKind.PARTIAL](holding)

    detail = {"target": target.name, "machine": target.machine, "job": job, "backup": run_id}
    holding = Holding(HoldingKind.PARTIAL, f"{target.name}/{job}/{run_id}", detail)
    return held(attempt.run, holding, {**releases, HoldingKind.PARTIAL: remove})


def _spool(attempt: _Attempt) -> AbstractContextManager[Spool | None]:
    """Where what is read can wait until the snapshot is gone; None: the job has none."""
    machine = attempt.ownership.require_here().name
    return spool_folder.spool_of(
        attempt.job.copy, attempt.tools, attempt.run, machine=machine, run_id=attempt.run.run_id
    )


def _copy_forecast(job: JobConfig, tools: Tools, catalogue: Catalogue, ready: Ready) -> float | None:
    """Seconds, by the job's last copy and what the volume holds now. Never a guess: a forecast can cost a backup."""
    last = catalogue.last_copy(job.name)
    return None if last is None else last.expected_seconds(tools.files.used_bytes(ready.mount.path))


def _take(attempt: _Attempt, owed: ExitStack, spool: Spool | None) -> Copied:
    """From the baseline to the last byte read. What is made on the host is in `owed` when this returns or raises."""
    run, tools, course = attempt.run, attempt.tools, attempt.course
    with course.phase(Phase.BASELINE):
        attempt.billing.wait_undisturbed()
        probe = attempt.probe  # once: what the volume holds, by which it is decided, goes on changing
        baseline = _measure_baseline(attempt, owed, probe)
    with preflush.dirty_pages_flushed(
        tools.flusher, attempt.job.host, run, tools.releases, begun=lambda: course.telling.phase(Phase.PREFLUSH)
    ):
        course.hooks.before(Phase.LOCK_WAIT)
        course.telling.phase(Phase.LOCK_WAIT)
        point = _snapshot_under_lock(attempt, owed)
    _write_canary_after(attempt)
    with ExitStack() as watching:
        with shielded():  # a signal between its thread's start and the block would leave the thread behind
            observer = watching.enter_context(_observer(attempt, baseline, point.snapshot, probe))
        in_limits = observer.require_within_limits
        try:
            course.hooks.after(Phase.LOCK_WAIT, waiting=in_limits)  # with somebody who watches the snapshot
            with course.phase(Phase.SETTLE, waiting=in_limits):
                verdict = _wait_until_cheap(attempt, observer)
            with course.phase(Phase.COPY, waiting=in_limits):
                copied = _copy(attempt, owed, point, observer, spool)
                run.cow_peak(tools.snapshots.require_intact(point.snapshot).used)  # after the last byte was read
        finally:
            run.samples(observer.samples)
            attempt.billing.sampled(observer.samples)
            if observer.cow_added:
                run.cow_extended(observer.cow_added)
            if observer.cow_peak is not None:
                run.cow_peak(observer.cow_peak)
    _note_what_needs_attention(run, verdict, observer)
    return copied


def _measure_baseline(attempt: _Attempt, owed: ExitStack, probe: WriteProbe | None) -> Baseline:
    """What writes cost before the snapshot. The probe file must exist before it, to be copied on write as data is."""
    job, tools, run = attempt.job.settle, attempt.tools, attempt.run
    meter = attempt.meter
    baseline = None
    if probe is not None and job.enabled:
        folder = attempt.probe_folder
        owed.enter_context(held(run, Holding(HoldingKind.PROBE_FILES, str(folder)), tools.releases))
        try:
            probe.prepare(folder)
            baseline = measure_baseline(
                probe, folder, windows=job.baseline_windows, seconds=job.window_seconds, meter=meter
            )
        except (CommandError, UnexpectedOutput) as error:
            log.warning("no probe: %s", error.message)
            run.attention(f"no probe: the gate relied on the passive meter alone: {error.message}")
    baseline = baseline or watch_baseline(meter, looks=job.baseline_windows, seconds=job.window_seconds)
    run.samples(baseline.samples)
    attempt.billing.sampled(baseline.samples)
    return baseline


def _snapshot_under_lock(attempt: _Attempt, owed: ExitStack) -> _Point:
    """The instant that the backup shows. Within `quiet` nothing of ours touches a disk."""
    run, tools, plan = attempt.run, attempt.tools, attempt.plan
    if attempt.canary is not None:
        attempt.canary.before(run.run_id)
    tablespaces = image.Tablespaces(_tablespaces(attempt))
    elsewhere = contents.live_folder(attempt.ready)
    binlogs = owed.enter_context(live_binlogs(*elsewhere)) if elsewhere is not None else None
    holding = Holding(HoldingKind.SNAPSHOT, f"{plan.origin.vg}/{plan.name}", {"run": run.run_id})
    owed.enter_context(held(run, holding, tools.releases))
    applier = tools.applier if attempt.ready.facts.is_replica else None
    with (
        attempt.renewal.silent(),  # before the applier stands still: a target that does not answer is waited for
        tools.snapshots.prepared(plan, run) as creator,
        replicas.applier_stopped(applier, attempt.job.host, run, tools.releases),
    ):
        _sync(attempt)
        with attempt.billing.silent():
            with run.quiet():
                with _lock_held(attempt) as lock:
                    began = time.monotonic()
                    snapshot = creator.create()
                    took = time.monotonic() - began
                run.took(Phase.SNAPSHOT, took)
                run.position(lock.position)
                run.snapshot(_facts(snapshot, plan))
            if binlogs is not None and lock.position.binlog_file is not None:
                _hold_binlogs(attempt, binlogs, lock.position.binlog_file)
    locked = attempt.job.lock.strategy is not LockStrategy.NONE
    return _Point(
        snapshot, lock.position, locked=locked, tablespaces=tablespaces, binlogs=binlogs, told_lsn=lock.reached_lsn
    )


def _hold_binlogs(attempt: _Attempt, binlogs: LiveBinlogs, named: str) -> None:
    """At once after the lock, before anybody purges them: the copy comes to them last."""
    binlogs.hold(named, with_earlier=attempt.job.copy.include_binlogs)
    if binlogs.left_out:
        attempt.run.attention(binlogs.left_out)


def _tablespaces(attempt: _Attempt) -> Mapping[str, int]:
    return attempt.tools.server.tablespaces(attempt.ready.facts)


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
            hint="its disk may be failing: check the kernel log first (dmesg)",
        ) from error


def _write_canary_after(attempt: _Attempt) -> None:
    """The lock is over: a server that fails from here on takes nothing from the backup."""
    if attempt.canary is None:
        return
    try:
        attempt.canary.after(attempt.run.run_id)
    except ServerError as error:
        attempt.run.attention(f"the canary row after the unlock could not be written: {error.message}")


def _observer(attempt: _Attempt, baseline: Baseline, snapshot: Snapshot, probe: WriteProbe | None) -> Observer:
    job, tools = attempt.job, attempt.tools
    return Observer(
        probe=probe,
        folder=attempt.probe_folder,
        baseline=baseline,
        read_usage=lambda: tools.snapshots.usage(snapshot),
        read_lag=tools.server.replica_lag_seconds,
        extend=_extension(attempt, snapshot),
        growth=further_bytes(attempt.plan, attempt.ready.group),
        window_seconds=job.settle.window_seconds,
        duty=job.settle.duty,
        tick_seconds=LOOK_SECONDS,
        limits=attempt.settle_limits,
        area=_area(attempt.ready.volume),
        meter=attempt.meter,
        copy_seconds=attempt.copy_seconds,
        guess_seconds=attempt.guess_seconds,
    )


def _extension(attempt: _Attempt, snapshot: Snapshot) -> Callable[[int, int], int] | None:
    """None for a pool, which is everybody's, and where the job keeps the group's room for something else."""
    if snapshot.origin.pool is not None or not attempt.job.snapshot.extend:
        return None
    return extension(attempt.tools.snapshots, snapshot, attempt.plan)


def _area(volume: Volume) -> Area:
    """What the snapshot's old blocks, or the new ones of a thin volume, fill."""
    if volume.pool is None:
        return COW_AREA
    pool = f"{volume.vg}/{volume.pool.name}"
    return Area(f"thin pool {pool}", f"extend the pool (lvextend --size +SIZE, or --poolmetadatasize +SIZE, {pool})")


def _wait_until_cheap(attempt: _Attempt, observer: Observer) -> Verdict:
    """Wait until the penalty is worth paying, or abort the backup to protect the server."""
    verdict = observer.wait_for_verdict()
    attempt.run.verdict(verdict)
    log.info("gate %s", gate_words(verdict))
    if verdict.outcome is GateOutcome.GIVE_UP:
        raise GaveUp(
            f"backup aborted ({verdict.reason}): {verdict.detail}",
            hint=f"see `backupd show RUN`; {observer.way_out}",
        )
    return verdict


def _copy(attempt: _Attempt, owed: ExitStack, point: _Point, observer: Observer, spool: Spool | None) -> Copied:
    """Read the mounted snapshot, into the spool or on to the targets; the observer ends it when a limit is passed.

    Where the server stood without a lock only the mounted image can tell, and only the file.
    """
    job, tools, run, ready = attempt.job, attempt.tools, attempt.run, attempt.ready
    observer.stage = "copy"
    at = tools.places.mount_point(run.run_id)
    owed.enter_context(held(run, Holding(HoldingKind.MOUNT, str(at), {"run": run.run_id}), tools.releases))
    tools.mounts.mount(point.snapshot, at)
    image.require_same_files(ready, at, tools.files.identity)
    root = at / ready.mount.inside(ready.root)
    standing = contents.BinlogTail(point.position)
    if not point.locked:
        standing = contents.standing_in_image(ready, root)
        run.position(standing.position)
    exclusions = contents.exclusions(ready, standing, include_binlogs=job.copy.include_binlogs)
    redo = contents.redo_cut(ready, root, told_lsn=point.told_lsn)
    listing = list_members(root, exclusions, redo)
    if redo is not None:
        run.redo_left_out(redo.left_out)
    image.require_tablespaces(ready, root, listing, point.tablespaces, again=lambda: _tablespaces(attempt))
    standing = contents.earlier_stored(ready, standing, listing)
    kept = Contents(root, listing, contents.binlog_cut(ready, standing, root, live=point.binlogs))
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
    if restraint is not None and restraint.trouble is not None:
        run.attention(restraint.trouble)
    for trouble in spool.trouble if spool is not None else ():
        run.attention(f"{trouble}; the rest was streamed while the snapshot existed")
    return Copied(stored, storing)


def _send(attempt: _Attempt, copied: Copied) -> tuple[StoredObject, ...]:
    """All objects, with those that waited in the spool: the server pays nothing any more."""
    stored = copied.stored
    if copied.storing is not None and stored.spooled:
        with attempt.course.phase(Phase.SEND):
            manner = _manner(attempt, _governor(attempt, stored.spooled_bytes))
            stored = copied.storing.send(stored, manner)
    attempt.run.throughput((*stored.throughput, *attempt.copies.throughput))
    return stored.objects


@contextmanager
def _void_where_it_is(attempt: _Attempt, snapshot: Snapshot) -> Iterator[None]:
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


def _restraint(attempt: _Attempt, observer: Observer, told: Callable[[PaceChange], None]) -> Restraint | None:
    """What holds the copy's reads back for the job's budgets; None where it has none.

    In the lab one that yielded took 20 s where full speed took 12, and the snapshot is paid for as long as it lives.
    """
    limits, files, device = attempt.job.limits, attempt.tools.files, attempt.ready.mount.device
    budgets = Budgets(limits.max_latency, limits.max_replica_lag_seconds, limits.max_penalty_seconds)
    if budgets == Budgets():
        return None
    return Restraint(
        Pace.at_first(observer.usual_seconds, budgets, slowdown=observer.slowdown),
        counters=lambda: files.write_counters(device),
        in_flight=lambda: files.in_flight(device),
        outlook=lambda: SnapshotOutlook(observer.lag_seconds, observer.cow_seconds, observer.measuring),
        told=told,
        since_snapshot=lambda: observer.seconds,
    )


def _governor(
    attempt: _Attempt,
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
        restraint=restraint,
        on_progress=lambda done: attempt.course.telling.copied(min(done, size), size),
    )


def _manner(attempt: _Attempt, governor: CopyGovernor) -> CopyManner:
    copy = attempt.job.copy
    return CopyManner(
        governor=governor,
        level=copy.level,
        threads=copy.threads,
        recipients=attempt.job.encryption.recipients,
        give_up=attempt.copies.give_up,
    )


def _must_finish_by(deadline: Deadline | None) -> float | None:
    """The instant by the monotonic clock at which a run that begins now must have copied."""
    return None if deadline is None else time.monotonic() + seconds_until(deadline, datetime.now().astimezone())


def _note_what_needs_attention(run: RunJournal, verdict: Verdict, observer: Observer) -> None:
    """A good backup that someone should look at all the same: exit status 3."""
    if verdict.reason in {Reason.MAX_WAIT, Reason.NO_DATA}:
        run.attention(f"the copy started before the penalty had settled ({verdict.reason}): {verdict.detail}")
    for trouble in observer.trouble:
        run.attention(trouble)


def _verify_and_publish(
    attempt: _Attempt, objects: tuple[StoredObject, ...], partial: Mapping[str, Claim]
) -> tuple[Backup, ...]:
    """Each target's copy is a backup as soon as it was read back, and stays one whatever becomes of the others.

    A target that fails here drops out like any other.

    Raises:
        TargetError, VerificationError: no target is left.
    """
    copies, run = attempt.copies, attempt.run
    order = [target.name for target in copies.targets]
    backups: dict[str, Backup] = {}

    def published(one: Published) -> None:
        name, claim = one.target.name, partial[one.target.name]
        with shielded():
            run.published(one.backup, claim.holding, ordinal=order.index(name))
            claim.kept = True
        backups[name] = one.backup
        run.throughput([one.read_back])
        if one.unknown:
            run.attention(unknown_beside(one.unknown, name))

    manifest = manifests.signed(_manifest(attempt, objects), attempt.signer)
    run.finished_manifest(manifests.to_text(manifest))
    with attempt.course.phase(Phase.VERIFY):
        publish_copies(
            manifest,
            copies.targets,
            max_rate=attempt.job.copy.max_rate,
            failing=copies.dropping,
            published=published,
            require_ours=attempt.ownership.require_ours,
        )
        copies.require_some()
    return tuple(backups[name] for name in order if name in backups)


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


def _note_missing_copies(attempt: _Attempt, backups: tuple[Backup, ...]) -> None:
    """A run that reached some of its targets only is good, and somebody should know which one lacks it."""
    reached = ", ".join(backup.target for backup in backups)
    failed = {name: error.message for name, error in attempt.copies.lost.items()}
    for name, why in {**attempt.ready.unusable, **failed}.items():
        attempt.run.attention(f"target {name} has no copy of this run: {why}; the backup is on {reached}")


def _facts(snapshot: Snapshot, plan: SnapshotPlan) -> SnapshotFacts:
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
    )
