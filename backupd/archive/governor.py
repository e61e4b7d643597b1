"""How fast a copy may go: a token bucket under a limit, raised where the copy would not end in time at that rate.

Knows: bytes, seconds and when to look whether the copy is still wanted.
"""

import logging
import time
from collections.abc import Callable, Iterator

from backupd.archive.restraint import Restraint
from backupd.policy.pacing import LOOK_SECONDS
from backupd.vocabulary.errors import GaveUp
from backupd.vocabulary.units import rounded_size

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
_BATCH_BYTES = 4 << 20  # what may go at once; more would be felt as a burst by the server
_AREA_MARGIN_SECONDS = 5.0  # before the COW area is full: how full it is, is seen once a second
_LEAST_SECONDS = 0.1
_AREA = "the COW area would be full before the copy is done"
_MARGIN = 0.95  # aim to be done this early, because a rate is never met exactly


class Unhindered:
    """As fast as it goes: for restores and tests."""

    def pace(self, size: int) -> None:
        """Returns at once."""


class CopyGovernor:
    """Holds a copy to its limits; None is no limit. Calls `check` at least every half second, while waiting too.

    `max_rate` is plain bytes a second, `must_finish_by` an instant of `clock`, `total_bytes` an estimate of what is to
    be copied: without it the rate cannot be raised. `later_bytes` of them are sent after the snapshot is gone, and
    `area_seconds` says how long its COW area will last. Both ends come before `max_rate`, which protects the server
    or a network from a backup that has time: one that is given up has cost the same and is worth nothing. `check`
    raises when the copy must not go on (a penalty, replica lag or COW fill beyond the job's limits). `on_progress` is
    told the plain bytes so far. `restraint` holds reads back for the server's sake, within what `max_rate` leaves.
    """

    def __init__(
        self,
        *,
        check: Callable[[], None] = lambda: None,
        max_rate: int | None = None,
        must_finish_by: float | None = None,
        total_bytes: int | None = None,
        later_bytes: int = 0,
        area_seconds: Callable[[], float | None] = lambda: None,
        restraint: Restraint | None = None,
        on_progress: Callable[[int], None] = lambda _done: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._check = check
        self._max_rate = max_rate
        self._must_finish_by = must_finish_by
        self._total_bytes, self._later_bytes = total_bytes, later_bytes
        self._area_seconds = area_seconds
        self._restraint = restraint
        self._on_progress = on_progress
        self._clock = clock
        self._wait = wait
        self._paced = 0
        self._free_at = clock()  # when the bytes that were let through so far are paid for
        self._check_at = self._free_at
        self._raised: set[str] = set()  # for what the rate was raised

    @property
    def outran_area(self) -> bool:
        """Whether `max_rate` was exceeded because the COW area would not have lasted."""
        return _AREA in self._raised

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
        wanted = size
        if wanted > 0 and self._restraint is not None:
            self._restraint.held_back()
        while size > 0:
            batch = min(size, _BATCH_BYTES)
            size -= batch
            self._pace_batch(batch)
            self._on_progress(self._paced)
        if wanted > 0 and self._restraint is not None:
            self._restraint.hold(wanted, self._look)

    def _pace_batch(self, batch: int) -> None:
        begun = max(self._free_at, self._clock())
        while (rate := self._rate()) is not None:
            self._free_at = begun + batch / rate
            left = min(self._free_at - self._clock(), self._longest_wait)
            if left <= 0:
                break
            self._wait(min(left, max(0.0, self._check_at - self._clock())))
            self._look()
        self._paced += batch

    @property
    def _longest_wait(self) -> float:
        """Until the server is looked at again."""
        return CHECK_SECONDS if self._restraint is None else LOOK_SECONDS

    def _look(self) -> None:
        now = self._clock()
        if self._must_finish_by is not None and now >= self._must_finish_by:
            of = "" if self._total_bytes is None else f" of about {rounded_size(self._total_bytes)}"
            raise GaveUp(
                f"the copy missed its deadline: {rounded_size(self._paced)}{of} copied",
                hint="start the job earlier, move must_finish_by, or raise max_rate",
            )
        if now >= self._check_at:
            self._check()
            self._check_at = self._clock() + CHECK_SECONDS
        if self._restraint is not None:
            self._restraint.look(
                bytes_left=None if self._total_bytes is None else max(0, self._total_bytes - self._paced),
                later_bytes=self._later_bytes,
                deadline_seconds=None if self._must_finish_by is None else self._must_finish_by - now,
            )

    def _rate(self) -> float | None:
        """Bytes a second that are allowed now; None is unlimited."""
        if self._max_rate is None or self._total_bytes is None:
            return self._max_rate
        needed, end = max(self._needed(self._total_bytes - self._paced), default=(0.0, ""))
        if needed <= self._max_rate:
            return self._max_rate
        if end not in self._raised:
            self._raised.add(end)
            limit, rate = rounded_size(self._max_rate), rounded_size(needed)
            log.warning("at max_rate %s/s %s; copying at %s/s now", limit, end, rate)
        return needed

    def _needed(self, left: int) -> Iterator[tuple[float, str]]:
        """Bytes a second by which the copy ends in time, and what would happen otherwise."""
        if self._must_finish_by is not None and (seconds := self._must_finish_by - self._clock()) > 0:
            yield left / (seconds * _MARGIN), "the copy would miss its deadline"
        if (seconds_of_area := self._area_seconds()) is not None:
            in_time = max(_LEAST_SECONDS, seconds_of_area * _MARGIN - _AREA_MARGIN_SECONDS)
            yield (left - self._later_bytes) / in_time, _AREA
