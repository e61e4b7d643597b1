"""An object on its way to other readers: decrypted and encrypted anew in memory, block by block.

Knows: that nothing is expanded or packed again. The zstd frames within stay as they are, and with them the tar stream,
its digest and its files; what is stored, and where its frames lie, is another.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

from backupd.archive import Sink
from backupd.archive.frames import frames_of
from backupd.archive.packing import ObjectSink
from backupd.archive.pipeline import Pipeline, Station, StationChain
from backupd.archive.sealing import Encryptor
from backupd.archive.stations import FrameEnd
from backupd.archive.unpack import DecryptionKey, decryptor
from backupd.vocabulary.storage import StoredObject


@dataclass(frozen=True, slots=True)
class NewReaders:
    """Who is to read a backup, and what opens it where it is encrypted for others."""

    recipients: tuple[str, ...]  # age's public keys
    key: DecryptionKey | None = None


@dataclass(frozen=True, slots=True)
class Resealing:
    """One object that is being encrypted anew."""

    stored: StoredObject
    storing: ObjectSink
    pipeline: Pipeline

    def write(self, part: memoryview) -> None:
        """Append a part as it was stored, which reaches over no frame's end. Raises what a stage raised."""
        self.pipeline.put(bytes(part))

    def finish(self) -> StoredObject:
        """What the sink has now, all of it.

        Raises:
            UsageError: the key is wrong.
            VerificationError: what came was no whole age file.
            TargetError: the sink failed.
        """
        self.pipeline.finish()
        found = replace(
            self.stored,
            name=self.stored.encrypted_name,
            stored_bytes=self.storing.whole.size,
            stored_sha256=self.storing.whole.sha256,
            frames=tuple(self.storing.frames),
        )
        frames_of(found)  # whoever reads it asks for that
        return found


@contextmanager
def resealing(
    stored: StoredObject, sink: Sink, readers: NewReaders, *, idle: Callable[[], None], give_up: Callable[[], None]
) -> Iterator[Resealing]:
    """For the length of the block, after which no thread is left. `give_up` ends whoever waits within the sink.

    Raises:
        UsageError: the object is encrypted, and there is no key.
    """
    with ExitStack() as opened:
        stations: list[Station] = [Encryptor(readers.recipients)]
        if stored.encrypted:
            stations.insert(0, opened.enter_context(decryptor(stored, readers.key)))
        storing = ObjectSink(_ends(stored), sink, StationChain(*stations))
        pipeline = opened.enter_context(Pipeline([storing], idle=idle))
        try:
            yield Resealing(stored, storing, pipeline)
        except BaseException:
            give_up()
            raise


def _ends(stored: StoredObject) -> list[FrameEnd]:
    ends = accumulate(frame.stored_bytes for frame in stored.frames)
    return [FrameEnd(frame.plain_bytes, end) for frame, end in zip(stored.frames, ends, strict=True)]
