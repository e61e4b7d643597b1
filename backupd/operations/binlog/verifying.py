"""A binlog archive on one target, held against the catalogue: what is recorded is there, and is what was recorded.

Read `verify_segments` aloud. Knows: that nothing is called lost after one look, nor where nothing at all is found; what
then becomes of the rows. There may be half a million segments: a page of rows at a time is in memory, and the listing.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from backupd.archive.parallel import Task, side_by_side
from backupd.catalogue.binlog_segments import PAGE
from backupd.catalogue.store import Catalogue
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.policy.binlog_chain import follows
from backupd.policy.segment_file import to_line
from backupd.report.words import many
from backupd.targets import Target
from backupd.targets.listing import is_returned
from backupd.targets.names import BINLOG, is_segments
from backupd.vocabulary.binlogs import LOST_EVERYWHERE, ArchiveGap, BinlogSegment, lost_from
from backupd.vocabulary.errors import BackupdError, TargetError, Unreadable, VerificationError
from backupd.vocabulary.escaping import some

log = logging.getLogger(__name__)

_TOLD = 20


@dataclass(frozen=True, slots=True)
class LostSegment:
    """One that the target had, by the catalogue, and has no more as it was recorded."""

    name: str
    reason: str
    elsewhere: tuple[str, ...]  # other targets that have it, by the catalogue


@dataclass(slots=True)
class SegmentsVerified:
    """What was found on one target."""

    target: str
    recorded: int = 0  # segments that the catalogue says lie there
    read: int = 0  # of these: read whole and found equal
    bytes_read: int = 0  # of their sealed events
    unopened: int = 0  # of these: encrypted, and for others than the reader's identities
    lost: list[LostSegment] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)  # where a segment does not continue the one before it there
    unrecorded: list[str] = field(default_factory=list)  # segments by their names, which the catalogue has not there
    strangers: list[str] = field(default_factory=list)  # what backupd gives no such name
    errors: list[BackupdError] = field(default_factory=list)  # what could be neither read nor called lost

    def require_whole(self) -> None:
        """Raise where something is lost, or could not be read.

        Raises:
            VerificationError: segments are lost; names the first.
            TargetError, Unreadable: none is known to be lost, and something could not be read.
        """
        if self.lost:
            nowhere = [one for one in self.lost if not one.elsewhere]
            told = some([f"{one.name} ({one.reason})" for one in self.lost], _TOLD, "; ")
            raise VerificationError(
                f"target {self.target} has lost {len(self.lost)} segments of the binlog archive: {told}",
                hint=_hint(len(nowhere), len(self.lost)),
            )
        if self.errors:
            raise self.errors[0]


def _hint(nowhere: int, lost: int) -> str:
    if nowhere == 0:
        return "another target has each of them, and restores read them there; check the target's storage"
    return (
        f"{nowhere} of {lost} are on no other target: moments after them can be restored only from a backup taken"
        " after them; take one now: `backupd run JOB`, and check the target's storage"
    )


def verify_segments(
    target: Target,
    catalogue: Catalogue,
    reader: SegmentReader,
    *,
    share: float = 1.0,
    draw: Callable[[], float] = random.random,
    undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> SegmentsVerified:
    """Every recorded segment is listed in its size; this share of them is read whole, with its description.

    Where the reader has an identity for it, or it is unencrypted, what is read is opened as well. What is lost is
    recorded as no longer there, so that no restore counts on it. In an `undisturbed` block no retention is at work.

    Raises:
        Busy: retention is, for too long.
        TargetError: the target cannot be listed, or not one of the recorded segments is there.
        CatalogueError: the catalogue cannot be read or written.
    """
    found = SegmentsVerified(target.name)
    listing = target.segments(reader.job)
    suspects: list[BinlogSegment] = []
    last: dict[str, BinlogSegment] = {}
    recorded: set[str] = set()
    for page in _pages(catalogue.segments(reader.job, target=target.name)):
        found.recorded += len(page)
        recorded.update(segment.name for segment in page)
        for segment in page:
            before = last.get(segment.chain)
            if before is not None and (reason := follows(before, segment)):
                found.breaks.append(reason)
            last[segment.chain] = segment
        there = [segment for segment in page if _is_listed(segment, listing)]
        suspects += [segment for segment in page if not _is_listed(segment, listing)]
        suspects += _read(target, reader, [segment for segment in there if draw() < share], found)
    if suspects:
        _look_again(target, catalogue, reader, suspects, found, undisturbed)
    entries = [name for name in listing if name not in recorded]
    found.unrecorded = sorted(name for name in entries if is_segments(name))
    found.strangers = sorted(name for name in entries if not is_segments(name))
    return found


def _pages(segments: Iterator[BinlogSegment]) -> Iterator[list[BinlogSegment]]:
    while page := list(islice(segments, PAGE)):
        yield page


def _is_listed(segment: BinlogSegment, listing: Mapping[str, int]) -> bool:
    """In its size, as far as that is known: a newer backupd may have described it in more words."""
    listed, line = listing.get(segment.name, 0), to_line(segment)
    if segment.digest.encode() in line:
        return listed == len(line) + segment.stored_bytes
    return listed > segment.stored_bytes


def _read(
    target: Target, reader: SegmentReader, segments: Sequence[BinlogSegment], found: SegmentsVerified
) -> list[BinlogSegment]:
    """Those that are not what was recorded, or could not be read; several are read at a time."""
    failed: list[BinlogSegment] = []
    unopened: list[BinlogSegment] = []

    def task(segment: BinlogSegment) -> Task:
        def read(require_wanted: Callable[[], None]) -> None:
            require_wanted()
            try:
                if not reader.compare(target, segment):
                    unopened.append(segment)
            except (TargetError, VerificationError) as error:
                log.warning("target %s: %s: %s", target.name, segment.name, error.message)
                failed.append(segment)

        return read

    side_by_side([task(segment) for segment in segments], idle=lambda: None)
    found.read += len(segments) - len(failed)
    found.unopened += len(unopened)
    found.bytes_read += sum(segment.stored_bytes for segment in segments)
    found.bytes_read -= sum(segment.stored_bytes for segment in failed)
    return failed


def _look_again(
    target: Target,
    catalogue: Catalogue,
    reader: SegmentReader,
    suspects: Sequence[BinlogSegment],
    found: SegmentsVerified,
    undisturbed: Callable[[], AbstractContextManager[None]],
) -> None:
    """A listing may lie, and a read may fail by chance: what is lost is so by a second look, and what is missing is not
    returned by name either. What was removed by its retention meanwhile has no row there any more, or is noted as
    leaving where that was killed.

    Raises:
        TargetError: nobody can tell; or all that was recorded is missing: then it is the target that is missing.
    """
    with undisturbed():
        again = target.segments(reader.job)
        on_targets = {segment.name: catalogue.segment_targets(segment.name) for segment in suspects}
        leaving = {one.name for page in catalogue.leaving_segments(reader.job, target.name).values() for one in page}
    recorded = [segment for segment in suspects if target.name in on_targets[segment.name]]
    expected = [segment for segment in recorded if segment.name not in leaving]
    missing = [segment for segment in recorded if segment.name not in again]
    if expected and len(missing) == found.recorded:
        raise TargetError(
            f"none of the {len(missing)} segments that the catalogue lists on target {target.name} was found",
            hint="nothing was changed; is its file system mounted, are its path or bucket unchanged?",
        )
    for segment in expected:
        try:
            if segment.name in again or is_returned(target, reader.job, BINLOG, segment.name):
                reader.compare(target, segment)
                continue
            reason = "is missing"
        except (TargetError, Unreadable) as error:
            found.errors.append(error)
            continue
        except VerificationError as error:
            reason = error.message
        others = tuple(sorted(on_targets[segment.name] - {target.name}))
        found.lost.append(LostSegment(segment.name, reason, others))
    waiting = {segment.name for segment in catalogue.spooled_segments(reader.job)} if found.lost else set()
    nowhere = {one.name for one in found.lost if not one.elsewhere} - waiting
    _record_gaps(catalogue, reader.job, [segment for segment in expected if segment.name in nowhere])
    lost = [one.name for one in found.lost]
    catalogue.segments_removed(reader.job, target.name, lost, because="found missing or changed")
    catalogue.forget_segments(lost)


def _record_gaps(catalogue: Catalogue, job: str, nowhere: Sequence[BinlogSegment]) -> None:
    """What nobody has is a gap, and where it is a chain's last segment the chain ends: another one of its name is not
    stored where a changed one lies.
    """
    last, at = catalogue.latest_segment(job), datetime.now(UTC)
    ended = {gap.chain for gap in catalogue.archive_gaps(job)}
    for lost in _side_by_side(nowhere):
        if last is None or last.name != lost[-1].name:
            reason = f"{LOST_EVERYWHERE}: {many(len(lost), 'segment')} from {lost[0].name} on"
            gap = ArchiveGap(lost_from(lost[0].chain, lost[0].number), reason, at, lost[0].first_at, lost[-1].last_at)
            catalogue.archive_gap(job, gap)
        elif last.chain not in ended:
            gap = ArchiveGap(last.chain, f"its last segment was {LOST_EVERYWHERE}", at, lost[0].first_at)
            catalogue.archive_gap(job, gap)


def _side_by_side(segments: Iterable[BinlogSegment]) -> Iterator[list[BinlogSegment]]:
    group: list[BinlogSegment] = []
    for segment in sorted(segments, key=lambda one: (one.chain, one.number)):
        if group and (segment.chain, segment.number) != (group[-1].chain, group[-1].number + 1):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group
