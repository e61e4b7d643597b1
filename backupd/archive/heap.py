"""How glibc gets memory for a process that hands large blocks from thread to thread.

Knows: mallopt(3). By itself glibc has eight heaps for each core, each of which keeps what its threads once needed, and
takes large blocks from them too as soon as one of such a size was released. At 400,000 files and an S3 target that
is some 20 MiB. Another C library has no `mallopt`, or none that does anything: it is left as it is.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_HEAPS = 2
_LARGE_BYTES = 4 << 20  # blocks from this size on are the kernel's to give and to take back


def confine() -> None:
    """For the rest of the process; what its threads were given before is not moved."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    for parameter, value in (
        (_ARENA_MAX, _HEAPS),
        (_MMAP_THRESHOLD, _LARGE_BYTES),
        (_TRIM_THRESHOLD, _LARGE_BYTES),
    ):
        library.mallopt(parameter, value)
