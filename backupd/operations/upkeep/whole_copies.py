"""Which of a run's copies is the only whole one that is left of what somebody wants to keep.

Read `only_whole` aloud. Knows: that a copy which was found broken was not given up when it was removed, for as long as
the rule of its target would keep it if it were whole. That is told from the catalogue alone, by the clock of the host
that made the backups and by the order of the runs: the storage's clock can tell nothing of what has gone, and this way
it does not matter which target is pruned first.
"""

from collections.abc import Sequence

from backupd.operations.upkeep.former_targets import rule_on
from backupd.operations.upkeep.prune_work import PruneWork
from backupd.policy.retention import Candidate, stays_if_whole
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.storage import Backup


def only_whole(work: PruneWork, target: str, runs: Sequence[RunDetails]) -> set[str]:
    """Those of these runs of which no other target has a whole copy, while a broken one is there or would be kept.

    What counts is what can be restored from.
    """
    found: set[str] = set()
    removed_from: dict[str, list[RunDetails]] = {}
    for run in runs:
        others = [one for one in run.backups if one.target != target and _can_be_restored_from(work, one.target)]
        left = [one for one in others if not _is_gone(work, run, one)]
        if any(not one.broken and (one.target, run.run_id) not in work.uncertain for one in left):
            continue
        if left:
            found.add(run.run_id)
        for one in others:
            if one.broken:
                removed_from.setdefault(one.target, []).append(run)
    for name, broken in removed_from.items():
        found |= _wanted_on(work, name, [run for run in broken if run.run_id not in found])
    return found


def _can_be_restored_from(work: PruneWork, target: str) -> bool:
    """Also where the job has named it once, and does no more."""
    return work.configured is None or target in work.configured


def _is_gone(work: PruneWork, run: RunDetails, backup: Backup) -> bool:
    """It was removed, or is to be: half of it may be there."""
    is_to_go = backup.is_being_removed or (backup.target, run.run_id) in work.going
    return is_to_go or backup.removed_at is not None


def _wanted_on(work: PruneWork, target: str, runs: Sequence[RunDetails]) -> set[str]:
    """Those of these runs, whose copies there were found broken, that the target's rule would keep."""
    rule = rule_on(work.job, target, work.catalogue) if runs else None
    if rule is None:  # it keeps all
        return {run.run_id for run in runs}
    there = [_as_recorded(work, target, run) for run in work.catalogue.on_target(work.job.name, target).values()]
    return {run.run_id for run in runs if stays_if_whole(_as_recorded(work, target, run), there, rule, work.now)}


def _as_recorded(work: PruneWork, target: str, run: RunDetails) -> Candidate:
    """The run's backup there as the catalogue tells of it; it came there as its run ended."""
    backup = run.backup_on(target)
    return Candidate(
        run.run_id,
        run.ended_at or run.started_at,
        run.started_at,
        at_in_order=work.set_back.get(run.run_id),
        broken="" if backup is None else backup.broken,
        uncertain=work.uncertain.get((target, run.run_id), ""),
        proven=run.proven_at is not None,
        doubted=run.doubted,
        pin=None if run.pin is None else run.pin.note,
    )
