"""Probes without a disk's whims: real folders with real files, and windows as fast as the test says.

One `FakeDisk` is the world that several loads, the reader and the counters share, with the verbs that a test turns: how
fast a load is now, what the disks under the origin do for it, which call fails.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from pathlib import Path

from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import DiskCounters, FileLoad, Mode, ProcessorTimes
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.volumes import DeviceNumber

_FILE = "test_file.0"
_ORIGIN = DeviceNumber(254, 0)
_NOTHING = DiskCounters()
_SMALL = FileLoad(Mode.DIRECT, 1, 16 << 10, 64 << 10)
_THIRDS = {"/dev/sdb": 1 / 3, "/dev/sdc": 1 / 3, "/dev/sdd": 1 / 3}
_OF_SNAPSHOT = {Mode.READ: Mode.READ_SNAPSHOT, Mode.SCAN: Mode.SCAN_SNAPSHOT}
_UNSEEN = frozenset(_OF_SNAPSHOT.values())  # by the origin: a snapshot reads beneath it


@dataclass
class FakeDisk:
    """An origin on its PVs. What is asked of it is served at `speed`, and counted.

    `speed` and `physical` are asked before each window, so they may look at whatever the test has: how many snapshots
    there are, `overwrites`, a list of figures. A file that no probe of this disk has prepared is a snapshot's.
    """

    speed: Callable[[FileLoad], float] = lambda load: 1000.0  # requests a second
    physical: Callable[[FileLoad], tuple[float, float]] = lambda load: (0.0, 1.0)  # the PVs' reads, writes per write
    pvs: Mapping[str, float] = field(default_factory=lambda: dict(_THIRDS))  # path -> its share of the requests
    origin: DeviceNumber = _ORIGIN
    fail_at_call: int | None = None  # counted from 1, over prepare, overwrite and every kind of window
    during_window: Callable[[float], None] = lambda seconds: None  # to let a clock run, or the server write
    calls: int = 0
    overwrites: int = 0  # times that an area was overwritten in whole
    prepared: set[Path] = field(default_factory=set)  # files
    asked: DiskCounters = _NOTHING  # of the origin
    done: DiskCounters = _NOTHING  # by the PVs together

    def __post_init__(self) -> None:
        self.reader = FakeReader(self)
        self.counters = FakeCounters(self)

    def probe(self, load: FileLoad) -> "FakeProbe":
        """A probe of this load on this disk."""
        return FakeProbe(disk=self, load=load)

    def call(self) -> None:
        """Count one, and fail if it is the one to fail."""
        self.calls += 1
        if self.calls == self.fail_at_call:
            raise CommandError(f"the disk was told to fail at call {self.calls}")

    def serve(self, load: FileLoad, seconds: float, *, speed: float | None = None) -> Window:
        """A window of this load: as many requests as fit, all counted."""
        fast = self.speed(load) if speed is None else speed
        requests = round(fast * seconds)
        writes = round(requests * load.write_share) if load.mode.writes else 0
        milliseconds = 1000 * load.threads / fast if fast else seconds * 1000
        self._count(load, requests - writes, writes, milliseconds / 1000)
        self.during_window(seconds)
        return Window(
            seconds=seconds,
            iops=fast,
            bytes_written=writes * load.block_size,
            latency_avg_ms=milliseconds,
            latency_p95_ms=milliseconds * 1.5,
            bytes_read=(requests - writes) * load.block_size,
        )

    def write_in_order(self, load: FileLoad) -> None:
        """The load's area, in blocks of up to 1 MiB; takes no time."""
        block = gcd(load.area, 1 << 20)
        self._count(replace(load, block_size=block), 0, load.area // block, 0.0)

    def _count(self, load: FileLoad, reads: int, writes: int, latency_seconds: float) -> None:
        size = load.block_size
        more_reads, writes_each = self.physical(load) if writes else (0.0, 1.0)
        disk_reads, disk_writes = reads + round(writes * more_reads), round(writes * writes_each)
        if load.mode not in _UNSEEN:
            self.asked = _more(self.asked, reads, writes, size, latency_seconds)
        self.done = _more(self.done, disk_reads, disk_writes, size, latency_seconds)


@dataclass
class FakeProbe:
    """Keeps the probe's contract; window n runs at `iops[n]`, and from the last one on at that.

    Without `iops` it is as fast as its disk says.
    """

    iops: Sequence[float] | None = None
    load: FileLoad = _SMALL
    fail_at_call: int | None = None  # counted from 1, over prepare, overwrite and window
    during_window: Callable[[float], None] = lambda seconds: None  # to let a clock run, or the server write
    calls: int = 0
    windows: int = 0
    interrupted: bool = False
    disk: FakeDisk = field(default_factory=FakeDisk)

    def prepare(self, folder: Path) -> int:
        """The folder has mode 0700 and in it a file of that many bytes, none of them a hole."""
        self._call()
        self.interrupted = False
        _require_ours(folder)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CommandError(f"cannot make {folder}") from error
        file = folder / _FILE
        missing = max(0, self.load.area - (file.stat().st_size if file.exists() else 0))
        with file.open("ab") as opened:
            opened.write(b"x" * missing)
        self.disk.prepared.add(file)
        return missing

    def window(self, folder: Path, seconds: float) -> Window:
        """Use the file, on paper, at the speed of this window."""
        self._begin(folder)
        speed = self.iops[min(self.windows, len(self.iops) - 1)] if self.iops is not None else None
        self.windows += 1
        self.during_window(seconds)
        return self.disk.serve(self.load, seconds, speed=speed)

    def overwrite(self, folder: Path) -> int:
        """The area, on paper."""
        self._begin(folder)
        self.disk.write_in_order(self.load)
        self.disk.overwrites += 1
        return self.load.area

    def interrupt(self) -> None:
        """No window until the next prepare."""
        self.interrupted = True

    def remove(self, folder: Path) -> None:
        """The folder is gone."""
        _require_ours(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, folder: Path) -> None:
        self._call()
        if self.interrupted:
            raise CommandError("the probe was interrupted")
        file = folder / _FILE
        if not file.exists():
            raise CommandError(f"no probe file in {folder}")
        if file.stat().st_size < self.load.area:
            raise CommandError(f"the probe file in {folder} is smaller than the load's area")

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at_call:
            raise CommandError(f"the probe was told to fail at call {self.calls}")
        self.disk.call()


@dataclass
class FakeReader:
    """Reads files that exist, on paper."""

    disk: FakeDisk = field(repr=False)
    interrupted: bool = False

    def random(self, file: Path, seconds: float, *, block_size: int, threads: int) -> Window:
        """The disk is asked for its speed with mode `read`, or `read-snapshot` where no probe has made the file."""
        return self._window(Mode.READ, file, seconds, block_size, threads)

    def scan(self, file: Path, seconds: float, *, block_size: int = 1 << 20) -> Window:
        """The same with `scan` and `scan-snapshot`."""
        return self._window(Mode.SCAN, file, seconds, block_size, 1)

    def interrupt(self) -> None:
        """No window any more."""
        self.interrupted = True

    def _window(self, mode: Mode, file: Path, seconds: float, block_size: int, threads: int) -> Window:
        self.disk.call()
        if self.interrupted:
            raise CommandError("the reading was interrupted")
        size = file.stat().st_size if file.is_file() else 0
        if size < (block_size if mode is Mode.READ else 1):
            raise CommandError(f"{file} cannot be read, or has too little in it")
        mode = mode if file in self.disk.prepared else _OF_SNAPSHOT[mode]
        return self.disk.serve(FileLoad(mode, threads, block_size, size), seconds)


@dataclass
class FakeCounters:
    """Has the origin, whose number the disk knows, and its PVs: 8:16, 8:32 and so on, in their order."""

    disk_asked: FakeDisk = field(repr=False)

    def disk(self, device: DeviceNumber) -> DiskCounters:
        """What was asked of the origin, or a PV's share of what all have done."""
        if device == self.disk_asked.origin:
            return self.disk_asked.asked
        for path, share in self.disk_asked.pvs.items():
            if device == self.number_of(Path(path)):
                return _part(self.disk_asked.done, share)
        raise CommandError(f"no device {device}")

    def processors(self) -> ProcessorTimes:
        """As much time as the disk has been asked to work for, a quarter of it waiting."""
        return ProcessorTimes(float(self.disk_asked.calls), self.disk_asked.calls / 8, self.disk_asked.calls / 4)

    def number_of(self, path: Path) -> DeviceNumber:
        """A PV's place among the PVs."""
        names = list(self.disk_asked.pvs)
        if str(path) not in names:
            raise CommandError(f"no device {path}")
        return DeviceNumber(8, 16 * (names.index(str(path)) + 1))


def _more(before: DiskCounters, reads: int, writes: int, size: int, latency_seconds: float) -> DiskCounters:
    return DiskCounters(
        before.reads + reads,
        before.read_bytes + reads * size,
        before.writes + writes,
        before.write_bytes + writes * size,
        before.read_seconds + reads * latency_seconds,
        before.write_seconds + writes * latency_seconds,
    )


def _part(whole: DiskCounters, share: float) -> DiskCounters:
    return DiskCounters(
        round(whole.reads * share),
        round(whole.read_bytes * share),
        round(whole.writes * share),
        round(whole.write_bytes * share),
        whole.read_seconds * share,
        whole.write_seconds * share,
    )


def _require_ours(folder: Path) -> None:
    if not folder.name.startswith(".backupd-"):
        raise CommandError(f"{folder} is not one of backupd's probe folders")
