"""Binlogs of a real server as an archive keeps them: cut, sealed, signed, on a target and in a catalogue."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backupd.catalogue.store import Catalogue
from backupd.mysql.binlog.events import EventStream
from backupd.mysql.binlog.layout import GTID_LIST, PREVIOUS_GTIDS
from backupd.mysql.binlog.source import binlog_source
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations.binlog.cutting import CutPiece, SegmentCutter
from backupd.operations.binlog.segment_author import SegmentAuthor, new_chain
from backupd.policy import gtid
from backupd.policy.signing import Signer
from backupd.targets import Target
from backupd.targets.names import BINLOG
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, LoggedTransaction, SegmentOrigin
from tests.binlog_segments import summed

JOB = "nightly"
START = 4  # of a first event
_HEAD = 4096  # bytes of a file, in which it tells what was executed before it


@dataclass(frozen=True)
class WrittenBinlogs:
    """What a server has written, whole files."""

    origin: SegmentOrigin
    files: tuple[tuple[str, bytes], ...]

    def _executed_before(self) -> str:
        """As the first file says of those that the server wrote before it."""
        file, data = self.files[0]
        reader = TransactionReader(self.origin.flavour, file)
        for event in EventStream(file).feed(data[:_HEAD]):
            reader.feed(event)
            if event.kind in (GTID_LIST, PREVIOUS_GTIDS):
                break
        return reader.gtids

    def pieces(self, size: int) -> list[CutPiece]:
        """As the archive cuts them, about so large; the last file goes on."""
        first, _ = self.files[0]
        cutter = SegmentCutter(
            self.origin.flavour,
            size=size,
            age_seconds=0,
            begin=BinlogPlace(first, START),
            gtids=self._executed_before(),
        )
        found: list[CutPiece] = []
        for file, data in self.files:
            ended = file != self.files[-1][0]
            found += cutter.feed(file, data, file_ended=ended)
        due = cutter.due()
        return [*found, *([] if due is None else [due])]


def written_binlogs(server: Any) -> WrittenBinlogs:
    """Of a `MariadbServer`: what it has written so far, which it now goes on from in another file."""
    with server.session() as root:
        root.execute("FLUSH BINARY LOGS")
        origin = binlog_source(root).origin
    paths: list[Path] = sorted(path for path in server.datadir.glob("bin.0*") if path.suffix[1:].isdigit())
    return WrittenBinlogs(origin, tuple((path.name, path.read_bytes()) for path in paths[:-1]))


@dataclass(frozen=True)
class Archiver:
    """Puts pieces where an archive puts them."""

    catalogue: Catalogue
    target: Target
    signer: Signer
    recipients: Sequence[str] = ()
    job: str = JOB
    at: Callable[[], datetime] = lambda: datetime.now(UTC)

    def archive(
        self, origin: SegmentOrigin, pieces: Iterable[CutPiece], *, chain: str | None = None, stored: bool = True
    ) -> list[BinlogSegment]:
        """A chain of these pieces; where they are not `stored`, they wait."""
        author = SegmentAuthor(self.catalogue.identity().name, self.job, origin, self.recipients, self.signer)
        chain = chain or new_chain(self.at())
        found: list[BinlogSegment] = []
        for piece in pieces:
            sealed = author.segment(piece, chain=chain, before=found[-1] if found else None, at=self.at())
            found.append(sealed.segment)
            self.catalogue.add_segment(sealed.segment, spooled=not stored)
            if stored:
                with self.target.writing(self.job, BINLOG, sealed.segment.name) as writer:
                    writer.write(sealed.line)
                    writer.write(sealed.content)
                self.catalogue.segment_stored(sealed.segment.name, self.target.name, at=self.at())
        return found


def require_as_read(pieces: Sequence[CutPiece], content: bytes, transactions: Sequence[LoggedTransaction]) -> None:
    """Of one file: its bytes are in pieces, one behind the other, and each tells of the transactions that end in it."""
    assert [piece.start for piece in pieces] == [START, *(piece.end for piece in pieces[:-1])]
    for piece in pieces:
        ended = [one for one in transactions if piece.start < one.end.offset <= piece.end]
        times = [one.committed_at for one in ended]
        assert b"".join(piece.events) == content[piece.start : piece.end]
        assert piece.transactions == len(ended)
        assert (piece.first_at, piece.last_at) == (min(times, default=None), max(times, default=None))
        assert (piece.changes, piece.all_changes) == summed(change for one in ended for change in one.changes)
        assert all(one.gtid is None or gtid.holds(piece.gtid_end, one.gtid) for one in ended)


def without_changes(piece: CutPiece) -> CutPiece:
    """The same as if it changed so many tables that none of them is told."""
    return replace(piece, changes=(), all_changes=False)
