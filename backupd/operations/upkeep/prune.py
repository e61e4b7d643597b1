"""Carrying out retention: what is decided about a job's backups (`prune_plan`) is done on its targets, and what none of
those that stay needs of its binlog archive goes as well (`prune_segments`).

Read `prune` aloud. Nothing is removed that the catalogue does not know, but for unfinished remains in this machine's
own folder; nothing at all while a run of the job lives, or where another machine has written.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig
from backupd.operations.hanging_targets import answer_of
from backupd.operations.ownership import Ownership, require_apart
from backupd.operations.upkeep.former_targets import rule_on
from backupd.operations.upkeep.prune_plan import decided, found_on, known_of, look_closely, plan_for
from backupd.operations.upkeep.prune_segments import prune_segments
from backupd.operations.upkeep.prune_work import Fate, PruneWork, SegmentFate
from backupd.targets import Target
from backupd.vocabulary.errors import Busy, TargetError
from backupd.vocabulary.storage import RetentionDecision, StoredBackup

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pruning:
    """What became of a job's backups, or in a dry run would become."""

    job: str
    fates: tuple[Fate, ...] = ()  # in the order of the job's targets, newest first
    vanished: tuple[tuple[str, str], ...] = ()  # target and run: the catalogue had it, and it is not there
    failures: tuple[tuple[str, TargetError], ...] = ()  # by target
    segments: tuple[SegmentFate, ...] = ()  # of its binlog archive, by target and reason

    @property
    def removed(self) -> tuple[Fate, ...]:
        """Those that have gone."""
        return tuple(fate for fate in self.fates if fate.removed)

    def require_complete(self) -> None:
        """Raise when a target could not be read, or kept what was to go.

        Raises:
            TargetError: naming each, with the first one's hint.
        """
        if self.failures:
            told = "; ".join(_first_of_each(self.failures))
            raise TargetError(f"pruning job {self.job} is incomplete: {told}", hint=self.failures[0][1].hint)


def _first_of_each(failures: Sequence[tuple[str, TargetError]]) -> list[str]:
    """A target's first failure, and how many more it had: a store that denies removal denies it every time."""
    of_targets: dict[str, list[str]] = {}
    for name, error in failures:
        of_targets.setdefault(name, []).append(error.message)
    return [
        f"target {name}: {told[0]}" + (f" (and {len(told) - 1} more)" if told[1:] else "")
        for name, told in of_targets.items()
    ]


def prune(
    job: JobConfig,
    targets: Sequence[Target],
    catalogue: Catalogue,
    *,
    ownership: Ownership,
    configured: Collection[str] | None = None,
    after: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    vanished: list[tuple[str, str]] | None = None,
) -> Pruning:
    """Remove what the job's retention gives up, and what dead runs left; with `dry_run` only say so, changing no row.

    `configured` are the targets that can be restored from: what backups on others need of the binlog archive does not
    count. Without it, backups count wherever the catalogue has them.

    A target that the job no longer names is pruned by the last rule that it had, and let be where it had none; see
    `former_targets`.

    What somebody else has removed is an attention of the run `after` which this is done, or else of the job's newest
    good one that is left. It is added to `vanished` once its rows say so, also where this raises later.

    A target that cannot be read, or that refuses to remove something, does not keep the others from being pruned: it is
    in `failures`. So are two that are one storage: by which of their rules, only a person can say.

    Raises:
        Refused: the catalogue is another machine's.
        Busy: a run of the job is alive; not with `dry_run`.
        CatalogueError: it cannot be read or written.
    """
    with ExitStack() as claimed:
        if not dry_run:
            claimed.enter_context(ownership.claims.pruning(job.name))
        now = now or datetime.now(UTC)
        set_back = catalogue.set_back(job.name, until=now)
        work = PruneWork(job, catalogue, ownership, now, dry_run, configured, after, set_back)
        work.vanished = [] if vanished is None else vanished
        work.rules.update(
            (target.name, rule) for target in targets if (rule := rule_on(job, target.name, catalogue)) is not None
        )
        ruled = [target for target in targets if target.name in work.rules]
        seen: list[tuple[Target, list[StoredBackup]]] = []
        for target in ruled:
            if not dry_run:
                catalogue.remember_rule(job.name, target.name, work.rules[target.name])
            with _failing_alone(work, target):
                seen.append((target, _look_at(work, target, ruled)))
        for target, stored in seen:  # only now: what is lost on the last of them counts on the first
            with _failing_alone(work, target):
                _prune_on(work, target, stored)
    return Pruning(
        job.name, tuple(work.fates), tuple(work.vanished), tuple(work.failures), tuple(work.segments.values())
    )


def after_run(
    job: JobConfig,
    run_id: str,
    targets: Sequence[Target],
    catalogue: Catalogue,
    *,
    ownership: Ownership,
    configured: Collection[str] | None = None,
) -> Pruning | None:
    """Prune after a good run of the job; its row and its backups stay what they are whatever becomes of this.

    What goes wrong with a target is an attention of that run. None where another run of the job has started: that one
    will prune.

    Raises:
        Cancelled: the process was asked to stop.
        CatalogueError: it cannot be read or written.
    """
    try:
        pruning = prune(job, targets, catalogue, ownership=ownership, configured=configured, after=run_id)
    except Busy as error:
        log.info("not pruned: %s", error.message)
        return None
    try:
        pruning.require_complete()
    except TargetError as error:
        catalogue.attention(run_id, f"the backup is good, but {error.message}")
    return pruning


def _look_at(work: PruneWork, target: Target, ruled: Sequence[Target]) -> list[StoredBackup]:
    """What lies there of the job; what is missing or incomplete there is known from now on.

    Raises:
        TargetError: it cannot be read, or cannot be believed; or it is one storage with another one.
    """
    if work.dry_run:
        answer_of(target, partial(work.ownership.require_ours, target))
    elif not answer_of(target, partial(work.ownership.take_as_room_allows, target)):
        work.full.add(target.name)
    require_apart(target, _others_of_job(work.job, target, ruled))
    stored = found_on(work, target)
    look_closely(work, target, stored)
    return stored


def _prune_on(work: PruneWork, target: Target, stored: Sequence[StoredBackup]) -> None:
    """What is to go there goes, and with it what nothing that stays needs of the binlog archive.

    Raises:
        TargetError: it cannot be read, or has no room for an owner record.
    """
    plan = plan_for(work, target, stored)
    if not work.dry_run:
        plan = [_carry_out(work, target, stored, fate) for fate in plan]
    work.fates += plan
    work.going |= {(target.name, fate.decision.backup_id) for fate in plan if not fate.decision.keep}
    prune_segments(work, target, stored, plan, partial(_require_ours, work, target))
    if target.name in work.full:
        work.ownership.take(target)


def _others_of_job(job: JobConfig, target: Target, ruled: Sequence[Target]) -> list[Target]:
    """Of a target's old name nothing is refused: what the catalogue has by that name is removed by that name alone."""
    return [other for other in ruled if other is not target and {other.name, target.name} <= set(job.targets)]


@contextmanager
def _failing_alone(work: PruneWork, target: Target) -> Iterator[None]:
    """What goes wrong with one target is told with it. A catalogue that fails ends the whole."""
    try:
        yield
    except TargetError as error:
        log.warning("target %s: %s", target.name, error.message)
        work.failures.append((target.name, error))


def _carry_out(work: PruneWork, target: Target, stored: Sequence[StoredBackup], fate: Fate) -> Fate:
    """Objects first, row second: a row that says `removed` is never wrong. A target that refuses is told of. Why it
    is removed is written down before: a removal that breaks off is finished by the next pruning.

    What somebody on this host restores, verifies or drills now is left to the next pruning. Removing takes its time:
    before each removal it is decided again, by what was pinned, proven or found broken since the plan was made, and
    nothing goes any more where another machine has written meanwhile.
    """
    backup_id, reason = fate.decision.backup_id, fate.decision.reason
    if fate.decision.keep:
        return fate
    try:
        with work.ownership.claims.removing(backup_id):
            asked = [one for one in stored if one.finished or one.backup_id == backup_id]
            decision = decided(work, target, asked, known_of(work, target, asked))[backup_id]
            if decision.keep:
                return replace(fate, decision=decision)
            _require_ours(work, target)
            work.catalogue.removing(backup_id, target.name, because=reason)
            target.remove(work.job.name, backup_id)
    except Busy as error:
        return replace(fate, decision=RetentionDecision(backup_id, keep=True, reason=f"{error.message}; else {reason}"))
    except TargetError as error:
        log.warning(
            "clean-up incomplete: backup %s is not removed from target %s; the next `backupd prune` tries again: %s",
            *(backup_id, target.name, error.message),
        )
        work.failures.append((target.name, error))
        return fate
    work.catalogue.removed(backup_id, target.name, because=reason)
    log.info("removed backup %s from target %s: %s", backup_id, target.name, reason)
    return replace(fate, removed=True)


def _require_ours(work: PruneWork, target: Target) -> None:
    """Nobody else has written there; a record that found no room is written as soon as there is some.

    Raises:
        NotOurs: somebody has.
        TargetError: nobody can tell.
    """
    if target.name not in work.full:
        work.ownership.require_ours(target)
    elif work.ownership.take_as_room_allows(target):
        work.full.remove(target.name)
