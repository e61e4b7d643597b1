"""The power is cut while backupd works, and the disks forget what they were not told to keep: see `tests/power`.

The machine's own server and volume are left for good: nothing else can be tried in it.
"""

from pathlib import Path

import pytest

from tests.power.inside import looked_at, recorded
from tests.power.places import OUT, leave_the_labs_own
from tests.power.planted import FAULTS
from tests.power.record import PHASES

FEW, MANY = 6, 48  # one cut of each phase, and eight
_SHOWN_IN = {  # phases in which a fault has to show, of each the cuts that are looked at until it does
    "catalogue": ("archiving", "backup-while-archiving"),
    "target": ("archiving", "backup-while-archiving"),
    "spool": ("archiving", "backup-while-archiving"),
    "restore": ("prune",),  # just after the restore was acknowledged
}


@pytest.fixture(scope="module", autouse=True)
def left() -> None:
    leave_the_labs_own()


def folder(name: str) -> Path:
    made = OUT / name
    made.mkdir()
    return made


def test_what_was_promised_holds_after_a_power_cut_in_each_phase() -> None:
    place = folder("power")
    recorded(place)
    assert [found for found in looked_at(place, "lab", range(FEW)) if found["violations"]] == []


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_backupd_that_forgets_to_make_something_durable_is_found_out(fault: str) -> None:
    """A campaign that found nothing is suspected first."""
    place = folder(f"planted-{fault}")
    recorded(place, planted=fault)
    cuts = [index for index in range(MANY) if PHASES[index % len(PHASES)] in _SHOWN_IN[fault]]
    assert any(found["violations"] for found in looked_at(place, "planted", cuts))
    (place / "recording").unlink()
