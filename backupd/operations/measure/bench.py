"""One bench: does striping pay on this host? Scratch volumes of several layouts, measured one after the other.

Read `run_bench`, then `_measure`, aloud. Everything that is made on the host has its scope and is released in reverse
order, whatever happens. No volume that is there is touched, and no server is needed.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.lvm import disks_of
from backupd.operations.measure.bench_steps import BenchSteps, BenchTelling
from backupd.operations.measure.ground import require_calm
from backupd.operations.measure.probe import explained
from backupd.operations.tools import BenchTools, HostTools
from backupd.operations.upkeep import recover
from backupd.policy.bench_plan import Disks, bench_plan_of, group_disks, whole_disks
from backupd.policy.bench_request import require_sound
from backupd.policy.published_benches import tables_of
from backupd.vocabulary.benches import (
    BenchHost,
    BenchPlan,
    BenchRequest,
    BenchSettings,
    LayoutBench,
    PlannedLayout,
)
from backupd.vocabulary.errors import CommandError, Refused, SnapshotError, UnexpectedOutput
from backupd.vocabulary.records import RunKind
from backupd.vocabulary.scratch_layouts import Medium
from backupd.vocabulary.units import size_words

_FAULTS = (SnapshotError, CommandError, UnexpectedOutput)
_MOST_MOVED = 1.05  # times what a load asked for: the rest may be a file system's journal, which slow disks feel


@dataclass(frozen=True, slots=True)
class _Found:
    """What a bench knows once nothing forbids it."""

    plan: BenchPlan
    host: BenchHost
    load_average: float


def plan_bench(request: BenchRequest, tools: HostTools, bench_tools: BenchTools) -> BenchPlan:
    """What a bench of this request would do, here and now. Nothing is changed.

    Raises:
        UsageError: something is asked for that no host has.
        Refused: the first thing that forbids it here.
    """
    return _look(request, tools, bench_tools).plan


def run_bench(
    request: BenchRequest,
    agreed: BenchPlan,
    tools: HostTools,
    bench_tools: BenchTools,
    catalogue: Catalogue,
    *,
    run_id: str,
    telling: BenchTelling | None = None,
) -> LayoutBench:
    """Measure what was agreed to; the catalogue has the result. However it ends, nothing of ours is left on the host.

    Raises:
        Busy: another run has the volume group or a disk.
        Refused: the host is not any more as it was when the plan was agreed to; nothing was touched.
        SnapshotError, ProbeError, Cancelled: as they say; the run's row keeps the error, and no figure of a bench that
            did not finish is kept. Probes that did are runs of their own.
    """
    with (
        tools.claims.run(run_id),
        catalogue.open_run("", "", run_id=run_id, kind=RunKind.BENCH) as run,
        _claimed(request, tools, run_id),
    ):
        recover.clean_up_dead_runs(catalogue, tools)
        found = _look(request, tools, bench_tools)
        _require_as_agreed(found.plan, agreed)
        steps = BenchSteps(request, found.plan, tools, bench_tools, catalogue, run, telling or BenchTelling())
        steps.require_names()
        with explained("bench layouts"), steps.watched():
            for planned in found.plan.volumes:
                with steps.scratch(planned) as device:
                    _measure(steps, planned, device)
        bench = _result(found, steps)
        run.benched(bench)
    return bench


def _measure(steps: BenchSteps, planned: PlannedLayout, device: Path) -> None:
    """Every load on one layout, on its device while it has no file system; then what the layout means for backups."""
    layout = planned.layout
    _rounds(steps, planned, device, Medium.RAW)
    with steps.mounted(layout, device) as root:
        _rounds(steps, planned, root, Medium.FILE)
        if steps.plan.snapshots and layout.is_volume:
            steps.probe(layout, root)


def _rounds(steps: BenchSteps, planned: PlannedLayout, where: Path, medium: Medium) -> None:
    """Each round has every load once, so that what comes and goes on the host falls on all of them."""
    cells = [cell for cell in planned.cells if cell.medium is medium]
    if cells:
        steps.prepare(planned.layout, where, medium)
    for number in range(1, steps.request.repeat + 1):
        for cell in cells:
            steps.window(planned.layout, where, cell, number=number)


# --- before anything is touched --------------------------------------------------------------------------------------


def _claimed(request: BenchRequest, tools: HostTools, run_id: str) -> AbstractContextManager[None]:
    """No other run of ours in the group, or on the disks."""
    if request.array_disks:
        return tools.claims.disks(request.array_disks, run_id)
    return tools.claims.volume_group(request.vg, run_id)


def _look(request: BenchRequest, tools: HostTools, bench_tools: BenchTools) -> _Found:
    """Everything that a bench of this request needs is here.

    Raises:
        UsageError: something is asked for that no host has.
        Refused: the first thing that forbids it.
    """
    require_sound(request)
    try:
        load_average = require_calm(bench_tools.load_average(), request.max_load, what="a bench")
        plan = bench_plan_of(request, _disks(request, tools, bench_tools))
        host = bench_tools.host(request.raw, bool(request.array_disks))
    except _FAULTS as error:
        raise Refused(error.message, hint=error.hint) from error
    return _Found(plan, host, load_average)


def _disks(request: BenchRequest, tools: HostTools, bench_tools: BenchTools) -> Disks:
    """The room on each PV; or the size of each named disk, which is proven to be empty."""
    if request.array_disks:
        tools.scratch_disks.require_distinct(request.array_disks)
        sizes = {disk: _empty_size(disk, request, tools) for disk in request.array_disks}
        return whole_disks(sizes, max(bench_tools.sector_size(Path(disk)) for disk in sizes))
    group = tools.snapshots.group(request.vg)
    sector_size = max((bench_tools.sector_size(Path(pv)) for pv in group.free_by_pv), default=512)
    return group_disks(group, sector_size, names=request.pvs)


def _empty_size(disk: str, request: BenchRequest, tools: HostTools) -> int:
    """The size in bytes of a disk with nothing on it; what a run of ours has on it is no more to be overwritten.

    Raises:
        Refused: there is something on it, or it is no disk.
    """
    try:
        return tools.scratch_disks.require_empty(Path(disk), overwrite_leftovers=request.overwrite_leftovers)
    except Refused as error:
        paths = {disk, str(Path(disk).resolve())}
        owners = [run_id for holding, run_id in tools.scratch_disks.ours() if paths & {*disks_of(holding)}]
        if not owners:
            raise
        hint = f"run {owners[0]} of backupd is using it: wait for it; if it died: backupd recover"
        raise Refused(error.message, hint=hint) from error


def _require_as_agreed(plan: BenchPlan, agreed: BenchPlan) -> None:
    if plan != agreed:
        raise Refused(
            "the host has changed since the plan was confirmed: the plan would be different now",
            hint="disks were used or freed in the meantime: start again, and check the new plan",
        )


# --- what was found --------------------------------------------------------------------------------------------------


def _result(found: _Found, steps: BenchSteps) -> LayoutBench:
    """Everything that was found, with everything that it depends on."""
    plan, request = found.plan, steps.request
    return LayoutBench(
        host=found.host,
        settings=BenchSettings(
            vg=plan.vg,
            disks=plan.disks,
            filesystem=plan.filesystem,
            file_size=plan.file_size,
            volume_size=plan.volume_size,
            seconds=request.seconds,
            repeat=request.repeat,
            tables=tuple(table.value for table in tables_of(request)),
        ),
        layouts=tuple(planned.layout for planned in plan.volumes),
        cells=steps.cells(),
        samples=tuple(steps.watch.samples),
        snapshots=tuple(steps.snapshots),
        notes=tuple(_notes(found, steps)),
    )


def _notes(found: _Found, steps: BenchSteps) -> Iterator[str]:
    """What a reader must know to judge the figures."""
    yield f"load average at the start: {found.load_average:.1f}"
    memory = found.host.memory >> 20 << 20
    yield (
        f"{size_words(found.plan.file_size)} of data, {size_words(memory)} of RAM: caches are bypassed (O_DIRECT),"
        " except those of the disks themselves"
    )
    yield from found.plan.notes
    most = max((sum(cell.shares.values()), cell.layout) for cell in steps.cells())
    if most[0] > _MOST_MOVED:
        yield (
            f"the disks moved up to {most[0]:.2f} times what a load asked for ({most[1]}): something else used them"
            f" at the same time, so the figures are too low"
        )
