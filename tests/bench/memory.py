"""How much memory something takes: what this process and all its children have resident, while it is done.

Knows: /proc. A page that several of them share counts once for each (VmRSS), so that the sum is never too small; and
what lies in memory files that they have open (memfd_create(2)), which is resident in none of them.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """What one step took."""

    name: str
    seconds: float
    mib: float  # of the process and its children at the most


class Memory:
    """Looks for the length of a `with`, twenty times a second; not at the children `beside`."""

    def __init__(self, *, beside: Sequence[int] = ()) -> None:
        self._beside = frozenset(beside)
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def of(self, name: str) -> Iterator[Callable[[], MemoryStep]]:
        """What the block takes: told by what it yields, once it has ended."""
        began, self._peak = time.monotonic(), self._resident()
        ended: list[MemoryStep] = []
        yield lambda: ended[0]
        seconds = time.monotonic() - began
        ended.append(MemoryStep(name, seconds, max(self._peak, self._resident()) / 1024))

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._peak = max(self._peak, self._resident())

    def _resident(self) -> int:
        """KiB. A child that is about to become another program has our memory until then, which is counted once."""
        ours = _text(Path("/proc/self/cmdline"))
        left, found = [os.getpid()], 0
        files: dict[int, int] = {}
        while left:
            pid = left.pop()
            resident = re.search(r"VmRSS:\s+(\d+) kB", _text(Path(f"/proc/{pid}/status")))
            if pid == os.getpid() or _text(Path(f"/proc/{pid}/cmdline")) != ours:
                found += int(resident[1]) if resident else 0
            files |= _memory_files(pid)
            left += [child for child in children_of(pid) if child not in self._beside]
        return found + sum(files.values())


def children_of(pid: int) -> list[int]:
    """Those that it has now."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in _text(path).split()]


def _memory_files(pid: int) -> dict[int, int]:
    """Those that it has open, by their inodes: KiB in each."""
    found = {}
    with suppress(OSError):  # it has ended meanwhile, or one was closed
        for file in Path(f"/proc/{pid}/fd").iterdir():
            if str(file.readlink()).startswith("/memfd:"):
                facts = file.stat()
                found[facts.st_ino] = facts.st_blocks // 2
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # it has ended meanwhile
        return ""
