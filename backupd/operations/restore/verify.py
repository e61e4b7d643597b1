"""Reading a backup back from where it lies: all of it, or a sample. What was encrypted is compared as it is stored.

A full verification covers every byte: the manifest has a digest of itself and those of every object and frame, and an
object that is missing, too long or too short is a fault as well. What somebody has put beside the objects is none: it
is told, and damages nothing.
"""

import hashlib
import logging
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from backupd.archive import Governor
from backupd.archive.frames import DAMAGED, Block, Frames, Pieces, Reading, compare, frames_of
from backupd.archive.governor import Unhindered
from backupd.archive.parallel import side_by_side
from backupd.policy.verification_rounds import next_part
from backupd.targets import BackupSource, Target
from backupd.targets.listing import require_listed
from backupd.vocabulary.errors import Unreadable, Untrusted, UsageError, VerificationError
from backupd.vocabulary.storage import Manifest, StoredObject

log = logging.getLogger(__name__)

_SHARE = re.compile(r"(?P<percent>[0-9]{1,3}(\.[0-9]{1,4})?) ?%")


@dataclass(frozen=True, slots=True)
class Round:
    """One of the rounds that together read all of a copy."""

    begin: int  # the frame, counted over all objects
    rounds: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read back and found equal."""

    objects: int
    frames: int  # that were read
    bytes_read: int
    bytes_stored: int  # of all objects
    seconds: float
    next_frame: int = 0  # where the next round begins; 0: this one has come to the end
    unknown: tuple[str, ...] = ()  # what lies beside the objects and the manifest does not name

    @property
    def whole(self) -> bool:
        """Nothing was left out."""
        return self.bytes_read == self.bytes_stored

    @property
    def share(self) -> float:
        """Of the stored bytes, 0.0 to 1.0."""
        return self.bytes_read / self.bytes_stored if self.bytes_stored else 1.0


def verify_object(
    target: Target, job: str, run_id: str, stored: StoredObject, *, governor: Governor | None = None
) -> None:
    """All of one object lies there as it was stored, by the digest of each frame and of the whole.

    Raises:
        VerificationError: it does not; names the object, the frame and its bytes.
        TargetError: it cannot be read.
        Anything that the governor raises.
    """
    with target.reading(job, run_id, stored.name) as chunks:
        compare_object(stored, chunks, governor or Unhindered())


def compare_object(stored: StoredObject, chunks: Iterable[Block], governor: Governor) -> None:
    """These bytes are the object as it was stored, by the digest of each frame and of the whole.

    Raises:
        VerificationError: they are not; names the object, the frame and its bytes.
        Anything that the governor and the chunks raise.
    """
    whole = hashlib.sha256()
    compare_frames(stored, chunks, governor, also=whole.update)
    if whole.hexdigest() != stored.stored_sha256:
        raise _differs(stored, f"expected stored sha256 {stored.stored_sha256}, found {whole.hexdigest()}")


def compare_frames(
    stored: StoredObject, chunks: Iterable[Block], governor: Governor, *, also: Callable[[memoryview], None]
) -> None:
    """These bytes, and no more of them, are the object's frames as they were stored; `also` is given them in parts.

    No part reaches over a frame's end.

    Raises:
        VerificationError: they are not; names the object, the frame and its bytes.
        Anything that the governor, the chunks and `also` raise.
    """
    frames = frames_of(stored)
    pieces = Pieces(iter(chunks), governor.pace)
    for number in range(len(frames.all)):
        compare(frames, number, pieces, also=also)
    if pieces.more():
        raise _differs(stored, f"expected {stored.stored_bytes} stored bytes, found more")


def verify_backup(
    source: BackupSource,
    *,
    share: float | None = None,
    part: Round | None = None,
    read: Callable[[int, int], None] = lambda _done, _total: None,
    chance: random.Random | None = None,
) -> Verified:
    """What is on the target is what the run stored. With a `share`, that much of each object's frames is read.

    The first and the last frame of an object are always among them. With a `part`, its frames are read instead. `read`
    is told the bytes so far, and those of all that are to be read.

    Raises:
        VerificationError: something is not what was stored, or is missing.
        Unreadable: the manifest is as it was written, and cannot be parsed: nothing is known of the rest.
        TargetError: the target cannot be read: nothing is known of the backup then.
    """
    began = time.monotonic()
    manifest = manifest_of(source)
    unknown = _unknown_beside(source, manifest)
    everything = [frames_of(stored) for stored in manifest.objects]
    picked = [_picked(frames, share, chance or random.SystemRandom()) for frames in everything]
    next_frame = 0
    if part is not None:
        picked, next_frame = _of_part(everything, part)
    total = sum(
        frames.all[number].stored_bytes
        for frames, numbers in zip(everything, picked, strict=True)
        for number in numbers
    )
    count = _Count()
    side_by_side(
        [_task(source, frames, numbers, count) for frames, numbers in zip(everything, picked, strict=True)],
        idle=lambda: read(count.bytes, total),
    )
    read(total, total)
    return Verified(
        objects=len(everything),
        frames=sum(map(len, picked)),
        bytes_read=total,
        bytes_stored=sum(stored.stored_bytes for stored in manifest.objects),
        seconds=time.monotonic() - began,
        next_frame=next_frame,
        unknown=unknown,
    )


def manifest_of(source: BackupSource) -> Manifest:
    """The manifest that lies there, of the run that was asked for. One that came damaged is asked for a second time.

    Raises:
        Untrusted: it is not to be believed; see `trust`.
        VerificationError: it is another run's, was damaged, or cannot be parsed.
        TargetError: there is none, or it cannot be read.
    """
    try:
        return _manifest_seen(source)
    except (Unreadable, Untrusted):
        raise
    except VerificationError as error:
        log.warning("reading the manifest of run %s again: %s", source.run_id, error.message)
        return _manifest_seen(source)


def _manifest_seen(source: BackupSource) -> Manifest:
    manifest = source.target.manifest(source.job, source.run_id)
    if (manifest.machine, manifest.job, manifest.run_id) != (source.target.machine, source.job, source.run_id):
        raise VerificationError(
            f"the manifest of run {source.run_id} on target {source.target.name} is that of run {manifest.run_id} of"
            f" job {manifest.job} of machine {manifest.machine}",
            hint=DAMAGED,
        )
    if not manifest.objects:
        raise VerificationError(
            f"the manifest of run {source.run_id} lists no object", hint="it is not a backup; remove it"
        )
    source.trust.require(manifest)
    return manifest


def share_of(text: str) -> float:
    """What `5%` means, above 0.0 to 1.0.

    Raises:
        UsageError: it means nothing.
    """
    found = _SHARE.fullmatch(text.strip())
    share = float(found["percent"]) / 100 if found else 0.0
    if not 0 < share <= 1:
        raise UsageError(
            f"{text!r} is not a valid sample size",
            hint=("for example --sample 5%; without --sample everything is read"),
        )
    return share


class _Count:
    """Bytes that several threads have read."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.bytes += size


@dataclass(frozen=True, slots=True)
class _Pace:
    """Counts what is read, and ends the reading when nobody waits for it."""

    count: _Count
    require_wanted: Callable[[], None]

    def pace(self, size: int) -> None:
        self.require_wanted()
        self.count.add(size)


def _task(
    source: BackupSource, frames: Frames, numbers: Sequence[int], count: _Count
) -> Callable[[Callable[[], None]], None]:
    def work(require_wanted: Callable[[], None]) -> None:
        pace = _Pace(count, require_wanted)
        if len(numbers) == len(frames.all):
            verify_object(source.target, source.job, source.run_id, frames.stored, governor=pace)
            return
        for run in _runs(numbers):
            begin, end = frames.stored_at[run.start], frames.stored_at[run.stop]
            with reading_of(source, frames.stored)(begin, end - begin) as chunks:
                pieces = Pieces(chunks, pace.pace)
                for number in run:
                    compare(frames, number, pieces)

    return work


def reading_of(source: BackupSource, stored: StoredObject) -> Reading:
    """How this object is read there: from an offset, so many bytes."""

    def reading(offset: int, size: int | None) -> AbstractContextManager[Iterator[bytes]]:
        return source.target.reading(source.job, source.run_id, stored.name, offset=offset, size=size)

    return reading


def _picked(frames: Frames, share: float | None, chance: random.Random) -> Sequence[int]:
    count = len(frames.all)
    if share is None:
        return range(count)
    always = {0, count - 1}
    others = [number for number in range(count) if number not in always]
    more = max(0, math.ceil(share * count) - len(always))
    return sorted(always | set(chance.sample(others, min(more, len(others)))))


def _of_part(everything: Sequence[Frames], part: Round) -> tuple[list[Sequence[int]], int]:
    """Of each object the frames that this round reads, and where the next round begins."""
    sizes = [frame.stored_bytes for frames in everything for frame in frames.all]
    wanted = next_part(sizes, part.begin, part.rounds)
    picked: list[Sequence[int]] = []
    first = 0
    for frames in everything:
        count = len(frames.all)
        picked.append(range(max(0, wanted.start - first), max(0, min(count, wanted.stop - first))))
        first += count
    return picked, wanted.stop % len(sizes)


def _runs(numbers: Sequence[int]) -> list[range]:
    """Those that follow one another together: each is one request."""
    found: list[range] = []
    for number in numbers:
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def _unknown_beside(source: BackupSource, manifest: Manifest) -> tuple[str, ...]:
    """What lies there and the manifest does not name, once all that it names is listed as it was stored."""
    names = [stored.name for stored in manifest.objects]
    if len(set(names)) != len(names) or not names:
        raise Unreadable(f"the manifest of run {manifest.run_id} does not list each object exactly once", hint=DAMAGED)
    return require_listed(source.target, manifest)


def _differs(stored: StoredObject, how: str) -> VerificationError:
    return VerificationError(f"{stored.name}: {how}", hint=DAMAGED)
