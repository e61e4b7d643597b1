"""A bucket as a target: Amazon's, or that of any store that speaks the same protocol.

Knows: PREFIX/MACHINE/JOB/RUN_ID/NAME, conditional writes, versions, Object Lock, what a store's yes is worth. How one
object gets there is in `s3_upload`.

S3 has no temporary names and needs none: an object is there when it is whole. A finished backup is written to by
nobody: its manifest is sent with `If-None-Match: *`. So is an owner record, and without a lock: the next one replaces
it. So is a segment, in one request up to 24 MiB; a larger one by the completion of its parts.

What a store must let us do: s3:PutObject, s3:GetObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload. With
s3:ListMultipartUploadParts parts are compared before they become an object, with s3:ListBucketMultipartUploads uploads
are found that nobody wrote down, and a bucket that keeps versions needs s3:ListBucketVersions and
s3:DeleteObjectVersion, or else what is removed still takes room. With Object Lock s3:PutObjectRetention.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Literal

from backupd.config import LockMode, S3Config
from backupd.policy import manifest as manifests
from backupd.targets import UploadLedger
from backupd.targets.keyed import Bucket, BucketItem, KeyedTarget, left_trials, ours_below, require_creates_once
from backupd.targets.names import (
    BINLOG,
    MANIFEST,
    OWNER,
    already_finished,
    backup_part,
    machine_part,
    new_trial,
    object_part,
    partial,
    trials,
)
from backupd.targets.outages import Patience, Unwanted, wanted
from backupd.targets.s3_client import Service
from backupd.targets.s3_errors import FAILURES, code_of, explained, is_untold
from backupd.targets.s3_listing import PLAIN_VERSION, BucketListing
from backupd.targets.s3_long import LongUpload
from backupd.targets.s3_parts import (
    MOST_IN_MEMORY_BYTES,
    UNRELIABLE,
    Parameters,
    UploadPlace,
    abort,
    checksum,
    part_bytes,
)
from backupd.targets.s3_reader import ObjectReader, small_object, whole
from backupd.targets.s3_records import S3Records
from backupd.targets.s3_removal import remove_keys
from backupd.targets.s3_upload import PartMemory, Upload
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest

_SEGMENT_BYTES = 256 << 20  # at least, of an object whose parts are objects first
_USABLE_TRIES = 2  # before a run nobody waits for an outage to end


class S3Target(KeyedTarget):
    """Backups in a bucket that exists already. Requests go out when something is asked for, not before."""

    def __init__(self, config: S3Config, *, machine: str, patience: Patience | None = None) -> None:
        self._config = config
        bucket = Bucket(config.name, f"s3://{config.bucket}", config.prefix)
        self._service = Service(config, bucket.where, patience or Patience())
        self._listing = BucketListing(self._service, config.bucket)
        prefix = bucket.key(machine_part(machine), OWNER, "")
        super().__init__(bucket, machine, S3Records(self._service, self._listing, config, prefix))
        self._room = PartMemory(config.parts_in_flight)

    def of_machine(self, machine: str) -> "S3Target":
        """The same bucket, as another machine's target."""
        return S3Target(self._config, machine=machine, patience=self._service.outages.patience)

    def require_usable(self) -> None:
        """Prove that an object can be written where there is none, read back and removed. Nobody tells the room left.

        What a process left there that was killed within is removed.

        A bucket that keeps versions keeps 16 bytes of it.

        Raises:
            TargetError: one of these was refused, or nobody answers.
        """
        service, body = self._service, secrets.token_bytes(16)
        key = self._bucket.key(new_trial(self._machine))
        address: Parameters = {"Bucket": self._config.bucket, "Key": key}
        header = checksum(self._config.checksum, body)

        def create() -> bool:
            with explained(service.where, "write to"):
                try:
                    service.persist(
                        "write to",
                        lambda: service.client.put_object(
                            **address, Body=body, IfNoneMatch="*", **header, **self._class
                        ),
                        tries=_USABLE_TRIES,
                    )
                except FAILURES as error:
                    if code_of(error) != "PreconditionFailed":
                        raise
                    return False
                return True

        def read() -> bytes:
            found = service.ask("read from", lambda: whole(service.client.get_object(**address)), tries=_USABLE_TRIES)
            listed = self._listing.objects(self._bucket.key(trials(self._machine)), tries=_USABLE_TRIES)
            for left in left_trials(listed, key, self._machine):
                remove(left)
            return found

        def remove(which: str) -> None:
            service.ask(
                "remove from",
                lambda: service.client.delete_object(Bucket=self._config.bucket, Key=which),
                tries=_USABLE_TRIES,
            )

        require_creates_once(
            *(service.where, body),
            create=create,
            read=read,
            remove=lambda: remove(key),
            hint="check the store's own log",
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
        unwanted: Event | None = None,
    ) -> Iterator[Upload | LongUpload]:
        """Write one object; see the contract."""
        place = self._place(job, backup_id, name, unwanted=wanted if unwanted is None else unwanted.is_set)
        if not place.once:
            self._require_unfinished(job, backup_id, unwanted=place.unwanted)
        detail = {"target": self.name, "machine": self._machine, "job": job, "backup": backup_id}
        least = self._config.part_size
        size = part_bytes(least, at_most)
        if place.once and (at_most or 0) <= MOST_IN_MEMORY_BYTES:
            size = max(size, (at_most or 0) + 1)  # less than a part goes in one request
        is_long = size > max(least, MOST_IN_MEMORY_BYTES) and not place.once

        def begin(place: UploadPlace) -> Upload:
            return Upload(
                place,
                least if is_long else size,
                room=self._room,
                ledger=ledger,
                detail={**detail, "name": place.name},
            )

        def segment(number: int) -> UploadPlace:
            within = self._place(job, backup_id, partial(name, number), unwanted=place.unwanted)
            return replace(within, kept=dict)  # it is to be removed

        upload = (
            LongUpload(place, max(size, _SEGMENT_BYTES), begin=begin, segment=segment, remove=self._remove_object)
            if is_long
            else begin(place)
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
        """The object's bytes; see the contract. A connection that breaks is recreated at the byte where it broke."""
        place = self._place(job, backup_id, name)
        with closing(ObjectReader(place.service, place.address, name, at=offset, size=size)) as reader:
            yield reader.pieces()

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract. Where objects are locked, each is for as long as the manifest is."""
        job, run_id, locked = manifest.job, manifest.run_id, self._locked()
        self._require_unfinished(job, run_id)
        for stored in manifest.objects if locked else ():
            self._keep_locked(self._place(job, run_id, stored.name), locked)
        taken = already_finished(self.location(job, run_id))
        self._create(self._place(job, run_id, MANIFEST), manifests.to_text(manifest).encode(), locked, taken=taken)

    def _put_once(self, job: str, backup_id: str, name: str, body: bytes, *, taken: TargetError) -> None:
        self._create(self._place(job, backup_id, name), body, self._locked(), taken=taken)

    def _create(self, place: UploadPlace, body: bytes, locked: Parameters, *, taken: TargetError) -> None:
        """A small object is there, for as long as it is locked; or `taken` is raised where another one was."""
        service = self._service
        header = checksum(self._config.checksum, body)
        doing = f"write {place.name} to"
        with explained(service.where, doing):
            try:
                service.persist(
                    doing,
                    lambda: service.client.put_object(**place.address, Body=body, IfNoneMatch="*", **header, **locked),
                )
            except FAILURES as error:
                if not (is_untold(error) or code_of(error) == "PreconditionFailed"):
                    raise
                # An earlier try may have been carried out although its answer was lost.
                if small_object(place) != body:
                    if code_of(error) == "PreconditionFailed":
                        raise taken from error
                    raise
        if small_object(place) != body:
            raise TargetError(
                f"{service.where} confirmed {place.name}, but does not return it",
                hint=UNRELIABLE,
            )

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup with every version of its objects, its manifest first; see the contract."""
        prefix = self._key(job, backup_part(backup_id)) + "/"
        for upload in ours_below(prefix, self._listing.uploads(prefix)):
            abort(self._place(job, backup_id, upload.key.removeprefix(prefix)), upload.version)
        if self._config.lock_mode is not None:
            self._listing.require_versions_told(prefix)
        marked = False
        for every_version in (False, True):
            left = ours_below(prefix, self._listing.versions(prefix))
            for stored in left:
                by_version = every_version or stored.version != PLAIN_VERSION
                marked |= self._listing.delete(stored, by_version=by_version)
            if not left:
                if marked:
                    self._listing.tell_of_versions()
                return
        if left := ours_below(prefix, self._listing.versions(prefix)):
            raise TargetError(
                f"{self._service.where} confirmed that it removed {backup_id}, but still has {len(left)} objects of it",
                hint="see the bucket's policy, versions and locks",
            )

    def abandon(self, upload: Holding) -> None:
        """Give back an upload; see the contract."""
        detail = upload.detail
        abort(self._place(detail["job"], detail["backup"], detail["name"]), upload.name)

    def _sizes(self, prefix: str, *, after: str) -> Iterator[tuple[str, int]]:
        return self._listing.sizes(prefix, after=after)

    def _remove_segments(self, prefix: str, names: Sequence[str]) -> None:
        for upload in self._listing.uploads(prefix):
            if upload.key <= prefix + max(names):
                abort(self._place_of(upload.key), upload.version)
        if self._config.lock_mode is not None:
            self._listing.require_versions_told(prefix)
        remove_keys(self._listing, [prefix + name for name in names])

    def _listed(self, prefix: str, *, patiently: bool) -> Sequence[BucketItem]:
        return self._listing.objects(prefix, tries=None if patiently else self._service.tries)

    def _uploads(self, prefix: str) -> Sequence[BucketItem]:
        return self._listing.uploads(prefix)

    def _uploads_below(self, prefix: str, beginnings: Iterable[str]) -> Iterator[BucketItem]:  # noqa: ARG002
        """All: a listing of uploads has no objects in it, and their folders are not listed with those of objects."""
        yield from self._listing.uploads(prefix)

    def _folders(self, prefix: str) -> Sequence[str]:
        return self._listing.folders(prefix)

    def _small(
        self, job: str, backup_id: str, name: str, *, unwanted: Unwanted = wanted, patiently: bool = True
    ) -> bytes | None:
        place = self._place(job, backup_id, name, unwanted=unwanted)
        return small_object(place, tries=None if patiently else self._service.tries)

    def _place(self, job: str, backup_id: str, name: str, *, unwanted: Unwanted = wanted) -> UploadPlace:
        key = f"{self._key(job, backup_id)}/{object_part(backup_id, name)}"
        place = replace(self._place_of(key), name=name, unwanted=unwanted)
        return replace(place, kept=self._locked, once=True) if backup_id == BINLOG else place

    def _place_of(self, key: str) -> UploadPlace:
        return UploadPlace(self._service, self._config.bucket, key, key, self._config.checksum, self._kept)

    def _kept(self) -> Parameters:
        """How an object of a backup is kept. Small ones are not of that class: some have a least size, or a fee."""
        return {**self._locked(), **self._class}

    @property
    def _class(self) -> Parameters:
        return {} if self._config.storage_class is None else {"StorageClass": self._config.storage_class}

    def _locked(self) -> Parameters:
        """Object Lock's parameters: until when nobody can delete what is written now."""
        if self._config.lock_mode is None:
            return {}
        until = datetime.now(UTC) + timedelta(seconds=self._config.lock_seconds)
        return {"ObjectLockMode": _MODES[self._config.lock_mode], "ObjectLockRetainUntilDate": until}

    def _keep_locked(self, place: UploadPlace, locked: Parameters) -> None:
        """The object is locked until then: it was, since its upload began, for less. A lock can always be extended."""
        service = self._service
        retention: Any = {
            "Mode": locked["ObjectLockMode"],
            "RetainUntilDate": locked["ObjectLockRetainUntilDate"],
        }
        service.ask(
            f"keep {place.name} locked on",
            lambda: service.client.put_object_retention(**place.address, Retention=retention),
        )

    def _remove_object(self, place: UploadPlace) -> None:
        """One object with every version of it."""
        for stored in self._listing.versions(place.key):
            if stored.key == place.key:
                self._listing.delete(stored, by_version=stored.version != PLAIN_VERSION)


_MODES: Mapping[LockMode, Literal["GOVERNANCE", "COMPLIANCE"]] = {
    LockMode.GOVERNANCE: "GOVERNANCE",
    LockMode.COMPLIANCE: "COMPLIANCE",
}
