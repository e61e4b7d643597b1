"""A short campaign: faults that found something once, and mistakes in backupd itself, each of which has to be found.

A point that is not met is a failure too: whatever was there has moved, and another one has to be chosen.
"""

import random
from collections.abc import Iterator

import pytest

from tests.fire.choosing import Case, Situation
from tests.fire.first_finders import FOUND, PLANTED, Found
from tests.fire.inside import machine_at_hand
from tests.fire.planted import PLANTS, SHOWS
from tests.fire.points import Fault
from tests.fire.trying import Machine, tried


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With foreign things in it, and one good backup."""
    with machine_at_hand(tmp_path_factory.mktemp("fire"), random.Random(19), recording=False) as (made, _):
        yield made


def outcome(machine: Machine, found: Found) -> dict[str, object]:
    """What was seen, and judged."""
    death = Fault.parse(found.death) if found.death else None
    return tried(machine, Case(0, Situation(found.command, found.died, death), Fault.parse(found.fault)))


@pytest.mark.parametrize("found", FOUND, ids=str)
def test_fault_that_found_something_once_breaks_no_promise(machine: Machine, found: Found) -> None:
    result = outcome(machine, found)
    assert result["fired"], "this point is passed no more: choose the one that has taken its place"
    assert result["violations"] == [], result


@pytest.mark.parametrize("plant", sorted(PLANTED))
def test_mistake_in_backupd_itself_is_found(machine: Machine, plant: str) -> None:
    machine.commands.planted = PLANTS[plant]
    try:
        result = outcome(machine, PLANTED[plant])
    finally:
        machine.commands.planted = None
        machine.commands.done(("recover",))
    assert result["fired"], "this point is passed no more: choose the one that has taken its place"
    violations = result["violations"]
    assert isinstance(violations, list)
    assert SHOWS[plant] in [violation["kind"] for violation in violations], result
