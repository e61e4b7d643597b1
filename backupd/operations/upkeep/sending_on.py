"""One object of a backup from one target to another, read ahead of what writes it: as it is, or for other readers.

Knows: what is compared when. An object that stays as it is is compared as it is read back from where it was written,
by the same digests as ever: to compute them twice takes longer than a fast disk does. One that is encrypted anew has
other digests afterwards, and is compared on the way. What is read is handed on before its frame has been compared: so
what a hostile origin holds reaches age, in memory, and nothing behind it, for nothing is unpacked here.
"""

from collections.abc import Callable, Iterator

from backupd.archive import Governor
from backupd.archive.frames import DAMAGED
from backupd.archive.readahead import ReadAhead
from backupd.archive.resealing import NewReaders, resealing
from backupd.archive.sealing import at_most_sealed
from backupd.operations.copies.fan_out import Copies
from backupd.operations.hanging_targets import Silence
from backupd.operations.restore.verify import compare_frames, compare_object
from backupd.targets import BackupSource, Target
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.storage import StoredObject

_BLOCK_BYTES = 256 << 10  # at most: what waits in the queues on the way to a store that is slow is in memory


def send_as_it_is(source: BackupSource, stored: StoredObject, copies: Copies, pacing: Governor) -> StoredObject:
    """As many bytes as were recorded are durable on the targets of `copies`; what they are is not looked at.

    Raises:
        VerificationError: the source has more bytes, or fewer; nothing of it is on the targets.
        TargetError: one of the targets cannot be read or written.
        Anything that the governor raises.
    """
    with (
        copies.open_object(stored.name, at_most=stored.stored_bytes, idle=lambda: pacing.pace(0)) as sink,
        _read_ahead(source, stored, pacing) as blocks,
    ):
        sent = 0
        for block in blocks:
            sent += len(block)
            if sent > stored.stored_bytes:
                break
            pacing.pace(len(block))
            sink.write(bytes(block))
        if sent != stored.stored_bytes:
            found = "more" if sent > stored.stored_bytes else str(sent)
            raise VerificationError(
                f"{stored.name}: expected {stored.stored_bytes} stored bytes, found {found}", hint=DAMAGED
            )
    return stored


def send_anew(
    source: BackupSource, stored: StoredObject, copies: Copies, pacing: Governor, readers: NewReaders
) -> StoredObject:
    """The object was on the source what was recorded, frame by frame, and what it holds is durable for these readers.

    Raises:
        VerificationError: it is not what was recorded, or is no whole age file; nothing of it is on the targets.
        UsageError: the key is wrong.
        TargetError: one of the targets cannot be read or written.
        Anything that the governor raises.
    """

    def idle() -> None:
        pacing.pace(0)

    at_most = at_most_sealed(stored.stored_bytes)
    with (
        copies.open_object(stored.encrypted_name, at_most=at_most, idle=idle) as sink,
        resealing(stored, sink, readers, idle=idle, give_up=copies.give_up) as anew,
    ):
        with _read_ahead(source, stored, pacing) as blocks:
            compare_frames(stored, blocks, pacing, also=anew.write)
        return anew.finish()


def require_as_recorded(source: BackupSource, stored: StoredObject, pacing: Governor) -> None:
    """The object is on the source what was recorded.

    Raises:
        VerificationError: it is not.
        TargetError: the source cannot be read, or does not answer for too long.
        Anything that the governor raises.
    """
    with _read_ahead(source, stored, pacing) as blocks:
        compare_object(stored, blocks, pacing)


def not_as_sent(target: Target, error: VerificationError) -> VerificationError:
    """What was read back there differs, and what it was read from is as good as it was."""
    lost = VerificationError(
        f"the copy on target {target.name} is not what was sent: {error.message}",
        hint=f"check the storage of target {target.name}, then copy again",
    )
    for note in getattr(error, "__notes__", ()):
        lost.add_note(note)
    return lost


def _read_ahead(source: BackupSource, stored: StoredObject, pacing: Governor) -> ReadAhead:
    silence = Silence(source.target)

    def read(require_wanted: Callable[[], None]) -> Iterator[bytes]:
        with source.target.reading(source.job, source.run_id, stored.name) as chunks:
            for chunk in chunks:
                for begin in range(0, len(chunk), _BLOCK_BYTES):
                    require_wanted()
                    silence.end()
                    yield bytes(chunk[begin : begin + _BLOCK_BYTES])
                    silence.end()

    def idle() -> None:
        silence.require_end()
        pacing.pace(0)

    return ReadAhead(read, name=stored.name, idle=idle)
