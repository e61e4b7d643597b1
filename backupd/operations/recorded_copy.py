"""A published copy as the catalogue records it.

Knows: what of it is in its manifest.
"""

from datetime import datetime

from backupd.targets import Target
from backupd.vocabulary.storage import Backup, Manifest


def copy_on(target: Target, manifest: Manifest, *, verified_at: datetime | None = None) -> Backup:
    """What the catalogue keeps of this backup on this target.

    A manifest is published only once all else was read back, a little after it was made: that instant is told where
    nobody knows a later one.
    """
    return Backup(
        target=target.name,
        location=target.location(manifest.job, manifest.run_id),
        bytes_read=sum(stored.plain_bytes for stored in manifest.objects),
        bytes_stored=sum(stored.stored_bytes for stored in manifest.objects),
        files=sum(stored.files for stored in manifest.objects),
        sha256=manifest.objects[0].stored_sha256,
        verified_at=verified_at or manifest.created_at,
        manifest_digest=manifest.digest,
        recipients=manifest.recipients,
    )
