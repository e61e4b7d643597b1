"""Which segments are read again to know what a moment has: those with canary rows, and the last, from their start."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from backupd.operations.restore.moment_in_log import _rows_to_read
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, TableChange
from tests.binlog_segments import chain_of

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
