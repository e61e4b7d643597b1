"""A short simulated night: control hosts killed, the database away twice, and every cluster is backed up once."""

import sys
from pathlib import Path

import pytest

from tests.fleet.night import simulated
from tests.fleet.night_world import SHORT

# A restart takes as long here as a tenth of the night; the full night, whose backups take ten times as long, is held to
# 1.15 by `make fleet-night`.
_MOST_RATIO = 4.0


@pytest.mark.timeout(400)
def test_a_night_is_carried_out_once_however_often_its_control_hosts_are_killed(tmp_path: Path) -> None:
    outcome = simulated(SHORT, seed=18, kills=5, away=2, log=tmp_path / "log")
    sys.stdout.write("\n".join(outcome.lines()) + "\n")
    assert outcome.faults(most_ratio=_MOST_RATIO) == []
    assert outcome.cost.most_memory <= 300 << 20
