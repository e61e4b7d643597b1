"""What the lab's disks take for a request, by its size: `make bench-disks`, in the lab, on its first spare disk.

Past the page cache, one request after the other; and small ones by four at once, which tells whether there is a queue.
"""

import mmap
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from backupd.lab.sizes import KIB, MIB, SPARE_DISK
from backupd.load.counters import KernelCounters

SIZES = (16 * KIB, 128 * KIB, 512 * KIB, MIB, 4 * MIB)
AT_ONCE = 4
_REQUESTS = 40
_SMALL = 16 * KIB


@dataclass(frozen=True, slots=True)
class Took:
    """What the requests of one size took."""

    size: int  # bytes
    read_ms: float  # median of one after the other
    write_ms: float


def main() -> int:
    """Measure and print a table."""
    disk = Path(os.environ["BACKUPD_LAB_SPARE_DISKS"].split()[0])
    took = [Took(size, request_ms(disk, size, write=False), request_ms(disk, size, write=True)) for size in SIZES]
    each = [several_ms(disk, write=write) for write in (False, True)]
    limits = ", ".join(f"{name} {value}" for name, value in queue_limits(disk).items())
    sys.stdout.write(f"{disk}: {limits}\n{table(took, each)}\n")
    return 0


def request_ms(disk: Path, size: int, *, write: bool) -> float:
    """The median of requests of so many bytes that lie one behind the other, in milliseconds."""
    return median(_each_ms(disk, size, write=write, first=0))


def several_ms(disk: Path, *, write: bool) -> float:
    """The same of 16 KiB, while so many ask at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(_each_ms, disk, _SMALL, write=write, first=number * 64 * MIB) for number in range(AT_ONCE)]
        return median(value for one in asked for value in one.result())


def queue_limits(device: Path) -> dict[str, int]:
    """What the kernel thinks of the device: whether it turns, and how large a request may be (KiB)."""
    queue = Path("/sys/dev/block", str(KernelCounters().number_of(device)), "queue")
    return {name: int((queue / name).read_text(encoding="ascii")) for name in ("rotational", "max_sectors_kb")}


def table(took: Sequence[Took], several: Sequence[float]) -> str:
    """A Markdown table; `several` are the milliseconds of small reads and writes by four at once."""
    lines = ["| request | read | | write | |", "|---|---|---|---|---|"]
    for one in took:
        cells = [f"{ms:.1f} ms | {one.size / MIB / ms * 1000:.0f} MiB/s" for ms in (one.read_ms, one.write_ms)]
        lines.append(f"| {one.size // KIB} KiB | {' | '.join(cells)} |")
    cells = [f"{ms:.1f} ms | {AT_ONCE * _SMALL / MIB / ms * 1000:.0f} MiB/s" for ms in several]
    lines.append(f"| {_SMALL // KIB} KiB, by {AT_ONCE} at once | {' | '.join(cells)} |")
    return "\n".join(lines)


def _each_ms(disk: Path, size: int, *, write: bool, first: int) -> list[float]:
    """Of each request, from that byte of the disk on. What is written is zeros."""
    found = []
    handle = os.open(disk, (os.O_WRONLY if write else os.O_RDONLY) | os.O_DIRECT)
    try:
        with mmap.mmap(-1, size) as buffer:  # aligned to pages, as O_DIRECT wants it
            for number in range(_REQUESTS):
                at = (first + number * size) % (SPARE_DISK - size)
                began = time.monotonic()
                moved = os.pwritev(handle, [buffer], at) if write else os.preadv(handle, [buffer], at)
                found.append((time.monotonic() - began) * 1000)
                assert moved == size
    finally:
        os.close(handle)
    return found


if __name__ == "__main__":
    sys.exit(main())
