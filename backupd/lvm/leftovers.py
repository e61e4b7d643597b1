"""Whether there is data on a device in which nothing recognises a file system, a table or a volume.

Knows: where to look, so that it takes a slow disk seconds. A database's raw device, plain dm-crypt and a file system
whose head is lost have no signature; neither has what is left of volumes that were removed. Refuses to know which of
them it is: nobody can tell.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.units import size_words

OPTION = "--overwrite-leftovers"  # how a person says that nobody needs them

_ENDS = 4 << 20  # bytes at the beginning and at the end: heads, labels and their copies
_SAMPLES, _SAMPLE = 256, 64 << 10  # in between: 256 seeks take a disk of 7,200 rpm three seconds


def leftovers(path: Path) -> str:
    """Where something else than zeros was found, in words; empty where all that was read is zero.

    Raises:
        SnapshotError: it cannot be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
            for at, count in _places(os.lseek(file, 0, os.SEEK_END)):
                block = os.pread(file, count, at)
                if block.count(0) != len(block):
                    return f"data at {size_words(at + _first(block))}, in no known format"
        finally:
            os.close(file)
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror}", hint="see `dmesg`") from error
    return ""


def _places(size: int) -> Iterator[tuple[int, int]]:
    """What is read, as (offset, length): both ends, and samples that lie evenly, as allocation groups do."""
    yield 0, _ENDS
    yield max(0, size - _ENDS), _ENDS
    for number in range(1, _SAMPLES):
        yield size * number // _SAMPLES // _SAMPLE * _SAMPLE, _SAMPLE


def _first(block: bytes) -> int:
    return len(block) - len(block.lstrip(b"\0"))
