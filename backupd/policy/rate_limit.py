"""Whether a rate limit lets the copy end before its COW area is full, by what the last run's snapshot filled. Pure.

Knows: that a snapshot which lives longer fills more. As fast as last time is what it is reckoned with: a forecast that
slows down with age, as the area's size is made from, would leave a new limit untold on a server that writes evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.vocabulary.penalty import SnapshotLife


@dataclass(frozen=True, slots=True)
class LimitedCopy:
    """What a copy at the limit would come to."""

    seconds: float  # that it takes
    filled: int  # bytes of the COW area by then
    may_fill: int  # bytes that may be filled, with what the area can be extended by
    least_rate: int  # bytes a second at which it would have been in time
    fill_rate: float  # bytes a second, by the last run

    @property
    def is_too_slow(self) -> bool:
        """The area would be full first."""
        return self.filled > self.may_fill


def limited_copy(
    size: int, max_rate: int, past: Sequence[SnapshotLife], *, chunk_size: int, may_fill: int, complete: int
) -> LimitedCopy | None:
    """A copy of `size` bytes at `max_rate` bytes a second; None where no run has shown yet how fast the area fills.

    `past` are the job's runs on this volume, the newest first: the newest with chunks of this size counts. `complete`
    is what the area holds once every chunk has been copied: it never fills further.
    """
    life = next((life for life in past if life.chunk_size == chunk_size and life.seconds > 0), None)
    if life is None:
        return None
    seconds, fill_rate = size / max_rate, life.filled / life.seconds
    filled = min(complete, round(fill_rate * seconds))
    return LimitedCopy(seconds, filled, may_fill, round(size * fill_rate / max(1, may_fill)), fill_rate)
