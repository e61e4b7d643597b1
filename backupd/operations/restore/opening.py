"""What opens a backup: which of the identities that a person gave are among those that it is encrypted for."""

from typing import TYPE_CHECKING

from backupd.archive.unpack import Key
from backupd.vocabulary.errors import NoKey
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


def key_of(manifest: Manifest, identities: "Identities | None") -> Key | None:
    """What opens the backup; None where everybody can read it.

    Raises:
        NoKey: it is encrypted, and there is no identity, or not the right one.
    """
    if not any(stored.encrypted for stored in manifest.objects):
        return None
    recipients = ", ".join(manifest.recipients)
    if identities is None:
        raise NoKey(
            f"run {manifest.run_id} is encrypted for {recipients}",
            hint="pass the file with the identity of one of these: --identity FILE",
        )
    if not set(manifest.recipients) & set(identities.recipients):
        raise NoKey(
            f"none of the identities in {identities.source} can read run {manifest.run_id}: it is encrypted for"
            f" {recipients}",
            hint="`age-keygen -y FILE` prints the recipient of a file",
        )
    return Key(identities, manifest.recipients)
