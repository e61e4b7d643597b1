"""A daemon is after 300 runs, drills and prunings, and thousands of page loads, as it was: but for what was stored."""

import sys
from pathlib import Path

import pytest

from tests.service.long_life import RUNS, Life, Look, Process, lived


@pytest.mark.figures
@pytest.mark.timeout(7200)
def test_nothing_of_a_daemon_grows_with_its_life_but_what_is_stored(path_in_memory: Path) -> None:
    life = lived(RUNS, path_in_memory, tell=lambda line: sys.stdout.write(f"{line}\n"))
    sys.stdout.write("\n".join(life.lines()) + "\n")
    first, last = life.looks[0], life.looks[-1]
    assert min(last.runs, last.drills, last.prunings, last.loads - first.loads) >= RUNS
    assert life.faults() == []


def a_life(*grown: int) -> Life:
    """Whose catalogue has grown by so many bytes from look to look, of fifty runs each, and nothing else."""
    daemon, pages = Process(80 << 20, 13, 5), Process(98 << 20, 26, 3)
    sizes = [sum(grown[:number], 9 << 20) for number in range(len(grown) + 1)]
    counts = [50 * number for number in range(1, len(sizes) + 1)]
    return Life(
        [
            Look(runs, runs, runs, 60 * runs, daemon, pages, 1699, size, 5 << 20, 1 << 20, 0.15, 0.15, 173_024)
            for runs, size in zip(counts, sizes, strict=True)
        ]
    )


def test_a_catalogue_that_fills_its_pages_unevenly_has_not_grown() -> None:
    # What a whole life on an idle machine had printed; as a whole its second half kept less than its first.
    uneven = (270_336, 294_912, 303_104, 278_528, 274_432, 299_008)
    assert a_life(*uneven).faults() == []


def test_a_catalogue_that_keeps_more_of_each_later_run_has_grown() -> None:
    (fault,) = a_life(*(280_000 + 10_000 * number for number in range(6))).faults()
    assert fault.startswith("what the catalogue keeps of a run: ")
