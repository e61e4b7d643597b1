"""A cloud's container of blobs as a target: Azure's or Google's, as the `BlobStore` that it is made with.

Knows: conditional creation, that what is read is one version of a blob, what a service's yes is worth. How one object
gets there is in `blob_upload`; keys are in `keyed`.

What a service keeps of a removed blob (versions, soft delete) is the container's setting; backupd does not look at it.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import BoundedSemaphore, Event

from backupd.config import AzureConfig, GcsConfig
from backupd.policy.manifest import MOST_BYTES
from backupd.targets import UploadLedger
from backupd.targets.blob_store import BlobFailure, BlobService, BlobStore, StoredBlob, Trouble
from backupd.targets.blob_upload import UNRELIABLE, BlobUpload
from backupd.targets.keyed import Bucket, BucketItem, KeyedTarget, left_trials, ours_below, require_creates_once
from backupd.targets.names import BINLOG, OWNER, backup_part, machine_part, new_trial, object_part, trials
from backupd.targets.outages import Patience, Unwanted, wanted
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Holding

log = logging.getLogger(__name__)

_READ_BYTES = 4 << 20  # of a request: what Azure gives a checksum for at most
_READ_AHEAD = 3  # requests of one reader, at the same time
_REMOVED_AT_ONCE = 16
_WRITING, _REMOVING = "write to", "remove from"
_USABLE_TRIES = 2  # before a run nobody waits for an outage to end


class BlobTarget(KeyedTarget):
    """Backups in a container that exists already. Requests go out when something is asked for, not before."""

    def __init__(
        self,
        config: AzureConfig | GcsConfig,
        store: Callable[[], BlobStore],
        *,
        machine: str,
        patience: Patience | None = None,
    ) -> None:
        self._config, self._new_store, self._patience = config, store, patience or Patience()
        self._store = store()
        bucket = Bucket(config.name, self._store.url, config.prefix)
        self._service = BlobService(self._store, bucket.where, self._patience, outage_seconds=config.outage_seconds)
        prefix = bucket.key(machine_part(machine), OWNER, "")
        super().__init__(bucket, machine, BlobRecords(self._service, f"{bucket.url}/{prefix.rstrip('/')}", prefix))
        self._room = BoundedSemaphore(config.parts_in_flight)

    def of_machine(self, machine: str) -> "BlobTarget":
        """The same container, as another machine's target."""
        return BlobTarget(self._config, self._new_store, machine=machine, patience=self._patience)

    @property
    def access_ends(self) -> datetime | None:
        """As the service's credentials say; see the contract."""
        return self._store.access_ends

    def require_usable(self) -> None:
        """Prove that a blob can be written only where there is none, read back and removed. Nobody tells the room left.

        What a process left there that was killed within is removed.

        A container that locks whatever is written keeps 16 bytes of it, until a later trial may remove them.

        Raises:
            TargetError: one of these was refused, or nobody answers.
        """
        service, store, body = self._service, self._store, secrets.token_bytes(16)
        key = self._bucket.key(new_trial(self._machine))

        def create() -> bool:
            try:
                service.persist(_WRITING, lambda: store.put(key, body, only_new=True), tries=_USABLE_TRIES)
            except BlobFailure as error:
                if error.refusal is not Trouble.TAKEN:
                    raise service.told(error, _WRITING) from error
                return False
            return True

        def read() -> bytes | None:
            found = small_blob(service, key, doing="read from", tries=_USABLE_TRIES)
            below = self._bucket.key(trials(self._machine))
            listed = service.ask("list", lambda: store.listed(below), tries=_USABLE_TRIES)
            for left in left_trials(listed, key, self._machine):
                remove(left)
            return found

        def remove(which: str) -> None:
            try:
                service.persist(_REMOVING, lambda: store.delete(which), tries=_USABLE_TRIES)
            except BlobFailure as error:
                if error.refusal is not Trouble.LOCKED:
                    raise service.told(error, _REMOVING) from error
                log.debug("%s keeps %s: %s", service.where, which, error)

        require_creates_once(
            *(service.where, body),
            create=create,
            read=read,
            remove=lambda: remove(key),
            hint=UNRELIABLE,
        )

    @contextmanager
    def writing(
        self,
        job: str,
        backup_id: str,
        name: str,
        *,
        at_most: int | None = None,
        ledger: UploadLedger | None = None,  # noqa: ARG002 - what is left of an upload is listed, or ends by itself
        unwanted: Event | None = None,
    ) -> Iterator[BlobUpload]:
        """Write one object; see the contract."""
        key = self._object_key(job, backup_id, name)
        is_unwanted = wanted if unwanted is None else unwanted.is_set
        is_segment = backup_id == BINLOG
        if not is_segment:
            self._require_unfinished(job, backup_id, unwanted=is_unwanted)
        upload = BlobUpload(
            self._service,
            key,
            name,
            part_size=self._store.part_bytes(self._config.part_size, at_most),
            room=self._room,
            unwanted=is_unwanted,
            once=is_segment,
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
        """The object's bytes; see the contract. Each request that fails is made again for its own bytes."""
        key, doing = self._object_key(job, backup_id, name), f"read {name} from"
        found = self._service.look(doing, key)
        if found is None:
            raise TargetError(f"{self._service.where} has no {name} of {backup_id}", hint="see `backupd history`")
        pool, left = ThreadPoolExecutor(_READ_AHEAD, thread_name_prefix="backupd blob"), Event()
        end = found.size if size is None else offset + size
        try:
            yield self._pieces(pool, key, doing, found, left.is_set, at=offset, end=end)
        finally:
            left.set()  # an outage is not waited for any more
            pool.shutdown(cancel_futures=True)

    def _pieces(
        self,
        pool: ThreadPoolExecutor,
        key: str,
        doing: str,
        found: StoredBlob,
        unwanted: Unwanted,
        *,
        at: int,
        end: int,
    ) -> Iterator[bytes]:
        """The bytes that were asked for, in order, with the next ones on their way."""
        last = min(end, found.size)
        starts = iter(range(at, last, _READ_BYTES))
        coming: deque[tuple[int, Future[bytes]]] = deque()
        while True:
            for start in starts:
                size = min(_READ_BYTES, last - start)
                coming.append((size, pool.submit(self._piece, key, doing, found, unwanted, start, size)))
                if len(coming) == _READ_AHEAD:
                    break
            if not coming:
                break
            size, piece = coming.popleft()
            yield piece.result()
            at += size
        if at < end:
            raise TargetError(
                f"could not {doing} {self._service.where}: it ended at byte {at} of {end}",
                hint="it is not what was stored there",
            )

    def _piece(self, key: str, doing: str, found: StoredBlob, unwanted: Unwanted, at: int, size: int) -> bytes:
        body = self._service.ask(doing, lambda: self._store.read(key, at, size, found.version), unwanted=unwanted)
        if len(body) != size:
            raise TargetError(
                f"could not {doing} {self._service.where}: it gave {len(body)} of {size} bytes", hint=UNRELIABLE
            )
        return body

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, its manifest first; see the contract."""
        prefix = self._key(job, backup_part(backup_id)) + "/"
        for upload in ours_below(prefix, self._uploads(prefix)):
            self._tidied(self._store.upload(upload.key, "").discard)
        for stored in ours_below(prefix, self._listed(prefix, patiently=False)):
            self._tidied(partial(self._store.delete, stored.key))
        if left := ours_below(prefix, self._listed(prefix, patiently=False)):
            raise TargetError(
                f"{self._service.where} confirmed that it removed {backup_id}, but still has {len(left)} objects of it",
                hint="see the container's policies",
            )

    def _tidied(self, removal: Callable[[], None]) -> None:
        self._service.ask(_REMOVING, removal, tries=self._service.tries)

    def abandon(self, upload: Holding) -> None:
        """No upload is written down: what is left of one is listed with its backup, or ends by itself."""

    def _object_key(self, job: str, backup_id: str, name: str) -> str:
        return f"{self._key(job, backup_id)}/{object_part(backup_id, name)}"

    def _sizes(self, prefix: str, *, after: str) -> Iterator[tuple[str, int]]:
        found = self._service.ask("list", lambda: self._store.listed(prefix, after=after))
        return ((stored.key, stored.size) for stored in found)

    def _remove_segments(self, prefix: str, names: Sequence[str]) -> None:
        for upload in self._uploads(prefix):
            if upload.key <= prefix + max(names):
                self._tidied(self._store.upload(upload.key, "").discard)
        removals = [partial(self._store.delete, prefix + name) for name in names]
        with ThreadPoolExecutor(_REMOVED_AT_ONCE, thread_name_prefix="backupd blob") as pool:
            for start in range(0, len(removals), _REMOVED_AT_ONCE):
                list(pool.map(self._tidied, removals[start : start + _REMOVED_AT_ONCE]))

    def _listed(self, prefix: str, *, patiently: bool) -> Sequence[BucketItem]:
        tries = None if patiently else self._service.tries
        return self._service.ask("list", lambda: self._store.listed(prefix), tries=tries)

    def _uploads(self, prefix: str) -> Sequence[BucketItem]:
        return self._service.ask("list", lambda: self._store.uploads(prefix), tries=self._service.tries)

    def _folders(self, prefix: str) -> Sequence[str]:
        return self._service.ask("list", lambda: self._store.folders(prefix), tries=self._service.tries)

    def _small(
        self, job: str, backup_id: str, name: str, *, unwanted: Unwanted = wanted, patiently: bool = True
    ) -> bytes | None:
        key, tries = self._object_key(job, backup_id, name), None if patiently else self._service.tries
        return small_blob(self._service, key, doing=f"read {name} from", unwanted=unwanted, tries=tries)

    def _put_once(self, job: str, backup_id: str, name: str, body: bytes, *, taken: TargetError) -> None:
        service, key, doing = self._service, self._object_key(job, backup_id, name), f"write {name} to"
        try:
            service.persist(doing, lambda: self._store.put(key, body, only_new=True))
        except BlobFailure as error:
            if not (error.passes or error.refusal is Trouble.TAKEN):
                raise service.told(error, doing) from error
            # An earlier try may have been carried out although its answer was lost.
            if self._small(job, backup_id, name) != body:
                raise (taken if error.refusal is Trouble.TAKEN else service.told(error, doing)) from error
        if self._small(job, backup_id, name) != body:
            raise TargetError(f"{service.where} confirmed {name}, but does not return it", hint=UNRELIABLE)


@dataclass(frozen=True, slots=True)
class BlobRecords:
    """A machine's owner records in a container: the `Records` of `chain`. No outage is waited for."""

    service: BlobService
    where: str
    prefix: str

    def names(self) -> Collection[str]:
        found = self.service.ask("list", lambda: self.service.store.listed(self.prefix), tries=self.service.tries)
        return [stored.key.removeprefix(self.prefix) for stored in found]

    def content(self, name: str) -> bytes | None:
        return small_blob(self.service, self.prefix + name, doing="read an owner record from", tries=self.service.tries)

    def create(self, name: str, content: bytes) -> None:
        service, doing = self.service, "write an owner record to"
        try:
            service.persist(
                doing, lambda: service.store.put(self.prefix + name, content, only_new=True), tries=service.tries
            )
        except BlobFailure as error:
            if error.refusal is not Trouble.TAKEN:
                raise service.told(error, doing) from error

    def remove(self, name: str) -> None:
        self.service.ask("remove from", lambda: self.service.store.delete(self.prefix + name), tries=self.service.tries)


def small_blob(
    service: BlobService, key: str, *, doing: str, unwanted: Unwanted = wanted, tries: int | None = None
) -> bytes | None:
    """All of a small blob, or of what is larger than anything that backupd keeps in one piece the beginning.

    None where there is none.

    Raises:
        TargetError: it cannot be read.
    """
    found = service.look(doing, key, unwanted=unwanted, tries=tries)
    if found is None:
        return None
    whole, last = bytearray(), min(found.size, MOST_BYTES + 1)
    while len(whole) < last:
        request = partial(service.store.read, key, len(whole), min(_READ_BYTES, last - len(whole)), found.version)
        try:
            piece = service.persist(doing, request, unwanted=unwanted, tries=tries)
        except BlobFailure as error:
            if error.refusal is Trouble.MISSING:  # it has been removed meanwhile
                return None
            raise service.told(error, doing) from error
        if not piece:
            raise TargetError(f"could not {doing} {service.where}: it ended at byte {len(whole)}", hint=UNRELIABLE)
        whole += piece
    return bytes(whole)
