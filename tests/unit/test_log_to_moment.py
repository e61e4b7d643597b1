"""Where in the segments a place is: behind the last that ends there or before it, however the segments were cut."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.mysql.binlog.events import EventStream
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations.binlog.cutting import CutPiece
from backupd.operations.binlog.reading import SegmentReader
from backupd.operations.restore.log_to_moment import log_end
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.moments import ToPosition
from backupd.policy.trust import Trust
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, SegmentOrigin
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
    return Archived("nightly", (), Trust(), pieces=tuple(WrittenBinlogs(ORIGIN, ((FILE, LOG),)).pieces(size)))


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
        planned = plan([backup], segments, ToPosition(BinlogPlace(FILE, offset)), now=AT)
        reached = log_end(planned, archived).place.offset
        assert reached in between
        assert bisect_right(ended, reached) == bisect_right(ended, offset), offset
