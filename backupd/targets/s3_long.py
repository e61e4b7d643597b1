"""An object that S3 can hold and memory cannot: its parts would have to be larger than a run may take.

An object has at most 10,000 parts of at most 5 GiB each ("Amazon S3 multipart upload limits" of the user guide), so the
parts of 5 TiB are half a gibibyte, each in memory while it is filled and sent. Here each part is an object first, sent
in small parts as any other is, and the store itself makes it a part of the whole (UploadPartCopy); then it is removed.
No byte goes over the network twice, and the store has three such parts more than it will keep, at the most.

Knows: where one part ends, and that none of those objects is left.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from backupd.config import PartChecksum
from backupd.targets.s3_parts import UploadedPart, UploadPlace
from backupd.targets.s3_upload import Upload
from backupd.vocabulary.errors import TargetError

log = logging.getLogger(__name__)

_COPIED_AT_ONCE = 2


class LongUpload:
    """An object that is being written. `finish` or `give_up` ends it.

    `begin` begins the upload of an object in small parts, `remove` removes one for good; `segment` is where the object
    lies that becomes part N.
    """

    def __init__(
        self,
        place: UploadPlace,
        segment_bytes: int,
        *,
        begin: Callable[[UploadPlace], Upload],
        segment: Callable[[int], UploadPlace],
        remove: Callable[[UploadPlace], None],
    ) -> None:
        self._begin = begin
        self._segment = segment
        self._remove_object = remove
        self._segment_bytes = segment_bytes
        self._whole = begin(replace(place, checksum=PartChecksum.NONE))  # each segment had one, and is read back whole
        self._filling: Upload | None = None
        self._filled = self._begun = 0
        self._there: dict[int, UploadPlace] = {}  # objects that may be left

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        while view:
            if self._filling is None:
                self._begun += 1
                self._filling = self._begin(self._segment(self._begun))
            taken = view[: self._segment_bytes - self._filled]
            self._filling.write(taken)
            self._filled += len(taken)
            view = view[len(taken) :]
            if self._filled == self._segment_bytes:
                self._end_segment(self._filling)

    def finish(self) -> None:
        """The object is there, whole, and nothing else.

        Raises:
            TargetError: it is not, or nobody knows.
        """
        if self._filling is not None:
            self._end_segment(self._filling)
        self._whole.finish()

    def give_up(self) -> None:
        """Nothing is left of it. Called while an error is told already: what fails here is a line of the log."""
        if self._filling is not None:
            self._filling.give_up()
        self._whole.give_up()
        for number in [*self._there]:
            self._remove(number)

    def _end_segment(self, segment: Upload) -> None:
        """It is an object, and the store is making it a part."""
        number, size = self._begun, self._filled
        segment.finish()
        self._there[number] = self._segment(number)
        self._filling, self._filled = None, 0
        self._whole.send(lambda upload_id, part: self._copied(upload_id, part, size), size, at_once=_COPIED_AT_ONCE)

    def _copied(self, upload_id: str, number: int, size: int) -> UploadedPart:
        source, service = self._there[number], self._whole.place.service
        etag = service.ask(
            f"make part {number} of {self._whole.place.name} on",
            lambda: service.client.upload_part_copy(
                **self._whole.place.address,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": source.bucket, "Key": source.key},
            )["CopyPartResult"]["ETag"],
            unwanted=self._whole.is_unwanted,
        )
        self._remove(number)
        return UploadedPart(number, size, etag, {})

    def _remove(self, number: int) -> None:
        """It is gone. One that a lock of the bucket's own keeps goes with its backup."""
        place = self._there.pop(number)
        try:
            self._remove_object(place)
        except TargetError as error:
            log.warning("%s is left next to its backup: %s", place.key, error.message)
