"""A moment that is drawn can be restored, whatever the archive looks like; the same seed draws it again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.random_moment import drawn
from backupd.policy.reach import Reach, RestorableStretch
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import UsageError
from tests.held_archives import plan, reach
from tests.unit.test_roll_forward import NOW, History, histories

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def reached(*stretches: tuple[float, float]) -> Reach:
    backup = PlacedBackup("r1", BinlogPlace("bin.000001", 4), "", NOON, good=True)
    return Reach(tuple(RestorableStretch(backup, "chain", at(since), at(until)) for since, until in stretches), ())


@given(histories(), st.integers(0, 1 << 32))
def test_what_is_drawn_can_be_restored(history: History, seed: int) -> None:
    within = reach(history.backups, history.archived)
    if all(stretch.since == stretch.until for stretch in within.stretches):
        with pytest.raises(UsageError, match="there is no moment that a drill could restore"):
            drawn(within, seed)
        return
    moment = drawn(within, seed)
    assert moment == drawn(within, seed)
    assert plan(history.backups, history.archived, moment, now=NOW).segments


def test_each_second_is_drawn_and_both_ends_and_none_in_a_gap() -> None:
    found = {drawn(reached((0, 2.5), (10.25, 12)), seed).at for seed in range(200)}
    assert found == {at(1), at(2), at(2.5), at(11), at(12)}


def test_what_two_stretches_have_in_common_is_no_likelier() -> None:
    found = [drawn(reached((0, 100), (1, 101)), seed).at for seed in range(3000)]
    assert set(found) == {at(second) for second in range(1, 102)}
    assert max(found.count(one) for one in set(found)) < 70  # of about 30 each


def test_another_seed_draws_another_moment_and_no_version_changes_that() -> None:
    found = [drawn(reached((0, 86400)), seed).at for seed in (0, 1, 2)]
    assert [f"{one:%H:%M:%S}" for one in found] == ["01:21:46", "10:25:16", "09:44:22"]
