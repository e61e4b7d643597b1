"""Which segments are read again to know what a moment has: those with canary rows, and the last, from their start."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from backupd.operations.restore.moment.log_to_moment import log_end
from backupd.operations.restore.moment.moment_in_log import _Course, _rows_to_read, moment_in_log
from backupd.policy import gtid
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.canary_minutes import LoggedMinutes
from backupd.policy.moments import Latest, Moment, ToPosition
from backupd.policy.roll_forward import EndCondition, RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, ChangeKind, TableChange
from tests.binlog_segments import chain_of
from tests.unit.test_log_to_moment import AT, ORIGIN, archived_in

MINUTE = (TableChange("backupd_canary", "minutes", ChangeKind.INSERT, 1),)


def segments(minutes: Sequence[int], within: Sequence[int] = (), untold: Sequence[int] = ()) -> list[BinlogSegment]:
    """Eight in a row; these have a minute's row, these end within a transaction, these do not tell all changes."""
    return [
        replace(
            segment,
            changes=MINUTE if at in minutes else segment.changes,
            within_transaction=at in within,
            all_changes=at not in untold,
        )
        for at, segment in enumerate(chain_of(8))
    ]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (segments([]), [[7]]),
        (segments([0, 3, 4]), [[0], [3, 4], [7]]),
        (segments([3], within=[1, 2]), [[1, 2, 3], [7]]),
        (segments([3], within=[3, 4]), [[3], [7]]),
        (segments([], within=[5, 6]), [[5, 6, 7]]),
        (segments([], untold=[2]), [[2], [7]]),
    ],
)
def test_only_what_may_have_a_minutes_row_is_read_from_where_a_transaction_begins(
    given: list[BinlogSegment], read: list[list[int]]
) -> None:
    assert [[given.index(one) for one in row] for row in _rows_to_read(given)] == read


def test_without_a_segment_there_is_nothing_to_read() -> None:
    assert _rows_to_read([]) == []


MINUTES = ("backupd_canary", "minutes")


@pytest.mark.parametrize(
    ("change", "noted"),
    [
        (TableChange(*MINUTES, ChangeKind.INSERT, 2), LoggedMinutes.wrote),
        (TableChange(*MINUTES, ChangeKind.DELETE, 1), LoggedMinutes.purged),
        (TableChange(*MINUTES, ChangeKind.TRUNCATE, 0), LoggedMinutes.emptied),
        (TableChange("backupd_canary", "", ChangeKind.DROP, 0), LoggedMinutes.emptied),
        (TableChange(*MINUTES, ChangeKind.UPDATE, 1), LoggedMinutes.changed),
        (TableChange(*MINUTES, ChangeKind.ALTER, 0), None),
        (TableChange("shop", "minutes", ChangeKind.DELETE, 1), None),
    ],
    ids=lambda one: str(getattr(one, "kind", "")),
)
def test_what_becomes_of_canary_rows_is_noted_by_its_kind_and_others_tables_are_not_theirs(
    change: TableChange, noted: Callable[..., None] | None
) -> None:
    start = BinlogPlace("a.000001", 4)
    way = RestorePlan(PlacedBackup("r1", start, "", AT), (), start, EndCondition(Latest(), met_in_last=False))
    at, course, expected = int(AT.timestamp()) + 60, _Course(way), _Course(way).minutes
    course._note(change, at)
    if noted is LoggedMinutes.emptied:
        noted(expected)
    elif noted is not None:
        noted(expected, at, *([2] if noted is LoggedMinutes.wrote else []))
    assert course.minutes == expected


@pytest.mark.parametrize(
    ("before", "after"), [("a.000100", "b.000001"), ("a.000001", "b.000100"), ("a.000001", "a.000001")]
)
@pytest.mark.parametrize("to_place", [False, True])
def test_another_server_s_places_are_not_compared_with_the_backup_s(before: str, after: str, to_place: bool) -> None:
    archive = archived_in(200)
    segments = archive.segments
    whole = (at for at in range(len(segments) // 2, len(segments)) if not segments[at - 1].within_transaction)
    cut = next(at for at in whole if segments[at - 1].gtid_end)
    other = replace(ORIGIN, server_id=2, uuid="x" * 36)
    logs = (
        *(replace(one, file=before) for one in segments[:cut]),
        *(replace(one, file=after, origin=other) for one in segments[cut:]),
    )
    start = BinlogPlace(before, logs[0].start)
    backup = PlacedBackup("r1", start, logs[0].gtid_start, AT)
    moment: Moment = ToPosition(BinlogPlace(after, logs[-1].end)) if to_place else Latest()
    logs = (*logs[:1], replace(logs[1], changes=MINUTE, all_changes=True), *logs[2:])
    way = RestorePlan(backup, logs, start, EndCondition(moment, met_in_last=False))
    assert gtid.same(moment_in_log(way, archive).gtids, log_end(way, archive).gtids)
