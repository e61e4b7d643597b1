"""The file that a receiver gets first is the one that the archive goes on with, or nothing of it is archived."""

import base64
import struct
import zlib
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import cast

import pytest

from backupd.config import BinlogConfig
from backupd.mysql.binlog.layout import MAGIC
from backupd.mysql.binlog.source import BinlogSource
from backupd.operations.binlog.cutting import CutPiece, OtherHistory, SegmentCutter
from backupd.operations.binlog.receiving import Receiving
from backupd.operations.binlog.segment_author import SegmentAuthor
from backupd.operations.binlog.start_points import Beginning, behind, following_place
from backupd.policy.binlog_chain import PlacedBackup
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, SegmentOrigin
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.binlog_segments import FIRST, UUID

WITHOUT_GTIDS = replace(
    FIRST,
    origin=SegmentOrigin(Flavour.MYSQL, "9.7.4", 1, UUID),
    format=base64.b64encode(bytes(100)).decode(),
    gtid_start="",
    gtid_end="",
    file_ended=True,
)


def begun_by(server_id: int, *, at: int = 1000) -> bytes:
    """A binlog as that server begins it."""
    body = struct.pack("<H50sI", 4, b"9.7.4", 1000) + bytes([19]) + bytes(40) + b"\1"
    length = 19 + len(body) + 4
    event = struct.pack("<IBIIIH", at, 15, server_id, length, 4 + length, 0) + body
    return MAGIC + event + struct.pack("<I", zlib.crc32(event))


class Kept:
    """An archive that keeps pieces as they come."""

    def __init__(self) -> None:
        self.pieces: list[CutPiece] = []

    def keep(self, piece: CutPiece, author: SegmentAuthor, chain: str, before: BinlogSegment | None) -> BinlogSegment:
        self.pieces.append(piece)
        return WITHOUT_GTIDS

    def make_room(self, chain: str) -> bool:
        return False


def received(server_id: int) -> list[CutPiece]:
    """What is kept of the file that follows, which that server sends, after server 1 was asked."""
    asked = BinlogSource(WITHOUT_GTIDS.origin, "ROW", None, "", "", (), None, encrypted=False, own_writes=True)
    beginning, archive = behind(WITHOUT_GTIDS, following_place(WITHOUT_GTIDS), []), Kept()
    receiving = Receiving(archive, beginning, cast(SegmentAuthor, None), BinlogConfig(), asked)
    receiving.take(beginning.begin.file, begun_by(server_id), file_ended=True)
    return archive.pieces


# Behind a floating address one server may be asked and another one send. Without GTIDs its file would follow the
# archived one; where there are, they are compared.
def test_the_next_file_is_that_of_the_server_that_was_asked() -> None:
    assert [piece.end for piece in received(1)] == [len(begun_by(1))]
    with pytest.raises(ServerError, match=r"expected server 1, but server 2 sent binlog.000008"):
        received(2)


def stop(at: int) -> bytes:
    """What a server writes as it shuts down, behind this offset."""
    event = struct.pack("<IBIIIH", 1000, 3, 1, 23, at + 23, 0)
    return event + struct.pack("<I", zlib.crc32(event))


def test_the_first_piece_of_a_connection_is_kept_soon_whatever_age_segments_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then nothing is told as archived: after each reconnect to a quiet server that was an alarm."""
    now = 1000.0
    monkeypatch.setattr("backupd.operations.binlog.receiving.SegmentCutter", partial(SegmentCutter, clock=lambda: now))
    asked = BinlogSource(WITHOUT_GTIDS.origin, "ROW", None, "", "", (), None, encrypted=False, own_writes=True)
    beginning, archive = behind(WITHOUT_GTIDS, following_place(WITHOUT_GTIDS), []), Kept()
    receiving = Receiving(
        archive, beginning, cast(SegmentAuthor, None), BinlogConfig(segment_age_seconds=3600.0), asked
    )
    first = begun_by(1)
    receiving.take(beginning.begin.file, first, file_ended=False)
    assert (receiving.until_due, receiving.keeps) == (60.0, False)
    now += 60
    receiving.take_due()
    assert ([piece.end for piece in archive.pieces], receiving.keeps) == ([len(first)], True)
    receiving.take(beginning.begin.file, stop(len(first)), file_ended=False)
    now += 3599
    receiving.take_due()
    assert (receiving.until_due, receiving.keeps, len(archive.pieces)) == (1.0, True, 1)
    now += 1
    receiving.take_due()
    assert len(archive.pieces) == 2


def begun(beginning: Beginning, *, at: int = 1000) -> None:
    """Whatever that server's file begins with is taken, once it was made sure of."""
    asked = BinlogSource(WITHOUT_GTIDS.origin, "ROW", None, "", "", (), None, encrypted=False, own_writes=True)
    Receiving(Kept(), beginning, cast(SegmentAuthor, None), BinlogConfig(), asked).take(
        beginning.begin.file, begun_by(1, at=at), file_ended=True
    )


def test_a_file_of_the_same_name_that_begins_otherwise_is_another_one() -> None:
    last = replace(WITHOUT_GTIDS, file_ended=False, end=4, format=base64.b64encode(begun_by(2)).decode())
    with pytest.raises(OtherHistory, match=r"binlog.000007 is another file than before: the server's binlogs were"):
        begun(behind(last, following_place(last), [last]))


def test_a_file_that_was_begun_after_the_backup_is_not_the_one_that_followed_it() -> None:
    place = BinlogPlace("binlog.000008", 4)
    for seconds, raised in ((999, pytest.raises(OtherHistory, match="is newer than backup r1")), (1001, nullcontext())):
        backup = PlacedBackup("r1", place, "", datetime.fromtimestamp(seconds, UTC))
        with raised:
            begun(Beginning("20261120T040000Z-0123abcd", place, "", "", archived=place, backup=backup))


def test_a_file_that_a_client_s_commit_has_dated_ahead_may_be_the_one_that_followed_a_backup() -> None:
    place = BinlogPlace("binlog.000008", 4)
    backup = PlacedBackup("r1", place, "", datetime.now(UTC))
    begun(Beginning("20261120T040000Z-0123abcd", place, "", "", archived=place, backup=backup), at=(1 << 31) - 1)
