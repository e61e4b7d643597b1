"""The loads of a bench on disks that exist on paper, and what the kernel would have counted of those.

One `FakeDisks` is the world that loads and counters share. Each disk serves one request at a time, and takes for it a
seek and the time that its bytes need. What a layout makes of that follows: large records are cut into stripes and all
disks work on one; small ones keep as many disks busy as there are writers for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backupd.load import require_possible
from backupd.vocabulary.benches import Cell
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import DiskCounters, ProcessorTimes
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.scratch_layouts import MIB, LayoutKind, Medium, Operation, ScratchLayout
from backupd.vocabulary.volumes import DeviceNumber

DISKS = ("/dev/sdb", "/dev/sdc", "/dev/sdd")
_SYSTEM = 0.1  # share of processor time that every load takes


@dataclass
class FakeDisks:
    """Disks, and what each has moved.

    `layout_at` says how what is at a path (a mounted folder, a volume's device) lies on them; it is asked at each
    `prepare` and each window, so it may look at whatever volumes the test has. `during_window` lets a clock run, or
    somebody else use the disks: `move`.
    """

    names: tuple[str, ...] = DISKS
    seek_seconds: float = 0.0005  # of every request
    bytes_per_second: float = 100.0 * MIB  # of a disk, seeks left out
    layout_at: Callable[[Path], ScratchLayout] = lambda where: ScratchLayout(LayoutKind.LINEAR, DISKS[:1])
    during_window: Callable[[float], None] = lambda seconds: None
    fail_at_call: int | None = None  # counted from 1, over prepare and window of all loads
    calls: int = 0
    cells: list[tuple[str, Cell]] = field(default_factory=list)  # that were measured: the layout's name, the load
    busy: ProcessorTimes = field(default_factory=ProcessorTimes)
    moved: dict[str, DiskCounters] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counters = FakeDiskCounters(self)
        self.loads: Mapping[Medium, FakeLoads] = {medium: FakeLoads(self, medium) for medium in Medium}

    def call(self) -> None:
        """Count one, and fail if it is the one to fail."""
        self.calls += 1
        if self.calls == self.fail_at_call:
            raise CommandError(f"the disks were told to fail at call {self.calls}")

    def move(self, disk: str, *, read: int = 0, written: int = 0) -> None:
        """The disk has read and written so many bytes more, for whomever."""
        before = self.moved.get(disk, DiskCounters())
        self.moved[disk] = DiskCounters(
            before.reads + (read > 0),
            before.read_bytes + read,
            before.writes + (written > 0),
            before.write_bytes + written,
        )

    def records_per_second(self, layout: ScratchLayout, cell: Cell) -> float:
        """How many records of this load all its threads get done."""
        stripe = layout.stripe_size or cell.record
        parts = min(layout.width, max(1, cell.record // stripe))  # disks that one record lies on
        one_record = self.seek_seconds + cell.record / parts / self.bytes_per_second
        if cell.operation is Operation.REWRITE:
            one_record *= 2
        return _records_at_once(layout.width, parts, stripe, cell) / one_record

    def serve(self, layout: ScratchLayout, cell: Cell, seconds: float) -> Window:
        """A window of this load: as many records as fit, counted on the disks that they lie on."""
        records = max(1, int(self.records_per_second(layout, cell) * seconds))
        size = records * cell.record
        both = cell.operation is Operation.REWRITE
        read = size if both or cell.operation in (Operation.READ, Operation.RANDOM_READ) else 0
        written = size if both or not read else 0
        for place, disk in enumerate(layout.disks):
            self.move(disk, read=_part(read, place, of=layout.width), written=_part(written, place, of=layout.width))
        iowait = seconds * 0.6 / layout.width
        self.busy = ProcessorTimes(
            user=self.busy.user + seconds * (1 - _SYSTEM) - iowait,
            system=self.busy.system + _SYSTEM * seconds,
            iowait=self.busy.iowait + iowait,
        )
        self.cells.append((layout.name, cell))
        self.during_window(seconds)
        milliseconds = 1000 * seconds * cell.threads / records
        return Window(
            seconds=seconds,
            iops=records / seconds,
            bytes_written=written,
            latency_avg_ms=milliseconds,
            latency_p95_ms=1.5 * milliseconds,
            bytes_read=read,
        )


@dataclass
class FakeLoads:
    """`BenchLoad` on these disks. Nothing is written: what was prepared is known to the load alone.

    What was prepared on one layout is not there on another, even at the same path.
    """

    disks: FakeDisks = field(repr=False)
    medium: Medium = Medium.FILE
    interrupted: bool = False
    prepared: dict[Path, tuple[ScratchLayout, int]] = field(default_factory=dict)

    def prepare(self, where: Path, size: int) -> None:
        """So many bytes are there, counted on the disks; a file needs its folder."""
        self.disks.call()
        self.interrupted = False
        if self.medium is Medium.FILE and not where.is_dir():
            raise CommandError(f"no folder {where}")
        layout = self.disks.layout_at(where)
        for place, disk in enumerate(layout.disks):
            self.disks.move(disk, written=_part(size, place, of=layout.width))
        self.prepared[where] = layout, size

    def window(self, where: Path, cell: Cell, *, size: int, seconds: float) -> Window:
        """As fast as the disks are, without waiting."""
        require_possible(cell, self.medium, size)
        self.disks.call()
        if self.interrupted:
            raise CommandError("the load was interrupted")
        layout = self.disks.layout_at(where)
        of, there = self.prepared.get(where, (None, 0))
        if of != layout or there < size:
            raise CommandError(f"nothing of {size} bytes was prepared at {where}")
        return self.disks.serve(layout, cell, seconds)

    def interrupt(self) -> None:
        """No window until the next prepare."""
        self.interrupted = True


@dataclass
class FakeDiskCounters:
    """`Counters` of these disks: 8:16, 8:32 and so on, in their order."""

    disks: FakeDisks = field(repr=False)

    def disk(self, device: DeviceNumber) -> DiskCounters:
        """What this one has moved."""
        for name in self.disks.names:
            if device == self.number_of(Path(name)):
                return self.disks.moved.get(name, DiskCounters())
        raise CommandError(f"no device {device}")

    def processors(self) -> ProcessorTimes:
        """As much time as there were loads."""
        return self.disks.busy

    def number_of(self, path: Path) -> DeviceNumber:
        """A disk's place among the disks."""
        if str(path) not in self.disks.names:
            raise CommandError(f"no device {path}")
        return DeviceNumber(8, 16 * (self.disks.names.index(str(path)) + 1))


def _records_at_once(width: int, parts: int, stripe: int, cell: Cell) -> float:
    """How many records are under way, each on so many disks: a thread that meets a busy disk waits for it."""
    if not cell.operation.is_random:
        return min(width, max(parts, cell.threads * cell.record / stripe)) / parts
    places = width / parts
    return places * (1 - (1 - 1 / places) ** cell.threads)


def _part(size: int, place: int, *, of: int) -> int:
    """How many of so many bytes lie on the disk at this place; the parts add up."""
    return size * (place + 1) // of - size * place // of
