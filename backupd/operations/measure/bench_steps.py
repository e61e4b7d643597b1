"""What the steps of one bench share: scratch volumes in their scopes, windows between two looks, the probe.

Knows: how a scratch volume comes and goes, and how a load on it is measured and watched.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backupd.catalogue import RunJournal
from backupd.catalogue.store import Catalogue
from backupd.config import SnapshotConfig, SnapshotSize
from backupd.host.holdings import held
from backupd.host.signals import shielded
from backupd.load.bench_tally import cell_result
from backupd.load.disk_watch import DiskWatch, Usage, usage
from backupd.lvm import holding_on_disks, scratch_name
from backupd.operations.measure.ground import Subject
from backupd.operations.measure.probe import measure
from backupd.operations.measure.probe_steps import ProbeTelling
from backupd.operations.tools import BenchTools, HostTools
from backupd.policy.bench_cost import SNAPSHOT_SIZE, probe_request
from backupd.policy.chunk_size import USUAL
from backupd.vocabulary.benches import (
    BenchPlan,
    BenchRequest,
    Cell,
    CellResult,
    DiskSample,
    PlannedLayout,
    SnapshotFigures,
)
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import Mode, Stage
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.probes import Measurement
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import LayoutKind, Medium, ScratchLayout
from backupd.vocabulary.units import size_words


@dataclass(frozen=True, slots=True)
class BenchTelling:
    """Whom a bench tells how it goes: a display, a test, nobody."""

    step: Callable[[str], None] = lambda _step: None
    disks: Callable[[DiskSample], None] = lambda _sample: None


@dataclass
class BenchSteps:
    """One bench under way, and what it has found so far."""

    request: BenchRequest
    plan: BenchPlan
    tools: HostTools
    bench_tools: BenchTools
    catalogue: Catalogue
    run: RunJournal
    telling: BenchTelling
    snapshots: list[SnapshotFigures] = field(default_factory=list)
    _measured: dict[tuple[str, Cell], list[tuple[Window, Usage]]] = field(default_factory=dict)
    _watch: DiskWatch | None = None

    # --- what comes and goes -----------------------------------------------------------------------------------------

    def require_names(self) -> None:
        """Nothing in the group has a name of ours.

        Raises:
            Refused: something has.
        """
        if self.plan.vg:
            for planned in self.plan.volumes:
                self.bench_tools.volumes.require_unused(self.plan.vg, self.volume_name(planned.layout))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block the disks and the processors are looked at every second."""
        counters = self.bench_tools.counters
        disks = {disk: counters.number_of(Path(disk)) for disk in self.plan.disks}
        watch = DiskWatch(counters, disks, interrupt=self._interrupt, tell=self.telling.disks)
        with ExitStack() as watching:
            with shielded():  # a signal between its thread's start and the block would leave the thread behind
                self._watch = watching.enter_context(watch)
            yield

    @contextmanager
    def scratch(self, planned: PlannedLayout) -> Iterator[Path]:
        """Within the block the scratch volume is there, and nothing is on it; yields its device.

        Raises:
            Refused: something has its name.
            SnapshotError: it could not be made.
        """
        layout = planned.layout
        self.step(layout, "creating the volume")
        with ExitStack() as owed:
            if layout.kind is LayoutKind.RAID0:
                yield owed.enter_context(self._array(layout))
            else:
                vg = self.plan.vg or owed.enter_context(self._group(layout.disks))
                yield owed.enter_context(self._volume(vg, planned))
            self.step(layout, "removing the volume")

    @contextmanager
    def mounted(self, layout: ScratchLayout, device: Path) -> Iterator[Path]:
        """Within the block the volume has a file system, aligned to its stripes, that is mounted there.

        Raises:
            SnapshotError: it could not be made or mounted.
        """
        self.step(layout, f"creating its {self.plan.filesystem}")
        self.bench_tools.volumes.format(device, layout, self.plan.filesystem, ledger=self.run)
        at = self.tools.places.mount_point(self.run.run_id)
        holding = Holding(HoldingKind.MOUNT, str(at), {"run": self.run.run_id})
        with held(self.run, holding, self.tools.releases):
            self.bench_tools.volumes.mount(device, self.plan.filesystem, at, ledger=self.run)
            yield at

    def volume_name(self, layout: ScratchLayout) -> str:
        """What the layout's LV is called: nothing else on any host is."""
        return f"{scratch_name(self.run.run_id)}-{layout.name}"

    @contextmanager
    def _volume(self, vg: str, planned: PlannedLayout) -> Iterator[Path]:
        name, run_id = self.volume_name(planned.layout), self.run.run_id
        holding = Holding(HoldingKind.SCRATCH_VOLUME, f"{vg}/{name}", {"run": run_id})
        with held(self.run, holding, self.tools.releases):
            yield self.bench_tools.volumes.create(
                vg, name, planned.layout, size=planned.size, run_id=run_id, ledger=self.run
            )

    @contextmanager
    def _group(self, disks: tuple[str, ...]) -> Iterator[str]:
        holding = holding_on_disks(HoldingKind.SCRATCH_GROUP, disks, self.run.run_id)
        with held(self.run, holding, self.tools.releases):
            self.tools.scratch_disks.make_group(holding.name, disks, self.run.run_id)
            yield holding.name

    @contextmanager
    def _array(self, layout: ScratchLayout) -> Iterator[Path]:
        holding = holding_on_disks(HoldingKind.SCRATCH_ARRAY, layout.disks, self.run.run_id)
        with held(self.run, holding, self.tools.releases):
            yield self.tools.scratch_disks.make_array(holding.name, layout, self.run.run_id)

    # --- what is measured --------------------------------------------------------------------------------------------

    def prepare(self, layout: ScratchLayout, where: Path, medium: Medium) -> None:
        """All that the loads on this medium work on has been written.

        Raises:
            CommandError, UnexpectedOutput: from the load's program.
        """
        self.step(layout, "writing the test file")
        self.bench_tools.loads[medium].prepare(where, self.plan.file_size)

    def window(self, layout: ScratchLayout, where: Path, cell: Cell, *, number: int) -> None:
        """One window of this load, and what the disks did meanwhile, are kept.

        Raises:
            CommandError, UnexpectedOutput: from the load's program, or the kernel's counters.
        """
        self.step(layout, f"{cell_words(cell)}, round {number} of {self.request.repeat}")
        self.watch.require_fine()
        before = self.watch.look()
        load, size = self.bench_tools.loads[cell.medium], self.plan.file_size
        try:
            window = load.window(where, cell, size=size, seconds=self.request.seconds)
        except CommandError:
            self.watch.require_fine()  # it was the watch that ended it
            raise
        found = usage(before, self.watch.look(), window)
        self._measured.setdefault((layout.name, cell), []).append((window, found))

    def probe(self, layout: ScratchLayout, root: Path) -> None:
        """What the layout means for backups, by a probe of its own: a run in the catalogue, named after this one.

        Raises:
            SnapshotError, ProbeError: as `measure` says; so does the probe's own row.
        """
        run_id = f"{self.run.run_id}-{len(self.snapshots) + 1}"
        measurement = measure(
            probe_request(self.request),
            Subject(
                lambda: self.tools.files.mount_of(root),
                SnapshotConfig(size=SnapshotSize(bytes=SNAPSHOT_SIZE), chunk_size=USUAL),
            ),
            self.tools,
            self.bench_tools.probing,
            self.catalogue,
            run_id=run_id,
            telling=ProbeTelling(step=lambda words: self.step(layout, f"probe: {words}")),
            holds_group=True,
        )
        self.snapshots.append(_figures(layout, run_id, measurement))

    @property
    def watch(self) -> DiskWatch:
        """What looks at the disks, within `watched`."""
        assert self._watch is not None
        return self._watch

    def step(self, layout: ScratchLayout, words: str) -> None:
        """This is what is done from now on."""
        self.watch.label(layout.name, words)
        self.telling.step(f"{layout.name}: {words}")

    def cells(self) -> tuple[CellResult, ...]:
        """Medians of what was measured, in the order in which it was."""
        return tuple(cell_result(layout, cell, measured) for (layout, cell), measured in self._measured.items())

    def _interrupt(self) -> None:
        for load in self.bench_tools.loads.values():
            load.interrupt()


def cell_words(cell: Cell) -> str:
    """A load as it is told while it runs: `random-write of 16 KiB, 6 threads`."""
    threads = f"{cell.threads} thread{'s' if cell.threads > 1 else ''}"
    return f"{cell.operation} of {size_words(cell.record)}, {threads}{', raw' if cell.medium is Medium.RAW else ''}"


def _figures(layout: ScratchLayout, run_id: str, measurement: Measurement) -> SnapshotFigures:
    rows = {(row.mode, row.phase): row for row in measurement.rows}

    def rate(mode: Mode, stage: Stage) -> float | None:
        row = rows.get((mode, stage))
        return row.bytes_per_second if row is not None else None

    first = rows.get((Mode.DIRECT, Stage.FIRST))
    return SnapshotFigures(
        layout=layout.name,
        probe_run_id=run_id,
        chunk_size=measurement.settings.chunk_size,
        origin_read=rate(Mode.SCAN, Stage.BASELINE),
        snapshot_read=rate(Mode.SCAN_SNAPSHOT, Stage.FIRST),
        penalty=first.penalty if first is not None else None,
    )
