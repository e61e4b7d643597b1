"""The file that a receiver gets first is the one that the archive goes on with, or nothing of it is archived."""

import base64
import struct
import zlib
from dataclasses import replace
from typing import cast

import pytest

from backupd.config import BinlogConfig
from backupd.mysql.binlog.layout import MAGIC
from backupd.mysql.binlog.source import BinlogSource
from backupd.operations.binlog.cutting import CutPiece
from backupd.operations.binlog.receiving import Receiving
from backupd.operations.binlog.segment_author import SegmentAuthor
from backupd.operations.binlog.start_points import behind, following_place
from backupd.vocabulary.binlogs import BinlogSegment, SegmentOrigin
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


def begun_by(server_id: int) -> bytes:
    """A binlog as that server begins it."""
    body = struct.pack("<H50sI", 4, b"9.7.4", 1000) + bytes([19]) + bytes(40) + b"\1"
    length = 19 + len(body) + 4
    event = struct.pack("<IBIIIH", 1000, 15, server_id, length, 4 + length, 0) + body
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

    def gap(self, last: BinlogSegment, reason: str) -> None:
        raise AssertionError(reason)


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
