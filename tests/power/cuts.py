"""What disks hold after the power was cut: what they had been told to keep, and whatever of the rest they had kept.

Knows: a disk's cache. A write is durable once a flush of its disk was answered after it, or if it asked for that itself
(FUA). Of the others a disk may have kept any, in any order and each in part, sector by sector; where two of them
overlap, the later one wins. Refuses to know what was written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from tests.power.image import Image
from tests.power.recording import Kind, Request

SECTOR = 512  # bytes: what a disk writes whole or not at all
_SHARES = (0.1, 0.5, 0.9)
_TORN = 0.1  # of the writes that are kept


class Mode(StrEnum):
    """What a disk's cache still got out."""

    NOTHING = "nothing"
    SOME = "some"  # any of it, some writes in part
    ALL_BUT_THE_LAST = "all-but-the-last"  # the cache was empty, and the last write was under way


MODES = (*(Mode.NOTHING,) * 2, *(Mode.SOME,) * 2, Mode.ALL_BUT_THE_LAST)


@dataclass(frozen=True, slots=True)
class Kept:
    """A part of a write that is on the medium."""

    request: Request
    begin: int  # bytes within it
    length: int


def kept(pending: Sequence[Request], mode: Mode, chance: Random) -> Iterator[Kept]:
    """What is left of writes of one disk that no flush came after, in their order."""
    share = chance.choice(_SHARES)
    for index, request in enumerate(pending):
        whole = Kept(request, 0, request.length)
        is_last = index == len(pending) - 1
        if request.durable or (mode is Mode.ALL_BUT_THE_LAST and not is_last):
            yield whole
        elif mode is Mode.ALL_BUT_THE_LAST:
            sectors = chance.randint(0, request.length // SECTOR)
            yield from [Kept(request, 0, sectors * SECTOR)] if sectors else []
        elif mode is Mode.SOME and chance.random() < share:
            yield from _torn(request, chance) if chance.random() < _TORN else (whole,)


def _torn(request: Request, chance: Random) -> Iterator[Kept]:
    for begin in range(0, request.length, SECTOR):
        if chance.random() < 0.5:
            yield Kept(request, begin, min(SECTOR, request.length - begin))


class Replay:
    """Several disks as a recording makes them, from its beginning on. `images` are empty disks."""

    def __init__(self, recorded: Sequence[Request], images: Mapping[int, Image]) -> None:
        self._recorded = recorded
        self._images = images
        self._pending: dict[int, list[Request]] = {disk: [] for disk in images}
        self.instant = 0

    def advance(self, instant: int) -> None:
        """So many requests have been answered. There is no way back."""
        for request in self._recorded[self.instant : instant]:
            waiting = self._pending[request.disk]
            if request.kind is Kind.WRITE:
                waiting.append(request)
            else:
                for write in waiting:
                    self._images[request.disk].wrote(write.offset, write.length, (0, write.at))
                waiting.clear()
        self.instant = max(self.instant, instant)

    def cut(self, mode: Mode, chance: Random) -> tuple[dict[int, Image], "Forgotten"]:
        """The disks after a power cut now; this replay itself goes on as if there had been none."""
        after, held, lost = {}, 0, 0
        for disk, image in self._images.items():
            after[disk] = image.copy()
            for part in kept(self._pending[disk], mode, chance):
                after[disk].wrote(part.request.offset + part.begin, part.length, (0, part.request.at + part.begin))
                held += part.length
            lost += sum(request.length for request in self._pending[disk])
        return after, Forgotten(kept_bytes=held, lost_bytes=lost - held)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Of what no flush had come after."""

    kept_bytes: int
    lost_bytes: int
