"""Archived segments, read from the targets again: each is the one that was recorded, and whole, before it is used.

Knows: that the first target that gives a segment as it was recorded is enough; how a piece of the log is made of one.
"""

import base64
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backupd.archive.encryption import opens
from backupd.archive.segment_bytes import require_key, require_stored, unseal
from backupd.mysql.binlog.events import EventStream, LogEvent, detached
from backupd.mysql.binlog.layout import MAGIC
from backupd.policy.segment_file import LONGEST_LINE, from_line
from backupd.targets import Target
from backupd.targets.names import BINLOG
from backupd.vocabulary.binlogs import BinlogSegment
from backupd.vocabulary.errors import BackupdError, TargetError, VerificationError

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

log = logging.getLogger(__name__)

_ASK_ANOTHER = "restore from another target that has it, or to a moment before it"


@dataclass(frozen=True, slots=True)
class SegmentReader:
    """Where the segments of one job are read."""

    job: str
    targets: Sequence[Target]  # the first is preferred
    identities: "Identities | None" = None

    def require_key(self, segments: Sequence[BinlogSegment]) -> None:
        """All of them can be opened.

        Raises:
            NoKey: one is encrypted, and no identity opens it.
        """
        for segment in segments:
            require_key(segment, self.identities)

    def content(self, segment: BinlogSegment) -> bytes:
        """The bytes of its events, all of them the recorded ones.

        Raises:
            TargetError, VerificationError: no target gives it; as the first says, the others in notes.
            NoKey: it is encrypted, and no identity opens it.
        """
        errors: list[BackupdError] = []
        for target in self.targets:
            try:
                return self._from(target, segment)
            except (TargetError, VerificationError) as error:
                log.warning("target %s: %s", target.name, error.message)
                errors.append(error)
        first, *others = errors
        for other in others:
            first.add_note(other.message)
        raise first

    def compare(self, target: Target, segment: BinlogSegment) -> bool:
        """All that the target has of it is what was recorded, by its stored bytes; what it opens to as well, where it
        is unencrypted or one of the identities opens it. Whether that was so: recipients change over the years.

        Raises:
            TargetError: it cannot be read.
            VerificationError: it is something else, in whatever part.
        """
        with target.reading(self.job, BINLOG, segment.name) as chunks:
            line, rest = _split(chunks, segment.name)
            found = self._recorded(target, segment, line)
            if not opens(self.identities, found.recipients):
                require_stored(found, rest)
                return False
            for _ in unseal(found, rest, self.identities):
                pass
            return True

    def events(self, segment: BinlogSegment) -> Iterator[LogEvent]:
        """Its events, with the places that they have in the server's own file.

        Raises:
            As `content`; and ServerError: they are no events.
        """
        stream = EventStream(segment.file, start=segment.start)
        yield from stream.feed(beginning_of(segment))
        yield from stream.feed(self.content(segment))

    def _from(self, target: Target, segment: BinlogSegment) -> bytes:
        with target.reading(self.job, BINLOG, segment.name) as chunks:
            line, rest = _split(chunks, segment.name)
            return b"".join(unseal(self._recorded(target, segment, line), rest, self.identities))

    def _recorded(self, target: Target, segment: BinlogSegment, line: bytes) -> BinlogSegment:
        """What the line says, which is what was recorded: whoever signed it."""
        found = from_line(line)
        if found.digest != segment.digest:
            raise VerificationError(
                f"the segment {segment.name} on target {target.name} is not the one that was recorded",
                hint=_ASK_ANOTHER,
            )
        return found


def beginning_of(segment: BinlogSegment) -> bytes:
    """What makes a file of a segment's events that every reader of binlogs takes; nothing where they have it."""
    described = MAGIC
    if segment.start > len(MAGIC):
        described += detached(base64.b64decode(segment.format))
    return described


def _split(chunks: Iterator[bytes], name: str) -> tuple[bytes, Iterator[bytes]]:
    """The first line, with its line feed, and what follows it."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        end = held.find(b"\n") + 1
        if end or len(held) > LONGEST_LINE:
            break
    end = held.find(b"\n") + 1
    if not 0 < end <= LONGEST_LINE:
        raise VerificationError(f"{name} does not begin with the description of a segment", hint=_ASK_ANOTHER)
    rest = bytes(held[end:])

    def following() -> Iterator[bytes]:
        yield rest
        yield from chunks

    return bytes(held[:end]), following()
