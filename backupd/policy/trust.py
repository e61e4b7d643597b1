"""Which backups are believed: those that a known key has signed, and that are what the catalogue recorded.

What is on a target is a stranger's, who may have put another backup, an older one or one of his own in its place.
Knows: what must agree with what. Pure values.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backupd.vocabulary.errors import Untrusted
from backupd.vocabulary.storage import Backup, Manifest, Signature

log = logging.getLogger(__name__)

_REPLACED = "it was replaced: check who can write to the target, and take a new backup"


class Known(StrEnum):
    """How a key became known."""

    MADE = "made"  # it is this machine's own
    TRUSTED = "trusted"  # a person named it


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A public key, and the machine whose backups it may sign."""

    key: str
    machine: str
    since: datetime
    how: Known


@dataclass(frozen=True, slots=True)
class Trust:
    """What is believed of a machine's backups, or of one of them. By default nothing is."""

    keys: frozenset[str] = frozenset()  # that may sign for the machine
    recorded: Backup | None = None  # what the catalogue says of this backup on this target
    others: tuple[Backup, ...] = ()  # and where it says nothing of it: of the run's other copies, and of removed ones
    unsigned: bool = False  # a person has said that whoever could write there is believed

    def believes(self, signature: Signature | None) -> bool:
        """Whether something that is signed so, which is known to be right, is the machine's."""
        return self.unsigned or (signature is not None and signature.key in self.keys)

    def require(self, manifest: Manifest) -> None:
        """Raise where this is not a backup to be believed. Whether it is the one that was asked for, others know.

        A row that an earlier backupd wrote has no digest of a manifest. What it does tell is compared, and what was
        not signed then is taken with a warning.

        Raises:
            Untrusted: it is another one than was recorded, or nobody known has signed it.
        """
        _require_of_one_kind(manifest)
        recorded = self.recorded or self._like(manifest)
        if recorded is not None and recorded.manifest_digest:
            self._require_recorded(manifest, recorded)
            return
        if recorded is None and self.others:
            return
        if recorded is not None:
            _require_agreement(manifest, recorded)
        if self.believes(manifest.signature):
            return
        if manifest.signature is not None:
            raise Untrusted(
                f"run {manifest.run_id} is signed by {manifest.signature.key}, which is not a known key of machine"
                f" {manifest.machine}",
                hint=(
                    "if `backupd identity show` prints that key on that machine, or did before it failed:"
                    " `backupd catalogue rebuild --trust KEY`; otherwise do not use these backups"
                ),
            )
        if recorded is None:
            raise Untrusted(
                f"run {manifest.run_id} is not signed: its origin is unknown",
                hint=(
                    "early versions of backupd did not sign; `backupd catalogue rebuild --unsigned` trusts"
                    " whoever could write there"
                ),
            )
        log.warning(
            "run %s was recorded before backups were signed: its manifest matches the catalogue in its first object,"
            " sizes and files; the rest cannot be proven",
            manifest.run_id,
        )

    def _like(self, manifest: Manifest) -> Backup | None:
        """Which of the run's other copies this one has to be; None where it may be one that was encrypted anew.

        Such a copy has the machine's own word, which nobody who only writes to a target can give, and opens to as much.
        """
        known = [other for other in self.others if other.manifest_digest] or self.others
        same = next((other for other in known if other.manifest_digest == manifest.digest), None)
        if same is not None or not known:
            return same
        if manifest.signature is not None and manifest.signature.key in self.keys and _is_as_large(manifest, known[0]):
            return None
        return known[0]

    def _require_recorded(self, manifest: Manifest, recorded: Backup) -> None:
        if recorded.recipients and not manifest.recipients:
            raise Untrusted(
                f"run {manifest.run_id} was recorded as encrypted for {', '.join(recorded.recipients)}, but the copy"
                f" on target {recorded.target} is not encrypted",
                hint=_REPLACED,
            )
        if manifest.digest != recorded.manifest_digest:
            raise Untrusted(
                f"the manifest of run {manifest.run_id} on target {recorded.target} is not the one on record: its"
                f" digest is {manifest.digest[:16]}…, and the catalogue has {recorded.manifest_digest[:16]}…",
                hint=_REPLACED,
            )


def _require_of_one_kind(manifest: Manifest) -> None:
    """All of a backup is encrypted, or nothing of it.

    Raises:
        Untrusted: a part of it is plain where another is not.
    """
    plain = [stored.name for stored in manifest.objects if stored.encrypted != bool(manifest.recipients)]
    if plain:
        raise Untrusted(
            f"run {manifest.run_id} is marked as {'encrypted' if manifest.recipients else 'plain'}, and its"
            f" {plain[0]} is not",
            hint=_REPLACED,
        )


def _is_as_large(manifest: Manifest, other: Backup) -> bool:
    """Whether as much was read for it, of as many files."""
    read = sum(stored.plain_bytes for stored in manifest.objects)
    return (read, sum(stored.files for stored in manifest.objects)) == (other.bytes_read, other.files)


def _require_agreement(manifest: Manifest, recorded: Backup) -> None:
    """All that a row of an earlier backupd tells of a backup.

    Raises:
        Untrusted: something is another.
    """
    objects = manifest.objects
    told = {
        "first object": (recorded.sha256, objects[0].stored_sha256 if objects else ""),
        "bytes read": (recorded.bytes_read, sum(stored.plain_bytes for stored in objects)),
        "stored bytes": (recorded.bytes_stored, sum(stored.stored_bytes for stored in objects)),
        "files": (recorded.files, sum(stored.files for stored in objects)),
    }
    for what, (expected, found) in told.items():
        if expected != found:
            raise Untrusted(
                f"run {manifest.run_id} on target {recorded.target} is not the one on record: {what}: expected"
                f" {expected}, found {found}",
                hint=_REPLACED,
            )
