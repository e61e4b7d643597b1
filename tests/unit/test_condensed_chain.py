"""What can be restored of an archive is the same by few segments as by all of them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.policy.binlog_chain import PlacedBackup, rows
from backupd.policy.condensed_chain import condensed_rows
from backupd.policy.roll_forward import reach, reach_by_rows
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from tests.binlog_segments import chain_of
from tests.share import examples

OTHER = "20261120T050000Z-89abcdef"
WRITTEN = chain_of(60, rotates_after=7)


def backup_at(segment: BinlogSegment, offset: int, number: int) -> PlacedBackup:
    """Taken when the server's log ended so many bytes before the end of that segment."""
    place = BinlogPlace(segment.file, max(4, segment.end - offset))
    return PlacedBackup(f"run-{number:02}", place, segment.gtid_start, segment.received_at)


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[BinlogSegment], list[PlacedBackup]]:
    """Chains with some segments lost, one of them in another chain, in an order as after a clock that was set back."""
    there = [segment for segment in WRITTEN if draw(st.integers(0, 19))]
    cut = draw(st.integers(0, 60))
    again = [replace(segment, chain=OTHER) if segment.number > cut else segment for segment in there]
    idle = [
        replace(segment, first_at=None, last_at=None, transactions=0) if not draw(st.integers(0, 5)) else segment
        for segment in again
    ]
    if draw(st.booleans()):
        idle = draw(st.permutations(idle))
    taken = draw(st.lists(st.tuples(st.sampled_from(WRITTEN), st.sampled_from([0, 1, 500, 1000, 7])), max_size=5))
    return idle, [backup_at(segment, offset, number) for number, (segment, offset) in enumerate(taken)]


@given(archives())
@settings(max_examples=examples(200), deadline=None)
def test_what_can_be_restored_is_the_same_by_few_segments(
    archive: tuple[list[BinlogSegment], list[PlacedBackup]],
) -> None:
    segments, backups = archive
    found = reach_by_rows(backups, condensed_rows(segments, backups))
    assert found == reach(backups, segments)


@given(archives())
@settings(max_examples=examples(100), deadline=None)
def test_rows_begin_and_end_where_they_do(archive: tuple[list[BinlogSegment], list[PlacedBackup]]) -> None:
    segments, backups = archive
    assert list(map(ends, condensed_rows(segments, backups))) == list(map(ends, rows(segments)))


def ends(row: object) -> Sequence[object]:
    return [getattr(row, name) for name in ("chain", "start", "end", "gtid_start", "gtid_end", "first_at", "last_at",
                                            "ended")]  # fmt: skip


def test_a_long_archive_is_few_segments() -> None:
    """Three binlogs of a thousand segments each, and one backup."""
    segments = chain_of(3000, rotates_after=1000)
    backup = PlacedBackup("r1", BinlogPlace(segments[1500].file, segments[1500].end), "", segments[1500].received_at)
    (row,) = condensed_rows(segments, [backup])
    assert len(row.segments) == 3 + 2 + 4  # first and rest of each file, and around the backup
    assert row.end == BinlogPlace(segments[-1].file, segments[-1].end)


def test_when_a_binlog_began_that_follows_a_backup_is_still_told() -> None:
    """A binlog that was received long before the backup was taken is of another history."""
    segments = chain_of(10, rotates_after=2)
    late = segments[1].received_at + timedelta(minutes=10)
    slow = [*segments[:5], *(replace(one, received_at=late + timedelta(hours=1)) for one in segments[5:])]
    backup = PlacedBackup("r1", BinlogPlace(segments[1].file, segments[1].end), "", late)
    assert reach_by_rows([backup], condensed_rows(slow, [backup])) == reach([backup], slow)
