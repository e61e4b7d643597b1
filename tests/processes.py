"""What a process has started and not yet waited for, for tests that say: nothing is left running."""

import contextlib
from pathlib import Path


def children(of: int | str = "self") -> set[str]:
    """The pids of all living children of this process or another, whichever thread has started them."""
    found: set[str] = set()
    gone = contextlib.suppress(FileNotFoundError, ProcessLookupError)
    with gone:  # a process may have ended
        for task in Path(f"/proc/{of}/task").iterdir():
            with gone:  # and a thread may end while we look
                found.update((task / "children").read_text().split())
    return found
