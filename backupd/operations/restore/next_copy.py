"""A run may have left several copies: what one of them has lost or does not give, the next one may have.

Knows: in which order they are asked, what makes two of them copies of one backup, and what is told where none answers.
Copies may be encrypted for different readers, and one may be plain: then what is stored differs, and what it opens to
is the same. An object is read from one copy with that copy's own frames and key, never with another's.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from backupd.archive.frames import DAMAGED, Reading
from backupd.archive.unpack import DecryptionKey
from backupd.operations.restore.decryption_key import key_of
from backupd.operations.restore.verify import manifest_of, reading_of
from backupd.targets import BackupSource
from backupd.vocabulary.errors import BackupdError, NoKey, TargetError, Untrusted, VerificationError
from backupd.vocabulary.storage import Manifest, StoredObject

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectCopy:
    """One object as one copy of the backup has it."""

    stored: StoredObject
    reading: Reading
    key: DecryptionKey | None  # what opens it; None where everybody can read it


class AgreedCopies:
    """Copies of one backup, the first of them preferred: it is the one whose manifest is meant."""

    def __init__(self, sources: Sequence[BackupSource], manifest: Manifest, identities: "Identities | None") -> None:
        """Raises NoKey where no identity opens the first one."""
        self.manifest = manifest
        self._sources = sources
        self._identities = identities
        self._content = content_of(manifest)
        self._asking = threading.Lock()
        self._known: dict[int, _Opened | BackupdError] = {0: _opened(manifest, identities)}  # by their numbers

    def first_given(self, wanted: StoredObject, ask: Callable[[ObjectCopy], T]) -> T:
        """What the first copy gives of this object. Any thread may ask.

        Raises:
            TargetError, VerificationError, NoKey: none of them gives it; see `first_given`.
        """

        def of_copy(number: int, source: BackupSource) -> T:
            opened = self._opened(number, source)
            source.was_read.set()
            stored = opened.objects[wanted.plain_name]
            given = ask(ObjectCopy(stored, reading_of(source, stored), opened.key))
            source.gave.add(wanted.plain_name)
            return given

        return first_given(self._sources, of_copy)

    def _opened(self, number: int, source: BackupSource) -> "_Opened":
        """This copy, which is one of the same backup, by its manifest.

        Raises:
            Untrusted: it is not.
            VerificationError: it has no manifest that can be used.
            NoKey: no identity opens it.
            TargetError: it cannot be read.
        """
        known = self._known.get(number)
        if known is None:  # who knows a copy does not wait for another one, which may hang
            with self._asking:
                known = self._known.get(number) or self._known.setdefault(number, self._asked(source))
        if isinstance(known, BackupdError):
            raise known
        return known

    def _asked(self, source: BackupSource) -> "_Opened | BackupdError":
        try:
            manifest = manifest_of(source)
            if content_of(manifest) == self._content:
                return _opened(manifest, self._identities)
        except (TargetError, VerificationError, NoKey) as error:
            return error
        return Untrusted(f"the copy on target {source.target.name} does not have the same content", hint=DAMAGED)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A copy that can be read."""

    objects: dict[str, StoredObject]  # by their plain names
    key: DecryptionKey | None


def content_of(manifest: Manifest) -> str:
    """A digest of what a backup opens to, whomever it is encrypted for: the same of all copies of a run."""
    told = [(stored.plain_name, stored.plain_bytes, stored.plain_sha256, stored.files) for stored in manifest.objects]
    return hashlib.sha256(json.dumps([manifest.machine, manifest.job, manifest.run_id, told]).encode()).hexdigest()


def first_given(sources: Sequence[BackupSource], ask: Callable[[int, BackupSource], T]) -> T:
    """What the first of these copies gives; `ask` is told its number as well. Why one did not is kept with it.

    Raises:
        TargetError, VerificationError, NoKey: none of them does. Where a target may come back, that one is told of.
    """
    errors: list[BackupdError] = []
    for number, source in enumerate(sources):
        try:
            return ask(number, source)
        except (TargetError, VerificationError, NoKey) as error:
            errors.append(error)
            if not isinstance(error, NoKey):
                source.failures.append(error)
            another = "; continuing with the next copy" if number + 1 < len(sources) else ""
            log.warning("target %s: %s%s", source.target.name, error.message, another)
    raise _gravest(errors)


def agreed(sources: Sequence[BackupSource], identities: "Identities | None") -> tuple[Manifest, Sequence[BackupSource]]:
    """The manifest of the first copy that has one and that the identities open, and the copies from there on.

    Raises:
        TargetError, VerificationError, NoKey: there is none; as the first of them says it.
    """

    def ask(number: int, source: BackupSource) -> tuple[Manifest, Sequence[BackupSource]]:
        manifest = manifest_of(source)
        key_of(manifest, identities)
        source.was_read.set()
        return manifest, sources[number:]

    return first_given(sources, ask)


def _opened(manifest: Manifest, identities: "Identities | None") -> _Opened:
    return _Opened({stored.plain_name: stored for stored in manifest.objects}, key_of(manifest, identities))


def _gravest(errors: Sequence[BackupdError]) -> BackupdError:
    """What is told where no copy could give it: that a target may come back, if one may; the others are notes on it."""
    chosen = next((error for error in errors if isinstance(error, TargetError)), errors[0])
    for error in errors:
        if error is not chosen:
            chosen.add_note(error.message)
    return chosen
