"""What is seen while a snapshot is read, and what reading at one speed has cost by that.

Knows: when a speed was tried for long enough to be judged, and how much of its price may be chance. Which speed is
tried next is decided in `pacing`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

TRIAL_SECONDS = 0.4  # of reading at one speed, before it is judged
_TRIAL_READS = 4
_TRIAL_WRITES = 10  # fewer say nothing, unless it has lasted for three times as long
_MOST_DOUBT = 0.06  # of the price, that is granted to noise


@dataclass(frozen=True, slots=True)
class PaceLook:
    """What was seen since the look before, and what is known now. None: unknown."""

    seconds: float
    writes: int  # of anybody's to the origin, that ended
    write_seconds: float  # that these took, together
    in_flight: int  # now, on the origin
    reads: int = 0  # of ours, that ended
    read_bytes: int = 0
    reading_seconds: float = 0.0  # that these took, without what they were held back
    held_seconds: float = 0.0  # of `seconds`, in which a read was held back
    bytes_left: int | None = None
    later_bytes: int = 0  # of these, sent after the snapshot is gone
    deadline_seconds: float | None = None  # until the copy must be done
    cow_seconds: float | None = None  # until the COW area is forecast to reach its limit
    lag_seconds: float | None = None

    def needed_rates(self, margin: float) -> Iterator[tuple[float, str]]:
        """Bytes a second by which the copy is done in time, with a share of the time as a margin, and before what."""
        if not self.bytes_left:
            return
        if self.deadline_seconds is not None:
            yield self.bytes_left / max(0.001, self.deadline_seconds * margin), "its deadline"
        if self.cow_seconds is not None:
            unread = max(0, self.bytes_left - self.later_bytes)
            yield unread / max(0.001, self.cow_seconds * margin), "the COW area is full"


@dataclass(frozen=True, slots=True)
class Trial:
    """What reading at one speed has cost so far."""

    seconds: float = 0.0
    writes: int = 0
    looks: int = 0
    waiting: float = 0.0  # seconds of writes that would not have waited without us, summed
    squares: float = 0.0  # of how many waited at each look, summed
    reads: int = 0
    reading_seconds: float = 0.0  # in which no read was held back

    @property
    def price(self) -> float | None:
        """For each second of reading, which is as many bytes at any speed; None where nothing was read."""
        return self.waiting / self.reading_seconds if self.reading_seconds else None

    def with_look(self, look: PaceLook, waiting: float) -> Self:
        """One look more."""
        return replace(
            self,
            seconds=self.seconds + look.seconds,
            writes=self.writes + look.writes,
            looks=self.looks + 1,
            waiting=self.waiting + waiting * look.seconds,
            squares=self.squares + waiting**2,
            reads=self.reads + look.reads,
            reading_seconds=self.reading_seconds + look.seconds - look.held_seconds,
        )

    @property
    def doubt(self) -> float:
        """The price's standard error, as a share of it: what a few writes take is a matter of chance."""
        if self.looks < 2 or self.waiting <= 0:
            return 0.0
        mean = self.waiting / self.seconds
        return min(_MOST_DOUBT, sqrt(max(0.0, self.squares / self.looks - mean**2) / (self.looks - 1)) / mean)

    @property
    def is_over(self) -> bool:
        """Long enough, with enough reads and writes, to be judged."""
        enough = self.writes >= _TRIAL_WRITES or self.seconds >= 3 * TRIAL_SECONDS
        return enough and self.seconds >= TRIAL_SECONDS and self.reads >= _TRIAL_READS
