"""Each job with `[jobs.NAME.binlog]` has a process that archives its binlog: started, watched, started again.

Knows: that the process outlives the daemon, which finds it again by its claim; what it was started for, by a mark in
its environment, and that one which was started for something else is ended and started anew. What a person or a unit
of one's own has started bears no mark, and is left alone. How the binlog is archived, the command knows.

A receiver has lost nothing whenever it ends, and however: the next one goes on behind what was recorded. It lives for
months, so an upgrade of backupd must not leave it behind: the program is part of the mark.
"""

import contextlib
import hashlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backupd import __version__
from backupd.config import Configuration, JobConfig
from backupd.host.claims import Claims
from backupd.host.marked_processes import variable_of
from backupd.service.launch import RECEIVER_VARIABLE, Child, Launcher
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.records import Finding, Level

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0  # from an end to the next start
PATIENCE_SECONDS = 60.0  # with one that was asked to end


@dataclass(slots=True)
class _Receiver:
    """What the daemon knows of one job's."""

    child: Child | None = None  # that this daemon has started
    began: float = 0.0
    pause: float = 0.0  # before the last start
    not_before: float = 0.0
    asked: tuple[int, float] | None = None  # the process that was asked to end, and since when


class Receivers:
    """Those of all jobs. One thread only."""

    def __init__(self, launcher: Launcher, claims: Claims, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher, self._claims, self._clock = launcher, claims, clock
        self._known: dict[str, _Receiver] = {}
        self._left: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """The jobs whose receiver, one of a daemon's, was at work at the last look."""
        return self._left

    @property
    def restless(self) -> bool:
        """One was asked to end, which rings no bell when it does, or is about to be started again."""
        now = self._clock()
        return any(each.asked is not None or now < each.not_before for each in self._known.values())

    def look(self, configuration: Configuration, *, draining: bool = False) -> None:
        """Where one has ended, the next begins after a pause; one that was started for something else ends.

        While draining all that bear a mark are ended, and none begins. Never waits.
        """
        wanted = {} if draining else marks(configuration)
        at_work = self._claims.archivers()
        for job in {*self._known, *at_work}:
            self._reap(job, at_work.get(job))
        ours = {job: mark for job, pid in at_work.items() if (mark := variable_of(pid, RECEIVER_VARIABLE)) is not None}
        for job, mark in ours.items():
            if mark != wanted.get(job):
                self._end(job, at_work[job])
        for job, mark in wanted.items():
            if job not in at_work:
                self._begin(job, mark)
        for job in self._known.keys() - wanted.keys() - ours.keys():
            if self._known[job].child is None:
                del self._known[job]
        self._left = tuple(sorted({*ours, *(job for job, each in self._known.items() if each.child is not None)}))

    def _begin(self, job: str, mark: str) -> None:
        now, known = self._clock(), self._known.setdefault(job, _Receiver())
        if known.child is not None or now < known.not_before:
            return
        known.began = now
        try:
            known.child = self._launcher.receive(job, mark)
        except CommandError as error:
            self._pause(known)
            log.error("job %s: the receiver of its binlog could not be started: %s", job, error.message)
        else:
            log.info("job %s: the receiver of its binlog was started", job)

    def _reap(self, job: str, pid: int | None) -> None:
        """What has ended is no longer waited for; `pid` archives the job's binlog, whoever has started that."""
        known = self._known.get(job)
        if known is None:
            return
        if known.child is not None and known.child.ended():
            status, known.child = known.child.exit_status, None
            if known.asked is None and pid is None:
                self._pause(known)
                log.warning(
                    "job %s: the receiver of its binlog ended with exit status %s; the next one is started in %g s",
                    *(job, status, known.pause),
                )
        if known.asked is not None and known.child is None and pid != known.asked[0]:
            known.asked, known.pause, known.not_before = None, 0.0, 0.0

    def _pause(self, known: _Receiver) -> None:
        """Longer each time, until one has lived for a while."""
        now = self._clock()
        lived = now - known.began > LONGEST_PAUSE_SECONDS
        longer = FIRST_PAUSE_SECONDS if lived else max(FIRST_PAUSE_SECONDS, 2 * known.pause)
        known.pause = min(longer, LONGEST_PAUSE_SECONDS)
        known.not_before = now + known.pause

    def _end(self, job: str, pid: int) -> None:
        """It is asked to end, once; and killed where it does not."""
        known, now = self._known.setdefault(job, _Receiver()), self._clock()
        if known.asked is None or known.asked[0] != pid:
            log.info(
                "job %s: the receiver of its binlog (process %d) is being stopped: its settings are out of date",
                job,
                pid,
            )
            known.asked = (pid, now)
            self._signal(job, pid, signal.SIGTERM)
        elif now - known.asked[1] > PATIENCE_SECONDS:
            log.error("job %s: the receiver of its binlog (process %d) does not end; it is killed", job, pid)
            self._signal(job, pid, signal.SIGKILL)

    def _signal(self, job: str, pid: int, number: signal.Signals) -> None:
        """To that process only: its pid cannot be another's while the descriptor is open and the claim is its own."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if self._claims.archivers().get(job) == pid:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def marks(configuration: Configuration) -> dict[str, str]:
    """What a receiver is started for, by job: whichever setting of it changes, and whichever version, so does this."""
    jobs = configuration.jobs.values()
    return {job.name: f"{job.name}/{_digest(configuration, job)}" for job in jobs if job.binlog is not None}


def findings(configuration: Configuration, job: str, claims: Claims) -> Iterator[Finding]:
    """What `backupd check` tells of a daemon's receiver that is at work: who may read what it archives is a setting."""
    pid = claims.archivers().get(job)
    mark = None if pid is None else variable_of(pid, RECEIVER_VARIABLE)
    if mark is not None and mark != marks(configuration).get(job):
        yield Finding(
            "binlog receiver",
            Level.WARNING,
            f"process {pid} archives the binlog with settings that differ from the configuration, such as recipients,"
            " targets or the host",
            "systemctl reload backupd: the daemon then ends it and starts another one",
            attention=True,
        )


def _digest(configuration: Configuration, job: JobConfig) -> str:
    """Nothing can be read from it: the environment of a unit is shown to everybody."""
    targets = [configuration.targets.get(name) for name in job.targets]
    places = configuration.paths, configuration.catalogue, configuration.hosts.get(job.host)
    settings = job.binlog, job.canary, job.encryption, job.host, job.targets
    program = __version__, sys.base_prefix  # a package has another folder for each upgrade
    return hashlib.sha256(repr((program, settings, places, targets)).encode()).hexdigest()[:16]
