"""What proof hosts have found out is read every hour, by a process for each target: one that hangs stops nobody else.

Knows: how often, and that a reading that goes on is waited for before the next. What is read, the command knows.
"""

import logging
import time
from collections.abc import Callable

from backupd.config import Configuration
from backupd.service.launch import Child, Launcher
from backupd.vocabulary.errors import CommandError, ExitStatus

log = logging.getLogger(__name__)

EVERY_SECONDS = 3600.0


class ProofReaders:
    """One thread only."""

    def __init__(self, launcher: Launcher, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher = launcher
        self._clock = clock
        self._began: dict[str, float] = {}  # by target: its newest reading
        self._reading: dict[str, Child] = {}

    def look(self, configuration: Configuration, *, starting: bool = True) -> None:
        """What has ended is reaped; where a proof host is believed, what is due begins. Never waits."""
        for target, child in list(self._reading.items()):
            if child.ended():
                del self._reading[target]
                if child.exit_status not in (None, ExitStatus.OK):
                    log.warning("proofs on target %s: reading ended with exit status %s", target, child.exit_status)
        if not (starting and configuration.jobs and configuration.proofs.signers):
            return
        now = self._clock()
        for target in configuration.targets:
            began = self._began.get(target)
            if target not in self._reading and (began is None or now - began >= EVERY_SECONDS):
                self._begin(target, now)

    def _begin(self, target: str, now: float) -> None:
        self._began[target] = now
        try:
            self._reading[target] = self._launcher.read_proofs(target)
        except CommandError as error:
            log.error("proofs on target %s: reading could not be started: %s", target, error.message)
