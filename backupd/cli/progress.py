"""How a run goes, on stderr: a bar on a terminal, a line per 10 % elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backupd.cli.output import tell
from backupd.operations.backup.phases import BackupTelling
from backupd.report.phase_words import doing
from backupd.report.words import size
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.records import Phase


@contextmanager
def progress() -> Iterator[BackupTelling]:
    """Tell a run's progress while the block lasts."""
    if sys.stderr.isatty():
        with _bar() as telling:
            yield telling
    else:
        lines = _Lines()
        yield BackupTelling(phase=lines.phase, copied=lines.copied)


class _Lines:
    """A line each time another tenth is done."""

    def __init__(self, what: str = "copied") -> None:
        self._what = what
        self._began = time.monotonic()
        self._tenths = 0

    def phase(self, phase: Phase) -> None:
        """The rate is that of the copy, so its clock starts with it; what was spooled then has one of its own."""
        if phase in (Phase.COPY, Phase.SEND):
            self._began = time.monotonic()
            self._tenths = 0
            self._what = "sent" if phase is Phase.SEND else self._what

    def copied(self, done: int, total: int) -> None:
        """Called with plain bytes; `total` is an upper bound."""
        tenths = 10 * done // total if total else 0
        if tenths > self._tenths:
            self._tenths = tenths
            rate = done / max(time.monotonic() - self._began, 0.001)
            tell(f"{self._what} {10 * tenths} % ({size(done)} of at most {size(total)}, {size(rate)}/s)")


@contextmanager
def _bar(what: str = "starting") -> Iterator[BackupTelling]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
    ) as bar:
        task = bar.add_task(on_one_line(what), total=None)
        yield BackupTelling(
            phase=lambda phase: bar.update(task, description=doing(phase)),
            copied=lambda done, total: bar.update(task, completed=done, total=total),
        )


@contextmanager
def share_done(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tell how much of something is done while the block lasts: bytes so far, and in all."""
    if sys.stderr.isatty():
        with _bar(what) as telling:
            yield telling.copied
    else:
        lines = _Lines(what)
        yield lines.copied
