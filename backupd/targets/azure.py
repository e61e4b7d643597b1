"""Azure Blob Storage as a `BlobStore`: block blobs of one container, through Microsoft's own package.

Knows: the package, who we are to it, what its errors mean ("Blob service error codes" of the REST reference, and
Azurite 3.35). Each block and each piece that is read has an MD5 that is compared on the other side.

Blocks that were not committed are listed with their blob's name, take room, and are dropped after a week; Azure has no
request that drops them, but does so when the blob is written at once.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from backupd.config import AzureConfig
from backupd.config.secrets import line_in
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
    from azure.core import MatchConditions
    from azure.core import exceptions as azure
    from azure.core.paging import ItemPaged
    from azure.core.pipeline.transport import RequestsTransport
    from azure.storage.blob import BlobBlock, BlobPrefix, BlobProperties, ContainerClient

    from backupd.targets.bounded_answers import bounded
except ImportError as error:
    raise ConfigurationError(
        'targets of type "azure" need the package azure-storage-blob, which is not installed',
        hint=missing_package("azure"),
    ) from error

T = TypeVar("T")

_MOST_BLOCKS = 50_000  # "Scalability targets for Blob storage"
_AIMED_BLOCKS = 49_000  # for an upper bound that is a little low
_MOST_BLOCK_BYTES = 4000 << 20
_BLOCK_BYTES = 256 << 10  # of an answer, at once: as the package has it for a connection of its own
_MARK = "backupd_upload"  # of the blob's metadata, whose names are identifiers
_VARIABLES = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")  # as the az command has them

_REFUSALS = {
    **dict.fromkeys(("BlobNotFound", "ResourceNotFound"), Trouble.MISSING),
    **dict.fromkeys(("BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite"), Trouble.TAKEN),
    **dict.fromkeys(("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"), Trouble.NO_CONTAINER),
    **dict.fromkeys(("AuthenticationFailed", "InvalidAuthenticationInfo"), Trouble.CREDENTIALS),
    **dict.fromkeys(("BlobImmutableDueToPolicy", "LeaseIdMissing", "LeaseIdMismatchWithBlobOperation"), Trouble.LOCKED),
    **dict.fromkeys(("BlobArchived", "BlobBeingRehydrated"), Trouble.ARCHIVED),
    **dict.fromkeys(("ServerBusy", "InternalError", "OperationTimedOut"), Trouble.BUSY),
    **dict.fromkeys(("Md5Mismatch", "Crc64Mismatch", "IncompleteBody"), Trouble.BUSY),
    **dict.fromkeys(("AccountLimitExceeded", "InsufficientStorage"), Trouble.FULL),
}
_BY_STATUS = {**BY_STATUS, 507: Trouble.FULL}


def azure_target(config: AzureConfig, *, machine: str, patience: Patience | None = None) -> BlobTarget:
    """The container as a machine's target."""
    return BlobTarget(config, partial(AzureStore, config), machine=machine, patience=patience)


class AzureStore:
    """The `BlobStore` of one container."""

    sends_parts_at_once = True
    permissions = (
        "backupd needs to read, write, delete and list blobs there: the role Storage Blob Data Contributor, or a SAS "
        "of the container with sp=racwdl; does the account's firewall let this host in?"
    )

    def __init__(self, config: AzureConfig) -> None:
        self._config = config
        self._account_url = _account_url(config)
        self._client: ContainerClient | None = None
        self._access_ends: datetime | None = None
        self._lock = Lock()

    @property
    def url(self) -> str:
        """As az and azcopy write it."""
        return f"{self._account_url}/{self._config.container}"

    @property
    def access_ends(self) -> datetime | None:
        """Of a shared access signature that says so; one of a stored access policy does not, and a key has no end."""
        return self._access_ends

    def part_bytes(self, least: int, at_most: int | None) -> int:
        """So large that the blocks suffice."""
        size = max(least, -(-(at_most or 0) // _AIMED_BLOCKS))
        if size > _MOST_BLOCK_BYTES:
            raise TargetError(
                f"an object of up to {at_most} bytes does not fit into Azure Blob Storage, whose limit is"
                f" {_MOST_BLOCKS} blocks of 4000 MiB",
                hint="give this job a target of another type, or lower copy.object_size",
            )
        return size

    def renew(self) -> None:
        """The next request reads the credentials again."""
        with self._lock:
            self._client = None

    def listed(self, prefix: str, *, after: str = "") -> Sequence[BucketItem]:  # noqa: ARG002 - 12.26 cannot
        """The blobs below a prefix, all of them."""
        with _told(missing=Trouble.NO_CONTAINER):
            return [_item(found) for found in _paged(self._container.list_blobs(name_starts_with=prefix))]

    def uploads(self, prefix: str) -> Sequence[BucketItem]:
        """Names that have blocks and no blob. What is committed between the two listings is none."""
        with _told(missing=Trouble.NO_CONTAINER):
            found = self._container.list_blobs(name_starts_with=prefix, include=["uncommittedblobs"])
            every = [_item(each) for each in _paged(found)]
        blobs = {blob.key for blob in self.listed(prefix)}
        return [found for found in every if found.key not in blobs]

    def folders(self, prefix: str) -> Sequence[str]:
        """What the names go on with, of blobs that are not committed yet as well."""
        with _told(missing=Trouble.NO_CONTAINER):
            found = self._container.walk_blobs(name_starts_with=prefix, include=["uncommittedblobs"], delimiter="/")
            below = [each.name for each in _paged(found) if isinstance(each, BlobPrefix)]
            return [name.removeprefix(prefix).rstrip("/") for name in below]

    def look(self, key: str) -> StoredBlob:
        """What is there."""
        with _told():
            found = self._container.get_blob_client(key).get_blob_properties()
            return StoredBlob(found.size, found.etag, (found.metadata or {}).get(_MARK, ""))

    def read(self, key: str, at: int, size: int, version: str) -> bytes:
        """So many of its bytes."""
        with _told():
            return self._container.download_blob(
                key,
                offset=at,
                length=size,
                etag=version,
                match_condition=MatchConditions.IfNotModified,
                validate_content=True,
                max_concurrency=1,
            ).readall()

    def put(self, key: str, body: bytes, *, mark: str = "", only_new: bool = False) -> None:
        """The blob is there; `only_new` where there was none."""
        with _told(missing=Trouble.NO_CONTAINER):
            self._container.upload_blob(
                key, body, overwrite=not only_new, metadata=_marked(mark), validate_content=True, max_concurrency=1
            )

    def upload(self, key: str, mark: str, *, only_new: bool = False) -> BlobParts:
        """Nothing is asked for before the first block."""
        return _Blocks(self, key, mark, only_new=only_new)

    def delete(self, key: str) -> None:
        """It is not there, with its snapshots."""
        with _told(), suppress(azure.ResourceNotFoundError):
            self._container.delete_blob(key, delete_snapshots="include")

    def checksum(self, body: bytes, before: str) -> str:  # noqa: ARG002
        """Azure computes none of a blob that is made of blocks."""
        return ""

    def stage(self, key: str, block: str, body: bytes) -> None:
        """The block is there."""
        with _told(missing=Trouble.NO_CONTAINER):
            self._container.get_blob_client(key).stage_block(block, body, validate_content=True)

    def commit(self, key: str, blocks: Sequence[str], mark: str, *, only_new: bool) -> None:
        """The blob is there, of these blocks; `only_new` where there was none."""
        condition: dict[str, Any] = {"match_condition": MatchConditions.IfMissing} if only_new else {}
        with _told():
            self._container.get_blob_client(key).commit_block_list(
                [BlobBlock(block) for block in blocks], metadata=_marked(mark), validate_content=True, **condition
            )

    def drop_blocks(self, key: str) -> None:
        """No block of a blob that is not there is left."""
        blob = self._container.get_blob_client(key)
        with _told(), suppress(azure.ResourceExistsError, azure.ResourceModifiedError):  # another writer's, meanwhile
            if not blob.exists():
                made = blob.commit_block_list([], match_condition=MatchConditions.IfMissing)
                blob.delete_blob(etag=str(made["etag"]), match_condition=MatchConditions.IfNotModified)

    @property
    def _container(self) -> ContainerClient:
        with self._lock:
            if self._client is None:
                config, credential = self._config, _credential(self._config)
                self._access_ends = _end_of(credential) if isinstance(credential, str) else None
                self._client = ContainerClient(
                    self._account_url,
                    config.container,
                    credential=credential,
                    retry_total=0,
                    transport=RequestsTransport(
                        session=bounded(),
                        connection_data_block_size=_BLOCK_BYTES,
                        connection_timeout=config.timeout_seconds,
                        read_timeout=config.timeout_seconds,
                        connection_verify=True if config.ca is None else str(config.ca),
                    ),
                )
            return self._client


class _Blocks:
    """A blob that is being uploaded in blocks."""

    def __init__(self, store: AzureStore, key: str, mark: str, *, only_new: bool) -> None:
        self._store, self._key, self._mark, self._only_new = store, key, mark, only_new

    def part(self, number: int, at: int, body: bytes) -> None:  # noqa: ARG002 - a block is known by its number
        self._store.stage(self._key, self._block(number), body)

    def commit(self, number: int, at: int, body: bytes) -> None:
        self.part(number, at, body)
        blocks = [self._block(each) for each in range(number + 1)]
        self._store.commit(self._key, blocks, self._mark, only_new=self._only_new)

    def discard(self) -> None:
        self._store.drop_blocks(self._key)

    def _block(self, number: int) -> str:
        # Of this upload: blocks that a dead process left under the name are never taken for ours.
        return base64.b64encode(f"{self._mark}-{number:05}".encode()).decode()


def _account_url(config: AzureConfig) -> str:
    """Azure has the account in the host's name, an emulator in the path."""
    if config.endpoint is None:
        return f"https://{config.account}.blob.core.windows.net"
    endpoint = config.endpoint.rstrip("/")
    named = (urlsplit(endpoint).hostname or "").startswith(f"{config.account}.")
    return endpoint if named else f"{endpoint}/{config.account}"


def _paged(found: ItemPaged[T]) -> Iterator[T]:
    pages: Any = found.by_page()
    return turned(pages, lambda: pages.continuation_token)


def _item(found: BlobProperties) -> BucketItem:
    return listed_item(found.name, "", found.last_modified, found.size or 0)


def _marked(mark: str) -> dict[str, str] | None:
    return {_MARK: mark} if mark else None


def _credential(config: AzureConfig) -> str | dict[str, str]:
    """The account's key, or a shared access signature: that of the file, else of the environment.

    Raises:
        BlobFailure: there is none.
        TargetError: the file cannot be used.
    """
    named = f"targets.{config.name}.credentials_file"
    if config.credentials_file is None:
        secret = next((os.environ[each] for each in _VARIABLES if os.environ.get(each)), "")
        if not secret:
            raise BlobFailure(Trouble.NO_CREDENTIALS, f"neither a file nor {' nor '.join(_VARIABLES)}")
        named = "AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"
    else:
        try:
            secret = line_in(config.credentials_file, named=named, content="the key").strip()
        except ConfigurationError as error:
            raise TargetError(error.message, hint=error.hint) from error
    if "sig=" in secret:
        return secret
    try:
        base64.b64decode(secret, validate=True)
    except binascii.Error:
        # Not chained: nothing of it is to be shown.
        raise TargetError(
            f"{named} is neither an account key nor a shared access signature", hint="copy it from the account's page"
        ) from None
    return {"account_name": config.account, "account_key": secret}


def _end_of(signature: str) -> datetime | None:
    """Its own (`se`) or that of the key that made it (`ske`), whichever comes first: ISO 8601, in UTC."""
    said = parse_qs(signature.lstrip("?"))
    ends = []
    for text in (*said.get("se", ()), *said.get("ske", ())):
        with suppress(ValueError):
            end = datetime.fromisoformat(text)
            ends.append(end if end.tzinfo else end.replace(tzinfo=UTC))
    return min(ends, default=None)


@contextmanager
def _told(*, missing: Trouble = Trouble.MISSING) -> Iterator[None]:
    """An error of the package becomes a `BlobFailure`; what a 404 says was `missing` depends on what was asked.

    What is said of a broken connection may show the address with its signature: such an error is not chained.
    """
    try:
        yield
    except azure.HttpResponseError as error:
        raise _answer(error, missing) from error
    except (azure.ServiceRequestError, azure.ServiceResponseError, azure.StreamConsumedError) as error:
        raise _no_answer(error) from None
    except azure.AzureError as error:
        raise BlobFailure(Trouble.OTHER, _said(error)) from None
    except OSError as error:  # of requests, while a body is read (azure-storage-blob 12.31)
        raise BlobFailure(Trouble.SILENT, one_line(str(error))) from None
    except NONSENSE as error:
        raise nonsense(error) from error


def _answer(error: azure.HttpResponseError, missing: Trouble) -> BlobFailure:
    """Azure said no."""
    code = getattr(error, "error_code", None) or ""
    code = str(getattr(code, "value", code))
    said = f"{code}: {_said(error)}".removeprefix(": ")
    refusal = _REFUSALS.get(code) or _BY_STATUS.get(error.status_code or 0, Trouble.OTHER)
    if refusal is Trouble.DENIED and "failed to authenticate" in said:
        refusal = Trouble.CREDENTIALS
    if refusal is Trouble.OTHER and re.search(r"content.?md5", said, re.IGNORECASE):
        refusal = Trouble.BUSY  # damaged on its way
    return BlobFailure(missing if refusal is Trouble.MISSING else refusal, said)


def _no_answer(error: azure.AzureError) -> BlobFailure:
    said = _said(error)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return BlobFailure(Trouble.CERTIFICATE, said)
    if isinstance(error, azure.ServiceRequestError) and not isinstance(error, azure.ServiceRequestTimeoutError):
        return BlobFailure(Trouble.AWAY, said)
    return BlobFailure(Trouble.SILENT, said)


def _said(error: azure.AzureError) -> str:
    return one_line(str(error.message))
