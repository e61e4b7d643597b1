"""Where a test can bypass the page cache."""

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
    cache = Path(__file__).parents[2] / ".cache"
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
