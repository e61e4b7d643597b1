"""How a bench goes, on stderr: each step, and on a terminal what each disk and the processors do."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from backupd.cli.output import tell
from backupd.operations.measure.bench_steps import BenchTelling
from backupd.report.probe_combinations import short_pv
from backupd.report.words import duration, share
from backupd.vocabulary.benches import BenchPlan, DiskSample
from backupd.vocabulary.escaping import plain
from backupd.vocabulary.scratch_layouts import MIB

_WIDTH, _BAR = 80, 20  # characters: of a usual terminal, and of a bar that fits there
_FIGURES = 47  # characters of a disk's line beside its name and its bar
_LEAST_RATE = 1.0 * MIB  # bytes a second that a full bar stands for at the least


@contextmanager
def bench_progress(plan: BenchPlan, *, quiet: bool) -> Iterator[BenchTelling]:
    """Tell a bench's progress while the block lasts."""
    if quiet:
        yield BenchTelling()
    elif sys.stderr.isatty():
        with _display(plan) as telling:
            yield telling
    else:
        yield BenchTelling(step=tell)


class BenchProgress:
    """How far a bench has come, and how fast a disk was at the most: what a display needs beside the last news.

    The plan's time is for disks of some speed. What is left of it is told by what these ones took so far.
    """

    def __init__(self, plan: BenchPlan, clock: Callable[[], float] = time.monotonic, *, width: int = _WIDTH) -> None:
        self._names = [volume.layout.name for volume in plan.volumes]
        self._planned = [volume.seconds for volume in plan.volumes]
        self._clock, self._width = clock, width
        self._began = clock()
        self._at = 0  # the volume that it is at
        self._at_since = self._began
        self._fastest = _LEAST_RATE
        self._step = ""
        self._disks: list[str] = []

    def step(self, words: str) -> None:
        """This is what is done from now on. A step on a layout begins with its name."""
        self._step = words
        at = next((at for at, name in enumerate(self._names) if words.startswith(f"{name}:")), self._at)
        if at != self._at:
            self._at, self._at_since = at, self._clock()

    def disks(self, sample: DiskSample) -> None:
        """This is what the disks and the processors did in the last second."""
        rates = [sample.read.get(disk, 0.0) + sample.written.get(disk, 0.0) for disk in {*sample.read, *sample.written}]
        self._fastest = max([self._fastest, *rates])
        self._disks = disk_lines(sample, fastest=self._fastest, width=self._width)

    def lines(self) -> list[str]:
        """What the display shows now."""
        return [*([self._step] if self._step else []), *self._disks, self._progress()]

    def _progress(self) -> str:
        left = self._seconds_left()
        time_left = f"about {duration(left)} left" if left >= 1 else "taking longer than estimated"
        return f"scratch volume {self._at + 1} of {len(self._names)}, {time_left}" if self._step else time_left

    def _seconds_left(self) -> float:
        """As many times the planned ones as the volumes before this took, and this one if it is later still."""
        passed = self._clock() - self._at_since
        before, this, after = (
            sum(self._planned[: self._at]),
            self._planned[self._at],
            sum(self._planned[self._at + 1 :]),
        )
        slower = (self._at_since - self._began) / before if before else 1.0
        later = max(slower, passed / this if this else 0.0)
        return max(0.0, slower * this - passed) + later * after


def disk_lines(sample: DiskSample, *, fastest: float, width: int = _WIDTH) -> list[str]:
    """A line for each disk, whose bar is full at the `fastest` rate (bytes a second), and one for the processors.

    Where a terminal is narrower the bars are: `width` is in characters.
    """
    disks = list(dict.fromkeys((*sample.read, *sample.written)))
    names = [short_pv(disk) for disk in disks]
    system = f"system {share(sample.system)}"
    widest = max(map(len, (*names, system)))
    cells = min(max(width - widest - _FIGURES, 0), _BAR)
    lines = []
    for disk, name in zip(disks, names, strict=True):
        read, written = sample.read.get(disk, 0.0), sample.written.get(disk, 0.0)
        bar = _bar((read + written) / fastest if fastest else 0.0, cells)
        lines.append(f"  {name:{widest}}  {bar}  {written / MIB:7.1f} MiB/s written  {read / MIB:7.1f} MiB/s read")
    return [*lines, f"  {system:{widest}}  {_bar(sample.iowait, cells)}  {share(sample.iowait):>7} I/O wait"]


def _bar(part: float, cells: int) -> str:
    return ("#" * round(min(max(part, 0.0), 1.0) * cells)).ljust(cells)


@contextmanager
def _display(plan: BenchPlan) -> Iterator[BenchTelling]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    course = BenchProgress(plan, width=console.width)
    with Live(console=console, refresh_per_second=2, transient=True) as live:

        def step(words: str) -> None:
            course.step(words)
            show(course.lines())

        def disks(sample: DiskSample) -> None:
            course.disks(sample)
            show(course.lines())

        def show(lines: Sequence[str]) -> None:
            live.update(Text(plain("\n".join(lines))))

        yield BenchTelling(step=step, disks=disks)
