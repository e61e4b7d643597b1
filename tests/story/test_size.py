"""What a backup takes in memory follows from its files, and little of it; from its bytes nothing does.

`make bench-size` measures the same at 5 TiB and a million files.
"""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.bench_size import OF_5_TIB, RESTORED, make_files, run_case
from tests.bench.memory import MemoryStep

pytestmark = pytest.mark.thorough

FEW, MANY = 10_000, 30_000  # the few fill every buffer
A_FILE_AT_MOST = 640  # bytes: 400,000 of them are 244 MiB, and a run may take 256 with all else
MIB = 1 << 20
TRIES = 3  # how threads take turns decides what an allocator has at once: 30 MiB more were seen in one of ten tries


def too_large(
    folder: Path,
    sizes: tuple[tuple[int, int], tuple[int, int]],
    is_too_large: Callable[[str, MemoryStep, MemoryStep], bool],
) -> set[str]:
    """The steps that were too large at every try, of two cases side by side: so many files, of so many bytes."""
    found: set[str] | None = None
    for _ in range(TRIES):
        small, large = both(folder, sizes)
        wrong = {name for name, step in small.items() if is_too_large(name, step, large[name])}
        found = wrong if found is None else found & wrong
        if not found:
            break
    assert found is not None
    return found


def both(
    folder: Path, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> tuple[dict[str, MemoryStep], dict[str, MemoryStep]]:
    """Their steps by name."""
    for number, (files, noise) in enumerate(sizes):
        (folder / str(number)).mkdir()
        make_files(folder / str(number) / str(files), files, noise)
    with ThreadPoolExecutor(2) as pool:
        small, large = pool.map(
            lambda number: {step.name: step for step in run_case(folder / str(number), f"{sizes[number][0]}:folder")},
            range(2),
        )
    for number in range(2):
        shutil.rmtree(folder / str(number))
    return small, large


@pytest.mark.timeout(600)  # seconds; 20 on an idle machine
def test_a_file_costs_a_run_few_bytes_of_memory(tmp_path: Path) -> None:
    def costs_too_much(name: str, few: MemoryStep, many: MemoryStep) -> bool:  # a restore, too
        return not name.startswith(OF_5_TIB) and (many.mib - few.mib) * MIB / (MANY - FEW) >= A_FILE_AT_MOST

    assert too_large(tmp_path, ((FEW, 0), (MANY, 0)), costs_too_much) == set()


@pytest.mark.matrix
@pytest.mark.timeout(600)
def test_bytes_cost_a_run_no_memory(tmp_path: Path) -> None:
    """From the first 256 MiB on every buffer of two streams is full."""

    def grows(name: str, small: MemoryStep, large: MemoryStep) -> bool:
        return name != RESTORED and large.mib >= 1.25 * small.mib

    assert too_large(tmp_path, ((0, 256 * MIB), (0, 512 * MIB)), grows) == set()
