"""That a machine's folder on a target is its own: its owner chain is gone on with before anything is changed there.

Read `Ownership.take` aloud. Two machines with one identity (a clone and its original, a copied catalogue) write into
one folder; whoever finds there a last owner record that his catalogue does not know stops. The record is written down
before it is written there, so that a process that dies in between is no stranger to itself. Knows: what this machine
has written, and since when in this boot nobody has challenged it.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from backupd.catalogue.owners import ChainEnd
from backupd.catalogue.store import Catalogue
from backupd.host.claims import Claims
from backupd.host.daemon_thread import await_end, begin
from backupd.host.signals import shielded
from backupd.operations.hanging_targets import answer_of
from backupd.operations.tools import HostTools
from backupd.policy import owner_record
from backupd.policy.owner_record import OwnerRecord
from backupd.policy.signing import Signer, signer_at
from backupd.policy.trust import Known
from backupd.targets import Target
from backupd.vocabulary.errors import BackupdError, Busy, NoRoom, NotOurs, TargetAway, TargetError, VerificationError
from backupd.vocabulary.identity import Identity, Machine
from backupd.vocabulary.instants import to_the_second

log = logging.getLogger(__name__)

RENEWAL_SECONDS = 60.0  # at most between two records of a live run: its clone then knows an older one
_UNDER_WAY_SECONDS = 10.0  # that a renewal may still take when the lock is about to be asked for, or the run ends
_HINT = (
    "see `backupd identity show` on both; on the clone: `backupd identity new`; on the machine that keeps the"
    " identity: `backupd identity adopt`"
)


@dataclass(frozen=True, slots=True)
class Ownership:
    """This machine's right to change what is in its folders."""

    catalogue: Catalogue
    machine: Machine
    claims: Claims
    renewal_seconds: float
    clock: Callable[[], float] = time.monotonic  # since the boot

    def require_here(self) -> Identity:
        """The catalogue's identity, on its own machine.

        Raises:
            Refused: it is another machine's.
        """
        identity = self.catalogue.identity()
        identity.require_of(self.machine)
        return identity

    def signer(self) -> Signer:
        """Signs as this machine; see `signer_of`."""
        return signer_of(self.catalogue, self.machine)

    def take(self, target: Target) -> bool:
        """This machine has written the last owner record there, and nobody else since it wrote the one before.

        True where it had written there, and nothing of that was left: the disk is new, or is not mounted.

        Raises:
            Refused: the catalogue is another machine's.
            NotOurs: somebody else has written the last record, or nobody knows who has.
            TargetError: it could not be read or written.
        """
        self._require_own(target)
        with self._alone(target):
            known = self._expected(target)
            was_emptied = known is None and self._has_written(target)
            self._go_on(target, known)
        return was_emptied

    def take_as_room_allows(self, target: Target) -> bool:
        """As `take`, before something is removed: a full target has room for a record only afterwards.

        Whether the record is written. Where it is not, the folder is this machine's all the same.

        Raises:
            Refused, NotOurs, TargetError: as with `take`.
        """
        try:
            self.take(target)
        except NoRoom as error:
            log.warning("target %s: the owner record waits for free space: %s", target.name, error.message)
            self.require_ours(target)
            return False
        return True

    def require_ours(self, target: Target) -> bool:
        """The last owner record there is this machine's, or there is none yet; nothing is written. The same is told.

        Raises:
            Refused, NotOurs, TargetError: as with `take`.
        """
        self._require_own(target)
        with self._alone(target):
            return self._expected(target) is None and self._has_written(target)

    def was_emptied(self, target: Target) -> bool:
        """The folder was once found empty that this machine had written to: that file system may come back."""
        return self.catalogue.has_several_chains(target.machine, target.name)

    def may_live_elsewhere(self, run_id: str, target: Target) -> bool:
        """Whether what this run wrote there may be still at work on another machine, whose clone this one is.

        Not where it began in this boot, nor once nobody else has written an owner record for so long in this boot that
        a live run would have. A clone's clock is its own: only the time since its boot counts.
        """
        boot = self.machine.boot_id
        if self.catalogue.boot_of(run_id) == boot:
            return False
        known = self.catalogue.newest_chain(target.machine, target.name)
        return known is None or known.boot_id != boot or self.clock() - known.since_seconds < 2 * self.renewal_seconds

    def adopt(self, target: Target) -> None:
        """This machine continues with the folder, whoever wrote there last and whatever he wrote.

        Raises:
            Refused: the catalogue is another machine's.
            TargetError: it could not be read or written, or somebody else is just writing there.
        """
        self._require_own(target)
        with self._alone(target):
            number = target.last_owner_number() + 1
            end = self._end(target, self._record(target, number), after=None)
            self._write(target, end)
            self.catalogue.owner_adopted(target.machine, end)

    def renewal(self, targets: Sequence[Target], lost: Callable[[Target, NotOurs], None]) -> "Renewal":
        """What continues with these chains while a run lives; `lost` is told of each that has another owner."""
        return Renewal(self, targets, lost)

    @contextmanager
    def _alone(self, target: Target) -> Iterator[None]:
        """No other thread or process of this machine continues with its chain there.

        Raises:
            TargetError: one has waited too long for an answer.
        """
        with ExitStack() as claimed:
            try:
                claimed.enter_context(self.claims.owning(target.name))
            except Busy as error:
                raise TargetAway(
                    f"target {target.name} does not answer: {error.message}", hint="is its storage overloaded or down?"
                ) from error
            yield

    def _require_own(self, target: Target) -> None:
        """Nothing of another machine is ever changed.

        Raises:
            Refused: the catalogue is another machine's.
            NotOurs: the folder is.
        """
        name = self.require_here().name
        if target.machine != name:
            raise NotOurs(
                f"the backups of machine {target.machine} on target {target.name} are not this machine's ({name})",
                hint="another machine's backups are never changed; to take over its name: `backupd identity adopt`",
            )

    def _has_written(self, target: Target) -> bool:
        return self.catalogue.newest_chain(target.machine, target.name) is not None

    def _expected(self, target: Target) -> ChainEnd | None:
        """The end of the chain there, which this machine has written; None where the chain is begun now.

        Raises:
            NotOurs: it is somebody else's, or nobody can tell whose.
            TargetError: it cannot be read.
        """
        try:
            found = target.owner()
        except VerificationError as error:
            raise NotOurs(f"the owner of this folder is unknown: {error.message}", hint=_HINT) from error
        if found is None:
            there = "backups" if target.backups() else "a binlog archive" if target.archived_jobs() else ""
            if there:
                raise NotOurs(
                    f"the folder of machine {target.machine} on target {target.name} has {there} but no owner record:"
                    f" it was removed, or what is there was copied",
                    hint=_HINT,
                )
            return None
        known = self.catalogue.end_of_chain(target.machine, owner_record.to_text(found))
        if known is None:
            raise NotOurs(_sentence(found, target), hint=_HINT)
        return known

    def _go_on(self, target: Target, known: ChainEnd | None) -> None:
        """One more record is the last of this chain. One that a dead process may have sent is sent again.

        Raises:
            NotOurs: somebody else was faster.
        """
        number, follows = (1, "") if known is None else (known.number + 1, known.record)
        sent = self.catalogue.unconfirmed_owner(target.machine, target.name, follows=follows, number=number)
        end = sent or self._end(target, self._record(target, number), after=known)
        self._write(target, end)
        self.catalogue.owner_written(target.machine, end)

    def _record(self, target: Target, number: int) -> OwnerRecord:
        return OwnerRecord(target.machine, number, secrets.token_hex(16), self.machine.host, datetime.now(UTC))

    def _end(self, target: Target, record: OwnerRecord, *, after: ChainEnd | None) -> ChainEnd:
        """The chain's end once this record is written after that one."""
        boot = self.machine.boot_id
        since = after.since_seconds if after is not None and after.boot_id == boot else self.clock()
        follows = "" if after is None else after.record
        return ChainEnd(owner_record.to_text(record), record.number, follows, target.name, boot, since)

    def _write(self, target: Target, end: ChainEnd) -> None:
        """Row first, effect second.

        Raises:
            NotOurs: somebody else was faster.
        """
        self.catalogue.owner_pending(target.machine, end)
        record = owner_record.from_text(end.record, machine=target.machine, number=end.number, where="the catalogue")
        if not target.succeed(record):
            found = target.owner()
            raise NotOurs(_sentence(found or record, target), hint=_HINT)


class Renewal:
    """Goes on with a live run's chains, in a thread of its own for the length of its block.

    Storage that hangs keeps the thread for as long as it hangs, but no run: neither one that is about to ask for the
    lock nor one that ends.
    """

    def __init__(
        self, ownership: Ownership, targets: Sequence[Target], lost: Callable[[Target, NotOurs], None]
    ) -> None:
        self._ownership = ownership
        self._left = list(targets)
        self._lost = lost
        self._renewing = threading.Lock()
        self._silence = threading.Event()
        self._ended = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._go_on, name="backupd owner", daemon=True)

    def __enter__(self) -> Self:
        begin(self._thread, undo=self.__exit__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with shielded():
            self._ended.set()
            await_end(self._thread, within_seconds=_UNDER_WAY_SECONDS)
        if error is None and self._failed:
            raise self._failed[0]

    @contextmanager
    def silent(self) -> Iterator[None]:
        """No target is begun with while the block lasts; one that is being written to is waited for for some seconds.

        One that hangs for longer is left to it: if it answers within the block, a row is written then.
        """
        self._silence.set()
        try:
            if self._renewing.acquire(timeout=_UNDER_WAY_SECONDS):
                self._renewing.release()
            yield
        finally:
            self._silence.clear()

    def renew(self) -> None:
        """Go on with every chain now. A target that does not answer is tried again the next time."""
        with self._renewing:
            for target in tuple(self._left):
                if not self._silence.is_set():
                    self._renew(target)

    def _renew(self, target: Target) -> None:
        try:
            self._ownership.take(target)
        except NotOurs as error:
            self._left.remove(target)
            self._lost(target, error)
        except BackupdError as error:
            log.warning("target %s: the owner record was not renewed: %s", target.name, error.message)

    def _go_on(self) -> None:
        try:
            while not self._ended.wait(self._ownership.renewal_seconds):
                self.renew()
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: the block's end raises it
            self._failed.append(error)


def _sentence(found: OwnerRecord, target: Target) -> str:
    return (
        f"another machine uses this identity ({found.machine}): it wrote last on target {target.name}"
        f" at {to_the_second(found.at)}, by host {found.host}; was this one cloned?"
    )


def require_apart(target: Target, others: Sequence[Target]) -> None:
    """None of these others is the same storage under another name, as far as they answer and were ever written to.

    No two storages have one owner record, whatever leads to them: a path, a mount, a link, a bucket.

    Raises:
        TargetError: one is, or the target itself does not answer.
    """
    if not others:
        return
    try:
        found = answer_of(target, target.owner)
    except VerificationError:  # whose it is, `take` asks
        return
    same = next((other for other in others if found is not None and _is_last_on(other, found)), None)
    if same is not None:
        raise TargetError(
            f"target {target.name} is the same storage as target {same.name}: both have the same owner record",
            hint="a second copy needs storage of its own: correct where one of the two leads, or remove it from the"
            f" job; if one is a copy of the other's files: `backupd identity adopt --target {target.name}`",
        )


def _is_last_on(other: Target, record: OwnerRecord) -> bool:
    try:
        return answer_of(other, other.owner) == record
    except (TargetError, VerificationError):  # told where it is used itself
        return False


def signer_of(catalogue: Catalogue, machine: Machine) -> Signer:
    """Signs as the catalogue's machine, which this is, with its key: one that it had, or a new one. The key is known.

    Raises:
        Refused: the catalogue is another machine's, or the key cannot be used.
    """
    identity = catalogue.identity()
    identity.require_of(machine)
    signer = signer_at(catalogue.key_file)
    if signer.public not in catalogue.keys(identity.name):
        catalogue.know_key(signer.public, identity.name, Known.MADE)
        log.info("backups are signed by %s: keep this public key off the host, with the age key", signer.public)
    return signer


def ownership_of(catalogue: Catalogue, tools: HostTools) -> Ownership:
    """The right of the catalogue's machine, on the machine that the tools work on."""
    return Ownership(catalogue, tools.machine, tools.claims, tools.renewal_seconds)
