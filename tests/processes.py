"""What this process has started and not yet waited for, for tests that say: nothing is left running."""

import contextlib
from pathlib import Path


def children() -> set[str]:
    """The pids of all living children, whichever thread has started them."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end while we look
            found.update((task / "children").read_text().split())
    return found
