"""The parts of an upload, and its end: what the store has of it, what it acknowledges, how it is given up.

Knows: checksums, part sizes, ListParts.
"""

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backupd.config import PartChecksum
from backupd.targets.outages import Unwanted, wanted
from backupd.targets.s3_client import Service
from backupd.targets.s3_errors import FAILURES, code_of, explained, is_denied_or_unknown, is_missing
from backupd.vocabulary.errors import TargetError

# "Amazon S3 multipart upload limits" of the user guide: 10,000 parts of 5 MiB to 5 GiB. An object had at most 5 TiB
# until December 2025, which other makers' stores keep to, and has 50 TB since, which is what its parts amount to.
MOST_PARTS = 10_000
MOST_PART_BYTES = 5 << 30
MOST_IN_MEMORY_BYTES = 24 << 20  # of a part, unless the configuration wants more: larger ones are objects first
LAST_TRIES = 3  # while an error waits to be told; what is left then is `backupd recover`'s
UNRELIABLE = "the store, or something between it and this host, loses what it acknowledges"

_AIMED_PARTS = 9_000  # for an upper bound that is a little low
_ABORTS = 3  # a part that arrives after an abort may stay (AbortMultipartUpload's description)
_ABORT_HINT = "have the bucket abort incomplete uploads after some days (AbortIncompleteMultipartUpload)"

Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UploadPlace:
    """Where one object goes, and how."""

    service: Service
    bucket: str
    key: str
    name: str  # for sentences
    checksum: PartChecksum
    kept: Callable[[], Parameters]  # Object Lock's parameters, as of now, and the storage class
    unwanted: Unwanted = wanted
    once: bool = False  # never in place of another object of the name

    @property
    def condition(self) -> Parameters:
        """What the request says that makes the object."""
        return {"IfNoneMatch": "*"} if self.once else {}

    @property
    def address(self) -> dict[str, Any]:
        """What every request says."""
        return {"Bucket": self.bucket, "Key": self.key}


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part that the store says it has."""

    number: int
    size: int
    etag: str
    checksum: Parameters

    def completed(self) -> Parameters:
        """How the completion names it."""
        return {"PartNumber": self.number, "ETag": self.etag, **self.checksum}


def part_bytes(least: int, at_most: int | None) -> int:
    """The size of each part but the last: one for all, because some stores (R2) want that.

    Raises:
        TargetError: S3 has no object of that many bytes.
    """
    size = max(least, -(-(at_most or 0) // _AIMED_PARTS))
    if size > MOST_PART_BYTES:
        raise TargetError(
            f"an object of up to {at_most} bytes does not fit into S3, whose limit is {MOST_PARTS} parts of 5 GiB",
            hint="the server has a file that large: give this job a target of another type",
        )
    return size


def checksum(kind: PartChecksum, body: bytes | bytearray) -> Parameters:
    """The header that the store compares with what arrived."""
    match kind:
        case PartChecksum.SHA256:
            return {"ChecksumSHA256": base64.b64encode(hashlib.sha256(body).digest()).decode()}
        case PartChecksum.CRC32:
            return {"ChecksumCRC32": base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()}
        case PartChecksum.NONE:
            return {}


def require_stored(place: UploadPlace, upload_id: str, parts: Sequence[UploadedPart]) -> None:
    """The store has these parts and no others. Where it does not let us look, the completion names them all the same.

    Raises:
        TargetError: it has not.
    """
    service = place.service
    doing = f"list the parts of {place.name} on"
    with explained(service.where, doing):
        try:
            listed = service.persist(doing, lambda: stored_parts(place, upload_id), unwanted=place.unwanted)
        except FAILURES as error:
            if is_denied_or_unknown(error):
                return
            raise
    if listed != {part.number: (part.size, part.etag) for part in parts}:
        raise TargetError(
            f"{service.where} does not have the parts of {place.name} that it had acknowledged", hint=UNRELIABLE
        )


def stored_parts(place: UploadPlace, upload_id: str) -> Mapping[int, tuple[int, str]]:
    """Size and ETag of each part that the store has. Raises botocore's own errors."""
    pages = place.service.client.get_paginator("list_parts").paginate(**place.address, UploadId=upload_id)
    return {part["PartNumber"]: (part["Size"], part["ETag"]) for page in pages for part in page.get("Parts", ())}


def abort(place: UploadPlace, upload_id: str, *, meanwhile: Callable[[], None] = lambda: None) -> None:
    """The upload and its parts are gone; nothing happens when they are already.

    `meanwhile` is called between telling the store and looking whether it did it.

    Raises:
        TargetError: they are not.
    """
    service = place.service
    address: Parameters = {**place.address, "UploadId": upload_id}
    with explained(service.where, f"abort {place.name} on"):
        for _ in range(_ABORTS):
            try:
                service.persist("give up", lambda: service.client.abort_multipart_upload(**address), tries=LAST_TRIES)
                meanwhile()
                if not _has_upload(place, upload_id):
                    return
            except FAILURES as error:
                if code_of(error) == "NoSuchUpload" or is_missing(error):
                    return
                raise
    raise TargetError(f"{service.where} does not abort the upload {upload_id} of {place.name}", hint=_ABORT_HINT)


def _has_upload(place: UploadPlace, upload_id: str) -> bool:
    """Whether its parts can be listed; no where we may not look: then the store's word has to do."""
    try:
        place.service.persist("look for", lambda: stored_parts(place, upload_id), tries=LAST_TRIES)
    except FAILURES as error:
        if is_denied_or_unknown(error):
            return False
        raise
    return True
