"""Reading one object from S3, from a byte to another, over as many connections as it takes.

Knows: ranges, and that what is read is the object that was started with (its ETag).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from backupd.policy.manifest import MOST_BYTES
from backupd.targets.s3_client import Service
from backupd.targets.s3_errors import FAILURES, code_of, explained, is_missing, passes_by_itself
from backupd.targets.s3_parts import UploadPlace
from backupd.vocabulary.errors import TargetError

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_READ_BYTES = 1 << 20


class ObjectReader:
    """An object that is there. `close` drops the connection, if one is open.

    Raises:
        TargetError: there is no such object, or it cannot be read.
    """

    def __init__(self, service: Service, address: Mapping[str, Any], name: str, *, at: int, size: int | None) -> None:
        self._service = service
        self._address = address
        self._doing = f"read {name} from"
        self._at = at
        self._wanted_end = None if size is None else at + size
        self._end = at  # of what the store has of it
        self._etag: str | None = None
        with explained(service.where, self._doing):
            self._answer = self._begun()

    def close(self) -> None:
        """The connection is gone: the rest of a large object is not waited for."""
        if self._answer is not None:
            self._answer["Body"].close()
            self._answer = None

    def pieces(self) -> Iterator[bytes]:
        """The bytes that were asked for.

        Raises:
            TargetError: the object ends before, or an outage lasted too long without a byte in between.
        """
        attempts = self._service.outages.attempts()
        with explained(self._service.where, self._doing):
            while self._answer is not None:
                try:
                    for piece in self._answer["Body"].iter_chunks(_READ_BYTES):
                        self._at += len(piece)
                        attempts.answered()
                        yield piece
                    break
                except FAILURES as error:
                    what = f"could not {self._doing} it on from byte {self._at}: {error}"
                    if not (passes_by_itself(error) and attempts.again(what)):
                        raise
                self.close()
                self._answer = self._begun() if self._at < self._end else None
        if self._at < max(self._end, self._wanted_end or 0):
            raise TargetError(
                f"could not {self._doing} {self._service.where}: it ended at byte {self._at} of "
                f"{max(self._end, self._wanted_end or 0)}",
                hint="it is not what was stored there; check the store's own log",
            )

    def _begun(self) -> "GetObjectOutputTypeDef | None":
        """The store has started to answer; None where the object has no byte there."""
        if self._wanted_end is not None and self._wanted_end <= self._at:
            self._service.persist(self._doing, lambda: self._service.client.head_object(**self._address))
            return None
        try:
            answer = self._service.persist(self._doing, self._get)
        except FAILURES as error:
            if code_of(error) == "InvalidRange" and self._etag is None:
                return None
            raise
        self._etag, self._end = answer["ETag"], self._at + answer["ContentLength"]
        return answer

    def _get(self) -> "GetObjectOutputTypeDef":
        asked: dict[str, Any] = {**self._address}
        if self._at or self._wanted_end is not None:
            asked["Range"] = f"bytes={self._at}-{'' if self._wanted_end is None else self._wanted_end - 1}"
        if self._etag is not None:
            asked["IfMatch"] = self._etag
        answer = self._service.client.get_object(**asked)
        with ExitStack() as unread:
            unread.callback(answer["Body"].close)
            self._require_answered(answer)
            unread.pop_all()
        return answer

    def _require_answered(self, answer: "GetObjectOutputTypeDef") -> None:
        """It begins at that byte, and has all that is asked of it. Raises what `understood` understands, otherwise."""
        begins_at = int(answer.get("ContentRange", "bytes 0-").removeprefix("bytes ").partition("-")[0])
        if begins_at != self._at:
            raise TargetError(
                f"{self._service.where} answered from byte {begins_at} instead of {self._at}",
                hint="it does not support the Range header, which restores need",
            )
        if lacking := {"ETag", "ContentLength"} - answer.keys():
            raise LookupError(*lacking)


def small_object(place: UploadPlace, *, tries: int | None = None) -> bytes | None:
    """All of a small object; None where there is none. Without `tries` an outage is waited for."""
    service, doing = place.service, f"read {place.name} from"
    with explained(service.where, doing):
        try:
            return service.persist(
                doing,
                lambda: whole(service.client.get_object(**place.address)),
                unwanted=place.unwanted,
                tries=tries,
            )
        except FAILURES as error:
            if is_missing(error):
                return None
            raise


def whole(answer: "GetObjectOutputTypeDef") -> bytes:
    """Of what is larger than anything that backupd keeps in one piece, the beginning: enough to be refused."""
    found = bytearray()
    with closing(answer["Body"]) as body:
        # To the empty read at the end: it is there that botocore compares length and checksum.
        while len(found) <= MOST_BYTES and (piece := body.read(1 << 20)):
            found += piece
    return bytes(found)
