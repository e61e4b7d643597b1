"""Which of a run's copies is the only whole one that is left of what somebody wants to keep.

Read `only_whole` aloud. Knows: that a copy which was found broken, or which somebody else has taken away from a target
of the job, was not given up, for as long as the rule of its target would keep it had none been lost there. That is told
from the catalogue alone, by the clock of the host that made the backups and by the order of the runs: the storage's
clock can tell nothing of what has gone, and this way it does not matter which target is pruned first.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from backupd.operations.upkeep.former_targets import rule_on
from backupd.operations.upkeep.prune_work import PruneWork
from backupd.operations.upkeep.reappeared_backups import GONE
from backupd.policy.retention import Candidate, kept_if_whole
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.storage import Backup


def only_whole(work: PruneWork, target: str, runs: Sequence[RunDetails]) -> dict[str, str]:
    """Those of these runs of which no other target has a whole copy, while one that is not whole is there or would be
    kept; each with what became of those.

    What counts is what can be restored from. Of a target without a rule what has gone counts for nothing: a person has
    removed it.
    """
    found: dict[str, str] = {}
    wanted_there = cache(partial(wanted_on, work))
    for run in runs:
        others = [one for one in _seen_of(work, run) if one.target != target]
        if any(_is_whole(work, run, one) for one in others):
            continue
        missed = [
            one
            for one in others
            if not _is_gone(work, run, one) or (_is_lost(work, one) and run.run_id in (wanted_there(one.target) or ()))
        ]
        if missed:
            found[run.run_id] = ", ".join(_what_became_of(one) for one in missed)
    return found


def wanted_on(work: PruneWork, target: str) -> set[str] | None:
    """Those runs of the job that were lost there and that the target's rule would keep had none been lost; None where
    there is no rule.
    """
    rule = rule_on(work.job, target, work.catalogue)
    if rule is None:
        return None
    name = work.job.name
    runs = work.catalogue.on_target(name, target, work.catalogue.lost_on(name, target, gone=GONE))
    backups = [(run, one) for run in runs.values() for one in _seen_of(work, run) if one.target == target]
    lost = [_as_recorded(work, run, one) for run, one in backups if _is_lost(work, one)]
    there = [_as_recorded(work, run, one) for run, one in backups if one.removed_at is None]
    return kept_if_whole(lost, there, rule, work.now)


def _seen_of(work: PruneWork, run: RunDetails) -> list[Backup]:
    """The run's backups on targets that can be restored from, also where the job has named them once, and does no more.

    They are as the catalogue tells of them once it has what this pruning has seen, which a dry run leaves out.
    """
    return [_seen(work, run, one) for one in run.backups if work.configured is None or one.target in work.configured]


def _seen(work: PruneWork, run: RunDetails, backup: Backup) -> Backup:
    if (backup.target, run.run_id) in work.vanished and backup.removed_at is None:
        return replace(backup, removed_at=work.now, removed_because=GONE)
    if work.dry_run and run.run_id in work.again.get(backup.target, ()):
        return replace(backup, removed_at=None, removed_because="")
    return backup


def _is_whole(work: PruneWork, run: RunDetails, backup: Backup) -> bool:
    """By all that is known by now."""
    is_uncertain = (backup.target, run.run_id) in work.uncertain
    return not (backup.broken or is_uncertain or _is_gone(work, run, backup))


def _is_gone(work: PruneWork, run: RunDetails, backup: Backup) -> bool:
    """It was removed, or is to be: half of it may be there."""
    is_to_go = backup.is_being_removed or (backup.target, run.run_id) in work.going
    return is_to_go or backup.removed_at is not None


def _is_lost(work: PruneWork, backup: Backup) -> bool:
    """No rule gave it up, and nobody is known to have wanted it to go: a target that has left the job is emptied."""
    is_ruled = backup.target in work.job.targets or backup.target in work.job.retention.targets
    return bool(backup.broken) or (backup.removed_because == GONE and is_ruled)


def _what_became_of(backup: Backup) -> str:
    if backup.broken:
        return f"broken on {backup.target}"
    return f"{'lost' if backup.removed_because == GONE else 'uncertain'} on {backup.target}"


def _as_recorded(work: PruneWork, run: RunDetails, backup: Backup) -> Candidate:
    """The run's backup there as the catalogue tells of it; it came there as its run ended."""
    return Candidate(
        run.run_id,
        run.ended_at or run.started_at,
        run.started_at,
        at_in_order=work.set_back.get(run.run_id),
        broken=backup.broken,
        uncertain=work.uncertain.get((backup.target, run.run_id), ""),
        proven=run.proven_at is not None,
        doubted=run.doubted,
        pin=None if run.pin is None else run.pin.note,
    )
