"""The catalogue from what is on a target: for a host whose catalogue was lost, and for one that takes over.

Knows: how a manifest becomes a run with one backup, and that none does which is not believed; of what is not all there
it becomes a broken one. Refuses to read an object: `verify` does. What a manifest cannot know is what came after it:
pins, the seconds of its own writing; and it is not told a run's samples.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from backupd.catalogue.store import Catalogue
from backupd.operations.recorded_copy import copy_on
from backupd.operations.restore.proofs import ProofHosts, told_proofs_of
from backupd.operations.restore.verify import manifest_of
from backupd.policy.trust import Trust
from backupd.targets import BackupSource, Target
from backupd.targets.listing import require_listed
from backupd.vocabulary.binlogs import BinlogSegment
from backupd.vocabulary.errors import BackupdError, Busy, TargetError, Untrusted, VerificationError, worst_of
from backupd.vocabulary.escaping import some
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, Reason, Throughput, Verdict
from backupd.vocabulary.records import Drill, Phase, RunDetails, RunStatus, SnapshotFacts
from backupd.vocabulary.run_section import LossesSection, SnapshotSection, VerdictSection
from backupd.vocabulary.servers import LockReceipt
from backupd.vocabulary.storage import Backup, Manifest, StoredBackup
from backupd.vocabulary.volumes import Layout

log = logging.getLogger(__name__)

_TOLD = 20  # failures that the error names; each is in the log
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """What was found on the target, by run."""

    imported: tuple[str, ...] = ()  # of which something was added, a backup or results of drills; oldest first
    known: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    failures: tuple[tuple[str, BackupdError], ...] = ()

    def require_complete(self) -> None:
        """Raise when a backup could not be added, or was added as a broken one.

        Raises:
            VerificationError: one is broken, or its manifest cannot be parsed; the first are named.
            TargetError: all that failed is that they could not be read.
        """
        if not self.failures:
            return
        told = some([f"{run_id}: {error.message}" for run_id, error in self.failures], _TOLD, "; ")
        errors = [error for _, error in self.failures]
        worst = worst_of(errors)
        raise type(worst)(f"not all backups could be added as good ones: {told}", hint=worst.hint)


@dataclass(frozen=True, slots=True)
class RecordedHere:
    """By what is told of a backup, or a segment, whether this catalogue or an earlier one was there as it was made."""

    since: datetime  # when the audit chain began; where another machine's name was adopted since: when that was
    heads: Collection[str]  # all that the chain has had

    def require(self, manifest: Manifest) -> None:
        """Raise where the machine's name was used beside this catalogue.

        Raises:
            Untrusted: it was.
        """
        if manifest.created_at >= self.since and manifest.audit_head not in self.heads:
            raise Untrusted(
                f"run {manifest.run_id} was recorded by another catalogue under this machine's name",
                hint="if a clone of this machine took it, it is of the clone's data: leave it there. If this catalogue"
                " was set back to an earlier state since: `backupd catalogue rebuild --set-back`",
            )

    def require_segment(self, segment: BinlogSegment, *, last: int) -> None:
        """Raise where it was archived beside this catalogue, whose last one of that chain has this number.

        Raises:
            Untrusted: it was.
        """
        if segment.received_at >= self.since and segment.number > last:
            raise Untrusted(
                f"segment {segment.name} was recorded by another catalogue under this machine's name",
                hint="if a clone of this machine archived it, it is of the clone's data: leave it there. If this"
                " catalogue was set back to an earlier state since: `backupd catalogue rebuild --set-back`",
            )


def recorded_here(catalogue: Catalogue) -> RecordedHere:
    """As of now."""
    chain = catalogue.audit_trail().chain
    since = catalogue.named_since() or chain.began_at or catalogue.identity().made_at
    return RecordedHere(since, chain.numbers.keys())


def rebuild(
    target: Target,
    catalogue: Catalogue,
    trust: Trust,
    *,
    job: str | None = None,
    proof_keys: frozenset[str] = frozenset(),
    here: RecordedHere | None = None,
    reading: Callable[[str], AbstractContextManager[None]] = lambda _run_id: nullcontext(),
) -> Rebuilding:
    """Every finished backup on the target, of this job where it is named, is in the catalogue; known rows stay.

    The results of its drills enter with it, also of a known one, which may lack some: a good one lies beside those
    copies alone that were read. Those of the proof hosts that have these keys do so, too.
    `reading` keeps a run's backups from being pruned for the length of its block: else one could be entered as there
    that has just gone. What is pruned meanwhile is passed over.
    Only what is believed enters: by `trust`, and what the catalogue has recorded of the run, on whichever target; and
    what was recorded `here`, where that is asked. A
    backup whose manifest cannot be read or believed is in `failures`, and keeps no other from being imported. One that
    is new and not listed whole is there as well, and in the catalogue as a broken one: what is left of it may be needed
    beside another copy, and retention removes it once there is a newer good one. So is one that had been found broken
    before it was struck.

    Raises:
        TargetError: the target cannot be read at all.
        CatalogueError: the catalogue cannot be written.
    """
    began = datetime.now(UTC)
    stored = sorted(target.backups(job), key=lambda one: (one.at, one.backup_id))
    imported: list[str] = []
    known: list[str] = []
    failures: list[tuple[str, BackupdError]] = []
    for one in (one for one in stored if one.finished):
        try:
            with reading(one.backup_id):
                recorded = catalogue.backups_of(one.backup_id)
                believed = _believed(trust, recorded, target)
                source = BackupSource(target, one.job, one.backup_id, believed)
                manifest = manifest_of(source)
                if here is not None and not recorded:
                    here.require(manifest)
                hosts = ProofHosts(proof_keys, manifest.digest, manifest.created_at, datetime.now(UTC))
                proofs = told_proofs_of(replace(source, trust=_of_proofs(believed, recorded, manifest)), hosts)
                was_there = _there(recorded, target) is not None
                lost = None if was_there else _lost(target, manifest)
                run = _run(target, manifest, tuple(drill for drill, _ in proofs), broken=lost.message if lost else "")
                entered = catalogue.import_run(run, proofs={drill.at: told for drill, told in proofs})
                if not was_there and lost is None:
                    lost = _broken_before(catalogue, target, manifest)
        except (Busy, TargetError, VerificationError) as error:
            if isinstance(error, Busy) or _has_been_pruned(catalogue, one, target, since=began):
                log.info("backup %s of job %s is being removed, or has been", one.backup_id, one.job)
                continue
            log.warning("backup %s of job %s: %s", one.backup_id, one.job, error.message)
            failures.append((one.backup_id, error))
        else:
            if entered and lost is not None:
                log.warning("backup %s of job %s is broken: %s", one.backup_id, one.job, lost.message)
                failures.append((one.backup_id, lost))
            else:
                (imported if entered else known).append(one.backup_id)
    unfinished = tuple(one.backup_id for one in stored if not one.finished)
    return Rebuilding(tuple(imported), tuple(known), unfinished, tuple(failures))


def _there(recorded: Sequence[Backup], target: Target) -> Backup | None:
    """The backup that is there by all that the catalogue knows: of what has become of it `verify` tells."""
    return next((one for one in recorded if (one.target, one.removed_at) == (target.name, None)), None)


def _broken_before(catalogue: Catalogue, target: Target, manifest: Manifest) -> VerificationError | None:
    """What a backup that has just been entered had been found to be: it is listed whole, and is as broken as it was."""
    entered = _there(catalogue.backups_of(manifest.run_id), target)
    if entered is None or not entered.broken:
        return None
    return VerificationError(
        f"it was found broken before it was missing on target {target.name}: {entered.broken}",
        hint=f"`backupd verify {manifest.run_id}` reads it again",
    )


def _lost(target: Target, manifest: Manifest) -> VerificationError | None:
    """What is missing there of a backup that is new there.

    Raises:
        TargetError: nobody can tell.
    """
    try:
        require_listed(target, manifest)
    except VerificationError as error:
        return error
    return None


def _has_been_pruned(catalogue: Catalogue, stored: StoredBackup, target: Target, *, since: datetime) -> bool:
    backups = [backup for backup in catalogue.backups_of(stored.backup_id) if backup.target == target.name]
    return any(backup.removed_at is not None and backup.removed_at >= since for backup in backups)


def _believed(trust: Trust, recorded: Sequence[Backup], target: Target) -> Trust:
    """By what is known of the copy there, where its manifest's digest is known; else of the run's copies."""
    own = _there(recorded, target)
    if own is not None and own.manifest_digest:
        return replace(trust, recorded=own)
    return replace(trust, others=tuple(sorted(recorded, key=lambda backup: backup.target != target.name)))


def _of_proofs(trust: Trust, recorded: Sequence[Backup], manifest: Manifest) -> Trust:
    """By what results of drills are believed. Where a person has said that whoever could write there is, an unsigned
    one counts beside what is itself unsigned and new; else whoever signed the manifest has signed them, too.
    """
    if not trust.unsigned:
        return trust
    signature = manifest.signature
    if signature is None:
        return replace(trust, unsigned=not recorded)
    is_it = not recorded or any(backup.manifest_digest == manifest.digest for backup in recorded)
    return replace(trust, unsigned=False, keys=trust.keys | ({signature.key} if is_it else set()))


def _run(target: Target, manifest: Manifest, drills: tuple[Drill, ...], *, broken: str) -> RunDetails:
    """What the catalogue had of it, as far as its manifest was told and in words that this backupd has."""
    section = manifest.run
    found = next((drill.position for drill in reversed(drills) if drill.ok and drill.position is not None), None)
    phases = ((_known(Phase, word), seconds) for word, seconds in section.phases.items())
    return RunDetails(
        run_id=manifest.run_id,
        job=manifest.job,
        host=manifest.host,
        machine=manifest.machine,
        status=RunStatus.ATTENTION if section.attention else RunStatus.SUCCESS,
        started_at=section.started_at,
        ended_at=manifest.created_at,  # the storage's time may be that of a copy
        phases={phase: seconds for phase, seconds in phases if phase is not None},
        verdict=None if section.verdict is None else _verdict(section.verdict),
        position=manifest.position if manifest.locked else found,
        derived=not manifest.locked and found is not None,
        lock=None if section.lock is None else LockReceipt(**asdict(section.lock)),
        snapshot=None if section.snapshot is None else _snapshot(section.snapshot),
        bill=None if section.bill is None else Bill(**asdict(section.bill)),
        losses=None if section.losses is None else _losses(section.losses),
        backups=(replace(copy_on(target, manifest), broken=broken),),
        drills=drills,
        attention=section.attention,
        throughput=tuple(Throughput(stage.stage, stage.bytes, stage.busy_seconds) for stage in section.throughput),
    )


def _verdict(told: VerdictSection) -> Verdict | None:
    outcome, reason = _known(GateOutcome, told.outcome), _known(Reason, told.reason)
    if outcome is None or reason is None:
        return None
    return Verdict(outcome, reason, told.detail, told.waited_seconds)


def _losses(told: LossesSection) -> Losses | None:
    counted = _known(Counted, told.counted)
    return None if counted is None else Losses(**{**asdict(told), "counted": counted})


def _snapshot(told: SnapshotSection) -> SnapshotFacts | None:
    layout = _known(Layout, told.layout)
    return None if layout is None else SnapshotFacts(**{**asdict(told), "layout": layout})


def _known(words: type[_Word], word: str) -> _Word | None:
    """None of what only a newer backupd says: the run is listed without it."""
    try:
        return words(word)
    except ValueError:
        return None
