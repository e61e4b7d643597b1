"""The segments of binlog archives on a target, into a catalogue that lacks them.

Knows: that a segment enters only by its description, which is signed by a known key, and in the size that it tells;
that this catalogue has had each that was received since it began, so that one behind the last that it has of a chain is
a clone's, or of a state that is lost; that an archive whose record was lost goes on with the chain that it had only
where every target says so. Refuses to read what a segment holds: `backupd binlog verify` does.

Whether the chain went on, on another target, one target does not tell; another segment of a name that is taken would
never be stored. So the chain that was found last is told as ended until the archive is at work again: it asks all of
the job's targets, and goes on in that chain where none has more of it. Else it begins another one: behind the newest
good backup, so that nothing is missing where the server still has that binlog.

What could not be read may be what a backup stands in, without which nobody knows that it needs what follows. So that is
told as a gap before anything behind it is known, and retention removes nothing that follows in its chain until a
rebuild has read it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from backupd.archive.parallel import Task, side_by_side
from backupd.catalogue.store import Catalogue
from backupd.operations.upkeep.rebuild import RecordedHere
from backupd.policy.segment_file import LONGEST_LINE, from_line
from backupd.policy.trust import Trust
from backupd.targets import Target
from backupd.targets.listing import is_returned
from backupd.targets.names import BINLOG, is_segments
from backupd.vocabulary.binlogs import CATALOGUE_LOST, LOST_EVERYWHERE, NOT_READ, ArchiveGap, BinlogSegment
from backupd.vocabulary.errors import BackupdError, TargetError, Unreadable, Untrusted, VerificationError, worst_of
from backupd.vocabulary.escaping import some

log = logging.getLogger(__name__)

_PAGE = 500  # segments that are read before they are entered
_TOLD = 20
_FIRST_READ = 16 << 10  # bytes: most descriptions are shorter


@dataclass(slots=True)
class SegmentsRebuilt:
    """What was found of one job's archive on a target."""

    job: str
    imported: int = 0
    known: int = 0  # that the catalogue had there
    strangers: list[str] = field(default_factory=list)  # what backupd gives no such name
    failures: list[tuple[str, BackupdError]] = field(default_factory=list)  # by name


def rebuild_segments(
    target: Target, catalogue: Catalogue, trust: Trust, *, job: str | None = None, here: RecordedHere | None = None
) -> list[SegmentsRebuilt]:
    """Every segment of this machine's on the target, of this job where it is named, is in the catalogue as lying there.

    One that cannot be read or believed, or was not recorded `here` where that is asked, is in `failures`, and keeps no
    other from being entered.

    Raises:
        TargetError: the target cannot be listed.
        CatalogueError: the catalogue cannot be read or written.
    """
    jobs = sorted(target.archived_jobs()) if job is None else [job]
    return [_rebuilt(target, catalogue, trust, each, here) for each in jobs]


def require_rebuilt(archives: Sequence[SegmentsRebuilt]) -> None:
    """Raise where a segment could not be read or believed.

    Raises:
        VerificationError: one of them cannot be believed; the first are named.
        TargetError: all that failed is that they could not be read.
    """
    failures = [failure for archive in archives for failure in archive.failures]
    if failures:
        told = some([f"{name}: {error.message}" for name, error in failures], _TOLD, "; ")
        errors = [error for _, error in failures]
        worst = worst_of(errors)
        raise type(worst)(f"not all segments could be added: {told}", hint=worst.hint)


def _rebuilt(
    target: Target, catalogue: Catalogue, trust: Trust, job: str, here: RecordedHere | None
) -> SegmentsRebuilt:
    found = SegmentsRebuilt(job)
    listing = target.segments(job)
    had = catalogue.last_numbers(job)
    lost = [gap.chain for gap in catalogue.archive_gaps(job) if LOST_EVERYWHERE in gap.reason]  # and are found again

    def believed(name: str) -> BinlogSegment:
        segment = _believed(target, trust, job, name, listing[name])
        if here is not None and not any(chain.startswith(segment.chain) for chain in lost):
            here.require_segment(segment, last=had.get(segment.chain, 0))
        return segment

    known = {segment.name for segment in catalogue.segments(job, target=target.name)}
    found.strangers = sorted(name for name in listing if not is_segments(name))
    wanted = sorted(name for name in listing if is_segments(name) and name not in known)
    found.known = len(listing) - len(found.strangers) - len(wanted)
    newest: BinlogSegment | None = None
    unread = set[str]()
    for start in range(0, len(wanted), _PAGE):
        told = len(found.failures)
        page = _described(wanted[start : start + _PAGE], believed, found)
        unread |= _note_unread(catalogue, target, job, found.failures[told:])
        entered = _entered(catalogue, target, page, found)
        newest = max(
            [segment for segment in (newest, *entered) if segment is not None and segment.chain not in had],
            key=lambda segment: (segment.chain, segment.number),
            default=None,
        )
    if newest is not None:
        catalogue.archive_gap(job, ArchiveGap(newest.chain, CATALOGUE_LOST, datetime.now(UTC), newest.last_at))
    for gap in catalogue.archive_gaps(job):
        if gap.not_read_on != target.name or gap.chain in unread:
            continue
        if f"{gap.chain}.binlog" in listing or _is_gone(target, job, gap):
            catalogue.archive_goes_on(job, gap.chain)
    return found


def _is_gone(target: Target, job: str, gap: ArchiveGap) -> bool:
    """Whether what could not be read before, and is not listed now, is not there: a listing may lie. It is asked for
    by name, and the listing once more.
    """
    name = f"{gap.chain}.binlog"
    return not is_returned(target, job, BINLOG, name) and name not in target.segments(job, after=gap.chain)


def _note_unread(
    catalogue: Catalogue, target: Target, job: str, failures: Sequence[tuple[str, BackupdError]]
) -> set[str]:
    """Of those that may be whole, could not be read and are known from nowhere else, the first of each chain is a gap;
    by what these are known.
    """
    failed = sorted(name for name, error in failures if isinstance(error, TargetError | Unreadable))
    unknown = [name for name in failed if not catalogue.segment_targets(name)]
    first = {name.rpartition("-")[0]: name.removesuffix(".binlog") for name in reversed(unknown)}
    for name in first.values():
        catalogue.archive_gap(job, ArchiveGap(name, f"{NOT_READ}{target.name}", datetime.now(UTC), None))
    return set(first.values())


def _entered(
    catalogue: Catalogue, target: Target, page: Sequence[BinlogSegment], found: SegmentsRebuilt
) -> list[BinlogSegment]:
    others = catalogue.import_segments(page, target.name, at=datetime.now(UTC))
    for name in others:
        error = Untrusted(
            f"segment {name} on target {target.name} is not the one on record",
            hint="it was replaced: check who can write to the target",
        )
        found.failures.append((name, error))
    entered = [segment for segment in page if segment.name not in others]
    found.imported += len(entered)
    return entered


def _described(
    names: Sequence[str], believed: Callable[[str], BinlogSegment], found: SegmentsRebuilt
) -> list[BinlogSegment]:
    """What these say of themselves, in the order of their names; several are read at a time."""
    described: dict[str, BinlogSegment] = {}

    def task(name: str) -> Task:
        def read(require_wanted: Callable[[], None]) -> None:
            require_wanted()
            try:
                described[name] = believed(name)
            except (TargetError, VerificationError) as error:
                log.warning("segment %s of job %s: %s", name, found.job, error.message)
                found.failures.append((name, error))

        return read

    side_by_side([task(name) for name in names], idle=lambda: None)
    return [described[name] for name in names if name in described]


def _believed(target: Target, trust: Trust, job: str, name: str, size: int) -> BinlogSegment:
    """What is told of the segment by somebody who is believed.

    Raises:
        TargetError: it cannot be read.
        VerificationError, Unreadable: it is none, or is not as long as it says.
        Untrusted: nobody known has signed it, or it is another one than its place says.
    """
    line = _line(target, job, name, size)
    segment = from_line(line)
    if not trust.believes(segment.signature):
        raise Untrusted(
            f"segment {name} is not signed by a trusted key", hint="see `backupd identity show`, and --trust"
        )
    if (segment.machine, segment.job, segment.name) != (target.machine, job, name):
        raise Untrusted(
            f"what is called {name} is segment {segment.name} of job {segment.job} of machine {segment.machine}",
            hint="somebody has put it there: check who can write to the target",
        )
    if size != len(line) + segment.stored_bytes:
        raise VerificationError(
            f"segment {name} has {size} bytes, expected {len(line) + segment.stored_bytes}",
            hint="it is damaged: rebuild from another target that has it",
        )
    return segment


def _line(target: Target, job: str, name: str, size: int) -> bytes:
    """The first line, or as much of the beginning as no line may have."""
    for most in (_FIRST_READ, LONGEST_LINE):
        with target.reading(job, BINLOG, name, size=min(size, most)) as chunks:
            content = b"".join(map(bytes, chunks))
        if (end := content.find(b"\n") + 1) or size <= most:
            break
    return content[: end or None]
