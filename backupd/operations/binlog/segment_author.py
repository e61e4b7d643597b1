"""A cut piece becomes a segment: it gets its number, what it follows, its bytes as they are stored, its signature."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backupd.archive.segment_bytes import seal
from backupd.operations.binlog.cutting import CutPiece
from backupd.policy.segment_file import LONGEST_STATE, from_line, signed, to_line
from backupd.policy.signing import Signer
from backupd.vocabulary.binlogs import BinlogSegment, SegmentOrigin
from backupd.vocabulary.errors import ServerError, VerificationError

_BEGUN = "%Y%m%dT%H%M%SZ"
_LEVEL = 3  # of zstd: a segment is compressed while the server writes the next one


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment, and the two parts of its file."""

    segment: BinlogSegment
    line: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class SegmentAuthor:
    """What all segments of a chain have in common."""

    machine: str
    job: str
    origin: SegmentOrigin
    recipients: Sequence[str]
    signer: Signer

    def segment(self, piece: CutPiece, *, chain: str, before: BinlogSegment | None, at: datetime) -> SealedSegment:
        """The next segment of the chain, of which `before` was the last; None: it is the first.

        Raises:
            ConfigurationError: one of the recipients is none.
            ServerError: the server's sets of GTIDs are too long to be told; or its log has something of which nobody
                could read what is told.
        """
        sealed = seal(piece.events, recipients=self.recipients, level=_LEVEL)
        segment = BinlogSegment(
            machine=self.machine,
            job=self.job,
            chain=chain,
            number=1 if before is None else before.number + 1,
            previous="" if before is None else before.digest,
            origin=self.origin,
            file=piece.file,
            start=piece.start,
            end=piece.end,
            file_ended=piece.file_ended,
            format=piece.format,
            gtid_start=piece.gtid_start,
            gtid_end=piece.gtid_end,
            gtid_state=piece.gtid_state if len(piece.gtid_state) <= LONGEST_STATE else "",
            transactions=piece.transactions,
            within_transaction=piece.within_transaction,
            first_at=piece.first_at,
            last_at=piece.last_at,
            received_at=at,
            changes=piece.changes,
            all_changes=piece.all_changes,
            plain_bytes=sealed.plain_bytes,
            plain_sha256=sealed.plain_sha256,
            stored_bytes=len(sealed.content),
            stored_sha256=sealed.sha256,
            recipients=tuple(self.recipients),
        )
        described = signed(segment, self.signer)
        return SealedSegment(described, _readable_line(described), sealed.content)


def _readable_line(segment: BinlogSegment) -> bytes:
    """Its line, which has been read as every reader will read it: what the log says comes from whoever writes there."""
    line = to_line(segment)
    try:
        from_line(line)
    except VerificationError as error:
        raise ServerError(
            f"{segment.file} cannot be archived from byte {segment.start} on: {error.message}",
            hint="no restore could read that segment; please report it with this message",
        ) from error
    return line


def new_chain(at: datetime, *, after: str = "") -> str:
    """The name of a chain that begins then, and that comes after the one before it whatever the clock says."""
    if after:
        before = datetime.strptime(after.partition("-")[0], _BEGUN).replace(tzinfo=UTC)
        at = max(at, before + timedelta(seconds=1))
    return f"{at:{_BEGUN}}-{secrets.token_hex(4)}"
