"""One object on its way to S3: in parts while it grows, several at once, visible to nobody before the end.

Knows: parts, their checksums, the upload's id, what must be true before and after it is completed.

What is in memory is the part that is being filled and those being sent. A part whose sending failed is sent again from
memory, so that a lost connection costs that part and no other. What the store has is compared with what we sent, part
by part, before the upload is completed, and the object's size afterwards: an error under status 200, or a success that
was none, is found.

Seen with versitygw 1.8.0: an upload completed twice answers well twice; Amazon says NoSuchUpload to the second, once
the first is some minutes old. So what counts after a lost answer is whether the object is there.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from backupd.config import PartChecksum
from backupd.targets import UploadLedger
from backupd.targets.names import already_there
from backupd.targets.outages import Unwanted, wanted
from backupd.targets.s3_errors import FAILURES, code_of, explained, is_missing, is_untold
from backupd.targets.s3_parts import (
    LAST_TRIES,
    MOST_PARTS,
    UNRELIABLE,
    Parameters,
    UploadedPart,
    UploadPlace,
    abort,
    checksum,
    require_stored,
)
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Holding, HoldingKind

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0  # for parts that are being sent when the upload is given up
_TICK_SECONDS = 0.1
_MARK = "backupd-upload"  # of the object's metadata
_BUDGET_BYTES = 64 << 20  # four parts of the default size


class PartMemory:
    """Bounds the memory of parts, over all uploads of a target, and uses it again.

    So many parts are sent at once as `parts` says and `budget` has room for, in bytes of all that are filled or sent,
    but always one. An upload's first part waits for nobody, because whoever feeds one may be waiting for another: the
    bound is the budget and a part for each upload.
    Fresh memory for each part would leave holes in the heap: twice as much was held then (glibc 2.36).
    """

    def __init__(self, parts: int, budget: int = _BUDGET_BYTES) -> None:
        self._changed = threading.Condition()
        self._parts = parts
        self._budget = budget
        self._sending = 0
        self._held = 0  # bytes, of parts that are being filled or sent, or may be filled next
        self._spare: deque[bytearray] = deque()

    def memory(self, size: int, *, is_next: bool) -> bytearray:
        """Of exactly this size, with whatever was in it before; `is_next` where `enter` has kept it for this upload."""
        with self._changed:
            self._held += 0 if is_next else size
            used = self._spare.pop() if self._spare else bytearray()
        return used if len(used) == size else bytearray(size)

    def enter(self, size: int, *, unwanted: Unwanted = wanted) -> None:
        """One more part is being sent, and memory for the upload's next is kept; waits until there is room for both.

        Raises:
            TargetError: nobody wants it any more.
        """
        with self._changed:
            while self._sending and (self._sending >= self._parts or self._held + size > self._budget):
                if unwanted():
                    raise TargetError("the upload was aborted while it waited for memory")
                self._changed.wait(_TICK_SECONDS)
            self._sending += 1
            self._held += size

    def leave(self, part: bytearray, size: int) -> None:
        """This part of that size has been sent, or never will be."""
        with self._changed:
            self._sending -= 1
        self.free(part, size)

    def free(self, part: bytearray, size: int) -> None:
        """Its memory is not needed any more."""
        with self._changed:
            self._held -= size
            if len(part) == size and self._held + size * (len(self._spare) + 1) <= self._budget:
                self._spare.append(part)
            self._changed.notify_all()


class Upload:
    """An object that is being written. `finish` or `give_up` ends it; its threads end with it.

    `room` bounds the parts that are being sent, over all uploads of a target.
    """

    def __init__(
        self,
        place: UploadPlace,
        part_size: int,
        *,
        room: PartMemory,
        ledger: UploadLedger | None,
        detail: Parameters,
    ) -> None:
        self.place = place
        self._part_size = part_size
        self._room = room
        self._ledger = ledger
        self._detail = detail
        self._holding: Holding | None = None  # the upload, once it has an id
        self._filling = bytearray()  # of a part's size from the first byte on
        self._filled = 0
        self._has_room = False  # for the next part to be filled
        self._size = 0
        self._begun_parts = 0
        self._sending: list[Future[UploadedPart]] = []
        self._parts: list[UploadedPart] = []
        self._given_up = threading.Event()
        self._may_exist = False
        self._is_acknowledged = False  # as a whole, with the checksum of what was sent
        self._mark = secrets.token_hex(16)  # by which the object is known as this upload's
        self._pool = ThreadPoolExecutor(thread_name_prefix="backupd s3")

    def write(self, data: bytes | memoryview) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        while view:
            if not self._filling:
                self._filling = self._room.memory(self._part_size, is_next=self._has_room)
                self._has_room = True
            taken = view[: self._part_size - self._filled]
            self._filling[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            self._size += len(taken)
            view = view[len(taken) :]
            if self._filled == self._part_size:
                self._send_part()

    def finish(self) -> None:
        """The object is there, whole.

        Raises:
            TargetError: it is not, or nobody knows.
        """
        if self._holding is None:
            self._put()
        else:
            if self._filled:
                del self._filling[self._filled :]
                self._send_part()
            wait(self._sending, return_when=FIRST_EXCEPTION)
            self._collect()
            self._complete(self._holding.name)
        self._forget_filling()
        if not (self.place.once and self._is_acknowledged):
            self._require_whole()
        self._pool.shutdown()
        if self._holding is not None and self._ledger is not None:
            self._ledger.released(self._holding)

    def give_up(self) -> None:
        """Nothing is left of it, neither parts nor an object; its row stays where that could not be done.

        Another object of the name stays. Called while an error is told already: what fails here is a line of the log.
        """
        self._given_up.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._forget_filling()
        try:
            if self._holding is not None:
                abort(self.place, self._holding.name, meanwhile=self._wait_for_senders)
            if self._may_exist and self._is_there():
                service = self.place.service
                service.ask("remove from", lambda: service.client.delete_object(**self.place.address), tries=LAST_TRIES)
        except TargetError as error:
            log.error("%s may have been left behind: %s", self.place.key, error.message)
        else:
            if self._holding is not None and self._ledger is not None:
                self._ledger.released(self._holding)

    def _is_there(self) -> bool:
        """Whether the object of this name is the one that was written here.

        Raises:
            TargetError: nobody knows.
        """
        service, address = self.place.service, self.place.address
        doing = f"look at {self.place.name} on"
        with explained(service.where, doing):
            try:
                found = service.persist(doing, lambda: service.client.get_object(**address), tries=LAST_TRIES)
            except FAILURES as error:
                if is_missing(error):
                    return False
                raise
        found["Body"].close()  # unread
        return found["Metadata"].get(_MARK) == self._mark

    def _forget_filling(self) -> None:
        """The memory of what is not sent as a part is free."""
        if self._has_room:
            self._room.free(self._filling, self._part_size)
            self._filling, self._filled, self._has_room = bytearray(), 0, False

    def is_unwanted(self) -> bool:
        """Nobody wants it any more."""
        return self._given_up.is_set() or self.place.unwanted()

    def _wait_for_senders(self) -> None:
        wait(self._sending, timeout=_STOP_SECONDS)

    def _put(self) -> None:
        """All at once what is less than a part."""
        place, body = self.place, self._filling
        del body[self._filled :]
        content: Any = body  # as it is: `bytes` would be a copy
        self._may_exist = True
        header, doing = checksum(place.checksum, body), f"write {place.name} to"
        with explained(place.service.where, doing):
            try:
                answer = place.service.persist(
                    doing,
                    lambda: place.service.client.put_object(
                        **place.address,
                        Body=content,
                        Metadata={_MARK: self._mark},
                        **header,
                        **place.condition,
                        **place.kept(),
                    ),
                    unwanted=place.unwanted,
                )
            except FAILURES as error:
                # An earlier try may have been carried out although its answer was lost: the object will tell.
                if not self._is_taken(error):
                    raise
            else:
                self._is_acknowledged = _acknowledges(answer, header)

    def _is_taken(self, error: Exception) -> bool:
        """False unless there was an object of the name already, and then True where it is this one.

        Raises:
            AlreadyThere: it is another.
        """
        if not (self.place.once and code_of(error) == "PreconditionFailed"):
            return False
        if not self._is_there():
            raise already_there(self.place.name, self.place.service.where) from error
        return True

    def _begin(self) -> Holding:
        """An upload exists and is written down."""
        place = self.place
        algorithm: Parameters = (
            {} if place.checksum is PartChecksum.NONE else {"ChecksumAlgorithm": place.checksum.upper()}
        )
        upload_id = place.service.ask(
            f"begin {place.name} on",
            lambda: place.service.client.create_multipart_upload(
                **place.address, Metadata={_MARK: self._mark}, **algorithm, **place.kept()
            )["UploadId"],
            unwanted=place.unwanted,
        )
        holding = Holding(HoldingKind.UPLOAD, upload_id, {**self._detail})
        self._holding = holding
        if self._ledger is not None:
            self._ledger.hold(holding)
        return holding

    def send(self, make: Callable[[str, int], UploadedPart], size: int, *, at_once: int) -> None:
        """The next part, of that size, is being made by the upload's id and its number; waits while so many are."""
        upload_id, number = self._next_part()
        while len(self._sending) >= at_once:
            wait(self._sending, return_when=FIRST_COMPLETED)
            self._collect()
        self._size += size
        self._sending.append(self._pool.submit(make, upload_id, number))

    def _next_part(self) -> tuple[str, int]:
        """The upload's id, and the number of the part that is begun. Raises what one before it failed with."""
        upload_id = (self._holding or self._begin()).name
        self._collect()
        self._begun_parts += 1
        if self._begun_parts > MOST_PARTS:
            raise TargetError(
                f"{self.place.name} has more than {MOST_PARTS} parts of {self._part_size} bytes",
                hint="raise this target's part_size",
            )
        return upload_id, self._begun_parts

    def _send_part(self) -> None:
        """The part that was filled is on its way; waits while as many are as may be."""
        upload_id, number = self._next_part()
        self._room.enter(self._part_size, unwanted=self.is_unwanted)
        body, self._filling, self._filled = self._filling, bytearray(), 0
        try:
            future = self._pool.submit(self._send, upload_id, number, body)
        except BaseException:
            self._room.leave(body, self._part_size)
            raise
        future.add_done_callback(lambda _: self._room.leave(body, self._part_size))
        self._sending.append(future)

    def _collect(self) -> None:
        """What has arrived is accounted for. Raises what a part failed with."""
        arrived = [future for future in self._sending if future.done()]
        self._parts += [future.result() for future in arrived]
        self._sending = [future for future in self._sending if future not in arrived]

    def _send(self, upload_id: str, number: int, body: bytearray) -> UploadedPart:
        place = self.place
        header = checksum(place.checksum, body)
        content: Any = body  # as it is: `bytes` would be a copy
        answer = place.service.ask(
            f"write part {number} of {place.name} to",
            lambda: place.service.client.upload_part(
                **place.address, UploadId=upload_id, PartNumber=number, Body=content, **header
            ),
            unwanted=self.is_unwanted,
        )
        if not _acknowledges(answer, header):
            raise TargetError(
                f"{place.service.where} acknowledged part {number} of {place.name} wrongly", hint=UNRELIABLE
            )
        return UploadedPart(number, len(body), answer["ETag"], header)

    def _complete(self, upload_id: str) -> None:
        """The store was told to make one object of the parts, and has not said no."""
        place = self.place
        parts = sorted(self._parts, key=lambda part: part.number)
        if [part.number for part in parts] != list(range(1, self._begun_parts + 1)):
            raise AssertionError(parts)
        require_stored(place, upload_id, parts)
        self._may_exist = True
        doing = f"complete {place.name} on"
        named: Any = {"Parts": [part.completed() for part in parts]}
        with explained(place.service.where, doing):
            try:
                place.service.persist(
                    doing,
                    lambda: place.service.client.complete_multipart_upload(
                        **place.address, UploadId=upload_id, MultipartUpload=named, **place.condition
                    ),
                    unwanted=place.unwanted,
                )
            except FAILURES as error:
                # An earlier try may have been carried out although its answer was lost: the object will tell.
                if self._is_taken(error):
                    return
                if not (is_untold(error) or code_of(error) == "NoSuchUpload") or self._found_size() != self._size:
                    raise

    def _require_whole(self) -> None:
        found = self._found_size()
        if found != self._size:
            has = "does not have it" if found is None else f"has {found} of {self._size} bytes"
            raise TargetError(f"{self.place.service.where} confirmed {self.place.name}, but {has}", hint=UNRELIABLE)

    def _found_size(self) -> int | None:
        """Bytes of the object as the store has it; None where it has none."""
        service, address = self.place.service, self.place.address
        with explained(service.where, f"look for {self.place.name} on"):
            try:
                return service.persist(
                    "look for",
                    lambda: service.client.head_object(**address)["ContentLength"],
                    unwanted=self.place.unwanted,
                )
            except FAILURES as error:
                if is_missing(error):
                    return None
                raise


def _acknowledges(answer: Mapping[str, Any], header: Parameters) -> bool:
    """Whether the store says that it has what was sent; some do not tell the checksum that they have compared."""
    return bool(answer.get("ETag")) and all(answer.get(key, ours) == ours for key, ours in header.items())
