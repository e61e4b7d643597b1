"""Whom `backupd run` tells how it goes: the terminal, through a file in memory whoever looks at the machine, and its
own process, which takes its share of the processors only while the server pays for the run.

Knows: how often a file is worth writing, and that it goes with its run.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backupd.cli.progress import progress
from backupd.host.live_progress import LiveRuns, Progress
from backupd.host.signals import shielded
from backupd.operations.backup.phases import BackupTelling
from backupd.vocabulary.records import Phase

log = logging.getLogger(__name__)

_SECONDS = 1.0  # between two writes within a phase


@contextmanager
def telling_everybody(live: LiveRuns, run_id: str) -> Iterator[BackupTelling]:
    """A run's progress is told to all of them while the block lasts; after it, `live` has none."""
    file = LiveFile(live, run_id)

    def phase(phase: Phase) -> None:
        terminal.phase(phase)
        file.phase(phase)

    def copied(done: int, total: int) -> None:
        terminal.copied(done, total)
        file.copied(done, total)

    try:
        with progress() as terminal:
            yield BackupTelling(phase=phase, copied=copied, filled=file.filled)
    finally:
        with shielded():
            file.forget()


class LiveFile:
    """Tells at each change of phase, and at most once a second in between. The first failure to write is the last.

    It was told nothing before the run's first phase, at which the run has its lock: a run that another process of the
    same id keeps from beginning takes nothing of that one's away.
    """

    def __init__(
        self,
        live: LiveRuns,
        run_id: str,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._run_id = run_id
        self._wall = wall
        self._clock = clock
        self._phase: Phase | None = None
        self._since = 0.0
        self._next = 0.0  # by the monotonic clock
        self._copied = (0, 0)  # plain bytes, and how many there are at most
        self._fill: float | None = None
        self._failed = False

    def phase(self, phase: Phase) -> None:
        """The run is in this phase now."""
        self._phase, self._since = phase, self._wall()
        self._copied, self._fill = (0, 0), None
        self._tell()

    def copied(self, done: int, total: int) -> None:
        """So many plain bytes, of at most so many."""
        self._copied = (done, total)
        self._tell_if_due()

    def filled(self, share: float) -> None:
        """The snapshot's COW area is filled by this share."""
        self._fill = share
        self._tell_if_due()

    def forget(self) -> None:
        """Nobody is told of the run any more."""
        if self._phase is not None:
            try:
                self._live.forget(self._run_id)
            except OSError as error:
                self._fail(error)

    def _tell_if_due(self) -> None:
        if self._clock() >= self._next:
            self._tell()

    def _tell(self) -> None:
        if self._failed or self._phase is None:
            return
        self._next = self._clock() + _SECONDS
        try:
            told = Progress(self._phase, self._since, self._wall(), *self._copied, self._fill)
            self._live.tell(self._run_id, told)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            log.warning("the progress of this run is no longer reported: %s", error)
