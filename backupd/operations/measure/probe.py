"""One probe: what writes cost without a snapshot, with one, and until it has settled.

Read `measure`, then `_round` and `_with_snapshots`, aloud. As in a backup, everything that is made on the host has its
scope and is released in reverse order, whatever happens. No server is needed and none is locked: LVM freezes the file
system by itself, and nobody will restore these snapshots.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar

from backupd.catalogue.store import Catalogue
from backupd.config import LimitsConfig, SettleConfig
from backupd.load.tally import Measured
from backupd.operations.gate_limits import gate_limits
from backupd.operations.measure import cow_comparison, ground
from backupd.operations.measure.ground import Subject
from backupd.operations.measure.probe_steps import ProbeSteps, ProbeTelling, variant_words
from backupd.operations.tools import HostTools, Instruments
from backupd.operations.upkeep import recover
from backupd.policy import probe_plan
from backupd.policy.settle_gate import SETTLE, decide
from backupd.vocabulary.errors import CommandError, ProbeError, UnexpectedOutput
from backupd.vocabulary.gauges import CurvePoint, FileLoad, Mode, Stage
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict
from backupd.vocabulary.probes import Curve, Measurement, ProbedVolume, ProbeRequest, ProbeRow, ProbeSettings, Variant
from backupd.vocabulary.records import RunKind

Found = TypeVar("Found", ProbeRow, Curve)

_SETTLED_WINDOWS = 3
_PLATEAU_LOOKS = 6  # a look of a passive probe is a whole window


def measure(
    request: ProbeRequest,
    subject: Subject,
    tools: HostTools,
    instruments: Instruments,
    catalogue: Catalogue,
    *,
    run_id: str,
    telling: ProbeTelling | None = None,
    holds_group: bool = False,
) -> Measurement:
    """Probe a volume; the catalogue has the result. Whether this returns or raises, nothing of ours is left.

    A run of ours that has claimed the volume's group, and released what dead runs left, says so by `holds_group`.

    Raises:
        Busy, Refused, SnapshotError, GaveUp, ProbeError, Cancelled: as they say; the run's row keeps the error, and
            no figure of a probe that did not finish is kept.
    """
    telling = telling or ProbeTelling()
    with (
        tools.claims.run(run_id),
        catalogue.open_run(subject.job, subject.host, run_id=run_id, kind=RunKind.PROBE) as run,
        ExitStack() as claimed,
    ):
        if not holds_group:
            recover.clean_up_dead_runs(catalogue, tools, every_disk=False, targets=())
        mount, volume = ground.find(subject, tools)
        if not holds_group:  # a live run's snapshot is not refused, but waited for
            claimed.enter_context(tools.claims.volume_group(volume.vg, run_id))
        found = ground.require(request, subject, tools, instruments, mount, tunings=catalogue.tunings())
        telling.bill(probe_plan.bill(request, found.variants, cow_size=found.cow_size), found)
        steps = ProbeSteps(request, found, tools, instruments, run, telling)
        if request.tune:
            with explained("probe"):
                cow_comparison.rounds(steps)
        elif request.passive:
            with explained("probe"), steps.guarded():
                _watch(steps)
        else:
            telling.step("writing the probe's file")
            with explained("probe"), steps.file(), steps.guarded():
                for number in range(1, request.repeat + 1):
                    _round(steps, number)
        measurement = _result(steps)
        run.measured(measurement)
    return measurement


@contextmanager
def explained(command: str) -> Iterator[None]:
    """What a load's program, the kernel's counters and reads of ours raise is the failure of this command."""
    try:
        yield
    except (CommandError, UnexpectedOutput) as error:
        hint = error.hint or f"check the kernel log (dmesg); `backupd -v {command} …` shows the commands"
        raise ProbeError(error.message, hint=hint) from error


def _round(steps: ProbeSteps, number: int) -> None:
    """Every row once: each load without a snapshot, then with each kind of them, right after one another."""
    for load in probe_plan.write_loads(steps.request):
        steps.telling.step(f"round {number}: {_load_words(load)} without a snapshot")
        steps.tally.add(load, None, Stage.BASELINE, steps.window(load))
        for variant in steps.ground.variants:
            with steps.snapshots(variant) as began:
                _with_snapshots(steps, load, variant, number=number, began=began)
    if steps.request.reads:
        _reads(steps, number)


def _with_snapshots(steps: ProbeSteps, load: FileLoad, variant: Variant, *, number: int, began: float) -> None:
    """The penalty at first; for a rewrite its decay; while a copy reads the snapshot, where that was asked for."""
    steps.telling.step(f"round {number}: {_load_words(load)} with {variant_words(variant)}")
    first = steps.window(load)
    steps.tally.add(load, variant, Stage.FIRST, first)
    if load.mode is Mode.REWRITE:
        _decay(steps, load, variant, first=first, number=number, began=began)
    if steps.request.while_copying:
        steps.telling.step(f"round {number}: {_load_words(load)} while the snapshot is copied")
        with steps.copied() as copy:
            copy.require_running()
            copying = steps.window(load)
            copy.require_running()
        steps.tally.add(load, variant, Stage.COPYING, copying)


def _decay(steps: ProbeSteps, load: FileLoad, variant: Variant, *, first: Measured, number: int, began: float) -> None:
    """Rewrite until the penalty has settled, falls no more, or the wait is over; the gate's own function decides."""
    measured, verdict = [first], _judge(steps, load, [first], began)
    while verdict.outcome is GateOutcome.WAIT:
        measured.append(steps.window(load))
        verdict = _judge(steps, load, measured, began)
    _keep_decay(steps, load, variant, measured, verdict, number=number, began=began)


def _watch(steps: ProbeSteps) -> None:
    """No load of ours: what the kernel counts of all writes, before and after a snapshot was taken."""
    load, variant = FileLoad(Mode.PASSIVE, threads=1, block_size=0, area=0), steps.ground.variants[0]
    steps.telling.step("watching writes without a snapshot")
    for _ in range(steps.request.repeat):
        steps.tally.add(load, None, Stage.BASELINE, steps.idle_window())
    with steps.snapshots(variant) as began:
        steps.telling.step(f"watching writes with {variant_words(variant)}")
        measured = [steps.idle_window()]
        steps.tally.add(load, variant, Stage.FIRST, measured[0])
        verdict = _judge(steps, load, measured, began)
        while verdict.outcome is GateOutcome.WAIT:
            measured.append(steps.idle_window())
            verdict = _judge(steps, load, measured, began)
    _keep_decay(steps, load, variant, measured, verdict, number=1, began=began)


def _judge(steps: ProbeSteps, load: FileLoad, measured: list[Measured], began: float) -> Verdict:
    """What the gate of a run would say of these windows."""
    passive = load.mode is Mode.PASSIVE
    samples = [
        Sample(
            at_seconds=one.after.at - began,
            stage=SETTLE,
            iops=None if passive else one.window.iops,
            ratio=steps.tally.penalty(load, one),
            cow_used=one.after.cow_used,
            cow_rate=_cow_rate(one) if passive else None,  # a window of ours makes first writes of ours
            write_latency_ms=one.window.latency_avg_ms if passive else None,
        )
        for one in measured
    ]
    limits = replace(
        gate_limits(SettleConfig(), LimitsConfig()),
        threshold=steps.request.threshold,
        windows=_SETTLED_WINDOWS,
        plateau_looks=_PLATEAU_LOOKS,
        max_wait_seconds=steps.request.longest_wait_seconds,
        patience=None,  # no copy waits for it
    )
    now = measured[-1].after.at - began
    before = steps.tally.latency_before(load) if passive else None
    return decide(samples, limits, now_seconds=now, probing=not passive, baseline_latency_ms=before)


def _keep_decay(
    steps: ProbeSteps,
    load: FileLoad,
    variant: Variant,
    measured: list[Measured],
    verdict: Verdict,
    *,
    number: int,
    began: float,
) -> None:
    for one in measured[-_SETTLED_WINDOWS:]:
        steps.tally.add(load, variant, Stage.SETTLED, one)
    points = tuple(
        CurvePoint(
            at_seconds=one.after.at - began,
            iops=one.window.iops,
            penalty=steps.tally.penalty(load, one),
            cow_used=one.after.cow_used,
            latency_ms=one.after.origin.since(one.before.origin).write_latency_ms,
        )
        for one in measured
    )
    steps.curves.append(
        Curve(
            mode=load.mode,
            threads=load.threads,
            chunk_size=variant.chunk_size,
            cow_pvs=variant.cow_pvs,
            snapshots=variant.snapshots,
            repeat=number,
            reason=verdict.reason,
            points=points,
            cow_stripes=variant.stripes,
        )
    )


def _cow_rate(measured: Measured) -> float | None:
    before, after = measured.before.cow_used, measured.after.cow_used
    return None if before is None or after is None else max(0, after - before) / measured.window.seconds


def _reads(steps: ProbeSteps, number: int) -> None:
    """What reading costs: the origin and the snapshot, before every chunk of the file has been copied, and after."""
    steps.telling.step(f"round {number}: reads without a snapshot")
    for mode in probe_plan.read_modes(steps.request):
        load = probe_plan.read_load(steps.request, mode)
        steps.tally.add(load, None, Stage.BASELINE, steps.reading(load, steps.folder))
    for variant in steps.ground.variants:
        with steps.snapshots(variant):
            _read_both(steps, variant, Stage.FIRST, number)
            if steps.request.scans_only:
                continue
            steps.telling.step(f"round {number}: rewriting the whole file, to fill {variant_words(variant)}")
            steps.rewrite_everything()
            _read_both(steps, variant, Stage.FILLED, number)


def _read_both(steps: ProbeSteps, variant: Variant, stage: Stage, number: int) -> None:
    steps.telling.step(f"round {number}: reads with {variant_words(variant)}, {stage}")
    for mode in probe_plan.read_modes(steps.request):
        load = probe_plan.read_load(steps.request, mode)
        steps.tally.add(load, variant, stage, steps.reading(load, steps.folder))
    with steps.mounted() as root:
        folder = root / steps.ground.mount.inside(steps.folder)
        for mode in probe_plan.read_modes(steps.request, of_snapshot=True):
            load = probe_plan.read_load(steps.request, mode)
            steps.tally.add(load, variant, stage, steps.reading(load, folder))


def _result(steps: ProbeSteps) -> Measurement:
    """Everything that was found, with everything that it depends on."""
    request, found = steps.request, steps.ground
    volume = found.volume
    return Measurement(
        volume=ProbedVolume(
            name=volume.full_name,
            size=volume.size,
            layout=volume.layout,
            stripes=volume.stripes,
            stripe_size=volume.stripe_size,
            pvs=volume.devices,
            filesystem=found.mount.filesystem,
            thin=volume.pool is not None,
            kernel=found.versions.kernel,
            lvm=found.versions.lvm,
            sysbench=found.versions.sysbench,
        ),
        settings=ProbeSettings(
            seconds=request.seconds,
            repeat=request.repeat,
            block_size=request.block_size,
            file_size=request.file_size,
            rewrite_size=request.rewrite_size,
            write_share=request.write_share,
            chunk_size=found.variants[0].chunk_size,
            cow_pvs=_where(steps, found.variants[0]),
            cow_size=found.cow_size,
            threshold=request.threshold,
            cow_stripes=found.variants[0].stripes,
        ),
        rows=tuple(_placed(steps, row) for row in steps.tally.rows()),
        curves=tuple(_placed(steps, curve) for curve in steps.curves),
        notes=tuple(dict.fromkeys(_notes(steps))),
        tuning=steps.tuning,
    )


def _placed(steps: ProbeSteps, found: Found) -> Found:
    """The same, with the PVs that LVM chose where none were asked for."""
    if found.chunk_size is None:
        return found
    variant = Variant(found.chunk_size, found.cow_pvs, found.snapshots, found.cow_stripes)
    return replace(found, cow_pvs=_where(steps, variant))


def _where(steps: ProbeSteps, variant: Variant) -> tuple[str, ...]:
    """The PVs that the COW area was asked for on, or that LVM chose."""
    return variant.cow_pvs or steps.placed.get(variant, ())


def _notes(steps: ProbeSteps) -> list[str]:
    """What a reader must know to judge the figures."""
    notes = [f"load average at the start: {steps.ground.load_average:.1f}"]
    if steps.ground.note:
        notes.append(steps.ground.note)
    notes += [*steps.ground.passed_over, *steps.failed]
    if steps.request.write_share < 1 and {Mode.SYNC, Mode.FSYNC_100} & set(steps.request.modes):
        notes.append("reads in sync and fsync-100 come from memory: these modes do not bypass the cache")
    for curve in steps.curves:
        variant = Variant(curve.chunk_size, curve.cow_pvs, curve.snapshots, curve.cow_stripes)
        what = f"{curve.mode} on {variant_words(variant)}"
        if curve.reason is Reason.MAX_WAIT:
            smaller = " or lower --rewrite-size" if curve.mode is Mode.REWRITE else ""
            notes.append(f"{what} had not settled when time was up: raise --max-wait{smaller}")
        elif curve.mode is Mode.REWRITE and len(curve.points) <= _SETTLED_WINDOWS:
            notes.append(f"{what} settled within a few windows: raise --rewrite-size to see how it decays")
    return notes


def _load_words(load: FileLoad) -> str:
    return f"{load.mode}, {load.threads} thread{'s' if load.threads > 1 else ''}"
