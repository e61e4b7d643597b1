"""One backup: lock, snapshot, unlock, wait until it is cheap, copy, send what was spooled, verify, publish.

Read `run_backup`, then `_snapshot_and_copy`, then `point_in_time.snapshot_under_lock` aloud. Everything that is made on
the host is entered into `owed` and released in reverse order, whatever happens; the lock is the inner `with` and ends
first.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial

from backupd.archive.spool import Spool
from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, LockStrategy
from backupd.host.holdings import Claim, held, not_waiting_for_ever
from backupd.host.signals import shielded
from backupd.operations.backup import contents, destinations, preflight, preflush
from backupd.operations.backup.attempt import Attempt, copy_forecast, with_ceiling
from backupd.operations.backup.copying import Copied, copy_snapshot, send_spooled
from backupd.operations.backup.meter import CostMeter
from backupd.operations.backup.phases import BackupTelling, phases_of
from backupd.operations.backup.point_in_time import snapshot_under_lock, write_canary_after
from backupd.operations.backup.preflight import Ready
from backupd.operations.backup.settling import (
    note_what_needs_attention,
    observer_of,
    require_worth_keeping,
    take_baseline,
    wait_until_cheap,
)
from backupd.operations.copies import spool_folder
from backupd.operations.copies.fan_out import Copies
from backupd.operations.copies.publishing import Published, left_to_recover, publish_copies
from backupd.operations.hanging_targets import answer_of
from backupd.operations.ownership import Ownership, ownership_of, require_apart
from backupd.operations.tools import Tools
from backupd.operations.upkeep import recover
from backupd.policy import manifest as manifests
from backupd.policy.deadline import seconds_until
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.targets import Target
from backupd.targets.listing import unknown_beside
from backupd.vocabulary.errors import NoTargetAnswers, Refused, TargetAway, TargetError
from backupd.vocabulary.records import Holding, HoldingKind, Phase
from backupd.vocabulary.schedule import Deadline
from backupd.vocabulary.storage import Backup, Manifest, StoredObject

log = logging.getLogger(__name__)


def run_backup(
    job: JobConfig,
    tools: Tools,
    catalogue: Catalogue,
    *,
    run_id: str,
    telling: BackupTelling | None = None,
    max_rate: int | None = None,
) -> None:
    """Take one backup; the catalogue has its record. Whether this returns or raises, nothing of ours is left.

    It reads at most `max_rate` bytes a second, or what the job itself allows where that is less.

    Raises:
        Busy, Refused, ServerError, SnapshotError, GaveUp, TargetError, VerificationError, Cancelled: as they say;
            there is no backup then, and the run's row keeps the error.
    """
    telling, job = telling or BackupTelling(), with_ceiling(job, max_rate)
    ownership = ownership_of(catalogue, tools)
    signer = ownership.signer()  # before the row: the catalogue of another machine stays as it is
    must_finish_by = _must_finish_by(job.copy.must_finish_by)  # however long the run waits, the instant stays the same
    with (
        tools.claims.run(run_id),  # before the row: a row without a living lock is a dead run's
        catalogue.open_run(job.name, job.host, run_id=run_id, max_rate=max_rate) as run,
        ExitStack() as claimed,
    ):
        claimed.enter_context(tools.claims.job(job.name, run_id))
        cost_meter = CostMeter(
            run,
            tools.work_counters,
            read_disk=tools.files.disk_counters,
            undisturbed_seconds=tools.undisturbed_seconds,
        )
        with shielded():  # a signal between its thread's start and the block would leave the thread behind
            claimed.enter_context(cost_meter)
        dead = recover.clean_up_dead_runs(catalogue, tools, every_disk=False, targets=job.targets, spool=job.copy.spool)
        telling.begun(dead.runs)
        phases = claimed.enter_context(phases_of(job, run, telling))
        with phases.enter(Phase.PREFLIGHT):
            last = catalogue.last_stored_bytes(job.name)
            past, tunings = catalogue.snapshot_lives(job.name), catalogue.tunings()
            examination = preflight.examine(
                job,
                tools,
                last_stored_bytes=last,
                last_copy=catalogue.last_copy(job.name),
                past=past,
                tunings=tunings,
                require_ours=ownership.require_ours,
            )
            if examination.ready is not None:  # before its findings: a live run's snapshot is one, and must be let be
                claimed.enter_context(tools.claims.volume_group(examination.ready.volume.vg, run_id))
            ready = examination.require()
            without = {
                f"{destinations.TARGET}{name}" for name in ready.unusable
            }  # told once it is known who has a copy
            for warning in examination.warnings:
                log.warning("%s: %s; hint: %s", warning.name, warning.detail, warning.hint)
                if warning.attention and warning.name not in without:
                    run.attention(f"{warning.name}: {warning.detail}")
            plan = plan_snapshot(
                ready.volume, ready.group, run_id, job.snapshot, past, tuning=tunings.get(ready.volume.uuid)
            )
            ready = _own_folders(ready, ownership)  # last: a run that is refused has written nothing there
        copy_seconds = copy_forecast(job, tools, catalogue, ready)
        copies = Copies(ready.targets, job.name, run_id, ledger=run)
        renewal = ownership.renewal(ready.targets, lost=copies.drop)
        attempt = Attempt(
            *(job, tools, run, ready, plan, phases, copy_seconds, must_finish_by, copies),
            ownership=ownership,
            signer=signer,
            renewal=renewal,
            cost_meter=cost_meter,
        )
        with ExitStack() as unfinished:
            unpublished = {
                target.name: unfinished.enter_context(_held_objects(attempt, target)) for target in ready.targets
            }
            unfinished.enter_context(copies)
            with shielded():  # a signal between its thread's start and the block would leave the thread behind
                unfinished.enter_context(renewal)
            with _spool(attempt) as spool:
                with cost_meter.settled(ready.volume), ExitStack() as owed:
                    copied = _snapshot_and_copy(attempt, owed, spool)
                    with phases.enter(Phase.RELEASE):  # nothing watches its hooks: what they undo, they undo wholly
                        owed.close()  # the snapshot costs the server until it is gone, so it goes before what can wait
                objects = send_spooled(attempt, copied)
            backups = _verify_and_publish(attempt, objects, unpublished)
            _note_missing_copies(attempt, backups)
            cost_meter.told_after()
            run.complete(backups)


def _own_folders(ready: Ready, ownership: Ownership) -> Ready:
    """This machine's folders on the targets are its own to write to; a target where one is not is unusable.

    Raises:
        Refused, NoTargetAnswers: no target is left; this is what the last one said.
    """
    usable: list[Target] = []
    unusable = dict(ready.unusable)
    for target in ready.targets:
        try:
            require_apart(target, usable)  # only now, where none of them had ever been written to
            answer_of(target, partial(ownership.take, target))
        except TargetError as error:
            if target is ready.targets[-1] and not usable:
                kind = NoTargetAnswers if isinstance(error, TargetAway) else Refused
                raise kind(f"target {target.name}: {error.message}", hint=error.hint) from error
            unusable[target.name] = error.message
        else:
            usable.append(target)
    return replace(ready, targets=tuple(usable), unusable=unusable)


def _held_objects(attempt: Attempt, target: Target) -> AbstractContextManager[Claim]:
    """Whatever this run writes there, until it is a backup."""
    job, run_id, releases = attempt.job.name, attempt.run.run_id, attempt.tools.releases

    def remove(holding: Holding) -> None:
        attempt.copies.require_ended(target.name)
        published = {backup.target for backup in attempt.run.so_far().backups}
        require_apart(target, [other for other in attempt.ready.targets if other.name in published])
        attempt.ownership.require_ours(target)  # else it may be another machine's by now, whole and published
        releases[HoldingKind.PARTIAL](holding)

    detail = {"target": target.name, "machine": target.machine, "job": job, "backup": run_id}
    holding = Holding(HoldingKind.PARTIAL, f"{target.name}/{job}/{run_id}", detail)
    bounded = not_waiting_for_ever(remove, where=f"target {target.name}")
    return held(attempt.run, holding, {**releases, HoldingKind.PARTIAL: bounded})


def _spool(attempt: Attempt) -> AbstractContextManager[Spool | None]:
    """Where what is read can wait until the snapshot is gone; None: the job has none."""
    machine = attempt.ownership.require_here().name
    return spool_folder.spool_of(
        attempt.job.copy, attempt.tools, attempt.run, machine=machine, run_id=attempt.run.run_id
    )


def _snapshot_and_copy(attempt: Attempt, owed: ExitStack, spool: Spool | None) -> Copied:
    """From the baseline to the last byte read, and the hooks after it.

    What is made on the host is in `owed` when this returns or raises.
    Nothing that befalls the snapshot once its last byte was read takes the copy away.
    """
    run, tools, phases = attempt.run, attempt.tools, attempt.phases
    with phases.enter(Phase.BASELINE):
        probe = attempt.probe  # once: what the volume holds, by which it is decided, goes on changing
        baseline = take_baseline(attempt, owed, probe)
    with preflush.dirty_pages_flushed(
        tools.flusher, attempt.job.host, run, tools.releases, begun=lambda: phases.telling.phase(Phase.PREFLUSH)
    ) as flushed:
        phases.hooks.before(Phase.LOCK_WAIT)
        phases.telling.phase(Phase.LOCK_WAIT)
        point = snapshot_under_lock(attempt, owed, flushed)
    write_canary_after(attempt)
    with ExitStack() as watching:
        with shielded():  # a signal between its thread's start and the block would leave the thread behind
            observer = watching.enter_context(observer_of(attempt, baseline, point.snapshot, probe))
        in_limits = observer.require_within_limits
        try:
            point.settle(in_limits)
            phases.hooks.after(Phase.LOCK_WAIT, waiting=in_limits)  # with somebody who watches the snapshot
            with phases.enter(Phase.SETTLE, waiting=in_limits):
                verdict = wait_until_cheap(attempt, observer)
            worth_keeping = partial(require_worth_keeping, observer)
            with phases.enter(Phase.COPY, waiting=in_limits, afterwards=worth_keeping):
                copied = copy_snapshot(attempt, owed, point, observer, spool)
                run.cow_peak(tools.snapshots.require_intact(point.snapshot).used)  # after the last byte was read
        finally:
            run.samples(observer.samples)
            attempt.cost_meter.sampled(observer.samples)
            if observer.cow_added:
                run.cow_extended(observer.cow_added)
            if observer.cow_peak is not None:
                run.cow_peak(observer.cow_peak)
    note_what_needs_attention(run, verdict, observer)
    return copied


def _must_finish_by(deadline: Deadline | None) -> float | None:
    """The instant by the monotonic clock at which a run that begins now must have copied."""
    return None if deadline is None else time.monotonic() + seconds_until(deadline, datetime.now().astimezone())


def _verify_and_publish(
    attempt: Attempt, objects: tuple[StoredObject, ...], unpublished: Mapping[str, Claim]
) -> tuple[Backup, ...]:
    """Each target's copy is a backup as soon as it was read back, and stays one whatever becomes of the others.

    A target that fails here drops out like any other.

    Raises:
        TargetError, VerificationError: no target is left.
        CatalogueError: a backup could not be recorded. Every copy stays where it is, for `recover`.
    """
    copies, run = attempt.copies, attempt.run
    order = [target.name for target in copies.targets]
    backups: dict[str, Backup] = {}

    def held_copies() -> Mapping[str, Claim]:
        return {target.name: unpublished[target.name] for target in copies.targets}

    def published(one: Published) -> None:
        name, claim = one.target.name, unpublished[one.target.name]
        with shielded(), left_to_recover(held_copies, left=run.leave_copies):
            run.published(one.backup, claim.holding, ordinal=order.index(name))
            claim.kept = True
            run.throughput([one.read_back])
            if one.unknown:
                run.attention(unknown_beside(one.unknown, name))
        backups[name] = one.backup

    manifest = manifests.signed(_manifest(attempt, objects), attempt.signer)
    run.finished_manifest(manifests.to_text(manifest))
    with attempt.phases.enter(Phase.VERIFY):
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


def _manifest(attempt: Attempt, objects: tuple[StoredObject, ...]) -> Manifest:
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


def _note_missing_copies(attempt: Attempt, backups: tuple[Backup, ...]) -> None:
    """A run that reached some of its targets only is good, and somebody should know which one lacks it."""
    reached = ", ".join(backup.target for backup in backups)
    failed = {name: error.message for name, error in attempt.copies.lost.items()}
    for name, why in {**attempt.ready.unusable, **failed}.items():
        attempt.run.attention(f"target {name} has no copy of this run: {why}; the backup is on {reached}")
