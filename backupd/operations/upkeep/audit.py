"""Whether the record of what was done can be believed: the audit chain, the rows that it tells of, and the manifests.

A row of the chain is bound to the one before it, so that a change shows by itself. Rows that were cut off the end, or
a chain that was written anew, show by the manifests: each keeps the chain's head of when it was written, on a target
that whoever changes this host's files may not reach. Knows: what must agree with what. Refuses to read an object, and
to change anything.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from backupd.catalogue.audit import Trail
from backupd.targets import Target
from backupd.vocabulary.errors import BackupdError, TargetError, Unreadable, VerificationError
from backupd.vocabulary.records import GOOD
from backupd.vocabulary.storage import Manifest, StoredBackup

_HINT = (
    "the catalogue was changed, or an older copy of it was restored; `backupd verify` checks the backups themselves,"
    " and `backupd catalogue rebuild` adds those that the catalogue lacks"
)


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that does not agree with another."""

    text: str
    row: int | None = None  # of the chain
    run_id: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class TargetLook:
    """What was found on one target."""

    target: str
    manifests: int = 0  # that are bound to this chain
    foreign: int = 0  # of runs that another catalogue knew when they were made
    flaws: tuple[Flaw, ...] = ()
    errors: tuple[BackupdError, ...] = ()  # what could not be read


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The answer: what was compared, and what does not hold."""

    rows: int
    head: str
    flaws: tuple[Flaw, ...] = ()  # of the catalogue by itself
    looks: tuple[TargetLook, ...] = ()

    @property
    def all_flaws(self) -> tuple[Flaw, ...]:
        """Of the catalogue first, then target by target."""
        return (*self.flaws, *(flaw for look in self.looks for flaw in look.flaws))

    @property
    def is_whole(self) -> bool:
        """Every target that was to be looked at could be."""
        return not any(look.errors for look in self.looks)

    def require_sound(self) -> None:
        """Raise where something does not hold, or could not be looked at.

        Raises:
            VerificationError: a row is missing or was changed, or a manifest knows of rows that are not there.
            TargetError: all that could be read agrees, and something could not be read.
        """
        flaws = self.all_flaws
        if flaws:
            more = f" (and {len(flaws) - 1} more)" if len(flaws) > 1 else ""
            raise VerificationError(f"the audit trail is broken: {flaws[0].text}{more}", hint=_HINT)
        errors = [(look.target, error) for look in self.looks for error in look.errors]
        if errors:
            told = "; ".join(f"{target}: {error.message}" for target, error in errors)
            raise TargetError(f"not all manifests could be read: {told}", hint=errors[0][1].hint)


def check_trail(trail: Trail, targets: Sequence[Target], jobs: Collection[str]) -> AuditResult:
    """Compare the chain with itself, with the catalogue's rows, and with the manifests on these targets.

    Of what is on a target, backups of these jobs count, and those that the chain tells of: others may be another
    host's. A target that cannot be read keeps no other from being read.
    """
    looks = tuple(_look(target, trail, jobs) for target in targets)
    return AuditResult(trail.chain.rows, trail.chain.head, tuple(_of_itself(trail)), looks)


def _of_itself(trail: Trail) -> Iterator[Flaw]:
    chain = trail.chain
    if chain.first_fault is not None:
        yield Flaw(
            f"row {chain.first_fault} of the audit chain is missing or was changed: this row and all later ones"
            f" cannot be trusted",
            row=chain.first_fault,
        )
    for run_id, row in {**chain.imported, **chain.started}.items():
        if run_id not in trail.runs:
            yield Flaw(
                f"row {row} of the audit chain names run {run_id}, which is not in the catalogue",
                row=row,
                run_id=run_id,
            )
    for run_id, status in chain.statuses.items():
        if status and run_id in trail.runs and (status in GOOD) != (trail.runs[run_id] in GOOD):
            row = chain.ended[run_id]
            yield Flaw(
                f"the audit chain has run {run_id} as {status}, the catalogue as {trail.runs[run_id]}: its row was"
                " changed",
                row=row,
                run_id=run_id,
            )
    for (run_id, ok), told in chain.drilled.items():
        there = trail.drills.get((run_id, ok), 0)
        if run_id in trail.runs and there < told:
            drills = f"{told} {'good' if ok else 'failed'} drill{'s' if told > 1 else ''}"
            yield Flaw(f"the audit chain has {drills} of run {run_id}, the catalogue {there}", run_id=run_id)
    for (run_id, target), sha256 in chain.stored.items():
        if run_id in trail.runs and trail.backups.get((run_id, target)) != sha256:
            row = chain.told[run_id, target]
            yield Flaw(
                f"row {row} of the audit chain has run {run_id}'s backup on target {target} as {sha256[:16]}…, the"
                f" catalogue does not: even rows of removed backups must stay",
                row=row,
                run_id=run_id,
                target=target,
            )

    for where, digest in chain.manifests.items():
        run_id, target = where
        if run_id in trail.runs and trail.manifests.get(where) != digest:
            yield Flaw(
                f"the audit chain has the manifest of run {run_id} on target {target} as {digest[:16]}…, the"
                f" catalogue does not: its row was changed",
                None,
                run_id,
                target,
            )


def _look(target: Target, trail: Trail, jobs: Collection[str]) -> TargetLook:
    try:
        there = [one for one in target.backups() if one.job in jobs or one.backup_id in trail.chain.started]
    except TargetError as error:
        return TargetLook(target.name, errors=(error,))
    manifests = foreign = 0
    flaws: list[Flaw] = []
    errors: list[BackupdError] = []
    for one in sorted((one for one in there if one.finished), key=lambda one: (one.at, one.backup_id)):
        try:
            manifest = _manifest(target, one)
        except (TargetError, Unreadable) as error:
            errors.append(error)
        except VerificationError as error:
            flaws.append(Flaw(f"run {one.backup_id} on target {target.name}: {error.message}", None, one.backup_id))
        else:
            if manifest is None:
                continue
            if one.backup_id in trail.chain.imported and one.backup_id not in trail.chain.started:
                foreign += 1
            else:
                manifests += 1
                flaws += _disagreements(trail, manifest, target.name)
            flaws += _replaced(trail, manifest, target.name)
    return TargetLook(target.name, manifests, foreign, tuple(flaws), tuple(errors))


def _manifest(target: Target, one: StoredBackup) -> Manifest | None:
    """The backup's own; None where it was removed meanwhile.

    Raises:
        TargetError: it cannot be read.
        VerificationError: it cannot be parsed, or is another run's.
    """
    try:
        manifest = target.manifest(one.job, one.backup_id)
    except TargetError:
        if any(still.backup_id == one.backup_id and still.finished for still in target.backups(one.job)):
            raise
        return None
    if (manifest.machine, manifest.job, manifest.run_id) != (target.machine, one.job, one.backup_id):
        raise VerificationError(
            f"its manifest is that of run {manifest.run_id} of job {manifest.job} of machine {manifest.machine}"
        )
    return manifest


def _replaced(trail: Trail, manifest: Manifest, target: str) -> Iterator[Flaw]:
    """A manifest is the one that was recorded, where that is known."""
    recorded = trail.chain.manifests.get((manifest.run_id, target))
    if recorded is not None and manifest.digest != recorded:
        yield Flaw(
            f"the manifest of run {manifest.run_id} on target {target} is not the one on record: its digest is"
            f" {manifest.digest[:16]}…, and the audit chain has {recorded[:16]}…",
            None,
            manifest.run_id,
            target,
        )


def _disagreements(trail: Trail, manifest: Manifest, target: str) -> Iterator[Flaw]:
    """A manifest is written after the row of its run's beginning, and before that of its end."""
    chain, run_id = trail.chain, manifest.run_id
    head, began, ended = chain.numbers.get(manifest.audit_head), chain.started.get(run_id), chain.ended.get(run_id)
    whose = f"the manifest of run {run_id} on target {target}"
    if head is None:
        yield Flaw(
            f"{whose} was written when the audit chain ended with {manifest.audit_head[:16]}…, and no row has that"
            f" digest: rows were removed or rewritten",
            run_id=run_id,
            target=target,
        )
    if began is None:
        yield Flaw(f"{whose} exists, but no row of the audit chain names that run", None, run_id, target)
    elif head is not None and (head < began or (ended is not None and head >= ended)):
        between = f"rows {began} and {ended}" if ended is not None else f"row {began} and the end"
        yield Flaw(
            f"{whose} was written at row {head} of the audit chain, but its run is between {between}",
            row=head,
            run_id=run_id,
            target=target,
        )
    told = chain.stored.get((run_id, target))
    if told is not None and manifest.objects and manifest.objects[0].stored_sha256 != told:
        row = chain.told[run_id, target]
        yield Flaw(
            f"{whose} has a first object that differs from the one in row {row} of the audit chain",
            row=row,
            run_id=run_id,
            target=target,
        )
