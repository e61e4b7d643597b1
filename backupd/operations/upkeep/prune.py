"""Carrying out retention: what is on a job's targets is compared with the catalogue, decided about, and removed.

Read `prune`, then `_plan`, aloud. Knows: what lies where, what the catalogue says of it, what is a left-over. Refuses
to decide: `retention` does. Nothing is removed that the catalogue does not know, but for unfinished remains in this
machine's own folder; nothing at all while a run of the job lives, or where another machine has written.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig
from backupd.operations.restore.verify import manifest_of
from backupd.operations.upkeep.ownership import Ownership
from backupd.policy.retention import Candidate, by_each_clock, decide, good_ones
from backupd.targets import BackupSource, Target
from backupd.targets.listing import require_listed
from backupd.targets.names import is_ours
from backupd.vocabulary.errors import Busy, TargetError, Unreadable, VerificationError
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.storage import Backup, Manifest, RetentionDecision, StoredBackup

log = logging.getLogger(__name__)

_CLOCKS_DIFFER = timedelta(minutes=5)  # between this host and the storage, without one of them being wrong
_GONE = "no longer on the target"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one backup on one target."""

    target: str
    decision: RetentionDecision
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
    ownership: Ownership
    now: datetime
    dry_run: bool
    uncertain: dict[tuple[str, str], str] = field(default_factory=dict)  # by target and run: why
    full: set[str] = field(default_factory=set)  # targets that had no room for an owner record
    fates: list[Fate] = field(default_factory=list)
    vanished: list[tuple[str, str]] = field(default_factory=list)
    failures: list[tuple[str, TargetError]] = field(default_factory=list)


def prune(
    job: JobConfig,
    targets: Sequence[Target],
    catalogue: Catalogue,
    *,
    ownership: Ownership,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Pruning:
    """Remove what the job's retention gives up, and what dead runs left; with `dry_run` only say so, changing no row.

    A target that cannot be read, or that refuses to remove something, does not keep the others from being pruned: it is
    in `failures`.

    Raises:
        Refused: the catalogue is another machine's.
        Busy: a run of the job is alive; not with `dry_run`.
        CatalogueError: it cannot be read or written.
    """
    with ExitStack() as claimed:
        if not dry_run:
            claimed.enter_context(ownership.claims.pruning(job.name))
        work = _Work(job, catalogue, ownership, now or datetime.now(UTC), dry_run)
        for target in targets:
            with _failing_alone(work, target):
                if dry_run:
                    ownership.require_ours(target)
                elif not ownership.take_as_room_allows(target):
                    work.full.add(target.name)
                stored = target.backups(job.name)
                plan = _plan(work, target, stored)
                if not dry_run:
                    plan = [_carry_out(work, target, stored, fate) for fate in plan]
                work.fates += plan
                if target.name in work.full:
                    ownership.take(target)
    return Pruning(job.name, tuple(work.fates), tuple(work.vanished), tuple(work.failures))


def after_run(
    job: JobConfig, run_id: str, targets: Sequence[Target], catalogue: Catalogue, *, ownership: Ownership
) -> Pruning | None:
    """Prune after a good run of the job; its row and its backups stay what they are whatever becomes of this.

    What goes wrong with a target is an attention of that run. None where another run of the job has started: that one
    will prune.

    Raises:
        Cancelled: the process was asked to stop.
        CatalogueError: it cannot be read or written.
    """
    try:
        pruning = prune(job, targets, catalogue, ownership=ownership)
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
    """What is to become of everything of the job that is on the target, newest first."""
    known = _known(work, target, stored)
    _note_vanished(work, target, known.backups, {one.backup_id for one in stored if one.finished})
    decisions = _decided(work, target, stored, known)
    if any(not decision.keep for decision in decisions.values()):
        _look_at_the_last_good_ones(work, target, stored, known)
        _look_at_the_broken(work, target, stored, known)
        decisions = _decided(work, target, stored, known)
    order = sorted(stored, key=lambda one: (one.at, one.backup_id), reverse=True)
    sizes = {name: backup.bytes_stored for name, backup in known.backups.items()}
    return [Fate(target.name, decisions[one.backup_id], one.at, sizes.get(one.backup_id)) for one in order]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalogue says of what is on a target."""

    runs: Mapping[str, RunDetails]
    backups: Mapping[str, Backup]  # there, by all that the catalogue knows


def _known(work: _Work, target: Target, stored: Sequence[StoredBackup]) -> _Known:
    """As of now."""
    unfinished = [one.backup_id for one in stored if not one.finished]
    runs = work.catalogue.on_target(work.job.name, target.name, unfinished)
    backups = {run_id: backup for run_id, run in runs.items() if (backup := _on(run, target)) is not None}
    return _Known(runs, backups)


def _decided(
    work: _Work, target: Target, stored: Sequence[StoredBackup], known: _Known
) -> dict[str, RetentionDecision]:
    """What is to become of each, by its id."""
    candidates = _candidates(work, target, stored, known)
    decisions = {one.backup_id: one for one in decide(candidates, work.job.retention, work.now)}
    for one in stored:
        if one.backup_id not in decisions:
            decisions[one.backup_id] = _unknown(one, target) if one.finished else _unfinished(work, target, one, known)
    return decisions


def _candidates(work: _Work, target: Target, stored: Sequence[StoredBackup], known: _Known) -> list[Candidate]:
    return [_candidate(work, target, one, known) for one in stored if one.finished and one.backup_id in known.backups]


def _look_at_the_last_good_ones(work: _Work, target: Target, stored: Sequence[StoredBackup], known: _Known) -> None:
    """Nothing goes on the word of a row alone: of the newest good backup the target lists all that its manifest names.

    One of which it does not is uncertain: it stays and counts for nothing this time, and the next one is looked at.
    Where clocks do not agree which is the newest, that is done by each of them.

    Raises:
        TargetError: it cannot be read.
    """
    whole: set[str] = set()
    for candidates in by_each_clock(_candidates(work, target, stored, known)):
        for one in good_ones(candidates, work.now):
            if one.backup_id in whole or _is_seen_whole(work, target, one.backup_id, known):
                whole.add(one.backup_id)
                break


def _manifest(work: _Work, target: Target, backup_id: str, known: _Known) -> Manifest:
    """That of the backup that was recorded.

    Raises:
        VerificationError: it is another one, or cannot be parsed.
        TargetError: it cannot be read.
    """
    trust = work.catalogue.trust(target.machine, known.backups[backup_id])
    return manifest_of(BackupSource(target, work.job.name, backup_id, trust))


def _is_seen_whole(work: _Work, target: Target, backup_id: str, known: _Known) -> bool:
    """Whether it is, as far as the target tells without reading; one that is not is uncertain from now on.

    Raises:
        TargetError: it cannot be read.
    """
    if (target.name, backup_id) in work.uncertain:
        return False
    try:
        require_listed(target, _manifest(work, target, backup_id, known))
    except Unreadable as error:
        why = f"{error.message}: a newer backupd may have written it"
    except VerificationError as error:  # one look breaks no backup: only reading it does
        why = f"{error.message}: `backupd verify` checks whether it is lost"
    else:
        return True
    _uncertain(work, target, backup_id, why)
    return False


def _look_at_the_broken(work: _Work, target: Target, stored: Sequence[StoredBackup], known: _Known) -> None:
    """What goes for nothing but that it was found broken is seen to be so once more, or it is uncertain.

    Raises:
        TargetError: it cannot be read.
    """
    candidates = _candidates(work, target, stored, known)
    for one in (one for one in candidates if one.broken):
        whole = [replace(other, broken="") if other is one else other for other in candidates]
        if _stays(one, candidates, work) or not _stays(one, whole, work):
            continue
        try:
            require_listed(target, _manifest(work, target, one.backup_id, known))
        except Unreadable as error:
            why = error.message
        except VerificationError:
            continue
        else:
            why = "it looks complete now"
        _uncertain(work, target, one.backup_id, f"found broken ({one.broken}), but {why}: `backupd verify` checks it")


def _stays(one: Candidate, candidates: Sequence[Candidate], work: _Work) -> bool:
    decisions = decide(candidates, work.job.retention, work.now)
    return any(decision.keep for decision in decisions if decision.backup_id == one.backup_id)


def _uncertain(work: _Work, target: Target, backup_id: str, why: str) -> None:
    """It stays, whatever else speaks against it, and counts for nothing."""
    log.error("backup %s on target %s: %s", backup_id, target.name, why)
    work.uncertain[target.name, backup_id] = why


def _on(run: RunDetails, target: Target) -> Backup | None:
    """The run's backup there, unless it is known to be removed."""
    return next((one for one in run.backups if one.target == target.name and one.removed_at is None), None)


def _candidate(work: _Work, target: Target, stored: StoredBackup, known: _Known) -> Candidate:
    run, backup = known.runs[stored.backup_id], known.backups[stored.backup_id]
    others = [one for one in run.backups if one.target in work.job.targets and one.removed_at is None]
    others = [one for one in others if one.target != target.name]
    return Candidate(
        stored.backup_id,
        stored.at,
        None if _agree(stored, run) else run.started_at,
        broken=backup.broken,
        only_whole=bool(others) and all(one.broken for one in others),
        uncertain=work.uncertain.get((target.name, stored.backup_id), ""),
        proven=run.proven_at is not None,
        doubted=run.doubted,
        pin=None if run.pin is None else run.pin.note,
    )


def _agree(stored: StoredBackup, run: RunDetails) -> bool:
    """The storage got the backup while its run was at work, as far as its host's clock and the storage's tell.

    Then there is one time: of a run over midnight two would keep two backups for one day.
    """
    return run.ended_at is not None and run.started_at <= stored.at <= run.ended_at + _CLOCKS_DIFFER


def _note_vanished(work: _Work, target: Target, known: Collection[str], finished: Collection[str]) -> None:
    """The rows of backups that somebody else removed say so from now on.

    Raises:
        TargetError: not one is there. Then it is the target that is missing, as far as anybody can tell.
    """
    missing = [run_id for run_id in known if run_id not in finished]
    if missing and len(missing) == len(known):
        raise TargetError(
            f"none of the {len(missing)} backups of job {work.job.name} that the catalogue lists there was found",
            hint="nothing was changed; is its file system mounted, are its path or bucket unchanged?",
        )
    for run_id in missing:
        log.warning("backup %s of job %s is %s (%s)", run_id, work.job.name, _GONE, target.name)
        work.vanished.append((target.name, run_id))
        if not work.dry_run:
            work.catalogue.removed(run_id, target.name, because=_GONE)


def _unknown(stored: StoredBackup, target: Target) -> RetentionDecision:
    """It may be another host's, or of a catalogue that was lost: a person must say what it is."""
    hint = f"`backupd catalogue rebuild --target {target.name}` adds it to the catalogue"
    return RetentionDecision(stored.backup_id, keep=True, reason=f"not in the catalogue: {hint}")


def _unfinished(work: _Work, target: Target, stored: StoredBackup, known: _Known) -> RetentionDecision:
    """Remains go once no run can be at work on them: its lock is asked, and no clock.

    Of a run that has had a whole backup there somebody has taken the manifest away, and may say why. Where something
    lies that no run writes, a person put it there, and it is none of our business.
    """
    run = known.runs.get(stored.backup_id)
    if _is_alive(work, stored.backup_id):
        return RetentionDecision(stored.backup_id, keep=True, reason="unfinished: its run is alive")
    if run is not None and any(backup.target == target.name for backup in run.backups):
        return RetentionDecision(stored.backup_id, keep=True, reason="it was complete before: its manifest was removed")
    if run is not None and work.catalogue.pending_manifest(run.run_id) is not None:
        return RetentionDecision(stored.backup_id, keep=True, reason="unfinished: `backupd recover` may finish it")
    foreign = [name for name in target.objects(stored.job, stored.backup_id) if not is_ours(name)]
    if foreign:
        return RetentionDecision(stored.backup_id, keep=True, reason=f"not backupd's: it has {min(foreign)}")
    if work.ownership.may_live_elsewhere(stored.backup_id, target):
        reason = (
            "unfinished, and kept for now: its run started before this boot, and may be alive on the machine that"
            " this one was cloned from"
        )
        return RetentionDecision(stored.backup_id, keep=True, reason=reason)
    return RetentionDecision(stored.backup_id, keep=False, reason="left over: unfinished, and no run is working on it")


def _is_alive(work: _Work, run_id: str) -> bool:
    """The run is asked for its lock."""
    try:
        with work.ownership.claims.run(run_id):
            return False
    except Busy:
        return True


def _carry_out(work: _Work, target: Target, stored: Sequence[StoredBackup], fate: Fate) -> Fate:
    """Objects first, row second: a row that says `removed` is never wrong. A target that refuses is told of.

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
            decision = _decided(work, target, asked, _known(work, target, asked))[backup_id]
            if decision.keep:
                return replace(fate, decision=decision)
            _require_ours(work, target)
            target.remove(work.job.name, backup_id)
    except Busy as error:
        return replace(fate, decision=RetentionDecision(backup_id, keep=True, reason=f"{error.message}; else {reason}"))
    except TargetError as error:
        log.warning("backup %s stays on target %s: %s", backup_id, target.name, error.message)
        work.failures.append((target.name, error))
        return fate
    work.catalogue.removed(backup_id, target.name, because=reason)
    log.info("removed backup %s from target %s: %s", backup_id, target.name, reason)
    return replace(fate, removed=True)


def _require_ours(work: _Work, target: Target) -> None:
    """Nobody else has written there; a record that found no room is written as soon as there is some.

    Raises:
        NotOurs: somebody has.
        TargetError: nobody can tell.
    """
    if target.name not in work.full:
        work.ownership.require_ours(target)
    elif work.ownership.take_as_room_allows(target):
        work.full.remove(target.name)
