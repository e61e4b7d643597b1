"""One object of a backup from one target to another: read ahead, compared, and written as it is or for other readers.

What is read is handed on before all of its frame has been compared: it is no object until all of them are. So what a
damaged or hostile origin holds reaches age, in memory, and nothing behind it: nothing is unpacked here.
"""

from collections.abc import Callable, Iterator

from backupd.archive import Governor
from backupd.archive.readahead import ReadAhead
from backupd.archive.resealing import NewReaders, resealing
from backupd.archive.sealing import at_most_sealed
from backupd.operations.backup.copies import Copies
from backupd.operations.restore.verify import compare_frames
from backupd.targets import BackupSource
from backupd.vocabulary.storage import StoredObject

_BLOCK_BYTES = 1 << 20  # at most, to a writer: what waits in its queue is in memory


def send_on(
    source: BackupSource, stored: StoredObject, copies: Copies, pacing: Governor, readers: NewReaders | None
) -> StoredObject:
    """The object is durable on the targets of `copies`, and was on the source what was recorded, frame by frame.

    The digest of an object as a whole that stays as it is is compared as it is read back: on the way one digest is what
    a processor can do beside a fast disk. What is stored is told: for new `readers` it is another object.

    Raises:
        VerificationError: it is not what was recorded, or is no whole age file; nothing of it is on the targets.
        UsageError: the key is wrong.
        TargetError: one of the targets cannot be read or written.
        Anything that the governor raises.
    """

    def idle() -> None:
        pacing.pace(0)

    def read(require_wanted: Callable[[], None]) -> Iterator[bytes]:
        with source.target.reading(source.job, source.run_id, stored.name) as chunks:
            for chunk in chunks:
                for begin in range(0, len(chunk), _BLOCK_BYTES):
                    require_wanted()
                    yield bytes(chunk[begin : begin + _BLOCK_BYTES])

    def compare(passed_on: Callable[[memoryview], None]) -> None:
        with ReadAhead(read, name=stored.name, idle=idle) as blocks:
            compare_frames(stored, blocks, pacing, also=passed_on)

    if readers is None:
        with copies.open_object(stored.name, at_most=stored.stored_bytes, idle=idle) as sink:
            compare(lambda part: sink.write(bytes(part)))
            return stored
    at_most = at_most_sealed(stored.stored_bytes)
    with (
        copies.open_object(stored.encrypted_name, at_most=at_most, idle=idle) as sink,
        resealing(stored, sink, readers, idle=idle, give_up=copies.give_up) as object_,
    ):
        compare(object_.write)
        return object_.finish()
