"""What a cloud's container of blobs must be able to do, and how its failures are told. Azure's and Google's can.

Each call is one request (a listing: as many as it has pages), made once: who asks persists. What goes wrong is a
`BlobFailure`, made of the library's own error where it is raised, so that nobody else knows the library.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol, TypeGuard, TypeVar

from backupd.targets.keyed import BucketItem
from backupd.targets.outages import Outages, Patience, Unwanted, persisted, wanted
from backupd.vocabulary.errors import NoRoom, TargetAway, TargetError

T = TypeVar("T")


class Trouble(Enum):
    """Why a request failed."""

    MISSING = auto()  # there is no such blob
    TAKEN = auto()  # there is one already, or another than was asked for
    NO_CONTAINER = auto()
    CREDENTIALS = auto()  # unknown, wrong or expired
    NO_CREDENTIALS = auto()
    DENIED = auto()
    LOCKED = auto()
    ARCHIVED = auto()  # in a tier that cannot be read at once
    FULL = auto()
    CERTIFICATE = auto()
    AWAY = auto()  # no connection
    SILENT = auto()  # no answer in time, or half of one
    BUSY = auto()  # throttled, an error of the service's own, or bytes that were damaged on their way
    OTHER = auto()


BY_STATUS = {  # of HTTP, where a service says no more
    **dict.fromkeys((408, 429, 500, 502, 503, 504), Trouble.BUSY),
    **{401: Trouble.CREDENTIALS, 403: Trouble.DENIED, 404: Trouble.MISSING, 412: Trouble.TAKEN},
}

_PASSING = {Trouble.AWAY, Trouble.SILENT, Trouble.BUSY}


class BlobFailure(Exception):
    """A request that failed. What the service said is its code and message: no header, no address with a signature."""

    def __init__(self, refusal: Trouble, said: str) -> None:
        super().__init__(said)
        self.refusal = refusal

    @property
    def passes(self) -> bool:
        """Whether the same request may well succeed later; whether this one was carried out is not known."""
        return self.refusal in _PASSING


def one_line(said: str) -> str:
    """What a library said, in short; without the query of an address, which may hold a signature."""
    return re.sub(r"\?\S*", "", said.partition("\n")[0])[:300]


# What the libraries raise where an answer is not what a service says: they look into it without asking what it is.
NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, AssertionError)


def nonsense(error: Exception) -> BlobFailure:
    """The answer is none. It is not repeated: it may be of any length."""
    return BlobFailure(Trouble.OTHER, f"its answer could not be parsed ({type(error).__name__})")


SAME_PAGE = "it gives the same page of its listing again"


def turned(pages: Iterable[Iterable[T]], mark: Callable[[], object]) -> Iterator[T]:
    """What is on each page of a listing; `mark` tells where the next one begins, None after the last.

    Raises:
        BlobFailure: a page begins where one did already: whoever went on asking would do so for ever.
    """
    begun: list[object] = []
    for page in pages:
        yield from page
        if (behind := mark()) in begun:
            raise BlobFailure(Trouble.OTHER, SAME_PAGE)
        begun.append(behind)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob that is there. Raises ValueError where the service says of it what no blob is."""

    size: int
    version: str  # which other bytes do not have
    mark: str  # of the upload that made it
    checksum: str = ""  # of all of it, where the service computes one

    def __post_init__(self) -> None:
        if not (_is_size(self.size) and isinstance(self.version, str) and self.version):
            raise ValueError("neither a size nor a version")


def listed_item(key: object, version: str, at: object, size: object) -> BucketItem:
    """What a listing says of a blob. Raises ValueError where it says nothing of the kind."""
    if not (isinstance(key, str) and isinstance(at, datetime) and at.tzinfo is not None and _is_size(size)):
        raise ValueError("neither a name nor a date nor a size")
    return BucketItem(key, version, at, size)


def _is_size(size: object) -> TypeGuard[int]:
    return isinstance(size, int) and size >= 0


class BlobParts(Protocol):
    """A blob that is being uploaded in parts."""

    def part(self, number: int, at: int, body: bytes) -> None:
        """The part is there, at that byte. It may be sent more than once."""

    def commit(self, number: int, at: int, body: bytes) -> None:
        """The last part is there, and the blob. It may be asked for more than once."""

    def discard(self) -> None:
        """Nothing is left of the parts, as far as the service can be told so; nothing happens when there are none."""


class BlobStore(Protocol):
    """One container. Any number of threads may ask at once."""

    @property
    def url(self) -> str:
        """As the service's own tools write it."""

    @property
    def permissions(self) -> str:
        """What backupd must be allowed to do, in the service's terms."""

    @property
    def sends_parts_at_once(self) -> bool:
        """Whether an upload's parts need not come one after the other."""

    @property
    def access_ends(self) -> datetime | None:
        """When the credentials that were last read end; None where they do not tell, or none were read yet."""

    def part_bytes(self, least: int, at_most: int | None) -> int:
        """How large the parts of an object of up to so many bytes are."""

    def renew(self) -> None:
        """The next request reads the credentials again."""

    def listed(self, prefix: str, *, after: str = "") -> Sequence[BucketItem]:
        """The blobs below a prefix; those up to a key need not be told."""

    def uploads(self, prefix: str) -> Sequence[BucketItem]:
        """Those below a prefix of which there are parts only, where the service tells."""

    def folders(self, prefix: str) -> Sequence[str]:
        """What the names go on with after a prefix, up to the next slash."""

    def look(self, key: str) -> StoredBlob:
        """What is there."""

    def read(self, key: str, at: int, size: int, version: str) -> bytes:
        """So many of its bytes, at least one, of this version."""

    def put(self, key: str, body: bytes, *, mark: str = "", only_new: bool = False) -> None:
        """The blob is there; `only_new` where there was none."""

    def upload(self, key: str, mark: str, *, only_new: bool = False) -> BlobParts:
        """A blob that is there when it is committed; `only_new` where there was none."""

    def delete(self, key: str) -> None:
        """It is not there."""

    def checksum(self, body: bytes, before: str) -> str:
        """Of all bytes up to these, from that of those before; empty where the service computes none."""


class BlobService:
    """Requests to one container, each in words when it fails. Any number of threads may ask at once."""

    def __init__(self, store: BlobStore, where: str, patience: Patience, *, outage_seconds: float) -> None:
        self.store = store
        self.where = where
        self.outages = Outages(where, patience, at_most_seconds=outage_seconds)
        self.tries = patience.tries  # where no outage is waited for

    def ask(self, doing: str, request: Callable[[], T], *, unwanted: Unwanted = wanted, tries: int | None = None) -> T:
        """What the request returns; it is made again while its failure is one that passes, and an outage is waited for.

        With `tries` only so often.

        Raises:
            TargetError: it failed for good, or while it was unwanted.
        """
        try:
            return self.persist(doing, request, unwanted=unwanted, tries=tries)
        except BlobFailure as error:
            raise self.told(error, doing) from error

    def persist(
        self, doing: str, request: Callable[[], T], *, unwanted: Unwanted = wanted, tries: int | None = None
    ) -> T:
        """The same with a `BlobFailure`, for who can answer it."""
        return persisted(
            request,
            self.outages.attempts(tries=tries, unwanted=unwanted),
            doing=doing,
            failures=(BlobFailure,),
            passes=lambda error: isinstance(error, BlobFailure) and error.passes,
            renew=self._renew,
        )

    def look(self, doing: str, key: str, *, unwanted: Unwanted = wanted, tries: int | None = None) -> StoredBlob | None:
        """What is there; None where there is nothing.

        Raises:
            TargetError: nobody knows.
        """
        try:
            return self.persist(doing, lambda: self.store.look(key), unwanted=unwanted, tries=tries)
        except BlobFailure as error:
            if error.refusal is Trouble.MISSING:
                return None
            raise self.told(error, doing) from error

    def told(self, error: BlobFailure, doing: str) -> TargetError:
        """The failure in a sentence with a hint."""
        sentence, hint = self._words(error, doing)
        if error.refusal is Trouble.FULL:
            return NoRoom(sentence, hint=hint)
        return (TargetAway if error.passes else TargetError)(sentence, hint=hint)

    def _renew(self, error: Exception) -> bool:
        refused = isinstance(error, BlobFailure) and error.refusal in {Trouble.CREDENTIALS, Trouble.DENIED}
        if refused:
            self.store.renew()
        return refused

    def _words(self, error: BlobFailure, doing: str) -> tuple[str, str]:
        where = self.where
        match error.refusal:
            case Trouble.NO_CONTAINER:
                return f"{where} does not exist", "create it, or correct the target's settings"
            case Trouble.NO_CREDENTIALS:
                return f"no credentials for {where}: {error}", "set credentials_file"
            case Trouble.CREDENTIALS:
                return f"{where} does not accept the credentials ({error})", "are they this account's, and not expired?"
            case Trouble.DENIED:
                return f"{where} does not let backupd {doing} it ({error})", self.store.permissions
            case Trouble.LOCKED:
                return f"could not {doing} {where}: {error}", "see its retention policies, holds and leases"
            case Trouble.ARCHIVED:
                return (
                    f"could not {doing} {where}: it is in the archive tier ({error})",
                    "set the tier of the backup's blobs to Cool or Hot, wait until that is done (hours), and try again,"
                    " or use a copy on another target; a rule of the account has moved them there",
                )
            case Trouble.FULL:
                return f"no space left on {where} ({error})", "raise the quota, or let retention keep fewer backups"
            case Trouble.CERTIFICATE:
                return f"the certificate of {where} is not trusted", "is something between it and this host?"
            case Trouble.AWAY:
                return f"{where} cannot be reached: {error}", "check the network, the account and the endpoint"
            case Trouble.SILENT:
                return f"could not {doing} {where}: {error}", "check the network"
            case Trouble.BUSY:
                return f"could not {doing} {where}: {error}", "the service is busy or failing: try again later"
            case Trouble.MISSING | Trouble.TAKEN | Trouble.OTHER:
                return f"could not {doing} {where}: {error}", "check the target's settings, and the service's own log"
