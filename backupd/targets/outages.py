"""How long a target that does not answer is waited for, and how often it is asked again meanwhile.

Knows: pauses, when an outage has lasted too long, that it is said once and not by every request.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from backupd.vocabulary.units import format_duration

log = logging.getLogger(__name__)

T = TypeVar("T")

_TICK_SECONDS = 0.1

Unwanted = Callable[[], bool]  # whether nobody wants what is asked for any more


def wanted() -> bool:
    """Never unwanted."""
    return False


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a request is made, and how long is waited in between: at random up to a bound that doubles.

    "Full jitter", so that many requests that failed together do not come back together.
    """

    tries: int = 8  # all that are made where no outage is waited for, else the fewest
    first_seconds: float = 0.5
    most_seconds: float = 20.0

    def pause_seconds(self, failures: int) -> float:
        """How long to wait after so many failures."""
        bound: float = min(self.most_seconds, self.first_seconds * 2 ** min(failures - 1, 30))
        return random.uniform(0, bound)  # noqa: S311 - nobody is to be kept from guessing it


class Outages:
    """Of one target, as all requests to it see them: the first that fails says so, the first that succeeds too."""

    def __init__(self, where: str, patience: Patience, *, at_most_seconds: float) -> None:
        self.patience = patience
        self.at_most_seconds = at_most_seconds
        self._where = where
        self._lock = threading.Lock()
        self._since: float | None = None

    def attempts(self, *, tries: int | None = None, unwanted: Unwanted = wanted) -> "Attempts":
        """For one request: so many tries in all, or without a number as many as an outage takes."""
        return Attempts(self, tries=tries, unwanted=unwanted)

    def begun(self, what: str) -> None:
        """Something failed that will be tried again until the outage has lasted too long."""
        with self._lock:
            if self._since is not None:
                return
            self._since = time.monotonic()
        log.warning("%s: %s; retrying for up to %s", self._where, what, format_duration(self.at_most_seconds))

    def given_up(self) -> None:
        """It has lasted too long for a request; the next failure is said again."""
        with self._lock:
            self._since = None

    def over(self) -> None:
        """Something that had failed has succeeded."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            log.info("%s answers again after %.1f s", self._where, time.monotonic() - since)


class Attempts:
    """One request, made again while its failures pass."""

    def __init__(self, outages: Outages, *, tries: int | None, unwanted: Unwanted) -> None:
        self._outages = outages
        self._tries = tries
        self._unwanted = unwanted
        self._failures = 0
        self._since = 0.0  # of the first failure in this row

    def again(self, what: str) -> bool:
        """Wait for a moment after a failure that passes; False where it is to be raised.

        Because it has lasted too long, or because nobody wants the answer any more, which ends the wait at once.
        """
        if not self._failures:
            self._since = time.monotonic()
        self._failures += 1
        if self._unwanted():
            return False
        if self._is_over():
            self._outages.given_up()
            return False
        if self._tries is None:
            self._outages.begun(what)
        log.debug("%s", what)
        until = time.monotonic() + self._outages.patience.pause_seconds(self._failures)
        while not self._unwanted() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _TICK_SECONDS))
        return not self._unwanted()

    def answered(self) -> None:
        """The request has succeeded; the next failure is the first of another row."""
        if self._failures and self._tries is None:
            self._outages.over()
        self._failures = 0

    def _is_over(self) -> bool:
        if self._tries is not None:
            return self._failures >= self._tries
        lasted = time.monotonic() - self._since
        return self._failures >= self._outages.patience.tries and lasted >= self._outages.at_most_seconds


def persisted(
    request: Callable[[], T],
    attempts: Attempts,
    *,
    doing: str,
    failures: tuple[type[Exception], ...],
    passes: Callable[[Exception], bool],
    renew: Callable[[Exception], bool],
) -> T:
    """What the request returns; it is made again while its failure is one that `passes` by itself.

    `renew` reads the credentials again where the failure may be theirs, and says whether it was: once in a row.

    Raises:
        Exception: one of `failures`: what it failed with for good, or while it was unwanted.
    """
    renewed = False
    while True:
        try:
            answer = request()
        except failures as error:
            if not renewed and renew(error):
                renewed = True
            elif not passes(error):
                attempts.answered()  # with a refusal
                raise
            elif not attempts.again(f"could not {doing} it: {error}"):
                raise
            else:
                renewed = False
        else:
            attempts.answered()
            return answer
