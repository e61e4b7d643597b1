"""A host with free extents, or with empty disks, on which striping pays as it does on disks; for benches over fakes.

Knows: how the fakes of volumes, disks, loads and probes are one host: what lies where a load is put. Refuses to know
what a bench does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from backupd.host.process import ChildLedger
from backupd.operations.measure.bench import plan_bench, run_bench
from backupd.operations.measure.bench_steps import BenchTelling
from backupd.operations.tools import BenchTools, HostTools, Instruments, Versions
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.operations.upkeep.recovery import Recovery
from backupd.vocabulary.benches import BenchHost, BenchPlan, BenchRecord, BenchRequest, LayoutBench, PublishedTable
from backupd.vocabulary.errors import CommandError, SnapshotError
from backupd.vocabulary.gauges import DiskCounters, FileLoad, Mode, ProcessorTimes
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, ScratchLayout
from backupd.vocabulary.volumes import DeviceNumber, MountPoint
from tests.fakes.bench_loads import FakeDisks
from tests.fakes.lvm_host import EXTENT, LvmHost, striped_volume
from tests.fakes.probe import FakeDisk
from tests.fakes.scratch_disks import FakeScratchDisks
from tests.fakes.scratch_volumes import FakeScratchVolumes
from tests.story.world import World

SMALL = BenchRequest(vg="labvg", pvs=("/dev/sdb", "/dev/sdc", "/dev/sdd"), file_size=16 * MIB, seconds=1.0, repeat=2)
SHORT = replace(SMALL, widths=(2,), tables=(PublishedTable.E3,), repeat=1)  # two layouts, two loads on each, two probes
ON_DISKS = BenchRequest(array_disks=("/dev/sdx", "/dev/sdy"), file_size=16 * MIB, records=(8 * KIB, MIB), repeat=1)
PVS = ("/dev/sdb", "/dev/sdc", "/dev/sdd", "/dev/sde", "/dev/sdx", "/dev/sdy")
ARRAY = Path("/dev/md127")


@dataclass(frozen=True)
class Volumes(FakeScratchVolumes):
    """Scratch volumes, and file systems on an array too."""

    def format(
        self, device: Path, layout: ScratchLayout, filesystem: str, *, ledger: ChildLedger | None = None
    ) -> None:
        if device == ARRAY:
            with self.host.call("format"):
                return
        super().format(device, layout, filesystem, ledger=ledger)

    def mount(self, device: Path, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        if device != ARRAY:
            super().mount(device, filesystem, at, ledger=ledger)
            return
        with self.host.call("mount_scratch"):
            at.mkdir(parents=True, exist_ok=True)
            self.host.mounted[at] = ARRAY.name


@dataclass
class Disks(FakeScratchDisks):
    """Disks whose group or array cannot be taken from under what is on it."""

    host: LvmHost = field(default_factory=LvmHost)

    def remove_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        if self.host.scratch:
            raise SnapshotError(f"{vg} has volumes")
        super().remove_group(vg, disks, run_id)

    def remove_array(self, name: str, disks: tuple[str, ...], run_id: str) -> None:
        if self.host.is_mounted(ARRAY.name):
            raise SnapshotError(f"{name} is mounted")
        super().remove_array(name, disks, run_id)


class BenchWorld:
    """A world with a bench's loads. `during` is called in every window of theirs and of the probes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.host = world.host
        self.loads = FakeDisks(names=PVS, layout_at=self.layout_at, during_window=self.window_ends)
        self.probed = FakeDisk(speed=self.speed, pvs=dict.fromkeys(PVS, 1 / len(PVS)), during_window=self.window_ends)
        self.disks = world.scratch_disks = Disks(host=self.host)
        self.load_average = 0.5
        self.sector = 512
        self.missing = ""  # this program
        self.during: Callable[[], object] = lambda: None

    @classmethod
    def with_disks(cls, world: World, run_id: str = "b1") -> "BenchWorld":
        """A host whose only group is the one that a bench makes on named disks."""
        world.host.volume, world.host.free_by_pv = striped_volume(vg=f"backupd-{run_id}"), {}
        made = cls(world)
        made.disks.told = made.group_of
        return made

    def window_ends(self, _seconds: float) -> None:
        self.during()

    def group_of(self, vg: str, disks: tuple[str, ...]) -> None:
        """What LVM makes of these disks: the first extent has the group's metadata."""
        self.host.free_by_pv = {disk: self.disks.sizes[disk] // EXTENT - 1 for disk in disks}

    # --- the tools ---------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> HostTools:
        """As `wiring.host_tools` makes them."""
        tools = self.world.tools
        return replace(tools, files=replace(tools.files, mount_of=self.mount_of))

    @property
    def bench_tools(self) -> BenchTools:
        """As `wiring.bench_tools` makes them."""
        return BenchTools(
            volumes=Volumes(self.host, self.world.name),
            loads=self.loads.loads,
            counters=self.loads.counters,
            sector_size=lambda disk: self.sector,
            load_average=lambda: self.load_average,
            host=self.bench_host,
            probing=Instruments(
                file_probe=self.probed.probe,
                reader=self.probed.reader,
                counters=ProbeCounters(self.host, self.probed),
                load_average=lambda: self.load_average,
                versions=lambda with_sysbench: Versions("6.1.0", "2.03.16(2)", "1.0.20"),
            ),
        )

    def bench_host(self, with_fio: bool, with_mdadm: bool) -> BenchHost:
        needed = ["sysbench", *(["fio"] if with_fio else []), *(["mdadm"] if with_mdadm else [])]
        if self.missing in needed:
            raise CommandError(f"{self.missing} is not installed", hint=f"apt-get install {self.missing}")
        fio, mdadm = ("3.33" if with_fio else None), ("4.2" if with_mdadm else None)
        return BenchHost("6.1.0", "2.03.16(2)", "1.0.20", fio, mdadm, memory=2 << 30, processors=2)

    def mount_of(self, path: Path) -> MountPoint:
        for at, name in self.host.mounted.items():
            if path == at and name in self.host.scratch:
                return MountPoint(at, self.host.scratch[name].volume.device, "xfs")
        return self.world.mount_of(path)

    def layout_at(self, where: Path) -> ScratchLayout:
        """How what is mounted there, or the device itself, lies on the disks."""
        name = self.host.mounted.get(where, where.name)
        if name == ARRAY.name:
            [array] = [one for one in self.disks.made if one.name.startswith("backupd-")]
            return ScratchLayout(LayoutKind.RAID0, array.disks, 64 * KIB)
        [segment] = self.host.scratch[name].volume.segments
        kind = LayoutKind.LINEAR if segment.stripes == 1 else LayoutKind.STRIPED
        return ScratchLayout(kind, segment.devices, segment.stripe_size)

    def speed(self, load: FileLoad) -> float:
        """Of a probe's windows: the more stripes the faster, and a quarter of that with a snapshot."""
        [scratch] = self.host.scratch.values()
        fast = 100.0 * scratch.volume.stripes
        live = any(lv.live for lv in self.host.lvs.values())
        return fast / 4 if live and (load.mode.writes or load.mode is Mode.SCAN_SNAPSHOT) else fast

    # --- what a test does --------------------------------------------------------------------------------------------

    def plan(self, request: BenchRequest = SMALL) -> BenchPlan:
        return plan_bench(request, self.tools, self.bench_tools)

    def take(
        self,
        request: BenchRequest = SMALL,
        *,
        run_id: str = "b1",
        agreed: BenchPlan | None = None,
        telling: BenchTelling | None = None,
    ) -> LayoutBench:
        """What `backupd bench layouts` does when it was told to go on."""
        with self.world.catalogue() as catalogue:
            return run_bench(
                request,
                agreed or self.plan(request),
                self.tools,
                self.bench_tools,
                catalogue,
                run_id=run_id,
                telling=telling,
            )

    def record(self, run_id: str = "b1") -> BenchRecord:
        with self.world.catalogue() as catalogue:
            return catalogue.bench(run_id)

    def recover(self) -> Recovery:
        """What `backupd recover` does: in one go."""
        with self.world.catalogue() as catalogue:
            recovery = clean_up_dead_runs(catalogue, self.tools)
        recovery.require_complete()
        return recovery

    def assert_failed_and_clean(self, status: RunStatus = RunStatus.FAILED) -> None:
        record = self.record()
        assert record.status is status
        assert record.error is not None
        assert record.bench is None
        assert self.world.left() == []


@dataclass(frozen=True)
class ProbeCounters:
    """`Counters` of a probe's disk, whose origin is the scratch volume of the moment."""

    host: LvmHost
    probed: FakeDisk

    def disk(self, device: DeviceNumber) -> DiskCounters:
        if any(device == one.volume.device for one in self.host.scratch.values()):
            return self.probed.asked
        return self.probed.counters.disk(device)

    def processors(self) -> ProcessorTimes:
        return self.probed.counters.processors()

    def number_of(self, path: Path) -> DeviceNumber:
        return self.probed.counters.number_of(path)
