"""What the snapshot costs the server: measured before it, watched while it exists, waited for before the copy.

Knows: what the baseline is taken with, what is watched, and what the gate's verdict means for the run. How the gate
decides is in `settle_gate`, how things are watched in `observer`.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from backupd.catalogue import RunJournal
from backupd.host.holdings import held
from backupd.host.hooks import CutShort
from backupd.host.signals import shielded
from backupd.load import WriteProbe
from backupd.load.baseline import Baseline, measure_baseline, watch_baseline
from backupd.load.observer import Observer
from backupd.lvm.extending import extension, further_bytes
from backupd.operations.backup.attempt import Attempt
from backupd.policy.settle_gate import COW_AREA, Area
from backupd.report.gate_words import gate_words
from backupd.report.words import size
from backupd.vocabulary.errors import CommandError, GaveUp, SnapshotVoid, UnexpectedOutput
from backupd.vocabulary.penalty import GateOutcome, Reason, Verdict
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.volumes import CowUsage, Snapshot, Volume

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between two looks at the COW area


def take_baseline(attempt: Attempt, owed: ExitStack, probe: WriteProbe | None) -> Baseline:
    """What writes cost before the snapshot. The probe file must exist before it, to be copied on write as data is."""
    job, run = attempt.job.settle, attempt.run
    meter, cost_meter = attempt.meter, attempt.cost_meter
    baseline = None
    if not job.enabled:
        probe = None
    if probe is not None:
        cost_meter.wait_undisturbed()
        try:
            baseline = _measured(attempt, owed, probe)
        except (CommandError, UnexpectedOutput) as error:
            log.warning("no probe: %s", error.message)
            run.attention(f"no probe: the gate relied on the passive meter alone: {error.message}")
    baseline = baseline or watch_baseline(meter, looks=job.baseline_windows, seconds=job.window_seconds)
    if probe is None:
        cost_meter.wait_undisturbed()  # afterwards: both only watch, and may watch the same seconds
    run.samples(baseline.samples)
    cost_meter.sampled(baseline.samples)
    return baseline


def _measured(attempt: Attempt, owed: ExitStack, probe: WriteProbe) -> Baseline:
    """By the probe, whose file is there until `owed` ends. A failure leaves none of it: the room is the server's.

    Raises:
        CommandError, UnexpectedOutput: there is too little room, or it cannot be measured.
    """
    job, tools, folder = attempt.job.settle, attempt.tools, attempt.probe_folder
    if lack := tools.files.room(attempt.ready.mount.path).lack_for_probe(job.file_size, attempt.ready.mount.path):
        raise CommandError(lack)
    with ExitStack() as unless_measured:
        unless_measured.enter_context(held(attempt.run, Holding(HoldingKind.PROBE_FILES, str(folder)), tools.releases))
        probe.prepare(folder)
        baseline = measure_baseline(
            probe, folder, windows=job.baseline_windows, seconds=job.window_seconds, meter=attempt.meter
        )
        with shielded():  # a signal between the two stacks would leave the file
            owed.enter_context(unless_measured.pop_all())
    return baseline


def observer_of(attempt: Attempt, baseline: Baseline, snapshot: Snapshot, probe: WriteProbe | None) -> Observer:
    """Who watches this snapshot from entering the block to leaving it."""
    job, tools = attempt.job, attempt.tools
    return Observer(
        probe=probe,
        folder=attempt.probe_folder,
        baseline=baseline,
        read_usage=lambda: _usage(attempt, snapshot),
        read_lag=tools.server.replica_lag_seconds,
        extend=_extension(attempt, snapshot),
        growth=further_bytes(attempt.plan, attempt.ready.group),
        window_seconds=job.settle.window_seconds,
        duty=job.settle.duty,
        tick_seconds=LOOK_SECONDS,
        limits=attempt.settle_limits,
        area=_area(attempt.ready.volume, attempt.job.copy.max_rate),
        meter=attempt.meter,
        copy_seconds=attempt.copy_seconds,
        guess_seconds=attempt.guess_seconds,
    )


def _usage(attempt: Attempt, snapshot: Snapshot) -> CowUsage:
    """How full it is now, which is told as well."""
    usage = attempt.tools.snapshots.usage(snapshot)
    if usage.total:
        attempt.phases.telling.filled(usage.used / usage.total)
    return usage


def _extension(attempt: Attempt, snapshot: Snapshot) -> Callable[[int, int], int] | None:
    """None for a pool, which is everybody's, and where the job keeps the group's room for something else."""
    if snapshot.origin.pool is not None or not attempt.job.snapshot.extend:
        return None
    return extension(attempt.tools.snapshots, snapshot, attempt.plan)


def _area(volume: Volume, max_rate: int | None) -> Area:
    """What the snapshot's old blocks, or the new ones of a thin volume, fill."""
    sooner = "" if max_rate is None else f"raise copy.max_rate (now {size(max_rate)}/s)"
    if volume.pool is None:
        return replace(COW_AREA, sooner=sooner)
    pool = f"{volume.vg}/{volume.pool.name}"
    remedy = f"extend the pool (lvextend --size +SIZE, or --poolmetadatasize +SIZE, {pool})"
    return Area(f"thin pool {pool}", remedy, sooner)


def wait_until_cheap(attempt: Attempt, observer: Observer) -> Verdict:
    """Wait until the penalty is worth paying.

    Raises:
        GaveUp: a limit was exceeded: the backup is aborted, to spare the server.
        SnapshotVoid: the COW area overflowed or failed meanwhile.
    """
    verdict = observer.wait_for_verdict()
    attempt.run.verdict(verdict)
    log.info("gate %s", gate_words(verdict))
    if verdict.outcome is GateOutcome.GIVE_UP:
        raise GaveUp(
            f"backup aborted ({verdict.reason}): {verdict.detail}",
            hint=f"see `backupd show RUN`; {observer.way_out}",
        )
    return verdict


def require_worth_keeping(observer: Observer) -> None:
    """The snapshot, of which all has been copied, may stay for a hook: it costs no more than the job lets it.

    Raises:
        CutShort: it is to go now. The copy loses nothing by that, whatever has become of the snapshot.
    """
    try:
        observer.require_within_limits()
    except GaveUp:
        raise CutShort(f"{observer.passed}, so the snapshot is not kept any longer; the copy is complete") from None
    except SnapshotVoid as error:
        raise CutShort(f"{error.message}; the copy is complete") from error


def note_what_needs_attention(run: RunJournal, verdict: Verdict, observer: Observer) -> None:
    """A good backup that someone should look at all the same: exit status 3."""
    if verdict.reason in {Reason.MAX_WAIT, Reason.NO_DATA}:
        run.attention(f"the copy started before the penalty had settled ({verdict.reason}): {verdict.detail}")
    for trouble in observer.trouble:
        run.attention(trouble)
