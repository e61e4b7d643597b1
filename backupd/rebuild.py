"""The catalogue from what lies on a target: for a host whose catalogue was lost, and for one that takes over.

Knows: how a manifest becomes a run with one backup. Refuses to read an object: `verify` does. What a manifest cannot
know is what came after it: drills, pins, the seconds of its own writing; and it is not told a run's samples.
"""

import logging
from dataclasses import dataclass, replace

from backupd.catalogue.store import Catalogue
from backupd.errors import BackupdError, TargetError, VerificationError
from backupd.model import Backup, Manifest, RunDetails, RunStatus, StoredBackup
from backupd.targets import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """What was found on the target, by run."""

    imported: tuple[str, ...] = ()  # oldest first
    known: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    failures: tuple[tuple[str, BackupdError], ...] = ()

    def require_complete(self) -> None:
        """Raise when a manifest could not be read.

        Raises:
            VerificationError: one of them cannot be understood; each is named.
            TargetError: all that failed is that they could not be read.
        """
        if not self.failures:
            return
        told = "; ".join(f"{run_id}: {error.message}" for run_id, error in self.failures)
        errors = [error for _, error in self.failures]
        worst = next((error for error in errors if isinstance(error, VerificationError)), errors[0])
        raise type(worst)(f"not all manifests could be read: {told}", hint=worst.hint)


def rebuild(target: Target, catalogue: Catalogue, *, job: str | None = None) -> Rebuilding:
    """Every finished backup on the target, of this job where it is named, is in the catalogue; known rows stay.

    A backup whose manifest cannot be read is in `failures`, and keeps no other from being imported.

    Raises:
        TargetError: the target cannot be read at all.
        CatalogueError: the catalogue cannot be written.
    """
    stored = sorted(target.backups(job), key=lambda one: (one.at, one.backup_id))
    imported: list[str] = []
    known: list[str] = []
    failures: list[tuple[str, BackupdError]] = []
    for one in (one for one in stored if one.finished):
        try:
            run = _run(target, one, _manifest(target, one))
        except (TargetError, VerificationError) as error:
            log.warning("backup %s of job %s: %s", one.backup_id, one.job, error.message)
            failures.append((one.backup_id, error))
        else:
            (imported if catalogue.import_run(run) else known).append(one.backup_id)
    unfinished = tuple(one.backup_id for one in stored if not one.finished)
    return Rebuilding(tuple(imported), tuple(known), unfinished, tuple(failures))


def copy_on(target: Target, manifest: Manifest) -> Backup:
    """What the catalogue keeps of this backup on this target. A manifest is made when all else was read back."""
    return Backup(
        target=target.name,
        location=target.location(manifest.job, manifest.run_id),
        bytes_read=sum(stored.plain_bytes for stored in manifest.objects),
        bytes_stored=sum(stored.stored_bytes for stored in manifest.objects),
        files=sum(stored.files for stored in manifest.objects),
        sha256=manifest.objects[0].stored_sha256,
        verified_at=manifest.created_at,
    )


def _manifest(target: Target, stored: StoredBackup) -> Manifest:
    """The backup's own manifest.

    Raises:
        TargetError: it cannot be read.
        VerificationError: it cannot be understood, or is another backup's.
    """
    manifest = target.manifest(stored.job, stored.backup_id)
    if (manifest.job, manifest.run_id) != (stored.job, stored.backup_id):
        raise VerificationError(
            f"its manifest is that of run {manifest.run_id} of job {manifest.job}",
            hint="somebody has copied or renamed it; give each backup back its own name",
        )
    if not manifest.objects:
        raise VerificationError("its manifest names no object", hint="it is no backup; remove it")
    return manifest


def _run(target: Target, stored: StoredBackup, manifest: Manifest) -> RunDetails:
    """What the catalogue had of it, as far as its manifest was told."""
    told = manifest.run or RunDetails(  # of a backup that was taken before manifests were told more
        run_id=manifest.run_id,
        job=manifest.job,
        host=manifest.host,
        status=RunStatus.SUCCESS,
        started_at=manifest.created_at,
        position=manifest.position,
    )
    status = RunStatus.ATTENTION if told.attention else RunStatus.SUCCESS
    return replace(told, status=status, ended_at=told.ended_at or stored.at, backups=(copy_on(target, manifest),))
