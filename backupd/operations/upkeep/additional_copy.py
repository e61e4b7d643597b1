"""One more copy of a verified backup: what lies on one target is read, compared, and written to another one, there
for other readers where that is asked for.

Read `copy_run` aloud. It ends as a backup's own copies do: read back, held against the target's listing, manifest last.
Until then it is held with its run, so that `recover` removes what a process that dies leaves. Knows: what may be copied
and where to. Refuses to overwrite anything, and to change what is on the target that it reads.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from backupd.archive.governor import CopyGovernor
from backupd.archive.resealing import NewReaders
from backupd.archive.sealing import at_most_sealed
from backupd.host.holdings import held, not_waiting_for_ever
from backupd.host.signals import shielded
from backupd.operations.copies.fan_out import Copies
from backupd.operations.copies.publishing import Published, left_to_recover, publish_copies
from backupd.operations.hanging_targets import answer_of, read_from
from backupd.operations.ownership import Ownership, require_apart
from backupd.operations.restore.decryption_key import key_of
from backupd.operations.restore.proofs import proofs_to_copy
from backupd.operations.restore.verify import manifest_of
from backupd.operations.run_holdings import RunHoldings
from backupd.operations.tools import HostTools
from backupd.operations.upkeep import recover
from backupd.operations.upkeep.finishing import MaxRate
from backupd.operations.upkeep.reappeared_backups import GONE
from backupd.operations.upkeep.sending_on import not_as_sent, require_as_recorded, send_anew, send_as_it_is
from backupd.policy import manifest as manifests
from backupd.policy.signing import Signer
from backupd.targets import BackupSource, Target
from backupd.targets.listing import finished_there, require_listed, unknown_beside
from backupd.vocabulary.errors import NoRoom, Refused, TargetError, Unreadable, Untrusted, UsageError, VerificationError
from backupd.vocabulary.records import GOOD, Holding, HoldingKind, RunDetails
from backupd.vocabulary.storage import Manifest, StoredObject
from backupd.vocabulary.units import compared_sizes

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

log = logging.getLogger(__name__)


BROKEN_GOES = (
    "a copy is never overwritten: `backupd prune` removes a broken one of which something is missing once there is a"
    " newer good one; where only reading shows it, remove it by hand; then copy that run again. Until then prune leaves"
    " the only whole one, for as long as the rule of the broken one's target would keep the run"
)


@dataclass(frozen=True, slots=True)
class CopyRoute:
    """From which target to which one this machine copies, and what it works with."""

    origin: Target
    destination: Target
    ownership: Ownership
    tools: HostTools
    max_rate: MaxRate
    takes_plain: bool  # what is not encrypted may lie on the destination
    recipients: tuple[str, ...] = ()  # age's public keys that its copies are for; empty: for those of the origin's
    identities: "Identities | None" = None  # what opens the origin's


@dataclass(frozen=True, slots=True)
class AdditionalCopy:
    """A copy that is a backup now."""

    run_id: str
    location: str
    bytes_stored: int
    send_seconds: float
    read_back_seconds: float
    attentions: tuple[str, ...]  # what a person should look at although the copy is good
    recipients: tuple[str, ...] = ()  # that it was encrypted anew for; empty: it is what it was


def clean_up(route: CopyRoute) -> None:
    """What copies that were interrupted have left on the destination is gone, as far as it can be now.

    Raises:
        Refused: the catalogue is another machine's.
    """
    catalogue, name = route.ownership.catalogue, route.destination.name
    if any(holding.detail.get("target") == name for _, holding in catalogue.holdings()):
        recover.clean_up_dead_runs(catalogue, route.tools, every_disk=False, targets=(name,))


def copy_run(
    route: CopyRoute, run_id: str, *, copied: Callable[[int, int], None] = lambda _done, _total: None
) -> AdditionalCopy | None:
    """The run has a verified backup on the destination, which the catalogue knows; None where it had one before.

    `copied` is told the bytes so far and in all: each is sent, and read back. Where this raises, nothing is left on
    the destination, or the catalogue has it as a holding for `recover`.

    Raises:
        Busy: the run is alive, or is being pruned, recovered or copied there; or who cleans up there was left behind.
        UsageError: it has no backup on the origin; or that is encrypted, is to be for others, and no identity opens it.
        Refused: that one is broken or not this machine's, or the destination has something of this run already, or has
            its backup for others, or may not have what is not encrypted. Nothing was touched.
        VerificationError: what is on the origin is not what was recorded, and the catalogue knows that from now on; or
            what was written to the destination was not what is there now.
        TargetError: one of the two cannot be read or written, or has no room; the destination is another machine's.
        Cancelled: by a signal.
    """
    claims, catalogue = route.tools.claims, route.ownership.catalogue
    with claims.beside(run_id, f"copy-to-{route.destination.name}"), claims.reading(run_id):
        with _clean_up_of(route, run_id):
            """An earlier copy's, which was left behind in a call, would remove this one."""
        run = catalogue.run(run_id)  # as it is now that nobody removes it
        source = _source(route, run)
        there = run.backup_on(route.destination.name)
        if there is not None and there.is_there and not there.is_being_removed:
            _require_for_these(route, run)
            return None
        manifest = manifests.to_publish(read_from(route.origin, lambda: manifest_of(source)))
        rewriting = _rewriting(route, manifest)
        read_from(route.origin, lambda: require_listed(source.target, manifest))
        _require_may_have(route, manifest, rewriting)
        require_apart(route.destination, [route.origin])
        _require_nothing_there(route, run)
        _require_takes(route, manifest, rewriting)
        return _copied(route, source, manifest, rewriting, copied)


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """What a backup needs for a copy that others are to read."""

    readers: NewReaders
    signer: Signer

    def manifest(self, was: Manifest, objects: tuple[StoredObject, ...]) -> Manifest:
        """Of the same run, with what is stored of it now. One that nobody had signed is no more proven than it was."""
        found = replace(was, objects=objects, recipients=self.readers.recipients, signature=None, digest="")
        return found if was.signature is None else manifests.signed(found, self.signer)


def _rewriting(route: CopyRoute, manifest: Manifest) -> _Rewriting | None:
    """None where the copy is what it is on the origin: then nothing is opened.

    Raises:
        UsageError: the backup is encrypted, and no identity opens it.
    """
    if not route.recipients or are_same(route.recipients, manifest.recipients):
        return None
    readers = NewReaders(route.recipients, key_of(manifest, route.identities))
    return _Rewriting(readers, route.ownership.signer())


def _require_for_these(route: CopyRoute, run: RunDetails) -> None:
    """The backup on the destination is for those whom a copy would be for.

    Raises:
        Refused: it is for others.
        VerificationError, TargetError: nobody can tell.
    """
    target, backup = route.destination, run.backup_on(route.destination.name)
    if not route.recipients:
        return
    there = BackupSource(target, run.job, run.run_id, route.ownership.catalogue.trust(run.machine, backup))
    found = read_from(target, lambda: manifest_of(there))
    if not are_same(found.recipients, route.recipients):
        whose = f"encrypted for {', '.join(found.recipients)}" if found.recipients else "not encrypted"
        raise Refused(
            f"run {run.run_id} is on target {target.name} already, {whose}",
            hint="a copy is never overwritten: copy to another target, such as another folder of the same storage",
        )


def are_same(some: Collection[str], others: Collection[str]) -> bool:
    """Whether these are the same recipients."""
    return set(some) == set(others)


def _source(route: CopyRoute, run: RunDetails) -> BackupSource:
    """What is read.

    Raises:
        UsageError, Refused: there is nothing to be copied.
    """
    catalogue, here = route.ownership.catalogue, route.ownership.require_here().name
    name, backup = route.origin.name, run.backup_on(route.origin.name)
    if run.machine != here:
        raise Refused(
            f"run {run.run_id} belongs to machine {run.machine}; this machine is {here}",
            hint="a machine copies its own backups only: run `backupd copy` there",
        )
    if backup is None or backup.removed_at is not None:
        others = [one.target for one in run.backups if one.is_there]
        raise UsageError(
            f"run {run.run_id} has no copy on target {name}",
            hint=f"it has one on {', '.join(others)}" if others else "see `backupd history`",
        )
    if run.status not in GOOD or catalogue.pending_manifest(run.run_id) is not None:
        raise Refused(f"run {run.run_id} did not finish", hint="run `backupd recover` first")
    if backup.broken:
        raise Refused(
            f"the copy of run {run.run_id} on target {name} is broken: {backup.broken}",
            hint="copy another run, or this one from another target; `backupd verify` reads it again",
        )
    return BackupSource(route.origin, run.job, run.run_id, catalogue.trust(run.machine, backup))


def _require_nothing_there(route: CopyRoute, run: RunDetails) -> None:
    """Nothing on the destination is overwritten. A broken copy that somebody has removed there is gone from now on.

    Raises:
        Refused: something of this run lies there.
        TargetError: nobody can tell.
    """
    target, known = route.destination, run.backup_on(route.destination.name)
    if known is not None and known.is_being_removed:
        raise Refused(
            f"run {run.run_id} is being removed from target {target.name}: {known.removed_because}",
            hint="`backupd prune` finishes it",
        )
    stored = read_from(target, lambda: target.backups(run.job))
    found = next((one for one in stored if one.backup_id == run.run_id), None)
    if known is not None and known.removed_at is None:  # not good: else there would be nothing to do
        if found is not None or read_from(target, lambda: finished_there(target, run.job, [run.run_id])):
            raise Refused(
                f"target {target.name} has a copy of run {run.run_id} that is broken: {known.broken}",
                hint=BROKEN_GOES,
            )
        route.ownership.catalogue.removed(run.run_id, target.name, because=GONE)
    if found is not None and found.finished:
        raise Refused(
            f"target {target.name} has a backup of run {run.run_id} that is not in the catalogue",
            hint=f"`backupd catalogue rebuild --target {target.name}` adds it to the catalogue",
        )
    if found is not None:
        raise Refused(
            f"target {target.name} has unfinished objects of run {run.run_id}",
            hint="`backupd recover` or `backupd prune` removes them, or says why they stay",
        )


def _require_may_have(route: CopyRoute, manifest: Manifest, rewriting: _Rewriting | None) -> None:
    """Whoever runs the destination cannot read the backup, or may.

    Raises:
        Refused: it would lie there unencrypted.
    """
    if not manifest.recipients and rewriting is None and not route.takes_plain:
        name = route.destination.name
        raise Refused(
            f"run {manifest.run_id} is not encrypted, and target {name} is not on this machine",
            hint=f"write accept_unencrypted = true in [targets.{name}]: whoever runs that machine can then read the"
            " backups; or encrypt the copy: --recipients",
        )


def _require_takes(route: CopyRoute, manifest: Manifest, rewriting: _Rewriting | None) -> None:
    """The destination can be written, has room, and is this machine's.

    Raises:
        TargetError: one of them does not hold.
    """
    target = route.destination
    free, sizes = answer_of(target, target.require_usable), [stored.stored_bytes for stored in manifest.objects]
    needed = sum(sizes if rewriting is None else map(at_most_sealed, sizes))
    if free is not None and free < needed:
        left, wanted = compared_sizes(free, needed)
        raise NoRoom(
            f"target {target.name} has {left} free, and run {manifest.run_id} needs {wanted}",
            hint=f"free some space on target {target.name}: `backupd prune` removes what retention no longer keeps",
        )
    answer_of(target, partial(route.ownership.take, target))  # last: where it is refused, nothing was written there


def _copied(
    route: CopyRoute,
    source: BackupSource,
    manifest: Manifest,
    rewriting: _Rewriting | None,
    copied: Callable[[int, int], None],
) -> AdditionalCopy:
    """See `copy_run`, of which this is what writes."""
    catalogue, target, ownership = route.ownership.catalogue, route.destination, route.ownership
    releases, journal = route.tools.releases, RunHoldings(route.ownership.catalogue, source.run_id)
    copies = Copies([target], source.job, source.run_id, ledger=journal)

    def remove(holding: Holding) -> None:
        copies.require_ended(target.name)
        with _clean_up_of(route, source.run_id):
            ownership.require_ours(target)  # else it may be another machine's by now, whole
            releases[HoldingKind.PARTIAL](holding)

    size = sum(stored.stored_bytes for stored in manifest.objects)
    pacing = CopyGovernor(
        max_rate=route.max_rate(source.job), on_progress=lambda done: copied(min(done, 2 * size), 2 * size)
    )
    holding, done = _holding(route, source), list[Published]()

    def published(one: Published) -> None:
        with shielded(), left_to_recover(lambda: {target.name: claim}):
            catalogue.copied(source.run_id, one.backup, holding, source=source.target.name)
            claim.kept = True
        done.append(one)

    bounded = not_waiting_for_ever(remove, where=f"target {target.name}")
    with held(journal, holding, {**releases, HoldingKind.PARTIAL: bounded}) as claim, copies, ExitStack() as renewing:
        with shielded():  # a signal between its thread's start and the block would leave the thread behind
            renewing.enter_context(ownership.renewal([target], lost=copies.drop))
        began = time.monotonic()
        try:
            objects = _sent(source, manifest, copies, pacing, rewriting)
        except (Unreadable, Untrusted):
            raise
        except VerificationError as error:
            raise _broken(route, source, error) from error
        seconds = time.monotonic() - began
        stored = manifest if rewriting is None else rewriting.manifest(manifest, objects)
        try:
            publish_copies(
                stored,
                copies.targets,
                max_rate=route.max_rate(source.job),
                failing=copies.dropping,
                published=published,
                require_ours=ownership.require_ours,
                read=lambda now: copied(min(size + now, 2 * size), 2 * size),
            )
            if not done:
                copies.require_some()
        except VerificationError as error:
            fault = _origins_fault(source, manifest, pacing) if rewriting is None else None  # else it was compared
            raise (not_as_sent(target, error) if fault is None else _broken(route, source, fault)) from error
    (one,) = done
    copied(2 * size, 2 * size)
    log.info("copied run %s from target %s to target %s", source.run_id, source.target.name, target.name)
    attentions = (*journal.attentions, *_afterwards(source, one))
    return AdditionalCopy(
        *(source.run_id, one.backup.location, one.backup.bytes_stored, seconds, one.read_back.busy_seconds, attentions),
        recipients=() if rewriting is None else rewriting.readers.recipients,
    )


def _clean_up_of(route: CopyRoute, run_id: str) -> AbstractContextManager[None]:
    """Nobody copies this run there or recovers it for as long as a thread is in this, one that was left behind too."""
    return route.tools.claims.beside(run_id, f"clean-up-of-copy-to-{route.destination.name}")


def _holding(route: CopyRoute, source: BackupSource) -> Holding:
    """As that of a backup's own copy; the source tells the two apart."""
    name, machine = route.destination.name, route.destination.machine
    detail = {"target": name, "machine": machine, "job": source.job, "backup": source.run_id}
    detail["source"] = source.target.name
    return Holding(HoldingKind.PARTIAL, f"{name}/{source.job}/{source.run_id}", detail)


def _sent(
    source: BackupSource, manifest: Manifest, copies: Copies, pacing: CopyGovernor, rewriting: _Rewriting | None
) -> tuple[StoredObject, ...]:
    """Every object is durable on the destination; what is stored there. What is wrong with one is the origin's."""
    if rewriting is None:
        return tuple(send_as_it_is(source, stored, copies, pacing) for stored in manifest.objects)
    return tuple(send_anew(source, stored, copies, pacing, rewriting.readers) for stored in manifest.objects)


def _origins_fault(source: BackupSource, manifest: Manifest, pacing: CopyGovernor) -> VerificationError | None:
    """What the first object of the origin's has that is not what was recorded; None where nobody knows of anything."""
    try:
        for stored in manifest.objects:
            require_as_recorded(source, stored, pacing)
    except (Unreadable, TargetError) as error:
        log.warning("whether target %s has it as recorded is unknown: %s", source.target.name, error.message)
    except VerificationError as error:
        return error
    return None


def _broken(route: CopyRoute, source: BackupSource, fault: VerificationError) -> VerificationError:
    """The origin's row says so from now on."""
    route.ownership.catalogue.found_broken(source.run_id, source.target.name, fault.message)
    return VerificationError(
        f"the copy of run {source.run_id} on target {source.target.name} is broken: {fault.message}", hint=fault.hint
    )


def _afterwards(source: BackupSource, one: Published) -> Iterator[str]:
    """What has come to lie beside the backup since its run comes along; told is what a person should look at."""
    if one.unknown:
        yield unknown_beside(one.unknown, one.target.name)
    try:
        for name, content in read_from(source.target, lambda: proofs_to_copy(source)):
            read_from(one.target, partial(one.target.attach, source.job, source.run_id, name, content))
    except TargetError as error:
        yield (
            f"the results of drills could not be copied to target {one.target.name}; a catalogue that is rebuilt from"
            f" it will not have them: {error.message}"
        )
