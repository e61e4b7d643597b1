"""One object on its way to S3: in parts while it grows, several at once, visible to nobody before the end.

Knows: parts, their checksums, the upload's id, what must be true before and after it is completed. Refuses to know
which object it is of which backup.

What is in memory is the part that is being filled and those being sent. A part whose sending failed is sent again from
memory, so that a lost connection costs that part and no other. What the store has is compared with what we sent, part
by part, before the upload is completed, and the object's size afterwards: an error under status 200, or a success that
was none, is found.

Seen with versitygw 1.8.0: an upload completed twice answers well twice; Amazon says NoSuchUpload to the second, once
the first is some minutes old. So what counts after a lost answer is whether the object is there.
"""

import logging
import threading
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from backupd.config.schema import PartChecksum
from backupd.errors import TargetError
from backupd.model import Holding, HoldingKind
from backupd.targets import UploadLedger
from backupd.targets.s3_errors import FAILURES, code_of, explained, is_missing, is_untold
from backupd.targets.s3_parts import (
    LAST_TRIES,
    MOST_PARTS,
    UNRELIABLE,
    Parameters,
    Part,
    Place,
    abort,
    checksum,
    require_stored,
)

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0  # for parts that are being sent when the upload is given up


class Room:
    """Bounds the parts that are being sent, over all uploads of a target, and uses their memory again.

    Fresh memory for each part would leave holes in the heap: twice as much was held then (glibc 2.36).
    """

    def __init__(self, parts: int) -> None:
        self._parts = threading.BoundedSemaphore(parts)
        self._spare: deque[bytearray] = deque()

    def memory(self, size: int) -> bytearray:
        """Of exactly this size, with whatever was in it before."""
        with suppress(IndexError):
            used = self._spare.pop()
            if len(used) == size:
                return used
        return bytearray(size)

    def enter(self) -> None:
        """There is room for one more part; waits until there is."""
        self._parts.acquire()

    def leave(self, part: bytearray) -> None:
        """This part has been sent, or never will be."""
        self._spare.append(part)
        self._parts.release()


class Upload:
    """An object that is being written. `finish` or `give_up` ends it; its threads end with it.

    `room` bounds the parts that are being sent, over all uploads of a target.
    """

    def __init__(
        self,
        place: Place,
        part_size: int,
        *,
        room: Room,
        ledger: UploadLedger | None,
        detail: Parameters,
    ) -> None:
        self._place = place
        self._part_size = part_size
        self._room = room
        self._ledger = ledger
        self._detail = detail
        self._holding: Holding | None = None  # the upload, once it has an id
        self._filling = bytearray()  # of a part's size from the first byte on
        self._filled = 0
        self._size = 0
        self._begun_parts = 0
        self._sending: list[Future[Part]] = []
        self._parts: list[Part] = []
        self._given_up = threading.Event()
        self._may_exist = False
        self._pool = ThreadPoolExecutor(thread_name_prefix="backupd s3")

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        while view:
            if not self._filling:
                self._filling = self._room.memory(self._part_size)
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
        self._require_whole()
        self._pool.shutdown()
        if self._holding is not None and self._ledger is not None:
            self._ledger.released(self._holding)

    def give_up(self) -> None:
        """Nothing is left of it, neither parts nor an object; its row stays where that could not be done.

        Called while an error is told already: what fails here is a line of the log.
        """
        self._given_up.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        try:
            if self._holding is not None:
                abort(self._place, self._holding.name, meanwhile=self._wait_for_senders)
            if self._may_exist:
                service = self._place.service
                service.ask(
                    "remove from", lambda: service.client.delete_object(**self._place.address), tries=LAST_TRIES
                )
        except TargetError as error:
            log.error("%s may be left: %s", self._place.key, error.message)
        else:
            if self._holding is not None and self._ledger is not None:
                self._ledger.released(self._holding)

    def _wait_for_senders(self) -> None:
        wait(self._sending, timeout=_STOP_SECONDS)

    def _put(self) -> None:
        """All at once what is less than a part."""
        place, body = self._place, bytes(memoryview(self._filling)[: self._filled])
        self._may_exist = True
        place.service.ask(
            f"write {place.name} to",
            lambda: place.service.client.put_object(
                **place.address, Body=body, **checksum(place.checksum, body), **place.locked()
            ),
        )

    def _begin(self) -> Holding:
        """An upload exists and is written down."""
        place = self._place
        algorithm: Parameters = (
            {} if place.checksum is PartChecksum.NONE else {"ChecksumAlgorithm": place.checksum.upper()}
        )
        answer = place.service.ask(
            f"begin {place.name} on",
            lambda: place.service.client.create_multipart_upload(**place.address, **algorithm, **place.locked()),
        )
        holding = Holding(HoldingKind.UPLOAD, answer["UploadId"], {**self._detail})
        self._holding = holding
        if self._ledger is not None:
            self._ledger.hold(holding)
        return holding

    def _send_part(self) -> None:
        """The part that was filled is on its way; waits while as many are as may be."""
        upload_id = (self._holding or self._begin()).name
        self._collect()
        self._begun_parts += 1
        if self._begun_parts > MOST_PARTS:
            raise TargetError(
                f"{self._place.name} has more than {MOST_PARTS} parts of {self._part_size} bytes",
                hint="raise part_size of this target",
            )
        self._room.enter()
        body, self._filling, self._filled = self._filling, bytearray(), 0
        try:
            future = self._pool.submit(self._send, upload_id, self._begun_parts, body)
        except BaseException:
            self._room.leave(body)
            raise
        future.add_done_callback(lambda _: self._room.leave(body))
        self._sending.append(future)

    def _collect(self) -> None:
        """What has arrived is accounted for. Raises what a part failed with."""
        arrived = [future for future in self._sending if future.done()]
        self._parts += [future.result() for future in arrived]
        self._sending = [future for future in self._sending if future not in arrived]

    def _send(self, upload_id: str, number: int, body: bytearray) -> Part:
        place = self._place
        header = checksum(place.checksum, body)
        content: Any = body  # as it is: `bytes` would be a copy
        answer = place.service.ask(
            f"write part {number} of {place.name} to",
            lambda: place.service.client.upload_part(
                **place.address, UploadId=upload_id, PartNumber=number, Body=content, **header
            ),
            given_up=self._given_up,
        )
        wrong = [key for key, ours in header.items() if answer.get(key, ours) != ours]
        if wrong or not answer.get("ETag"):
            raise TargetError(
                f"{place.service.where} acknowledged part {number} of {place.name} wrongly", hint=UNRELIABLE
            )
        return Part(number, len(body), answer["ETag"], header)

    def _complete(self, upload_id: str) -> None:
        """The store was told to make one object of the parts, and has not said no."""
        place = self._place
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
                        **place.address, UploadId=upload_id, MultipartUpload=named
                    ),
                )
            except FAILURES as error:
                # An earlier try may have been carried out although its answer was lost: the object will tell.
                if not (is_untold(error) or code_of(error) == "NoSuchUpload") or self._found_size() != self._size:
                    raise

    def _require_whole(self) -> None:
        found = self._found_size()
        if found != self._size:
            has = "does not have it" if found is None else f"has {found} of {self._size} bytes"
            raise TargetError(
                f"{self._place.service.where} said that it stored {self._place.name}, but {has}", hint=UNRELIABLE
            )

    def _found_size(self) -> int | None:
        """Bytes of the object as the store has it; None where it has none."""
        service, address = self._place.service, self._place.address
        with explained(service.where, f"look for {self._place.name} on"):
            try:
                return service.persist("look for", lambda: service.client.head_object(**address))["ContentLength"]
            except FAILURES as error:
                if is_missing(error):
                    return None
                raise
