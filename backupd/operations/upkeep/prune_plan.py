"""What is to become of all that lies of a job on a target: compared with the catalogue, and decided about.

Read `plan_for` aloud. Knows: what lies where, what the catalogue says of it, what is a left-over. Refuses to decide
(`retention` does), and to remove.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backupd.operations.restore.verify import manifest_of
from backupd.operations.upkeep.prune_work import Fate, PruneWork
from backupd.operations.upkeep.reappeared_backups import GONE, enter_again
from backupd.operations.upkeep.whole_copies import only_whole
from backupd.policy.retention import Candidate, by_each_clock, decide, good_ones, kept_if_whole, stays
from backupd.targets import BackupSource, Target
from backupd.targets.listing import finished_there, require_listed
from backupd.targets.names import is_ours, is_proof
from backupd.vocabulary.errors import Busy, TargetAway, TargetError, Unreadable, VerificationError
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.storage import Backup, Manifest, RetentionDecision, StoredBackup

log = logging.getLogger(__name__)

_CLOCKS_DIFFER = timedelta(minutes=5)  # between this host and the storage, without one of them being wrong


def found_on(work: PruneWork, target: Target) -> list[StoredBackup]:
    """What lies there of the job, and what a removal that broke off may have left where no listing tells of it.

    What was struck and is there again has its row again, and what the catalogue has and the target has not is noted.
    The catalogue is asked first: a backup that is copied there meanwhile is on record before the next listing.

    Raises:
        TargetError: it cannot be read, or cannot be believed.
    """
    expected = work.catalogue.on_target(work.job.name, target.name)
    stored = list(target.backups(work.job.name))
    unknown = [one.backup_id for one in stored if one.finished and one.backup_id not in expected]
    work.again[target.name] = enter_again(work.catalogue, target, work.job.name, unknown, only_look=work.dry_run)
    _note_vanished(work, target, expected | work.again[target.name], stored)
    listed = {one.backup_id for one in stored}
    for run in expected.values():
        backup = _on(run, target)
        if run.run_id not in listed and backup is not None and backup.is_being_removed:
            stored.append(StoredBackup(work.job.name, run.run_id, finished=False, at=run.started_at))
    return stored


def look_closely(work: PruneWork, target: Target, stored: Sequence[StoredBackup]) -> None:
    """Once, and only where a backup is to go: what is not as the catalogue says is uncertain from now on.

    Raises:
        TargetError: it cannot be read.
    """
    if target.name in work.looked_at:
        return
    known = known_of(work, target, stored)
    finished = [one for one in stored if one.finished]
    if any(not decision.keep for decision in decided(work, target, finished, known).values()):
        work.looked_at.add(target.name)
        _look_at_the_last_good_ones(work, target, stored, known)
        _look_at_the_broken(work, target, stored, known)


def plan_for(work: PruneWork, target: Target, stored: Sequence[StoredBackup]) -> list[Fate]:
    """What is to become of everything of the job that is on the target, newest first. Raises as `look_closely`."""
    look_closely(work, target, stored)
    known = known_of(work, target, stored)
    decisions = decided(work, target, stored, known)
    _note_kept(work, target, stored, known, decisions)
    order = sorted(stored, key=lambda one: (one.at, one.backup_id), reverse=True)
    sizes = {name: backup.bytes_stored for name, backup in known.backups.items()}
    return [Fate(target.name, decisions[one.backup_id], one.at, sizes.get(one.backup_id)) for one in order]


@dataclass(frozen=True, slots=True)
class KnownBackups:
    """What the catalogue says of what is on a target."""

    runs: Mapping[str, RunDetails]
    backups: Mapping[str, Backup]  # there, by all that the catalogue knows


def known_of(work: PruneWork, target: Target, stored: Sequence[StoredBackup]) -> KnownBackups:
    """As of now."""
    runs = work.catalogue.on_target(work.job.name, target.name, [one.backup_id for one in stored])
    runs |= work.again[target.name] if work.dry_run else {}
    backups = {run_id: backup for run_id, run in runs.items() if (backup := _on(run, target)) is not None}
    return KnownBackups(runs, backups)


def decided(
    work: PruneWork, target: Target, stored: Sequence[StoredBackup], known: KnownBackups
) -> dict[str, RetentionDecision]:
    """What is to become of each, by its id.

    Raises:
        TargetAway: the target itself does not answer when what is unfinished is listed.
    """
    candidates = _candidates(work, target, stored, known)
    decisions = {one.backup_id: one for one in decide(candidates, work.rules[target.name], work.now)}
    for one in stored:
        if one.backup_id not in decisions:
            decisions[one.backup_id] = (
                _unknown(work, target, one, known) if one.finished else _remains(work, target, one, known)
            )
    return decisions


def _candidates(
    work: PruneWork, target: Target, stored: Sequence[StoredBackup], known: KnownBackups
) -> list[Candidate]:
    there = [one for one in stored if one.finished and one.backup_id in known.backups]
    overtaken = _overtaken(there, known)
    only = only_whole(work, target.name, [known.runs[one.backup_id] for one in there])
    return [
        _candidate(
            *(work, target, one, known), copied=one.backup_id in overtaken, only_whole=only.get(one.backup_id, "")
        )
        for one in there
    ]


def _overtaken(there: Sequence[StoredBackup], known: KnownBackups) -> set[str]:
    """Those that the storage got after one of a run that began later: its clock tells when they were copied there."""
    found: set[str] = set()
    first: datetime | None = None  # that one of the runs that began later was stored at
    for one in sorted(there, key=lambda one: known.runs[one.backup_id].started_at, reverse=True):
        if first is not None and one.at > first:
            found.add(one.backup_id)
        first = one.at if first is None else min(first, one.at)
    return found


def _look_at_the_last_good_ones(
    work: PruneWork, target: Target, stored: Sequence[StoredBackup], known: KnownBackups
) -> None:
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


def _manifest(work: PruneWork, target: Target, backup_id: str, known: KnownBackups) -> Manifest:
    """That of the backup that was recorded.

    Raises:
        VerificationError: it is another one, or cannot be parsed.
        TargetError: it cannot be read.
    """
    trust = work.catalogue.trust(target.machine, known.backups[backup_id])
    return manifest_of(BackupSource(target, work.job.name, backup_id, trust))


def _is_seen_whole(work: PruneWork, target: Target, backup_id: str, known: KnownBackups) -> bool:
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


def _look_at_the_broken(work: PruneWork, target: Target, stored: Sequence[StoredBackup], known: KnownBackups) -> None:
    """What goes for nothing but that it was found broken is seen to be so once more, or it is uncertain.

    Raises:
        TargetError: it cannot be read.
    """
    candidates = _candidates(work, target, stored, known)
    rule = work.rules[target.name]
    for one in (one for one in candidates if one.broken):
        if stays(one.backup_id, candidates, rule, work.now) or not kept_if_whole([one], candidates, rule, work.now):
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


def _uncertain(work: PruneWork, target: Target, backup_id: str, why: str) -> None:
    """It stays, whatever else speaks against it, and counts for nothing."""
    log.error("backup %s on target %s: %s", backup_id, target.name, why)
    work.uncertain[target.name, backup_id] = why


def _on(run: RunDetails, target: Target) -> Backup | None:
    """The run's backup there, unless it is known to be removed."""
    found = run.backup_on(target.name)
    return None if found is None or found.removed_at is not None else found


def _candidate(
    work: PruneWork, target: Target, stored: StoredBackup, known: KnownBackups, *, copied: bool, only_whole: str
) -> Candidate:
    run, backup = known.runs[stored.backup_id], known.backups[stored.backup_id]
    return Candidate(
        stored.backup_id,
        stored.at,
        None if _agree(stored, run) and not copied else run.started_at,
        at_in_order=work.set_back.get(stored.backup_id),
        broken=backup.broken,
        only_whole=only_whole,
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


def _note_kept(
    work: PruneWork,
    target: Target,
    stored: Sequence[StoredBackup],
    known: KnownBackups,
    decisions: Mapping[str, RetentionDecision],
) -> None:
    """The rows of backups whose removal failed, and that stay now, no longer say that it was started.

    They are whole: a manifest is the first that goes.
    """
    for one in stored:
        backup = known.backups.get(one.backup_id)
        is_whole = one.finished and backup is not None and backup.is_being_removed
        if is_whole and decisions[one.backup_id].keep and not work.dry_run:
            work.catalogue.removing(one.backup_id, target.name, because="")


def _note_vanished(
    work: PruneWork, target: Target, expected: Mapping[str, RunDetails], stored: Sequence[StoredBackup]
) -> None:
    """The rows of backups that somebody else removed say so, and a person is told. What we began to remove is ours.

    Raises:
        TargetError: not one is there: the target itself seems to be missing; or one is there that was not listed.
    """
    known = {run_id: backup for run_id, run in expected.items() if (backup := _on(run, target)) is not None}
    finished = {one.backup_id for one in stored if one.finished}
    missing = [run_id for run_id in known if run_id not in finished]
    if missing and len(missing) == len(known):
        raise TargetError(
            f"none of the {len(missing)} backups of job {work.job.name} that the catalogue lists there was found",
            hint="nothing was changed; is its file system mounted, are its path or bucket unchanged?",
        )
    if missing:
        _require_gone(work, target, missing)
    vanished = [run_id for run_id in missing if not known[run_id].is_being_removed]
    for run_id in vanished:
        log.warning("backup %s of job %s is %s (%s)", run_id, work.job.name, GONE, target.name)
    if vanished and not work.dry_run:
        work.catalogue.vanished(vanished, target.name, because=GONE, told_with=work.after, targets=work.configured)
    work.vanished += [(target.name, run_id) for run_id in vanished]


def _require_gone(work: PruneWork, target: Target, missing: Sequence[str]) -> None:
    """What the target did not list is not there: what a backup needs of the binlog archive goes with its row.

    Raises:
        TargetError: one is there, or the target cannot be read.
    """
    if there := finished_there(target, work.job.name, missing):
        raise TargetError(
            f"target {target.name} does not list backup {there[0]} reliably: it is there, and a listing left it out",
            hint="nothing was changed; check the target's storage, then try again",
        )


def _unknown(work: PruneWork, target: Target, stored: StoredBackup, known: KnownBackups) -> RetentionDecision:
    """It may be another host's, of a catalogue that was lost, or fetched back: a person must say what it is."""
    run = known.runs.get(stored.backup_id)
    removed = None if run is None else run.backup_on(target.name)
    why = "not in the catalogue" if removed is None else f"found again, although removed ({removed.removed_because})"
    is_pending = run is not None and work.catalogue.pending_manifest(run.run_id) is not None
    command = "recover" if is_pending else f"catalogue rebuild --target {target.name}"
    return RetentionDecision(stored.backup_id, keep=True, reason=f"{why}: `backupd {command}` adds it to the catalogue")


def _remains(work: PruneWork, target: Target, stored: StoredBackup, known: KnownBackups) -> RetentionDecision:
    """See `_unfinished`. What cannot be listed stays, alone, and is told as a removal that failed: a person may have
    put something into it, and it may be a whole backup.

    Raises:
        TargetAway: the target itself does not answer.
    """
    try:
        return _unfinished(work, target, stored, known)
    except TargetAway:
        raise
    except TargetError as error:
        told = f"what was left of {stored.backup_id} stays, because it cannot be listed: {error.message}"
        work.failures.append((target.name, TargetError(told, hint=error.hint)))
        why = f"kept for now: what is in it is unknown: {error.message}"
    _uncertain(work, target, stored.backup_id, why)
    return RetentionDecision(stored.backup_id, keep=True, reason=why)


def _unfinished(work: PruneWork, target: Target, stored: StoredBackup, known: KnownBackups) -> RetentionDecision:
    """Remains go once no run can be at work on them: its lock is asked, and no clock.

    What we started to remove goes for the reason that it had then, whatever has become of its run since. Of a run
    that has had a whole backup there somebody else has taken the manifest away, and may say why. Where something lies
    that no run writes, a person put it there, and it is none of our business.

    Raises:
        TargetError: what lies there cannot be listed.
    """
    run = known.runs.get(stored.backup_id)
    if _holds_its_lock(work, stored.backup_id):
        return RetentionDecision(stored.backup_id, keep=True, reason="unfinished: its run is alive")
    backup = None if run is None else run.backup_on(target.name)
    if backup is not None and backup.is_being_removed:
        return RetentionDecision(stored.backup_id, keep=False, reason=backup.removed_because)
    if backup is not None:
        return _once_complete(work, target, stored, backup)
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
    return _left_over(work, target, stored, "unfinished, and no run is working on it")


def _once_complete(work: PruneWork, target: Target, stored: StoredBackup, backup: Backup) -> RetentionDecision:
    """Beside a backup that we were removing a proof host may have written, and its folder stays while others use it."""
    there = target.objects(stored.job, stored.backup_id)
    ours = list(filter(is_ours, there))
    if backup.removed_at is None or backup.removed_because == GONE or not all(map(is_proof, ours)):
        return RetentionDecision(stored.backup_id, keep=True, reason="it was complete before: its manifest was removed")
    if ours:
        return _left_over(
            work, target, stored, "the result of a drill that ended when retention had removed the backup"
        )
    if there:
        reason = f"the backup was removed; what is left is not backupd's: it has {min(there)}"
        return RetentionDecision(stored.backup_id, keep=True, reason=reason)
    return _left_over(work, target, stored, "the empty folder of a backup that was removed")


def _left_over(work: PruneWork, target: Target, stored: StoredBackup, what: str) -> RetentionDecision:
    """It goes, unless it has a manifest all the same. Where nobody can tell, it alone stays until the next pruning."""
    try:
        if not finished_there(target, stored.job, [stored.backup_id]):
            return RetentionDecision(stored.backup_id, keep=False, reason=f"left over: {what}")
        why = "the target does not list it reliably: it has a manifest, and a listing left that out"
    except TargetError as error:
        why = f"kept for now: whether it has a manifest is unknown: {error.message}"
    _uncertain(work, target, stored.backup_id, why)
    return RetentionDecision(stored.backup_id, keep=True, reason=why)


def _holds_its_lock(work: PruneWork, run_id: str) -> bool:
    """The run lives: nobody else can have its lock meanwhile."""
    try:
        with work.ownership.claims.run(run_id):
            return False
    except Busy:
        return True
