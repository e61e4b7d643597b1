"""People hear of an alarm when it starts, once a day while it stands, and when it is over; of nothing twice."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backupd.policy.alarm_lives import AlarmChanges, alarm_changes
from backupd.vocabulary.alarms import Alarm, AlarmKind, OpenAlarm

NOON = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLD = Alarm(AlarmKind.OVERDUE, "the last good backup is 50 hours old", "r1")
FAILED = Alarm(AlarmKind.FAILED, "the last backup failed: the disk is full", "r2", about="backup")


class Memory:
    """What is remembered from look to look."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, AlarmKind, str], OpenAlarm] = {}

    def look(self, now: datetime, *alarms: Alarm) -> AlarmChanges:
        changes = alarm_changes(now, alarms={"nightly": alarms}, known=self.known.values())
        for one in changes.forgotten:
            del self.known[one.job, one.kind, one.about]
        for one in changes.remembered:
            self.known[one.job, one.kind, one.about] = one
        return changes


def told(changes: AlarmChanges) -> tuple[int, int, int]:
    return len(changes.began), len(changes.stands), len(changes.over)


def test_it_is_told_at_its_start_once_a_day_and_at_its_end() -> None:
    memory = Memory()
    hours = {hour: told(memory.look(NOON + hour * HOUR, OLD)) for hour in range(50)}
    assert {hour: found for hour, found in hours.items() if any(found)} == {0: (1, 0, 0), 24: (0, 1, 0), 48: (0, 1, 0)}
    over = memory.look(NOON + 50 * HOUR)
    assert [(one.since, one.text) for one in over.over] == [(NOON, OLD.text)]
    assert told(memory.look(NOON + 51 * HOUR)) == (0, 0, 0)
    assert memory.known == {}


def test_it_begins_anew_after_its_end() -> None:
    memory = Memory()
    memory.look(NOON, OLD)
    memory.look(NOON + HOUR)
    assert told(memory.look(NOON + 2 * HOUR, OLD)) == (1, 0, 0)


def test_a_look_that_tells_nothing_remembers_nothing_new() -> None:
    memory = Memory()
    memory.look(NOON, OLD)
    later = memory.look(NOON + HOUR, replace(OLD, text="the last good backup is 51 hours old"))
    assert (later.remembered, later.forgotten) == ((), ())


@pytest.mark.parametrize("kind", [AlarmKind.FAILED, AlarmKind.MISSED, AlarmKind.ATTENTION])
def test_what_was_told_as_it_happened_is_told_again_only_a_day_later(kind: AlarmKind) -> None:
    memory, alarm = Memory(), replace(FAILED, kind=kind)
    assert told(memory.look(NOON, alarm)) == (0, 0, 0)
    assert told(memory.look(NOON + 23 * HOUR, alarm)) == (0, 0, 0)
    assert told(memory.look(NOON + 24 * HOUR, alarm)) == (0, 1, 0)


def test_a_failure_of_each_night_is_told_by_each_night_alone() -> None:
    memory = Memory()
    for night in range(4):
        failure = replace(FAILED, run_id=f"r{night}")
        for hour in range(24):
            assert told(memory.look(NOON + timedelta(days=night, hours=hour), failure)) == (0, 0, 0)


def test_the_end_of_failed_backups_is_left_to_the_run_that_is_good_again() -> None:
    memory = Memory()
    memory.look(NOON, FAILED)
    assert told(memory.look(NOON + HOUR)) == (0, 0, 0)
    memory.look(NOON, replace(FAILED, about="verify"))
    assert told(memory.look(NOON + HOUR)) == (0, 0, 1)


@pytest.mark.parametrize(
    ("alarm", "patience"),
    [
        (Alarm(AlarmKind.DIED, "the process has died", "r1", about="r1"), timedelta(minutes=5)),
        (Alarm(AlarmKind.OVERDUE, "there is no good backup"), timedelta(days=1)),
    ],
)
def test_what_may_pass_by_itself_is_told_when_it_has_lasted(alarm: Alarm, patience: timedelta) -> None:
    memory, moment = Memory(), timedelta(seconds=1)
    assert told(memory.look(NOON, alarm)) == (0, 0, 0)
    assert told(memory.look(NOON + patience - moment, alarm)) == (0, 0, 0)
    assert told(memory.look(NOON + patience, alarm)) == (1, 0, 0)


def test_nobody_hears_the_end_of_what_they_never_heard_of() -> None:
    memory = Memory()
    memory.look(NOON, Alarm(AlarmKind.DIED, "the process has died", "r1", about="r1"))
    assert told(memory.look(NOON + HOUR)) == (0, 0, 0)
    assert memory.known == {}


def test_two_broken_copies_are_two_alarms() -> None:
    memory = Memory()
    one, two = (Alarm(AlarmKind.BROKEN, "torn", "r1", about=f"r1 on {target}") for target in ("vault", "offsite"))
    assert told(memory.look(NOON, one)) == (1, 0, 0)
    assert told(memory.look(NOON + HOUR, one, two)) == (1, 0, 0)
    assert told(memory.look(NOON + 2 * HOUR, two)) == (0, 0, 1)


def test_a_clock_that_was_ahead_silences_nothing() -> None:
    memory = Memory()
    memory.look(NOON + timedelta(days=900), OLD)
    assert told(memory.look(NOON, OLD)) == (0, 1, 0)
    assert told(memory.look(NOON + HOUR, OLD)) == (0, 0, 0)


def test_a_job_that_is_configured_no_more_is_forgotten_without_a_word() -> None:
    gone = OpenAlarm("weekly", AlarmKind.OVERDUE, "", "old", NOON, NOON)
    changes = alarm_changes(NOON + HOUR, alarms={"nightly": ()}, known=[gone])
    assert (told(changes), changes.forgotten) == ((0, 0, 0), (gone,))
