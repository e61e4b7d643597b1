"""What opens a backup: which of the identities that a person gave are among those that it is encrypted for."""

from typing import TYPE_CHECKING

from backupd.archive.unpack import DecryptionKey
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


def key_of(manifest: Manifest, identities: "Identities | None") -> DecryptionKey | None:
    """What opens the backup; None where everybody can read it.

    Raises:
        NoKey: it is encrypted, and there is no identity, or not the right one.
    """
    if not any(stored.encrypted for stored in manifest.objects):
        return None
    from backupd.archive.encryption import opening

    found = opening(identities, manifest.recipients, what=f"run {manifest.run_id}")
    return DecryptionKey(found, manifest.recipients)
