"""What waits in the spool becomes objects: compressed, encrypted and sent when the snapshot is gone.

Knows: that several are packed at once, that what comes from the spool must be what was read from the snapshot, and
that each file is removed as soon as its object is on its targets.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from backupd.archive import Governor
from backupd.archive.governor import CHECK_SECONDS
from backupd.archive.packing import CopyManner, Packing, automatic_streams, require_files
from backupd.archive.spool import Spooled, no_archive_any_more, read_back, require_same
from backupd.archive.stopwatch import Stopwatch, totals
from backupd.archive.stream import OpenObject, StoredStreams
from backupd.vocabulary.storage import StoredObject

log = logging.getLogger(__name__)


def store_spooled(
    spooled: Sequence[Spooled], open_object: OpenObject, *, streams: int, manner: CopyManner
) -> StoredStreams:
    """Write each of them as the object that it is, at most `streams` at once, 0 for as many as suit the host.

    `open_object` is called by this thread, and ends in it. Nothing is left running, whether this returns or raises.

    Raises:
        VerificationError: what was read back from the spool is not what was written.
        SpoolError: it could not be read.
        SnapshotError: an archive has not as many files as were to be stored.
        TargetError: a sink failed.
        Anything that the governor raises.
    """
    news = threading.Event()
    coming = deque(spooled)
    done: dict[str, _Sending] = {}
    stored: list[StoredObject] = []
    with ExitStack() as owed:
        under_way: list[tuple[_Sending, ExitStack]] = []
        while coming or under_way:
            while coming and len(under_way) < (streams or automatic_streams()):
                scope = owed.enter_context(ExitStack())
                under_way.append((scope.enter_context(_sending(coming.popleft(), open_object, news, manner)), scope))
            news.clear()
            hungry = [each for each in under_way if each[0].has_room]
            for each in hungry:
                sending, scope = each
                if not sending.pass_on():
                    stored.append(sending.finish())
                    scope.close()
                    done[sending.spooled.name] = sending
                    under_way.remove(each)
            if not hungry:
                news.wait(CHECK_SECONDS)
                manner.governor.pace(0)
    return StoredStreams(
        objects=tuple(stored),
        members={name: sending.packing.lines for name, sending in done.items()},
        throughput=totals(watch for sending in done.values() for watch in sending.watches),
    )


@contextmanager
def _sending(
    spooled: Spooled, open_object: OpenObject, news: threading.Event, manner: CopyManner
) -> Iterator["_Sending"]:
    """When the block ends well its object is on the targets, and its file is gone, or goes with its folder."""
    name = manner.object_name(spooled.name)
    with (
        closing(read_back(spooled)) as blocks,
        open_object(name) as sink,
        Packing(name, sink, manner, on_room=news.set) as packing,
    ):
        yield _Sending(spooled, blocks, packing, manner.governor)
    try:
        spooled.path.unlink()
    except OSError as error:  # the object is good all the same
        log.warning("%s could not be removed yet: %s", spooled.path, error.strerror)


class _Sending:
    """One object on its way from the spool to its sink."""

    def __init__(self, spooled: Spooled, blocks: Iterator[bytes], packing: Packing, governor: Governor) -> None:
        self.spooled = spooled
        self.packing = packing
        self._blocks = blocks
        self._governor = governor
        self._reading = Stopwatch("read-spool")

    @property
    def has_room(self) -> bool:
        """The next block is taken without waiting. Raises what a stage raised."""
        with no_archive_any_more(self.spooled):
            return self.packing.room > 0

    def pass_on(self) -> bool:
        """A block, once the governor lets it; False when there is none any more."""
        with self._reading:
            block = next(self._blocks, None)
        if block is None:
            return False
        self._reading.bytes += len(block)
        self._governor.pace(len(block))
        with no_archive_any_more(self.spooled):
            self.packing.write(block)
        return True

    def finish(self) -> StoredObject:
        """It has all gone to its sink, and is what was read from the snapshot, with as many files."""
        with no_archive_any_more(self.spooled):
            stored = self.packing.finish()
        require_same(self.spooled, size=stored.plain_bytes, sha256=stored.plain_sha256)
        if self.spooled.files is not None:
            require_files(stored, self.spooled.files)
        return stored

    @property
    def watches(self) -> tuple[Stopwatch, ...]:
        """The stages' work."""
        return (self._reading, *self.packing.watches)
