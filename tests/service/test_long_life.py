"""A daemon is after 300 runs, drills and prunings, and thousands of page loads, as it was: but for what was stored."""

import sys
from pathlib import Path

import pytest

from tests.service.long_life import RUNS, lived


@pytest.mark.figures
@pytest.mark.timeout(7200)
def test_nothing_of_a_daemon_grows_with_its_life_but_what_is_stored(path_in_memory: Path) -> None:
    life = lived(RUNS, path_in_memory, tell=lambda line: sys.stdout.write(f"{line}\n"))
    sys.stdout.write("\n".join(life.lines()) + "\n")
    first, last = life.looks[0], life.looks[-1]
    assert min(last.runs, last.drills, last.prunings, last.loads - first.loads) >= RUNS
    assert life.faults() == []
