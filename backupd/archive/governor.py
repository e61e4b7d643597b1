"""How fast a copy may go: a token bucket under a limit, raised when a deadline would be missed.

Knows: bytes, seconds and when to look whether the copy is still wanted.
"""

import logging
import time
from collections.abc import Callable

from backupd.archive.restraint import Restraint
from backupd.vocabulary.errors import GaveUp

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
_BATCH_BYTES = 4 << 20  # what may go at once; more would be felt as a burst by the server
_MARGIN = 0.95  # aim to be done this early, because a rate is never met exactly


class Unhindered:
    """As fast as it goes: for restores and tests."""

    def pace(self, size: int) -> None:
        """Returns at once."""


class CopyGovernor:
    """Holds a copy to its limits; None is no limit. Calls `check` at least every half second, while waiting too.

    `max_rate` is plain bytes a second, `must_finish_by` an instant of `clock`, `total_bytes` an estimate of what is to
    be copied: without it the rate cannot be raised to keep the deadline. `check` raises when the copy must not go on
    (a penalty, replica lag or COW fill beyond the job's limits). `on_progress` is told the plain bytes so far.
    `restraint` holds reads back for the server's sake, within what `max_rate` and the deadline leave.
    """

    def __init__(
        self,
        *,
        check: Callable[[], None] = lambda: None,
        max_rate: int | None = None,
        must_finish_by: float | None = None,
        total_bytes: int | None = None,
        restraint: Restraint | None = None,
        on_progress: Callable[[int], None] = lambda _done: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._check = check
        self._max_rate = max_rate
        self._must_finish_by = must_finish_by
        self._total_bytes = total_bytes
        self._restraint = restraint
        self._on_progress = on_progress
        self._clock = clock
        self._wait = wait
        self._paced = 0
        self._free_at = clock()  # when the bytes that were let through so far are paid for
        self._check_at = self._free_at
        self._raised = False

    @property
    def paced(self) -> int:
        """Plain bytes that were let through so far."""
        return self._paced

    def pace(self, size: int) -> None:
        """Return when `size` more plain bytes may be copied; with 0, only look whether the copy may go on.

        Raises:
            GaveUp: the deadline has passed.
            AbortedImpact: the copy cannot go on within the job's budgets.
        """
        self._look()
        if size > 0 and self._restraint is not None:
            self._restraint.hold(size, self._look)
        while size > 0:
            batch = min(size, _BATCH_BYTES)
            size -= batch
            self._pace_batch(batch)
            self._on_progress(self._paced)

    def _pace_batch(self, batch: int) -> None:
        rate = self._rate()
        if rate is not None:
            self._free_at = max(self._free_at, self._clock()) + batch / rate
        while rate is not None and (left := self._free_at - self._clock()) > 0:
            self._wait(min(left, max(0.0, self._check_at - self._clock())))
            self._look()
        self._paced += batch

    def _look(self) -> None:
        now = self._clock()
        if self._must_finish_by is not None and now >= self._must_finish_by:
            of = "" if self._total_bytes is None else f" of about {self._total_bytes}"
            raise GaveUp(
                f"the copy missed its deadline: {self._paced}{of} bytes",
                hint="start the job earlier, move must_finish_by, or raise max_rate",
            )
        if now >= self._check_at:
            self._check()
            self._check_at = self._clock() + CHECK_SECONDS
        if self._restraint is not None:
            self._restraint.look(
                bytes_left=None if self._total_bytes is None else max(0, self._total_bytes - self._paced),
                deadline_seconds=None if self._must_finish_by is None else self._must_finish_by - now,
            )

    def _rate(self) -> float | None:
        """Bytes a second that are allowed now; None is unlimited."""
        if self._max_rate is None or self._must_finish_by is None or self._total_bytes is None:
            return self._max_rate
        seconds = (self._must_finish_by - self._clock()) * _MARGIN
        left = self._total_bytes - self._paced
        needed = left / seconds if left > 0 and seconds > 0 else 0.0
        if needed <= self._max_rate:
            return self._max_rate
        if not self._raised:
            self._raised = True
            log.warning("max_rate %d would miss the deadline; copying at %d bytes/s now", self._max_rate, needed)
        return needed
