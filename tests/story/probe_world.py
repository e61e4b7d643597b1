"""A host on which a snapshot makes writes slower, for probes over fakes.

Knows: how fast the disk is with how many snapshots, and that a rewrite settles. Refuses to know what a probe does.
"""

import threading
from collections.abc import Callable

from backupd.config import SnapshotConfig, SnapshotSize
from backupd.load import Counters
from backupd.operations.measure.ground import Subject
from backupd.operations.measure.probe import measure
from backupd.operations.measure.probe_steps import ProbeTelling
from backupd.operations.tools import Instruments, Versions
from backupd.policy.snapshot_plan import CowSettings
from backupd.vocabulary.gauges import FileLoad, Mode, Stage
from backupd.vocabulary.probes import Measurement, ProbeRecord, ProbeRequest, ProbeRow
from backupd.vocabulary.records import RunStatus
from tests.fakes.probe import FakeDisk
from tests.story.world import World

BASELINE = 1000.0
SMALL = ProbeRequest(file_size=64 << 10, rewrite_size=32 << 10, seconds=1.0, repeat=3)
SNAPSHOT = SnapshotConfig(chunk_size=4 << 10, size=SnapshotSize(percent_of_origin=20.0))


def _is_copied() -> bool:
    """The dry copy is at work; between two of its passes nothing is mounted."""
    return any(thread.name.startswith("dry-copy") for thread in threading.enumerate())


class ProbeWorld:
    """A world with a disk whose writes are slower the more snapshots there are, and faster with every window."""

    def __init__(self, world: World) -> None:
        self.world = world
        thirds = dict.fromkeys(("/dev/sdb", "/dev/sdc", "/dev/sdd"), 1 / 3)
        self.disk = FakeDisk(speed=self.speed, physical=self.physical, pvs={**thirds, "/dev/sde": 0.0})
        self.counters: Counters = self.disk.counters
        self.load_average = 0.5
        self.snapshot: CowSettings = SNAPSHOT
        self.since_snapshot = 0
        self.during: Callable[[], object] = lambda: None
        self.disk.during_window = self.window_ended

    @property
    def instruments(self) -> Instruments:
        """As `wiring.instruments` makes them."""
        return Instruments(
            file_probe=self.disk.probe,
            reader=self.disk.reader,
            counters=self.counters,
            load_average=lambda: self.load_average,
            versions=lambda with_sysbench: Versions("6.1.0", "2.03.16(2)", "1.0.20" if with_sysbench else None),
        )

    @property
    def subject(self) -> Subject:
        """As `wiring.subject` makes it of `--volume`."""
        return Subject(lambda: self.world.mount_of(self.world.datadir), self.snapshot)

    def speed(self, load: FileLoad) -> float:
        snapshots = sum(lv.live for lv in self.world.host.lvs.values())
        if not snapshots:
            self.since_snapshot = 0
            return BASELINE
        if not load.mode.writes:
            return BASELINE / 2 if load.mode in (Mode.READ_SNAPSHOT, Mode.SCAN_SNAPSHOT) else BASELINE
        copying = 2 if _is_copied() else 1
        slow = {0: 4.0, 1: 2.0}.get(self.since_snapshot, 1.0) if load.mode is Mode.REWRITE else 4.0
        return BASELINE / (slow * snapshots * copying)

    def physical(self, load: FileLoad) -> tuple[float, float]:
        return (1.0, 3.0) if any(lv.live for lv in self.world.host.lvs.values()) else (0.0, 1.0)

    def window_ended(self, seconds: float) -> None:
        self.since_snapshot += any(lv.live for lv in self.world.host.lvs.values())
        self.during()

    def take(
        self, request: ProbeRequest = SMALL, *, run_id: str = "p1", telling: ProbeTelling | None = None
    ) -> Measurement:
        """What `backupd probe` does."""
        with self.world.catalogue() as catalogue:
            return measure(
                request, self.subject, self.world.tools, self.instruments, catalogue, run_id=run_id, telling=telling
            )

    def record(self, run_id: str = "p1") -> ProbeRecord:
        with self.world.catalogue() as catalogue:
            return catalogue.probe(run_id)

    def rows(self, request: ProbeRequest) -> dict[tuple[Mode, Stage], ProbeRow]:
        return {(row.mode, row.phase): row for row in self.take(request).rows}

    def assert_failed_and_clean(self, status: RunStatus = RunStatus.FAILED) -> None:
        record = self.record()
        assert record.status is status
        assert record.error is not None
        assert record.measurement is None
        assert self.world.left() == []
