"""One blob on its way to a cloud: in parts while it grows, visible to nobody before it is whole.

Knows: what is in memory, which is sent at the same time, what must be true after it was committed. A part whose sending
failed is sent again from memory. A blob bears a mark of the upload that made it: by that it is known after an answer
was lost, and nobody else's is ever removed.
"""

import logging
import secrets
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from io import BytesIO
from threading import BoundedSemaphore, Event

from backupd.targets.blob_store import BlobFailure, BlobParts, BlobService, StoredBlob, Trouble
from backupd.targets.names import already_there
from backupd.targets.outages import Unwanted
from backupd.vocabulary.errors import TargetError

log = logging.getLogger(__name__)

UNRELIABLE = "the service, or something between it and this host, loses what it acknowledges"
_STOP_SECONDS = 5.0  # for parts that are being sent when the upload is given up
_PERHAPS_DONE = {Trouble.MISSING, Trouble.TAKEN, Trouble.OTHER}
LAST_TRIES = 3  # while an error waits to be told


class BlobUpload:
    """An object that is being written. `finish` or `give_up` ends it; its threads end with it.

    `room` bounds the parts that are being sent, over all uploads of a target; one more is being filled by each. With
    `once` it never takes the place of another blob of the name, and one that is sent at once is not looked for when the
    service, which compares its checksum, has answered.
    """

    def __init__(
        self,
        service: BlobService,
        key: str,
        name: str,
        *,
        part_size: int,
        room: BoundedSemaphore,
        unwanted: Unwanted,
        once: bool = False,
    ) -> None:
        self._service, self._key, self._name = service, key, name
        self._part_size, self._room, self._unwanted = part_size, room, unwanted
        self._once = once
        self._mark = secrets.token_hex(16)
        self._filling = BytesIO()  # gives its bytes away without a copy
        self._size = self._number = 0
        self._checksum = ""
        self._parts: BlobParts | None = None
        self._sending: deque[Future[None]] = deque()
        self._pool = ThreadPoolExecutor(
            None if service.store.sends_parts_at_once else 1, thread_name_prefix="backupd blob"
        )
        self._given_up = Event()
        self._may_exist = False

    def write(self, data: bytes | memoryview) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        while view:
            if self._filling.tell() == self._part_size:  # and is not the last one
                self._send_part()
            taken = view[: self._part_size - self._filling.tell()]
            self._filling.write(taken)
            view = view[len(taken) :]

    def finish(self) -> None:
        """The object is there, whole.

        Raises:
            AlreadyThere: there is another, where it is to be the only one.
            TargetError: it is not, or nobody knows.
        """
        while self._sending:
            self._sending.popleft().result()
        self._pool.shutdown()
        body, at = self._filled()
        self._may_exist = True
        try:
            self._commit(body, at)
            if self._once and self._parts is None:
                return
        except BlobFailure as error:
            # An earlier try may have been carried out although its answer was lost: the blob will tell.
            if not (error.passes or error.refusal in _PERHAPS_DONE) or not self._is_whole():
                raise self._refused(error) from error
        if not self._is_whole():
            raise TargetError(
                f"{self._service.where} confirmed {self._name}, but does not have it as it was sent", hint=UNRELIABLE
            )

    def _commit(self, body: bytes, at: int) -> None:
        """The service was told to make the blob. Raises what it says to that."""
        store, parts, number, doing = self._service.store, self._parts, self._number, f"write {self._name} to"
        if parts is not None:
            self._service.persist(doing, lambda: parts.commit(number, at, body), unwanted=self._unwanted)
            return
        put = partial(store.put, self._key, body, mark=self._mark, only_new=self._once)
        try:
            self._service.persist(doing, put, unwanted=self._unwanted)
        except BlobFailure as error:
            if not (self._once and error.refusal is Trouble.TAKEN and self._look() is None):
                raise
            # Blocks that a dead writer left under the name are in the way as a blob is (Azurite 3.35).
            self._service.persist(doing, store.upload(self._key, self._mark).discard, unwanted=self._unwanted)
            self._service.persist(doing, put, unwanted=self._unwanted)

    def _refused(self, error: BlobFailure) -> TargetError:
        # To whom another came first Azure may say that his blocks are gone.
        if self._once and error.refusal in _PERHAPS_DONE and self._look() is not None:
            return already_there(self._name, self._service.where)
        return self._service.told(error, f"write {self._name} to")

    def give_up(self) -> None:
        """Nothing is left of it, neither parts nor a blob. Another blob of the name stays.

        Called while an error is told already: what fails here is a line of the log.
        """
        self._given_up.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(self._sending, timeout=_STOP_SECONDS)
        try:
            if (parts := self._parts) is not None:
                self._service.ask(f"abort {self._name} on", parts.discard, tries=LAST_TRIES)
            if self._may_exist and (found := self._look(tries=LAST_TRIES)) is not None and found.mark == self._mark:
                store = self._service.store
                self._service.ask("remove from", lambda: store.delete(self._key), tries=LAST_TRIES)
        except TargetError as error:
            log.error("%s may have been left behind: %s", self._key, error.message)

    def _filled(self) -> tuple[bytes, int]:
        """The part that was filled, and at which byte of the object it begins."""
        body, at = self._filling.getvalue(), self._size
        self._filling = BytesIO()
        self._size += len(body)
        self._checksum = self._service.store.checksum(body, self._checksum)
        return body, at

    def _send_part(self) -> None:
        """The part that was filled is on its way; waits while as many are as may be. Raises what one failed with."""
        while self._sending and self._sending[0].done():
            self._sending.popleft().result()
        if self._parts is None:
            self._parts = self._service.ask(
                f"begin {self._name} on",
                lambda: self._service.store.upload(self._key, self._mark, only_new=self._once),
                unwanted=self._is_unwanted,
            )
        parts, number = self._parts, self._number
        self._number += 1
        while not self._room.acquire(timeout=0.1):
            if self._is_unwanted():
                raise TargetError("the upload was aborted while it waited for memory")
        try:
            body, at = self._filled()
            sent = self._pool.submit(self._send, parts, number, at, body)
        except BaseException:
            self._room.release()
            raise
        sent.add_done_callback(lambda _: self._room.release())
        self._sending.append(sent)

    def _send(self, parts: BlobParts, number: int, at: int, body: bytes) -> None:
        self._service.ask(
            f"write part {number + 1} of {self._name} to",
            lambda: parts.part(number, at, body),
            unwanted=self._is_unwanted,
        )

    def _is_unwanted(self) -> bool:
        return self._given_up.is_set() or self._unwanted()

    def _is_whole(self) -> bool:
        found = self._look()
        return (
            found is not None
            and (found.size, found.mark) == (self._size, self._mark)
            and found.checksum in ("", self._checksum)
        )

    def _look(self, *, tries: int | None = None) -> StoredBlob | None:
        return self._service.look(f"look for {self._name} on", self._key, tries=tries)
