"""How long a stage of a copy worked, as against waited: two looks at a clock for each block."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Self

from backupd.archive.pipeline import Station
from backupd.vocabulary.penalty import Throughput


class Stopwatch:
    """Runs for the length of each `with watch.over(size):`. For one thread."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.bytes = 0
        self.seconds = 0.0

    def over(self, size: int) -> Self:
        """What is measured is done to that many bytes."""
        self.bytes += size
        return self

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_raised: object) -> None:
        self.seconds += time.perf_counter() - self._began


class Timed:
    """A station that is measured. What becomes of its pieces is not its time."""

    def __init__(self, stage: str, station: Station) -> None:
        self.watch = Stopwatch(stage)
        self._station = station

    def take(self, block: bytes) -> Iterator[bytes]:
        """What the station makes of it."""
        with self.watch.over(len(block)):
            pieces = iter(self._station.take(block))
        return self._measured(pieces)

    def end(self) -> Iterator[bytes]:
        """What the station had left."""
        return self._measured(iter(self._station.end()))

    def _measured(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            with self.watch:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece


def totals(watches: Iterable[Stopwatch]) -> tuple[Throughput, ...]:
    """One for each stage, in the order in which they were first met: all streams' bytes and seconds together."""
    return together(Throughput(watch.stage, watch.bytes, watch.seconds) for watch in watches)


def together(*stages: Iterable[Throughput]) -> tuple[Throughput, ...]:
    """The same of what was summed up before."""
    found: dict[str, Throughput] = {}
    for stage in chain.from_iterable(stages):
        so_far = found.get(stage.stage, Throughput(stage.stage, 0, 0.0))
        found[stage.stage] = Throughput(
            stage.stage, so_far.bytes + stage.bytes, so_far.busy_seconds + stage.busy_seconds
        )
    return tuple(found.values())
