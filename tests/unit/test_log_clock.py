"""A transaction of a time that has not come yet stops every restore to a time behind it: that is told."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from backupd.operations.restore.moment.moment_copy import doubt_of_log
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.log_clock import clock_doubt
from backupd.policy.moments import Latest, ToGtid, ToTime
from backupd.policy.roll_forward import RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from tests.binlog_segments import BEGAN, FIRST, following
from tests.held_archives import plan
from tests.story.stored import manifest

HOURS_LATER = BEGAN + timedelta(hours=5)
AHEAD = replace(FIRST, last_at=BEGAN + timedelta(days=4000))
LATER = replace(
    following(AHEAD), first_at=HOURS_LATER, last_at=HOURS_LATER + timedelta(hours=1), received_at=HOURS_LATER
)
BACKUP = PlacedBackup("r", BinlogPlace(FIRST.file, 4), "", BEGAN - timedelta(seconds=1))


def planned(first: BinlogSegment, at: datetime) -> RestorePlan:
    return plan([BACKUP], [first, LATER], ToTime(at), now=BEGAN + timedelta(days=1))


def test_a_time_that_the_log_stops_long_before_is_told_with_what_stops_it() -> None:
    found = planned(AHEAD, HOURS_LATER)
    assert found.segments == (AHEAD,)
    told = clock_doubt(found)
    assert "2026-11-20 04:00:10 UTC" in told
    assert AHEAD.name in told
    assert "2037-11-02" in told
    assert told in doubt_of_log(found, manifest((), ()))


@pytest.mark.parametrize(("behind_receipt", "told"), [(-5, False), (110, False), (130, True), (480, True)])
def test_what_was_received_long_before_the_time_is_told_and_no_clock_that_is_ahead_by_little(
    behind_receipt: int, told: bool
) -> None:
    nine_minutes = replace(FIRST, last_at=FIRST.received_at + timedelta(minutes=9))
    found = planned(nine_minutes, FIRST.received_at + timedelta(seconds=behind_receipt))
    assert bool(clock_doubt(found)) == told


def test_what_is_no_time_is_not_stopped_by_one() -> None:
    for moment in (Latest(), ToGtid("0-1-15")):
        found = plan([BACKUP], [AHEAD, LATER], moment, now=BEGAN + timedelta(days=1))
        assert clock_doubt(found) == ""
        assert found.segments == (AHEAD, LATER)
