"""A bucket as a target: Amazon's, or that of any store that speaks the same protocol.

Knows: PREFIX/JOB/RUN_ID/NAME, conditional writes, versions, Object Lock, what a store's yes is worth. Refuses to know
what is stored, and how one object gets there (`s3_upload`).

S3 has no temporary names and needs none: an object is there when it is whole. A finished backup is written to by
nobody: its manifest is sent with `If-None-Match: *`.

What a store must let us do: s3:PutObject, s3:GetObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload. With
s3:ListMultipartUploadParts parts are compared before they become an object, with s3:ListBucketMultipartUploads uploads
are found that nobody wrote down, and a bucket that keeps versions needs s3:ListBucketVersions and
s3:DeleteObjectVersion, or else what is removed still takes room.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from backupd import manifest as manifests
from backupd.config.schema import LockMode, S3Config
from backupd.errors import TargetError
from backupd.model import Holding, Manifest, StoredBackup
from backupd.targets import UploadLedger
from backupd.targets.names import MANIFEST, part
from backupd.targets.s3_client import Patience, Service
from backupd.targets.s3_errors import FAILURES, code_of, explained, is_missing, is_untold
from backupd.targets.s3_listing import PLAIN_VERSION, Listing
from backupd.targets.s3_parts import UNRELIABLE, Parameters, Place, abort, checksum, part_bytes
from backupd.targets.s3_reader import Reader
from backupd.targets.s3_upload import Room, Upload

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_USABLE_TRIES = 2  # before a run nobody waits for an outage to end


class S3Target:
    """Backups in a bucket that exists already. Requests go out when something is asked for, not before."""

    folder = None

    def __init__(self, config: S3Config, *, patience: Patience | None = None) -> None:
        self._config = config
        self._service = Service(config, patience or Patience())
        self._listing = Listing(self._service, config.bucket)
        self._room = Room(config.parts_in_flight)

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._config.name

    def location(self, job: str, backup_id: str) -> str:
        """As the AWS tools write it."""
        return f"s3://{self._config.bucket}/{self._key(job, backup_id)}"

    def require_usable(self) -> None:
        """Prove that an object can be written where there is none, read back and removed. Nobody tells the room left.

        A bucket that keeps versions keeps 16 bytes of it.

        Raises:
            TargetError: one of these was refused, or nobody answers.
        """
        service, body = self._service, secrets.token_bytes(16)
        address: Parameters = {
            "Bucket": self._config.bucket,
            "Key": self._prefixed(f".backupd-writable-{secrets.token_hex(4)}"),
        }
        header = checksum(self._config.checksum, body)
        with explained(service.where, "write to"):
            try:
                service.persist(
                    "write to",
                    lambda: service.client.put_object(**address, Body=body, IfNoneMatch="*", **header),
                    tries=_USABLE_TRIES,
                )
            except FAILURES as error:
                if code_of(error) != "PreconditionFailed":  # else the first try was carried out: the name is ours alone
                    raise
        try:
            found = service.ask("read from", lambda: _all(service.client.get_object(**address)), tries=_USABLE_TRIES)
        finally:
            service.ask("remove from", lambda: service.client.delete_object(**address), tries=_USABLE_TRIES)
        if found != body:
            raise TargetError(
                f"{service.where} gave back other bytes than were written", hint="see the store's own log"
            )

    @contextmanager
    def writing(
        self,
        job: str,
        backup_id: str,
        name: str,
        *,
        at_most: int | None = None,
        ledger: UploadLedger | None = None,
    ) -> Iterator[Upload]:
        """Write one object; see the contract."""
        place = self._place(job, backup_id, name)
        self._require_unfinished(job, backup_id)
        upload = Upload(
            place,
            part_bytes(self._config.part_size, at_most),
            room=self._room,
            ledger=ledger,
            detail={"target": self.name, "job": job, "backup": backup_id, "name": name},
        )
        try:
            yield upload
            upload.finish()
        except BaseException:
            upload.give_up()
            raise

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The object's bytes; see the contract. A connection that breaks is made anew at the byte where it broke."""
        place = self._place(job, backup_id, name)
        with closing(Reader(place.service, place.address, name, at=offset, size=size)) as reader:
            yield reader.pieces()

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract."""
        place = self._place(manifest.job, manifest.run_id, MANIFEST)
        self._require_unfinished(manifest.job, manifest.run_id)
        body, service = manifests.to_text(manifest).encode(), self._service
        header = checksum(self._config.checksum, body)
        doing = f"write {MANIFEST} to"
        with explained(service.where, doing):
            try:
                service.persist(
                    doing,
                    lambda: service.client.put_object(
                        **place.address, Body=body, IfNoneMatch="*", **header, **self._locked()
                    ),
                )
            except FAILURES as error:
                if not (is_untold(error) or code_of(error) == "PreconditionFailed"):
                    raise
                # An earlier try may have been carried out although its answer was lost.
                if self._content(place) != body:
                    if code_of(error) == "PreconditionFailed":
                        raise self._finished(manifest.job, manifest.run_id) from error
                    raise
        if self._content(place) != body:
            raise TargetError(
                f"{service.where} said that it stored {MANIFEST}, but does not give it back",
                hint=UNRELIABLE,
            )

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back; see the contract."""
        text = self._content(self._place(job, backup_id, MANIFEST))
        if text is not None:
            return manifests.from_text(text)
        if any(backup.backup_id == backup_id for backup in self.backups(job)):
            raise TargetError(
                f"the backup {backup_id} on target {self.name} is unfinished: it has no manifest",
                hint="it cannot be restored; choose another one from `backupd history`",
            )
        raise TargetError(
            f"no backup {backup_id} of job {job} on target {self.name} (s3://{self._config.bucket})",
            hint="see `backupd history`; are bucket and prefix those that it was written to?",
        )

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What can be read of it, and its bytes; see the contract."""
        prefix = self._key(job, backup_id) + "/"
        found = {stored.key.removeprefix(prefix): stored.size for stored in self._listing.objects(prefix)}
        return {name: size for name, size in found.items() if name != MANIFEST}

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there, by the store's clock; an upload that was not completed is an unfinished backup."""
        prefix = self._prefixed("") if job is None else self._prefixed(f"{part(job)}/")
        found: dict[tuple[str, str], dict[str, datetime]] = {}
        for stored in (*self._listing.uploads(prefix), *self._listing.objects(prefix)):
            match stored.key.removeprefix(self._prefixed("")).split("/"):
                case [of_job, backup_id, name] if of_job and backup_id and name:
                    found.setdefault((of_job, backup_id), {})[name] = stored.at
        return [
            StoredBackup(*place, finished=MANIFEST in names, at=names.get(MANIFEST) or max(names.values()))
            for place, names in found.items()
        ]

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup with every version of its objects, its manifest first; see the contract."""
        prefix = self._key(job, backup_id) + "/"
        for upload in self._listing.uploads(prefix):
            abort(self._place(job, backup_id, upload.key.removeprefix(prefix)), upload.version)
        for every_version in (False, True):
            left = self._listing.versions(prefix)
            for stored in sorted(left, key=lambda stored: stored.key != prefix + MANIFEST):
                self._listing.delete(stored, by_version=every_version or stored.version != PLAIN_VERSION)
            if not left:
                return
        if left := self._listing.versions(prefix):
            raise TargetError(
                f"{self._service.where} said that it removed {backup_id}, but still has {len(left)} objects of it",
                hint="see the bucket's policy, versions and locks",
            )

    def abandon(self, upload: Holding) -> None:
        """Give back an upload; see the contract."""
        detail = upload.detail
        abort(self._place(detail["job"], detail["backup"], detail["name"]), upload.name)

    def _prefixed(self, key: str) -> str:
        return f"{self._config.prefix}/{key}" if self._config.prefix else key

    def _key(self, job: str, backup_id: str) -> str:
        return self._prefixed(f"{part(job)}/{part(backup_id)}")

    def _place(self, job: str, backup_id: str, name: str) -> Place:
        key = f"{self._key(job, backup_id)}/{part(name)}"
        return Place(self._service, self._config.bucket, key, name, self._config.checksum, self._locked)

    def _locked(self) -> Parameters:
        """Object Lock's parameters: until when nobody can delete what is written now."""
        if self._config.lock_mode is None:
            return {}
        until = datetime.now(UTC) + timedelta(seconds=self._config.lock_seconds)
        return {"ObjectLockMode": _MODES[self._config.lock_mode], "ObjectLockRetainUntilDate": until}

    def _require_unfinished(self, job: str, backup_id: str) -> None:
        if self._content(self._place(job, backup_id, MANIFEST)) is not None:
            raise self._finished(job, backup_id)

    def _finished(self, job: str, backup_id: str) -> TargetError:
        return TargetError(
            f"{self.location(job, backup_id)} holds a finished backup already", hint="a run never writes to another's"
        )

    def _content(self, place: Place) -> bytes | None:
        """All of a small object; None where there is none."""
        service, doing = self._service, f"read {place.name} from"
        with explained(service.where, doing):
            try:
                return service.persist(doing, lambda: _all(service.client.get_object(**place.address)))
            except FAILURES as error:
                if is_missing(error):
                    return None
                raise


def _all(answer: "GetObjectOutputTypeDef") -> bytes:
    with closing(answer["Body"]) as body:
        return body.read()


_MODES: Mapping[LockMode, Literal["GOVERNANCE", "COMPLIANCE"]] = {
    LockMode.GOVERNANCE: "GOVERNANCE",
    LockMode.COMPLIANCE: "COMPLIANCE",
}
