"""Where in the segments a place is: behind the last that ends there or before it, however the segments were cut."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.mysql.binlog.events import EventStream
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations.binlog.cutting import CutPiece
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.operations.restore.moment.log_to_moment import log_end, planned
from backupd.operations.restore.moment.moment_in_log import moment_in_log
from backupd.policy import gtid
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.moments import ToPosition, ToTime
from backupd.policy.roll_forward import RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, LoggedTransaction, SegmentOrigin
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.servers import Flavour
from tests.binlog_archives import WrittenBinlogs
from tests.binlog_segments import FIRST
from tests.held_archives import plan

FILE, START = "binlog.000001", 4
AT = datetime(2026, 11, 27, tzinfo=UTC)
ORIGIN = SegmentOrigin(Flavour.MYSQL, "9.7.4", 1, "")
LOG = (Path(__file__).parents[1] / "data" / "binlog" / "mysql-9.7.4-gtids.bin").read_bytes()


@dataclass(frozen=True, slots=True)
class Archived(SegmentReader):
    """The log's pieces in their order, which no target has to be asked for."""

    pieces: tuple[CutPiece, ...] = ()

    @property
    def segments(self) -> list[BinlogSegment]:
        return [_segment(piece, number) for number, piece in enumerate(self.pieces, start=1)]

    def content(self, segment: BinlogSegment) -> bytes:
        return b"".join(self.pieces[segment.number - 1].events)


def archived_in(size: int) -> Archived:
    return Archived("nightly", (), pieces=tuple(WrittenBinlogs(ORIGIN, ((FILE, LOG),)).pieces(size)))


def _segment(piece: CutPiece, number: int) -> BinlogSegment:
    names = ("file", "start", "end", "format", "gtid_start", "gtid_end", "within_transaction", "first_at", "last_at")
    told = {name: getattr(piece, name) for name in names}
    return replace(
        FIRST,
        origin=ORIGIN,
        number=number,
        received_at=AT,
        previous=f"{number - 1:064x}",
        digest=f"{number:064x}",
        **told,
    )


def ends() -> tuple[list[int], list[int]]:
    """Of transactions; and all places between two of them."""
    reader = TransactionReader(Flavour.MYSQL, FILE)
    ended, between = [START], [START]
    for event in EventStream(FILE).feed(LOG):
        if reader.feed(event) is not None:
            ended.append(event.end)
        if not reader.within and not event.artificial:
            between.append(event.end)
    return ended, between


@pytest.mark.parametrize("size", [60, 200, 1 << 20])
def test_a_place_within_a_transaction_is_the_end_of_what_comes_before_it(size: int) -> None:
    archived, (ended, between) = archived_in(size), ends()
    segments = archived.segments
    assert any(segment.within_transaction for segment in segments) == (size < 1000)
    backup = PlacedBackup("r1", BinlogPlace(FILE, START), "", AT, good=True)
    for offset in range(START + 1, between[-1] + 1, 7):
        way = plan([backup], segments, ToPosition(BinlogPlace(FILE, offset)), now=AT)
        reached = log_end(way, archived).place.offset
        assert reached in between
        assert bisect_right(ended, reached) == bisect_right(ended, offset), offset


@pytest.mark.parametrize("size", [60, 200, 1 << 20])
def test_behind_a_backup_in_a_segment_that_begins_within_a_transaction_its_gtids_count(size: int) -> None:
    archived, told = archived_in(size), transactions()
    segments = archived.segments
    looked_at = 0
    for number, (before, had) in enumerate(told):
        backup = PlacedBackup("r1", before.end, had, AT, good=True)
        for wanted, executed in told[number + 1 :]:
            way = plan([backup], segments, ToPosition(wanted.end), now=AT)
            end = log_end(way, archived)
            assert (end.place, end.gtids) == (wanted.end, executed)
            assert gtid.same(moment_in_log(way, archived).gtids, executed)
            looked_at += 1
    assert looked_at > 30


def test_a_backup_is_passed_over_whose_own_segment_has_what_was_committed_later_before_its_place() -> None:
    """Its host's clock was behind: by its time alone it was taken before the moment."""
    archived, told = archived_in(1 << 20), transactions()
    segments = archived.segments
    assert len(segments) == 1
    began = told[0][0].committed_at.replace(microsecond=0)
    backups = [
        PlacedBackup(f"r{number}", one.end, gtids, began + timedelta(milliseconds=number), good=True)
        for number, (one, gtids) in enumerate(told)
    ]

    def way(at: datetime) -> RestorePlan:
        return planned(lambda passed: plan(backups, segments, ToTime(at), now=AT, passed=passed), archived)

    for number, (wanted, _) in enumerate(told[1:], start=1):
        chosen = way(wanted.committed_at)
        assert chosen.backup == backups[number - 1]
        assert log_end(chosen, archived).place == told[number - 1][0].end
    with pytest.raises(UsageError, match="has later transactions: its host's clock was behind"):
        way(told[0][0].committed_at)


def transactions() -> list[tuple[LoggedTransaction, str]]:
    """Those of a later time than the ones before them, and what had been executed then."""
    reader, found = TransactionReader(Flavour.MYSQL, FILE), list[tuple[LoggedTransaction, str]]()
    for event in EventStream(FILE).feed(LOG):
        one = reader.feed(event)
        if one is not None and (not found or one.committed_at > found[-1][0].committed_at):
            found.append((one, reader.gtids))
    return found
