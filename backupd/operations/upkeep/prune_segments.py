"""Retention of a job's binlog archive on one target, once that of its backups there has been carried out.

Read `prune_segments` aloud. Knows: which backups count, and what is known of one whose place in the log is not. A
segment goes once no backup that is kept on its target needs it, nor one on another target that lacks the segment and
can be restored from.
There may be a million segments: only those that go are read, page by page.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from backupd.catalogue.binlog_segments import PAGE, ExpiredPart
from backupd.operations.binlog.placed_backups import placed_backup
from backupd.operations.upkeep.prune_work import Fate, PruneWork, SegmentFate
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.segment_retention import SegmentNeeds, decision, needed
from backupd.targets import Target
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, numbered, segment_name
from backupd.vocabulary.errors import Busy, TargetError
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.storage import StoredBackup

log = logging.getLogger(__name__)

_RECEIVED_WITHIN = timedelta(minutes=5)  # what the server had written when a backup was taken had been received by then


def prune_segments(
    work: PruneWork,
    target: Target,
    stored: Sequence[StoredBackup],
    plan: Sequence[Fate],
    require_ours: Callable[[], None],
) -> None:
    """What no backup needs is removed, the oldest first; in a dry run only counted. `plan` is what became of `stored`.

    A page at a time is noted as leaving, removed, and forgotten: of what dies in between the next pruning records what
    is gone and decides anew on the rest, and until then nobody calls it lost. While the target has a backup that the
    catalogue does not know, or may have one, nothing goes: nobody can tell what it needs. Of a chain of which a rebuilt
    catalogue may lack a segment that a backup stands in, what follows that segment stays.

    Raises:
        NotOurs: another machine has written there meanwhile.
        TargetError: a page could not be removed; those before it are.
        CatalogueError: it cannot be read or written.
    """
    job = work.job.name
    chains = work.catalogue.archive_chains(job)
    if not chains:
        return
    if not work.dry_run:
        _settle(work, target, require_ours)
    runs = work.catalogue.on_target(job, target.name)
    gone = {fate.decision.backup_id for fate in plan if fate.removed or (work.dry_run and not fate.decision.keep)}
    may_be = [one.backup_id for one in stored if one.finished or (target.name, one.backup_id) in work.uncertain]
    unknown = [backup_id for backup_id in may_be if backup_id not in runs.keys() | gone]
    if unknown:
        log.info("target %s: no segment is removed: %s is not in the catalogue", target.name, min(unknown))
        return
    needs = _needs(work, [run for run in runs.values() if run.run_id not in gone])
    if needs.newest is None:
        return
    others = _needs_elsewhere(work, target.name)
    before = min(needs.newest.taken_at, work.now)
    for chain, number in needs.unread.items():
        log.warning(
            "target %s: segments kept: a backup may need them, but segment %s could not be read during the catalogue"
            " rebuild",
            *(target.name, segment_name(chain, number)),
        )
    for chain in chains:
        needed_on = {name: numbers[chain] for name, numbers in others.items() if chain in numbers}
        part = ExpiredPart(chain, needs.from_number.get(chain), before, needed_on)
        _prune_chain(work, target, part, needs, require_ours)
        for other in work.catalogue.kept_for(job, target.name, part):
            log.info(
                "target %s: segments kept: backups on target %s need them, and %s does not have them",
                *(target.name, other, other),
            )


def _needs_elsewhere(work: PruneWork, target: str) -> dict[str, dict[str, int]]:
    """By other target and chain, the number of the first segment that a backup there may be rolled forward by.

    A target that the configuration has no more is never pruned: its last backups would need all that comes, for ever.
    """
    names = {one.target for one in work.catalogue.stored() if one.job == work.job.name} - {target}
    names = names if work.configured is None else names.intersection(work.configured)
    found = {name: work.catalogue.on_target(work.job.name, name) for name in names}
    return {name: _needs(work, runs.values()).from_number for name, runs in found.items()}


def _needs(work: PruneWork, runs: Collection[RunDetails]) -> SegmentNeeds:
    backups = [found for run in runs for found in _placed(work, run)]
    known = work.catalogue.segments_at(work.job.name, {backup.place for backup in backups})
    return needed(known, backups, _unread(work))


def _unread(work: PruneWork) -> dict[str, int]:
    """By chain, the first segment that a rebuild could not read on a target that can be restored from."""
    found: dict[str, int] = {}
    for gap in work.catalogue.archive_gaps(work.job.name):
        if gap.not_read_on and (work.configured is None or gap.not_read_on in work.configured):
            chain, number = numbered(gap.chain)
            found[chain] = min(number, found.get(chain, number))
    return found


def _placed(work: PruneWork, run: RunDetails) -> list[PlacedBackup]:
    """Where it stands in the log. One of which that is not known yet stands no earlier than behind what had been
    received when it was taken: a drill may find the place. What that was tell the clock, which may have been ahead, and
    the catalogue as it was when the run began, whose chain may have ended before the backup was taken: what either of
    them tells is needed. Nothing where nothing was ever received.
    """
    if (found := placed_backup(run)) is not None:
        return [found]
    job, taken_at = work.job.name, run.snapshot_by or run.started_at
    by_clock = work.catalogue.latest_segment(job, before=taken_at - _RECEIVED_WITHIN)
    told = (by_clock or next(work.catalogue.segments(job), None), work.catalogue.received_before(run.run_id, job))
    return [PlacedBackup(run.run_id, BinlogPlace(one.file, one.end), "", taken_at) for one in told if one is not None]


def _prune_chain(
    work: PruneWork, target: Target, part: ExpiredPart, needs: SegmentNeeds, require_ours: Callable[[], None]
) -> None:
    """The archive goes on behind the segment that was received last: that one stays, whatever needs it."""
    job, behind = work.job.name, 0
    last = work.catalogue.latest_segment(job)
    while page := work.catalogue.expired_segments(job, target.name, part, behind=behind):
        behind = page[-1].number
        decisions = {segment.name: decision(segment, needs, work.now) for segment in page}
        going = [segment for segment in page if segment != last and not decisions[segment.name].keep]
        if going:
            _remove(work, target, going, decisions[going[0].name].reason, require_ours)
        if len(page) < PAGE:
            return


def _settle(work: PruneWork, target: Target, require_ours: Callable[[], None]) -> None:
    """What a pruning that was killed had noted as leaving is recorded as gone, or as there still."""
    job = work.job.name
    leaving = work.catalogue.leaving_segments(job, target.name)
    there = target.segments(job) if leaving else {}
    for reason, noted in leaving.items():
        gone = [segment for segment in noted if segment.name not in there]
        if gone:
            _remove(work, target, gone, reason, require_ours)  # once more: a listing may lie
        staying = [segment.name for segment in noted if segment.name in there]
        work.catalogue.segments_leaving(target.name, staying, because=None)


def _remove(
    work: PruneWork, target: Target, going: Sequence[BinlogSegment], reason: str, require_ours: Callable[[], None]
) -> None:
    job, names = work.job.name, [segment.name for segment in going]
    fate = work.segments.get((target.name, reason), SegmentFate(target.name, reason))
    size = sum(segment.stored_bytes for segment in going)
    fate = replace(fate, segments=fate.segments + len(going), bytes_stored=fate.bytes_stored + size)
    work.segments[target.name, reason] = fate
    if work.dry_run:
        return
    require_ours()
    try:
        work.catalogue.segments_leaving(target.name, names, because=reason)
        with work.ownership.claims.segments(job):  # whoever looks for lost ones finds them with their rows, or neither
            target.remove_segments(job, names)
            work.catalogue.segments_removed(job, target.name, names, because=reason)
            work.catalogue.forget_segments(names)
    except Busy as error:
        raise TargetError(f"no segment was removed: {error.message}", hint=error.hint) from error
    work.segments[target.name, reason] = replace(fate, removed=fate.removed + len(going))
    log.info("removed %d segments from target %s, %s to %s: %s", len(names), target.name, names[0], names[-1], reason)
