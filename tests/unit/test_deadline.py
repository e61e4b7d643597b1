"""A deadline is the instant that was meant, days ahead and across a change of the clock."""

import time as system_time
from collections.abc import Iterator
from datetime import UTC, datetime, time

import pytest

from backupd.archive.governor import CopyGovernor
from backupd.policy.deadline import seconds_until
from backupd.vocabulary.errors import GaveUp
from backupd.vocabulary.schedule import Deadline

HOUR = 3600.0
SUNDAY = 6


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's clock is Berlin's: from +1 to +2 on 2026-03-29 at 01:00 UTC, and back on 2026-10-25 at 01:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    system_time.tzset()
    yield
    monkeypatch.undo()
    system_time.tzset()


def hours(deadline: Deadline, begun: str) -> float:
    """From this (UTC) instant on."""
    return seconds_until(deadline, datetime.fromisoformat(begun).replace(tzinfo=UTC)) / HOUR


@pytest.mark.parametrize(
    ("deadline", "begun", "expected"),
    [
        (Deadline(clock=time(6)), "2026-06-10 20:00", 8),  # 22:00 there
        (Deadline(clock=time(6)), "2026-06-10 04:00", 24),  # 06:00 there: it is over
        (Deadline(clock=time(6), day=SUNDAY), "2026-06-12 20:00", 32),  # a Friday
        (Deadline(clock=time(6), day=SUNDAY), "2026-06-14 03:00", 1),  # that Sunday
        (Deadline(clock=time(6), day=SUNDAY), "2026-06-14 05:00", 167),  # that Sunday, an hour late
        (Deadline(within_seconds=30 * HOUR), "2026-06-12 20:00", 30),
        (Deadline(within_seconds=300 * HOUR), "2026-06-12 20:00", 300),
    ],
)
def test_it_is_the_next_time_that_the_clock_shows_it(deadline: Deadline, begun: str, expected: float) -> None:
    assert hours(deadline, begun) == expected


@pytest.mark.parametrize(
    ("deadline", "begun", "expected"),
    [
        (Deadline(clock=time(6), day=SUNDAY), "2026-03-27 21:00", 31),  # Friday 22:00; an hour is skipped
        (Deadline(clock=time(6), day=SUNDAY), "2026-10-23 20:00", 33),  # Friday 22:00; an hour comes twice
        (Deadline(clock=time(2, 30)), "2026-03-28 21:00", 4.5),  # 22:00; skipped: 03:30 is shown
        (Deadline(clock=time(2, 30)), "2026-10-25 00:15", 0.25),  # 02:15 of summer: the first 02:30
        (Deadline(clock=time(2, 30)), "2026-10-25 00:45", 0.75),  # 02:45 of summer: the second
        (Deadline(clock=time(2, 30)), "2026-10-25 01:45", 23.75),  # 02:45 of winter: the next day's
        (Deadline(within_seconds=30 * HOUR), "2026-03-28 21:00", 30),
    ],
)
def test_a_change_of_the_clock_on_the_way_is_counted(deadline: Deadline, begun: str, expected: float) -> None:
    assert hours(deadline, begun) == expected


def test_a_copy_goes_on_for_days_until_its_deadline_and_no_longer() -> None:
    sunday = Deadline(clock=time(6), day=SUNDAY)
    now = [0.0]
    pacing = CopyGovernor(must_finish_by=hours(sunday, "2026-06-12 20:00") * HOUR, clock=lambda: now[0])
    now = [31.9 * HOUR]
    pacing.pace(1)
    now = [32 * HOUR]
    with pytest.raises(GaveUp, match="deadline"):
        pacing.pace(1)
