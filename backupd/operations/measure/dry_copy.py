"""A copy of a snapshot that is kept nowhere, again and again, for as long as somebody measures what it costs.

Knows: that each pass needs a mount of its own, since a second one would be read from memory.
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from backupd.archive.packing import CopyManner
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stream import store_tree
from backupd.config import CopyConfig
from backupd.host.scoped_thread import ScopedThread
from backupd.vocabulary.errors import SnapshotError

_PROMPT_SECONDS = 0.1
_EVERYTHING = Exclusions(datadir=PurePosixPath())


class _Enough(Exception):
    """Nobody measures any more."""


class DryCopy(ScopedThread):
    """Reads, archives and compresses a snapshot as a backup does, while its block lasts; it has ended when that has.

    `mounted` mounts the snapshot for one pass and yields where. What a pass raises is raised by `require_running`.
    """

    def __init__(self, mounted: Callable[[], AbstractContextManager[Path]]) -> None:
        self._mounted = mounted
        self._stop = threading.Event()
        self._reading = threading.Event()
        super().__init__("dry-copy", self._copy_again_and_again, stop=self._stop.set)

    def require_running(self, *, within_seconds: float = 60.0) -> None:
        """The first bytes have been read, and it goes on.

        Raises:
            SnapshotError: the snapshot could not be mounted or read, or gave no byte in that time.
        """
        deadline = time.monotonic() + within_seconds
        while not self._reading.wait(_PROMPT_SECONDS) and not self.has_ended:
            if time.monotonic() > deadline:
                raise SnapshotError(
                    f"nothing could be read from the snapshot within {within_seconds:g} s",
                    hint="its disks may have stalled: check the kernel log (dmesg)",
                )
        self.require_working()

    def pace(self, size: int) -> None:
        """As the copy's governor: on as fast as it goes, until nobody measures."""
        if size:
            self._reading.set()
        if self._stop.is_set():
            raise _Enough

    def write(self, data: bytes) -> None:
        """As the copy's sink: away with it."""

    def _copy_again_and_again(self) -> None:
        usual = CopyConfig()
        manner = CopyManner(usual.level, usual.threads, governor=self)
        try:
            while not self._stop.is_set():
                with self._mounted() as root:
                    store_tree(root, list_members(root, _EVERYTHING), self, manner=manner)
        except _Enough:
            return
