"""A processor of its own for each machine, as far as there are enough.

Knows: which processors do least (proc(5), `stat`), and that a lock, flock(2), tells who else has a machine on one: two
that start at the same time see the same one idle, and would share it for as long as they live.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_SECONDS = 0.1


@contextmanager
def one_processor(locks: Path) -> Iterator[int]:
    """The idlest one on which no other machine runs, else the idlest, for the length of the block.

    `locks` is the folder that all labs of this host share for it.
    """
    locks.mkdir(parents=True, exist_ok=True)
    idlest_first = _idlest_first()
    for processor in idlest_first:
        with (locks / f"{processor}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield processor
            return
    yield idlest_first[0]


def _idlest_first() -> list[int]:
    """Those that we may use, by what they did in the last tenth of a second."""
    before = _idle_ticks()
    time.sleep(_LOOK_SECONDS)
    after = _idle_ticks()
    return sorted(os.sched_getaffinity(0), key=lambda one: before.get(one, 0) - after.get(one, 0))


def _idle_ticks() -> dict[int, int]:
    lines = Path("/proc/stat").read_text().splitlines()
    fields = [line.split() for line in lines if line.startswith("cpu") and line[3].isdecimal()]
    return {int(name.removeprefix("cpu")): int(idle) for name, _, _, _, idle, *_ in fields}
