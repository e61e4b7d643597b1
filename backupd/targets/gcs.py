"""Google Cloud Storage as a `BlobStore`: objects of one bucket, through Google's own package.

Knows: the package, who we are to it, the protocol of resumable uploads, what its errors mean ("HTTP status and error
codes for JSON" of the reference, and fake-gcs-server 1.56). What is sent at once has a CRC32C that Google compares;
what is sent in parts is compared with Google's own of the whole object.

An upload that was not completed has no name, takes no room that anybody can see, and ends by itself after a week. Its
parts come one after the other; parts that arrived already are ignored when they are sent again.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, cast

from backupd.config import GcsConfig
from backupd.config.secrets import private_text
from backupd.targets.blob_store import (
    BY_STATUS,
    NONSENSE,
    BlobFailure,
    BlobParts,
    StoredBlob,
    Trouble,
    listed_item,
    nonsense,
    one_line,
    turned,
)
from backupd.targets.blobs import BlobTarget
from backupd.targets.keyed import BucketItem
from backupd.targets.outages import Patience
from backupd.vocabulary.errors import ConfigurationError, TargetError, missing_package

try:
    import google.auth
    import google_crc32c
    from google.api_core import exceptions as google_errors
    from google.auth import exceptions as auth_errors
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud import storage
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from google.oauth2 import service_account
    from requests import exceptions as web

    from backupd.targets.bounded_answers import bind
except ImportError as error:
    raise ConfigurationError(
        'targets of type "gcs" need the package google-cloud-storage, which is not installed',
        hint=missing_package("gcs"),
    ) from error

# They have no types of their own.
_new_session: Any = AuthorizedSession
_service_account: Any = service_account.Credentials.from_service_account_info

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_PART_UNIT = 256 << 10  # every part but the last is a multiple of it
_MOST_OBJECT_BYTES = 5 << 40  # "Quotas and limits"
_MARK = "backupd-upload"  # of the object's metadata
_KIND = "application/octet-stream"

_REASONS = {
    **dict.fromkeys(("rateLimitExceeded", "userRateLimitExceeded", "backendError"), Trouble.BUSY),
    **dict.fromkeys(("quotaExceeded", "billingNotEnabled"), Trouble.FULL),
    **dict.fromkeys(("retentionPolicyNotMet", "objectUnderActiveHold"), Trouble.LOCKED),
}
_BY_STATUS = {**BY_STATUS, 410: Trouble.MISSING}


def gcs_target(config: GcsConfig, *, machine: str, patience: Patience | None = None) -> BlobTarget:
    """The bucket as a machine's target."""
    return BlobTarget(config, partial(GcsStore, config), machine=machine, patience=patience)


class GcsStore:
    """The `BlobStore` of one bucket."""

    sends_parts_at_once = False
    access_ends = None  # a key's end is the service's to know, and tokens are renewed
    permissions = (
        "backupd needs storage.objects.create, get, list and delete there: the role Storage Object User of the bucket"
    )

    def __init__(self, config: GcsConfig) -> None:
        self._config = config
        self._session: Any = None  # an AuthorizedSession, whose methods have no types
        self._bucket: storage.Bucket | None = None
        self._lock = Lock()

    @property
    def url(self) -> str:
        """As gcloud writes it."""
        return f"gs://{self._config.bucket}"

    def part_bytes(self, least: int, at_most: int | None) -> int:
        """As large as was asked for, in Google's unit: an upload may have any number of parts."""
        if (at_most or 0) > _MOST_OBJECT_BYTES:
            raise TargetError(
                f"an object of up to {at_most} bytes does not fit into Google Cloud Storage, whose limit is 5 TiB",
                hint="give this job a target of another type, or lower copy.object_size",
            )
        return -(-least // _PART_UNIT) * _PART_UNIT

    def renew(self) -> None:
        """The next request reads the credentials again."""
        with self._lock:
            self._session = self._bucket = None

    def listed(self, prefix: str, *, after: str = "") -> Sequence[BucketItem]:
        """The objects below a prefix, from that key on."""
        with _told(missing=Trouble.NO_CONTAINER):
            found = self._asked.list_blobs(prefix=prefix, start_offset=after or None, timeout=self._timeout, retry=None)
            return [
                listed_item(each.name, str(each.generation), each.updated, each.size or 0) for each in _paged(found)
            ]

    def uploads(self, prefix: str) -> Sequence[BucketItem]:  # noqa: ARG002
        """Google tells of none."""
        return ()

    def folders(self, prefix: str) -> Sequence[str]:
        """What the names go on with."""
        with _told(missing=Trouble.NO_CONTAINER):
            found = self._asked.list_blobs(prefix=prefix, delimiter="/", timeout=self._timeout, retry=None)
            for _ in _paged(found):  # its prefixes are complete when it is at its end
                pass
            return [each.removeprefix(prefix).rstrip("/") for each in found.prefixes]

    def look(self, key: str) -> StoredBlob:
        """What is there."""
        with _told():
            found = self._asked.get_blob(key, timeout=self._timeout, retry=None)
            if found is None:
                raise BlobFailure(Trouble.MISSING, "there is no such object")
            return StoredBlob(
                found.size or 0, str(found.generation), (found.metadata or {}).get(_MARK, ""), found.crc32c or ""
            )

    def read(self, key: str, at: int, size: int, version: str) -> bytes:
        """So many of its bytes, as they are stored."""
        with _told():
            return cast(
                bytes,
                self._asked.blob(key, generation=int(version)).download_as_bytes(
                    start=at, end=at + size - 1, raw_download=True, checksum=None, timeout=self._timeout, retry=None
                ),
            )

    def put(self, key: str, body: bytes, *, mark: str = "", only_new: bool = False) -> None:
        """The object is there; `only_new` where there was none."""
        with _told(missing=Trouble.NO_CONTAINER):
            self._marked(key, mark).upload_from_string(
                body,
                content_type=_KIND,
                checksum="crc32c",
                if_generation_match=0 if only_new else None,
                timeout=self._timeout,
                retry=None,
            )

    def upload(self, key: str, mark: str, *, only_new: bool = False) -> BlobParts:
        """An upload exists, with an address of its own that needs no credentials: it is written down nowhere."""
        with _told(missing=Trouble.NO_CONTAINER):
            address = self._marked(key, mark).create_resumable_upload_session(
                content_type=_KIND,
                if_generation_match=0 if only_new else None,
                timeout=self._timeout,
                retry=None,
            )
        return _Parts(self, cast(str, address))

    def delete(self, key: str) -> None:
        """It is not there."""
        try:
            with _told():
                self._asked.blob(key).delete(timeout=self._timeout, retry=None)
        except BlobFailure as error:
            if error.refusal is not Trouble.MISSING:
                raise

    def checksum(self, body: bytes, before: str) -> str:
        """CRC32C, as Google writes it."""
        so_far = int.from_bytes(base64.b64decode(before), "big")
        return base64.b64encode(google_crc32c.extend(so_far, body).to_bytes(4, "big")).decode()

    def send(self, method: str, address: str, body: bytes, span: str) -> tuple[int, str]:
        """What Google says to a part of an upload: the status, and the bytes that it has."""
        with _told():
            _ = self._asked
            said = self._session.request(
                method, address, data=body, headers={"Content-Range": span} if span else {}, timeout=self._timeout
            )
        if said.status_code not in (200, 201, 204, 308, 499):
            raise _refused(said.status_code, said.content, said.reason)
        return said.status_code, said.headers.get("Range", "")

    def _marked(self, key: str, mark: str) -> storage.Blob:
        blob = self._asked.blob(key)
        if mark:
            blob.metadata = {_MARK: mark}
        return blob

    @property
    def _timeout(self) -> float:
        return self._config.timeout_seconds

    @property
    def _asked(self) -> storage.Bucket:
        with self._lock:
            if self._bucket is None:
                config = self._config
                self._session = _new_session(_credentials(config))
                bind(self._session, None if config.ca is None else str(config.ca))
                client = storage.Client(
                    project="-",  # of the bucket alone
                    credentials=self._session.credentials,
                    _http=self._session,
                    client_options={"api_endpoint": config.endpoint} if config.endpoint else None,
                )
                self._bucket = client.bucket(config.bucket)
            return self._bucket


class _Parts:
    """An object that is being uploaded in parts."""

    def __init__(self, store: GcsStore, address: str) -> None:
        self._store, self._address = store, address

    def part(self, number: int, at: int, body: bytes) -> None:  # noqa: ARG002 - a part is known by where it begins
        end = at + len(body)
        while at < end:
            status, has = self._store.send("PUT", self._address, body[at - end :], f"bytes {at}-{end - 1}/*")
            kept = re.search(r"0-(\d{1,18})$", has)
            now = int(kept[1]) + 1 if status == 308 and kept else 0
            if not at < now <= end:
                raise BlobFailure(
                    Trouble.OTHER, f"of the bytes from {at} to {end} the server kept only those up to {now}"
                )
            at = now

    def commit(self, number: int, at: int, body: bytes) -> None:  # noqa: ARG002
        total = at + len(body)
        status, has = self._store.send("PUT", self._address, body, f"bytes {at}-{total - 1}/{total}")
        if status == 308:
            raise BlobFailure(Trouble.BUSY, f"the upload is not complete: it has {has or 'nothing'} of {total} bytes")

    def discard(self) -> None:
        try:
            self._store.send("DELETE", self._address, b"", "")
        except BlobFailure as error:
            if error.refusal is not Trouble.MISSING:
                raise


def _paged(found: Any) -> Iterator[Any]:
    return turned(found.pages, lambda: found.next_page_token)


def _credentials(config: GcsConfig) -> Any:
    """The service account of the file, else application default credentials.

    Raises:
        BlobFailure: there are none.
        TargetError: the file cannot be used.
    """
    if config.credentials_file is None:
        try:
            return google.auth.default(scopes=[_SCOPE])[0]
        except auth_errors.DefaultCredentialsError:
            raise BlobFailure(Trouble.NO_CREDENTIALS, "no application default credentials") from None
    named = f"targets.{config.name}.credentials_file"
    try:
        facts = json.loads(private_text(named, config.credentials_file, content="the service account's key"))
        return _service_account(facts, scopes=[_SCOPE])
    except ConfigurationError as error:
        raise TargetError(error.message, hint=error.hint) from error
    except (ValueError, AttributeError, TypeError, auth_errors.GoogleAuthError):
        # Not chained: the cause may quote the file.
        raise TargetError(
            f"{named}: {config.credentials_file} is not a service account's key",
            hint="gcloud iam service-accounts keys create FILE --iam-account=ACCOUNT",
        ) from None


@contextmanager
def _told(*, missing: Trouble = Trouble.MISSING) -> Iterator[None]:
    """An error of the package becomes a `BlobFailure`; what a 404 says was `missing` depends on what was asked."""
    try:
        yield
    except google_errors.GoogleAPICallError as error:
        content = getattr(error.response, "content", b"")
        raise _refused(int(error.code or 0), content, str(error.message), missing=missing) from error
    except InvalidResponse as error:
        raise _refused(error.response.status_code, error.response.content, str(error), missing=missing) from error
    except DataCorruption as error:
        raise BlobFailure(Trouble.BUSY, "the checksum differs") from error
    except auth_errors.RefreshError as error:
        raise BlobFailure(Trouble.BUSY if error.retryable else Trouble.CREDENTIALS, one_line(str(error))) from error
    except (auth_errors.TransportError, web.RequestException) as error:
        raise _no_answer(error) from None  # it may show the address of an upload
    except NONSENSE as error:
        raise nonsense(error) from error


def _refused(status: int, content: bytes, said: str, *, missing: Trouble = Trouble.MISSING) -> BlobFailure:
    """Google said no: in JSON, mostly."""
    reason = ""
    try:
        error = json.loads(content)["error"]
        said, reason = str(error["message"]), one_line(str(error["errors"][0]["reason"]))
    except (ValueError, LookupError, TypeError):
        pass
    refusal = _REASONS.get(reason) or _BY_STATUS.get(status, Trouble.OTHER)
    if status == 400 and "CRC32C" in said:
        refusal = Trouble.BUSY  # damaged on its way
    return BlobFailure(missing if refusal is Trouble.MISSING else refusal, f"{status} {reason}: {one_line(said)}")


def _no_answer(error: Exception) -> BlobFailure:
    said = one_line(str(error))
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return BlobFailure(Trouble.CERTIFICATE, said)
    if isinstance(error, web.Timeout):
        return BlobFailure(Trouble.SILENT, "it timed out")
    return BlobFailure(Trouble.AWAY, said)
