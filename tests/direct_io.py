"""Where a test can bypass the page cache."""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder_for_direct_io(wanted: Path) -> Iterator[Path]:
    """A folder that takes direct I/O; an older kernel's tmpfs takes none, then it is one on the checkout's disk."""
    if _takes_direct_io(wanted):
        yield wanted
        return
    with _on_the_checkouts_disk() as folder:
        yield folder


@contextmanager
def folder_outside_memory(wanted: Path) -> Iterator[Path]:
    """A folder whose files need not be in memory; where `wanted` is a tmpfs, one on the checkout's disk."""
    path = wanted / "in-memory"
    path.write_bytes(bytes(mmap.PAGESIZE))
    let_go(path)
    in_memory = pages_in_memory(path) > 0
    path.unlink()
    if not in_memory:
        yield wanted
        return
    with _on_the_checkouts_disk() as folder:
        yield folder


def let_go(path: Path) -> None:
    """The file's pages are on its disk, and the page cache may forget them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pages_in_memory(path: Path) -> int:
    """Pages of the file, by mincore(2)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        assert ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(mapped)), pages) == 0
        del first
        return sum(page & 1 for page in pages)


@contextmanager
def _on_the_checkouts_disk() -> Iterator[Path]:
    cache = Path(__file__).parents[1] / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        yield Path(folder)


def _takes_direct_io(folder: Path) -> bool:
    path = folder / "direct"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True
