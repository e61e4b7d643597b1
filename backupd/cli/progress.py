"""How a run goes, on stderr: a bar on a terminal, a line per 10 % elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backupd.cli.output import tell
from backupd.operations.backup.phases import BackupTelling
from backupd.report.phase_words import doing
from backupd.report.words import duration, size
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.records import Phase

if TYPE_CHECKING:  # one loads the server's driver, the other is for terminals alone
    from rich.progress import Progress, ProgressColumn

    from backupd.mysql.binlog.applying import ApplyingProgress


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
def _drawn(*columns: "ProgressColumn") -> "Iterator[Progress]":
    """A bar between what is done and the time that is left, and before that these columns; gone after the block."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        *(TextColumn("{task.description}", markup=False), BarColumn(), *columns, TimeRemainingColumn()),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
    ) as bar:
        yield bar


@contextmanager
def _bar(what: str = "starting") -> Iterator[BackupTelling]:
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _drawn(DownloadColumn(binary_units=True), TransferSpeedColumn()) as bar:
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


@contextmanager
def log_applied() -> "Iterator[Callable[[ApplyingProgress], None]]":
    """Tell how far a log is applied while the block lasts: the share, the log's own time, and the time that is left."""
    if sys.stderr.isatty():
        with _applying_bar() as told:
            yield told
    else:
        yield ApplyingLines().tell


class ApplyingLines:
    """A line each time another tenth is applied."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._began, self._from, self._tenths = now, 0.0, -1, 0

    def tell(self, progress: "ApplyingProgress") -> None:
        """The clock starts when it is first told."""
        if self._from < 0:
            self._began, self._from = self._now(), progress.done
        tenths = 10 * progress.done // progress.of if progress.of else 0
        if tenths > self._tenths and progress.logged_at is not None:
            self._tenths = tenths
            speed = (progress.done - self._from) / max(self._now() - self._began, 0.001)
            left = (progress.of - progress.done) / speed if speed > 0 else None
            if progress.done >= progress.of:
                tell("applied 100 %")
                return
            rest = "" if left is None else f", {duration(left)} left"
            tell(f"applied {10 * tenths} %: {_log_as_of(progress)}{rest}")


def _log_as_of(progress: "ApplyingProgress") -> str:
    at = progress.logged_at
    return "the log" if at is None else f"the log as of about {to_the_second(at)}"


@contextmanager
def _applying_bar() -> "Iterator[Callable[[ApplyingProgress], None]]":
    """It is not seen before something is told."""
    from rich.progress import TaskProgressColumn

    with _drawn(TaskProgressColumn()) as bar:
        task = bar.add_task("applying the log", total=None, visible=False)
        yield lambda progress: bar.update(
            task,
            description=f"applying {_log_as_of(progress)}",
            completed=progress.done,
            total=progress.of,
            visible=True,
        )
