"""One connection's bytes on their way to segments: cut, and kept as the next ones of a chain.

Knows: how far that is behind the server's log; that the file which arrives first may be another one than was asked for.
"""

import base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from backupd.config import BinlogConfig
from backupd.mysql.binlog.file_identity import FileBirth, file_birth, same_file
from backupd.mysql.binlog.source import BinlogSource, LogState, ServerBinlog, bytes_behind
from backupd.operations.binlog.cutting import CutPiece, LackingLog, OtherHistory, SegmentCutter
from backupd.operations.binlog.segment_author import SegmentAuthor, new_chain
from backupd.operations.binlog.start_points import Beginning, following_place
from backupd.policy.binlog_chain import order
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.errors import ServerError

# What is received counts as archived once a piece of it was kept, and that it does not is an alarm soon.
_FIRST_PIECE_SECONDS = 60.0


class SegmentKeeper(Protocol):
    """Where pieces become segments."""

    def keep(self, piece: CutPiece, author: SegmentAuthor, chain: str, before: BinlogSegment | None) -> BinlogSegment:
        """The piece is the chain's next segment."""

    def make_room(self, chain: str) -> bool:
        """Whether the chain has lost a segment by that, and so has ended."""


class Receiving:
    """One connection's bytes on their way to segments."""

    def __init__(
        self,
        archive: SegmentKeeper,
        beginning: Beginning,
        author: SegmentAuthor,
        config: BinlogConfig,
        source: BinlogSource,
    ) -> None:
        self._archive, self._beginning, self._author = archive, beginning, author
        self.before, self._chain = beginning.before, beginning.chain
        self._asked, self._age_seconds = source.origin.server_id, config.segment_age_seconds
        self._expected: tuple[BinlogPlace, datetime] | None = None  # how far the server's log reached, and when
        self._kept = False  # a piece
        self._within = False  # a chain ended within a transaction, and the next one has not begun yet
        self._known = beginning.other is not None  # the file that arrives first is the one that it should be
        self._cutter = SegmentCutter(
            source.origin.flavour,
            size=config.segment_size,
            age_seconds=min(config.segment_age_seconds, _FIRST_PIECE_SECONDS),
            begin=beginning.begin,
            gtids=beginning.gtids,
            purged=source.purged,
            state=beginning.state,
            archived=beginning.archived,
            other=beginning.other,
        )

    @property
    def until_due(self) -> float:
        """Seconds until there may be something due."""
        return self._cutter.until_due

    def expect(self, log: LogState, *, at: datetime) -> None:
        """The server's log reached so far then.

        Raises:
            LackingLog: it leaves something out by now.
            OtherHistory: that is less than was received: its log was reset.
        """
        if log.left_out:
            raise LackingLog(log.left_out)
        end = log.place
        if order(self._cutter.received) > order(end):
            raise OtherHistory(
                f"the server's log ends at {end.file}:{end.offset}, before what was received: it was reset"
            )
        self._expected = (end, at)

    @property
    def complete_at(self) -> datetime | None:
        """When the server had written no more than has been received by now; None where nobody has found that yet."""
        if self._expected is None or order(self._cutter.received) < order(self._expected[0]):
            return None
        return self._expected[1]

    @property
    def keeps(self) -> bool:
        """Whether what is received is known to be kept: a piece was, or nothing is there that would have to be.

        Whoever can keep nothing, as on a full disk, receives all, ends, and receives all again.
        """
        return self._kept or not self._cutter.holds

    @property
    def expected_at(self) -> datetime | None:
        """When the server was asked last how far its log reaches."""
        return None if self._expected is None else self._expected[1]

    def behind_bytes(self, sizes: Callable[[], Sequence[ServerBinlog]]) -> int | None:
        """How much of what the server had written then is in no segment; `sizes` asks it where that is in other files.

        Raises:
            ServerError: it cannot be asked.
        """
        if self._expected is None:
            return None
        end = self._expected[0]
        nothing_kept = self.before is None or self.before is self._beginning.before
        archived = self._beginning.archived if nothing_kept or self.before is None else following_place(self.before)
        if order(archived) >= order(end):
            return 0
        return bytes_behind(() if archived.file == end.file else sizes(), archived, end)

    def take(self, file: str, data: bytes, *, file_ended: bool) -> None:
        """Bytes of this file; what is complete by them is kept."""
        try:
            for piece in self._cutter.feed(file, data, file_ended=file_ended):
                self._keep(piece)
        except ServerError:
            self._require_known(self._cutter.format)  # of another file one begins to receive anywhere
            raise

    def take_due(self) -> None:
        """What is old enough is kept."""
        if (piece := self._cutter.due()) is not None:
            self._keep(piece)

    def _keep(self, piece: CutPiece) -> None:
        self._require_known(piece.format)
        if self._within:  # no chain begins within a transaction: it is in the gap, whole
            self._within = piece.within_transaction
            return
        self.before = self._archive.keep(piece, self._author, self._chain, self.before)
        self._kept, self._cutter.age_seconds = True, self._age_seconds
        if self._archive.make_room(self._chain):
            self._chain, self.before = new_chain(datetime.now(UTC), after=self._chain), None
            self._within = piece.within_transaction

    def _require_known(self, format_event: str) -> None:
        """The file that arrives first may be another one of its name: after RESET, or of another server.

        Raises:
            OtherHistory: it is.
            ServerError: another server sends it than was asked, as a floating address may have it.
        """
        beginning, first = self._beginning, self._beginning.begin.file
        if self._known or not format_event:
            return
        received = base64.b64decode(format_event)
        if beginning.before is not None and beginning.before.file == first:
            if not same_file(base64.b64decode(beginning.before.format), received):
                raise OtherHistory(f"{first} is another file than before: the server's binlogs were reset")
        elif beginning.before is not None and (sends := file_birth(received).server_id) != self._asked:
            raise ServerError(
                f"expected server {self._asked}, but server {sends} sent {first}",
                hint="does the address lead to several servers? backupd asks again which one answers",
            )
        elif beginning.backup is not None and _is_newer(file_birth(received), beginning.backup.taken_at):
            raise OtherHistory(f"{first} is newer than backup {beginning.backup.run_id}")
        self._known = True


def _is_newer(file: FileBirth, taken_at: datetime) -> bool:
    """One that is told to be of a time to come is so by a client's `timestamp`, see `binlog_chain.made_at`."""
    return taken_at.timestamp() < file.created_at <= datetime.now(UTC).timestamp()
