"""Carrying out retention: what lies on a job's targets is compared with the catalogue, decided about, and removed.

Read `prune`, then `_plan`, aloud. Knows: what lies where, what the catalogue says of it, what is a left-over. Refuses
to decide: `retention` does. Nothing is removed that the catalogue does not know, but for unfinished remains that have
lain there for days; nothing at all while a run of the job lives.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from backupd.catalogue.store import Catalogue
from backupd.claims import Claims
from backupd.config import JobConfig
from backupd.errors import Busy, TargetError
from backupd.model import Backup, Decision, RunDetails, RunStatus, StoredBackup
from backupd.retention import Candidate, decide
from backupd.targets import Target
from backupd.targets.names import is_objects

log = logging.getLogger(__name__)

_STALE = timedelta(days=2)  # unfinished, and of a run that is not ours to ask: longer than any copy takes
_GONE = "not on the target any more"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one backup on one target."""

    target: str
    decision: Decision
    at: datetime
    bytes_stored: int | None = None  # None: the catalogue does not know
    removed: bool = False  # it was to go, and has gone


@dataclass(frozen=True, slots=True)
class Pruning:
    """What became of a job's backups, or in a dry run would become."""

    job: str
    fates: tuple[Fate, ...] = ()  # in the order of the job's targets, newest first
    vanished: tuple[tuple[str, str], ...] = ()  # target and run: the catalogue had it, and it is not there
    failures: tuple[tuple[str, TargetError], ...] = ()  # by target

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


@dataclass(slots=True)
class _Work:
    """What one pruning shares between its targets, and what it has found by now."""

    job: JobConfig
    catalogue: Catalogue
    claims: Claims
    now: datetime
    dry_run: bool
    fates: list[Fate] = field(default_factory=list)
    vanished: list[tuple[str, str]] = field(default_factory=list)
    failures: list[tuple[str, TargetError]] = field(default_factory=list)


def prune(
    job: JobConfig,
    targets: Sequence[Target],
    catalogue: Catalogue,
    *,
    claims: Claims,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Pruning:
    """Remove what the job's retention gives up, and what dead runs left; with `dry_run` only say so, changing no row.

    A target that cannot be read, or that refuses to remove something, does not keep the others from being pruned: it is
    in `failures`.

    Raises:
        Busy: a run of the job is alive; not with `dry_run`.
        CatalogueError: it cannot be read or written.
    """
    with ExitStack() as claimed:
        if not dry_run:
            claimed.enter_context(claims.pruning(job.name))
        work = _Work(job, catalogue, claims, now or datetime.now(UTC), dry_run)
        for target in targets:
            with _failing_alone(work, target):
                stored = target.backups(job.name)
                plan = _plan(work, target, stored)
                if not dry_run:
                    plan = [_carry_out(work, target, stored, fate) for fate in plan]
                work.fates += plan
    return Pruning(job.name, tuple(work.fates), tuple(work.vanished), tuple(work.failures))


def after_run(
    job: JobConfig, run_id: str, targets: Sequence[Target], catalogue: Catalogue, *, claims: Claims
) -> Pruning | None:
    """Prune after a good run of the job; its row and its backups stay what they are whatever becomes of this.

    What goes wrong with a target is an attention of that run. None where another run of the job has begun: that one
    will prune.

    Raises:
        Cancelled: the process was asked to stop.
        CatalogueError: it cannot be read or written.
    """
    try:
        pruning = prune(job, targets, catalogue, claims=claims)
    except Busy as error:
        log.info("not pruned: %s", error.message)
        return None
    for target, gone in pruning.vanished:
        catalogue.attention(run_id, f"backup {gone} is {_GONE} ({target})")
    try:
        pruning.require_complete()
    except TargetError as error:
        catalogue.attention(run_id, f"the backup is good, but {error.message}")
    return pruning


@contextmanager
def _failing_alone(work: _Work, target: Target) -> Iterator[None]:
    """What goes wrong with one target is told with it. A catalogue that fails ends the whole."""
    try:
        yield
    except TargetError as error:
        log.warning("target %s: %s", target.name, error.message)
        work.failures.append((target.name, error))


def _plan(work: _Work, target: Target, stored: Sequence[StoredBackup]) -> list[Fate]:
    """What is to become of everything of the job that lies on the target, newest first."""
    known = _known(work, target, stored)
    _note_vanished(work, target, known.backups, {one.backup_id for one in stored if one.finished})
    decisions = _decided(work, target, stored, known)
    order = sorted(stored, key=lambda one: (one.at, one.backup_id), reverse=True)
    sizes = {name: backup.bytes_stored for name, backup in known.backups.items()}
    return [Fate(target.name, decisions[one.backup_id], one.at, sizes.get(one.backup_id)) for one in order]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalogue says of what lies on a target."""

    runs: Mapping[str, RunDetails]
    backups: Mapping[str, Backup]  # there, by all that the catalogue knows


def _known(work: _Work, target: Target, stored: Sequence[StoredBackup]) -> _Known:
    """As of now."""
    unfinished = [one.backup_id for one in stored if not one.finished]
    runs = work.catalogue.on_target(work.job.name, target.name, unfinished)
    backups = {run_id: backup for run_id, run in runs.items() if (backup := _on(run, target)) is not None}
    return _Known(runs, backups)


def _decided(work: _Work, target: Target, stored: Sequence[StoredBackup], known: _Known) -> dict[str, Decision]:
    """What is to become of each, by its id."""
    candidates = [
        _candidate(one, known.runs[one.backup_id], known.backups[one.backup_id])
        for one in stored
        if one.finished and one.backup_id in known.backups
    ]
    decisions = {one.backup_id: one for one in decide(candidates, work.job.retention, work.now)}
    for one in stored:
        if one.backup_id not in decisions:
            decisions[one.backup_id] = _unknown(one, target) if one.finished else _unfinished(work, target, one, known)
    return decisions


def _on(run: RunDetails, target: Target) -> Backup | None:
    """The run's backup there, unless it is known to be removed."""
    return next((one for one in run.backups if one.target == target.name and one.removed_at is None), None)


def _candidate(stored: StoredBackup, run: RunDetails, backup: Backup) -> Candidate:
    return Candidate(
        stored.backup_id,
        stored.at,
        broken=backup.broken,
        proven=run.proven_at is not None,
        doubted=bool(run.drills) and not run.drills[-1].ok,
        pin=None if run.pin is None else run.pin.note,
    )


def _note_vanished(work: _Work, target: Target, known: Collection[str], finished: Collection[str]) -> None:
    """The rows of backups that somebody else removed say so from now on.

    Raises:
        TargetError: not one is there. Then it is the target that is missing, as far as anybody can tell.
    """
    missing = [run_id for run_id in known if run_id not in finished]
    if missing and len(missing) == len(known):
        raise TargetError(
            f"none of the {len(missing)} backups of job {work.job.name} that the catalogue has on it is there",
            hint="is its file system mounted, its path or bucket still the same? nothing was changed",
        )
    for run_id in missing:
        log.warning("backup %s of job %s is %s (%s)", run_id, work.job.name, _GONE, target.name)
        work.vanished.append((target.name, run_id))
        if not work.dry_run:
            work.catalogue.removed(run_id, target.name, because=_GONE)


def _unknown(stored: StoredBackup, target: Target) -> Decision:
    """It may be another host's, or of a catalogue that was lost: a person must say what it is."""
    hint = f"`backupd catalogue rebuild --target {target.name}` makes it known"
    return Decision(stored.backup_id, keep=True, reason=f"the catalogue does not have it: {hint}")


def _unfinished(work: _Work, target: Target, stored: StoredBackup, known: _Known) -> Decision:
    """Remains of a run of ours that has ended go at once; others when no run can be at work on them any more.

    Of a run that has had a whole backup there somebody has taken the manifest away, and may say why. Where something
    lies that no run writes, a person put it there, and it is none of our business.
    """
    run = known.runs.get(stored.backup_id)
    if run is not None and _is_alive(work, run):
        return Decision(stored.backup_id, keep=True, reason="unfinished: its run is alive")
    left_over = Decision(stored.backup_id, keep=False, reason="left over: unfinished, and no run is at work on it")
    if run is not None and all(backup.target != target.name for backup in run.backups):
        return left_over
    if work.now - stored.at <= _STALE:
        return Decision(stored.backup_id, keep=True, reason="unfinished, and too young to be taken for a left-over")
    foreign = [name for name in target.objects(stored.job, stored.backup_id) if not is_objects(name)]
    if foreign:
        return Decision(stored.backup_id, keep=True, reason=f"not ours: it holds {min(foreign)}")
    return left_over


def _is_alive(work: _Work, run: RunDetails) -> bool:
    """A run that is said to be running is asked for its lock."""
    if run.status is not RunStatus.RUNNING:
        return False
    try:
        with work.claims.run(run.run_id):
            return False
    except Busy:
        return True


def _carry_out(work: _Work, target: Target, stored: Sequence[StoredBackup], fate: Fate) -> Fate:
    """Objects first, row second: a row that says `removed` is never wrong. A target that refuses is told of.

    What somebody on this host restores, verifies or drills now is left to the next pruning. Removing takes its time:
    what was pinned, proven or found broken since the plan was made is decided about again before each removal.
    """
    backup_id, reason = fate.decision.backup_id, fate.decision.reason
    if fate.decision.keep:
        return fate
    try:
        with work.claims.removing(backup_id):
            asked = [one for one in stored if one.finished or one.backup_id == backup_id]
            decision = _decided(work, target, asked, _known(work, target, asked))[backup_id]
            if decision.keep:
                return replace(fate, decision=decision)
            target.remove(work.job.name, backup_id)
    except Busy as error:
        return replace(fate, decision=Decision(backup_id, keep=True, reason=f"{error.message}; else {reason}"))
    except TargetError as error:
        log.warning("backup %s stays on target %s: %s", backup_id, target.name, error.message)
        work.failures.append((target.name, error))
        return fate
    work.catalogue.removed(backup_id, target.name, because=reason)
    log.info("removed backup %s from target %s: %s", backup_id, target.name, reason)
    return replace(fate, removed=True)
