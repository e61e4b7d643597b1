"""Reading a backup back from where it lies: all of it, or a sample. No key is needed: the stored bytes are compared.

A full verification covers every byte: the manifest has a digest of itself and those of every object and frame, and an
object too many, too few, too long or too short is a fault as well.
"""

import hashlib
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from backupd.archive import Governor
from backupd.archive.frames import DAMAGED, Frames, Pieces, Reading, compare, frames_of
from backupd.archive.governor import Unhindered
from backupd.archive.sidebyside import side_by_side
from backupd.errors import UsageError, VerificationError
from backupd.model import Manifest, StoredObject
from backupd.targets import Source, Target

_SHARE = re.compile(r"(?P<percent>[0-9]{1,3}(\.[0-9]{1,4})?) ?%")


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read back and found equal."""

    objects: int
    frames: int  # that were read
    bytes_read: int
    bytes_stored: int  # of all objects
    seconds: float

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
    frames = frames_of(stored)
    pacing = governor or Unhindered()
    whole = hashlib.sha256()
    with target.reading(job, run_id, stored.name) as chunks:
        pieces = Pieces(chunks, pacing.pace)
        for number in range(len(frames.all)):
            compare(frames, number, pieces, whole=whole)
        if pieces.more():
            raise _differs(stored, f"expected {stored.stored_bytes} bytes as stored, found more")
    if whole.hexdigest() != stored.stored_sha256:
        raise _differs(stored, f"expected stored sha256 {stored.stored_sha256}, found {whole.hexdigest()}")


def verify_backup(
    source: Source,
    *,
    share: float | None = None,
    read: Callable[[int, int], None] = lambda _done, _total: None,
    chance: random.Random | None = None,
) -> Verified:
    """What lies on the target is what the run stored. With a `share`, that much of each object's frames is read.

    The first and the last frame of an object are always among them. `read` is told the bytes so far, and those of all
    that are to be read.

    Raises:
        VerificationError: something is not what was stored, is missing or too many.
        TargetError: the target cannot be read: nothing is known of the backup then.
    """
    began = time.monotonic()
    manifest = manifest_of(source)
    _require_objects(source, manifest)
    everything = [frames_of(stored) for stored in manifest.objects]
    picked = [_picked(frames, share, chance or random.SystemRandom()) for frames in everything]
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
    )


def manifest_of(source: Source) -> Manifest:
    """The manifest that lies there, of the run that was asked for.

    Raises:
        VerificationError: it is another run's, or cannot be understood.
        TargetError: there is none, or it cannot be read.
    """
    manifest = source.target.manifest(source.job, source.run_id)
    if (manifest.job, manifest.run_id) != (source.job, source.run_id):
        raise VerificationError(
            f"the manifest of run {source.run_id} on target {source.target.name} is that of run {manifest.run_id} of"
            f" job {manifest.job}",
            hint=DAMAGED,
        )
    return manifest


def share_of(text: str) -> float:
    """What `5%` means, above 0.0 to 1.0.

    Raises:
        UsageError: it means nothing.
    """
    found = _SHARE.fullmatch(text.strip())
    share = float(found["percent"]) / 100 if found else 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{text!r} is no share to sample", hint="for example --sample 5%; without it, all is read")
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
    source: Source, frames: Frames, numbers: Sequence[int], count: _Count
) -> Callable[[Callable[[], None]], None]:
    def work(require_wanted: Callable[[], None]) -> None:
        pace = _Pace(count, require_wanted)
        if len(numbers) == len(frames.all):
            verify_object(source.target, source.job, source.run_id, frames.stored, governor=pace)
            return
        for number in numbers:
            begin, end = frames.stored_at[number : number + 2]
            with reading_of(source, frames.stored)(begin, end - begin) as chunks:
                compare(frames, number, Pieces(chunks, pace.pace))

    return work


def reading_of(source: Source, stored: StoredObject) -> Reading:
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


def _require_objects(source: Source, manifest: Manifest) -> None:
    names = [stored.name for stored in manifest.objects]
    if len(set(names)) != len(names) or not names:
        raise VerificationError(f"the manifest of run {manifest.run_id} does not name each object once", hint=DAMAGED)
    there = source.target.objects(source.job, source.run_id)
    for stored in manifest.objects:
        if stored.name not in there:
            raise _differs(stored, f"it is not on target {source.target.name}")
        if there[stored.name] != stored.stored_bytes:
            raise _differs(stored, f"expected {stored.stored_bytes} bytes as stored, found {there[stored.name]}")
    unknown = sorted(there.keys() - set(names))
    if unknown:
        raise VerificationError(
            f"{unknown[0]} lies in run {manifest.run_id} on target {source.target.name}, and no manifest knows of it",
            hint="somebody put it there: see what it is before you rely on this copy",
        )


def _differs(stored: StoredObject, how: str) -> VerificationError:
    return VerificationError(f"{stored.name}: {how}", hint=DAMAGED)
