"""What the steps of one probe share: windows between two looks, snapshots and mounts in their scopes.

Knows: how a window is measured and watched over, how one or more snapshots come and go.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from backupd.catalogue import RunJournal
from backupd.host.holdings import held
from backupd.host.signals import shielded
from backupd.load import PROBE_FILE, FileProbe
from backupd.load.guard import ProbeGuard
from backupd.load.tally import CounterLook, Measured, Tally
from backupd.operations.measure import ground
from backupd.operations.measure.dry_copy import DryCopy
from backupd.operations.measure.ground import Ground
from backupd.operations.tools import HostTools, Instruments
from backupd.policy.probe_plan import ProbeCost
from backupd.policy.settle_gate import MAX_METADATA_FILL
from backupd.vocabulary.benches import SMALL_RECORD
from backupd.vocabulary.errors import CommandError, GaveUp, SnapshotVoid
from backupd.vocabulary.gauges import FileLoad, Mode, Tuning, place_words
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.probes import Curve, ProbeRequest, Variant
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.units import size_words
from backupd.vocabulary.volumes import CowUsage, Snapshot, SnapshotPlan, ThinPool


@dataclass(frozen=True, slots=True)
class ProbeTelling:
    """Whom a probe tells how it goes: a display, a test, nobody."""

    bill: Callable[[ProbeCost, Ground], None] = lambda _bill, _ground: None
    step: Callable[[str], None] = lambda _step: None
    disks: Callable[[Mapping[str, float], float], None] = lambda _rates, _latency: None  # PV -> requests/s; ms


@dataclass
class ProbeSteps:
    """One probe under way, and what it has found so far."""

    request: ProbeRequest
    ground: Ground
    tools: HostTools
    instruments: Instruments
    run: RunJournal
    telling: ProbeTelling
    tally: Tally = field(default_factory=Tally)
    curves: list[Curve] = field(default_factory=list)
    placed: dict[Variant, tuple[str, ...]] = field(default_factory=dict)  # where LVM put the COW areas
    tuning: Tuning | None = None
    failed: list[str] = field(default_factory=list)  # places of the COW area that a tuning gave up, and why
    _live: tuple[Snapshot, ...] = ()
    _current: FileProbe | None = None
    _guard: ProbeGuard | None = None

    @property
    def folder(self) -> Path:
        """On the volume itself: its chunks are to be copied on write as the server's are."""
        return self.tools.places.probe_folder(self.ground.mount.path, self.run.run_id)

    @contextmanager
    def file(self) -> Iterator[None]:
        """Within the block the probe's file is there, every block of it written and on the disk.

        Raises:
            CommandError: sysbench failed.
        """
        holding = Holding(HoldingKind.PROBE_FILES, str(self.folder))
        with held(self.run, holding, self.tools.releases):
            self.instruments.file_probe(self._whole_file).prepare(self.folder)
            self.tools.files.sync(self.ground.mount.path)
            yield

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Within the block the disks are watched, and a window that must not go on is ended."""
        guard = ProbeGuard(
            self.look,
            max_write_latency_ms=self.request.max_write_latency_ms,
            interrupt=self._interrupt,
            tell=self.telling.disks,
        )
        with ExitStack() as watching:
            with shielded():  # a signal between its thread's start and the block would leave the thread behind
                self._guard = watching.enter_context(guard)
            yield

    @contextmanager
    def snapshots(self, variant: Variant) -> Iterator[float]:
        """Within the block there are as many snapshots as the variant says; yields the instant when the last came."""
        with ExitStack() as owed:
            taken = [self._take(variant, number, owed) for number in range(variant.snapshots)]
            self._live = tuple(taken)
            try:
                yield time.monotonic()
            finally:
                self._live = ()  # before they go: the guard takes a missing one for a lost one

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Within the block the (first) snapshot can be read there."""
        at = self.tools.places.mount_point(self.run.run_id)
        holding = Holding(HoldingKind.MOUNT, str(at), {"run": self.run.run_id})
        with held(self.run, holding, self.tools.releases):
            self.tools.mounts.mount(self._live[0], at, ledger=self.run)
            yield at

    @contextmanager
    def copied(self) -> Iterator[DryCopy]:
        """Within the block a copy reads the (first) snapshot."""
        with ExitStack() as copying:
            with shielded():  # as for the guard
                copy = copying.enter_context(DryCopy(self.mounted))
            yield copy

    def window(self, load: FileLoad) -> Measured:
        """One window of this load on the probe's file.

        Raises:
            GaveUp, SnapshotVoid: what the guard saw.
            CommandError, UnexpectedOutput: from sysbench.
        """
        probe = self.instruments.file_probe(load)
        return self._measured(lambda: probe.window(self.folder, self.request.seconds), probe)

    def reading(self, load: FileLoad, folder: Path) -> Measured:
        """One window of reads of the probe's file in this folder: the origin's, or the same one of a snapshot."""
        reader, seconds, file = self.instruments.reader, self.request.seconds, folder / PROBE_FILE
        if load.mode in (Mode.SCAN, Mode.SCAN_SNAPSHOT):
            return self._measured(lambda: reader.scan(file, seconds, block_size=load.block_size))
        return self._measured(lambda: reader.random(file, seconds, block_size=load.block_size, threads=load.threads))

    @property
    def _whole_file(self) -> FileLoad:
        return FileLoad(Mode.DIRECT, threads=1, block_size=SMALL_RECORD, area=self.request.file_size)

    def rewrite_everything(self) -> None:
        """Every block of the probe's file is written once more: afterwards each of its chunks has been copied."""
        probe = self.instruments.file_probe(self._whole_file)

        def work() -> Window:
            began = time.monotonic()
            written = probe.overwrite(self.folder)
            return Window(time.monotonic() - began, 0.0, written, 0.0, 0.0)

        self._measured(work, probe)

    def idle_window(self) -> Measured:
        """Wait for a window's length; what everybody wrote meanwhile is the window."""
        began = self.look()

        def work() -> Window:
            threading.Event().wait(self.request.seconds)
            ended = self.look()
            wrote, seconds = ended.origin.since(began.origin), max(ended.at - began.at, 0.001)
            return Window(seconds, wrote.writes / seconds, wrote.write_bytes, wrote.write_latency_ms or 0.0, 0.0)

        return self._measured(work)

    def look(self) -> CounterLook:
        """The kernel's counters now.

        Raises:
            SnapshotVoid: a snapshot has overflowed or failed.
            GaveUp: the pool of a thin volume is too full.
        """
        usages = [(snapshot, self.tools.snapshots.usage(snapshot)) for snapshot in self._live]
        for snapshot, usage in usages:
            if not usage.intact and snapshot in self._live:
                raise SnapshotVoid(
                    f"snapshot {snapshot.full_name} overflowed or failed ({usage.state}): the probe has stopped",
                    hint=(
                        "its COW area was too small for what was written: choose a quieter hour or a smaller"
                        " --file-size, or free space in the volume group"
                    ),
                )
        if usages and self.ground.volume.pool is not None:
            self._require_room_in_pool(self.ground.volume.pool, usages[0][1])
        counters = self.instruments.counters
        return CounterLook(
            at=time.monotonic(),
            origin=counters.disk(self.ground.volume.device),
            pvs={pv: counters.disk(counters.number_of(Path(pv))) for pv in self._pvs},
            cow_used=self._cow_used([usage for _, usage in usages]),
        )

    def _require_room_in_pool(self, pool: ThinPool, usage: CowUsage) -> None:
        """Every volume of a pool that is full stands still, or fails: a probe ends before a backup would."""
        limit = self.ground.max_pool_fill
        for what, fill, most in (("", usage.fill, limit), ("the metadata of ", usage.metadata_fill, MAX_METADATA_FILL)):
            if fill > most:
                raise GaveUp(
                    f"{what}thin pool {self.ground.volume.vg}/{pool.name} is {fill:.0%} full, the limit is {most:.0%}:"
                    " the probe has stopped",
                    hint="extend the pool, or choose a quieter hour",
                )

    def _cow_used(self, usages: list[CowUsage]) -> int | None:
        """Bytes that were copied on write; of a thin pool, which all snapshots share, whatever is allocated in it."""
        if not usages:
            return None
        alone = usages[:1] if self.ground.volume.pool is not None else usages
        return sum(usage.used - usage.metadata for usage in alone)

    @property
    def _pvs(self) -> tuple[str, ...]:
        """Every PV that the origin or a COW area may lie on."""
        return tuple(dict.fromkeys((*self.ground.volume.devices, *self.ground.group.free_by_pv)))

    def _take(self, variant: Variant, number: int, owed: ExitStack) -> Snapshot:
        plan = self._plan(variant, number)
        holding = Holding(HoldingKind.SNAPSHOT, f"{plan.origin.vg}/{plan.name}", {"run": self.run.run_id})
        owed.enter_context(held(self.run, holding, self.tools.releases))
        free = self._free()
        with self.tools.snapshots.prepared(plan, self.run) as creator:
            left = self._free()
            chosen = [pv for pv in free if left.get(pv, 0) < free[pv]]
            earlier = self.placed.get(variant, ()) if number else ()  # those of the same group of snapshots
            self.placed[variant] = tuple(dict.fromkeys((*earlier, *chosen)))
            self.tools.files.sync(self.ground.mount.path)
            return creator.create()

    def _plan(self, variant: Variant, number: int) -> SnapshotPlan:
        """A further one needs a name of its own."""
        group = self.tools.snapshots.group(self.ground.volume.vg)
        plan = ground.bench_plan_of(self.ground, group, self.run.run_id, variant)
        return replace(plan, name=f"{plan.name}-{number + 1}") if number else plan

    def _free(self) -> Mapping[str, int]:
        return self.tools.snapshots.group(self.ground.volume.vg).free_by_pv

    def _measured(self, work: Callable[[], Window], probe: FileProbe | None = None) -> Measured:
        """Do a window's work between two looks."""
        assert self._guard is not None
        before = self.look()
        self._current = probe
        try:
            self._guard.require_fine()  # only now: what ended it until then had nothing to interrupt
            window = work()
        except CommandError:
            self._guard.require_fine()  # it was the guard that ended it
            raise
        finally:
            self._current = None
        self._guard.require_fine()
        return Measured(window, before, self.look())

    def _interrupt(self) -> None:
        if self._current is not None:
            self._current.interrupt()
        self.instruments.reader.interrupt()


def variant_words(variant: Variant) -> str:
    """A snapshot of this kind, for a step or a note."""
    where = f" {place_words(*variant.place)}" if variant.cow_pvs or variant.stripes > 1 else ""
    count = f"{variant.snapshots} snapshots" if variant.snapshots > 1 else "a snapshot"
    return f"{count} of {size_words(variant.chunk_size)} chunks{where}"
