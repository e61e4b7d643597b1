"""A copy of a snapshot that is kept nowhere, again and again, for as long as somebody measures what it costs.

Knows: that each pass needs a mount of its own, since a second one would be read from memory. Refuses to know what is
measured.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stream import CopyManner, store_tree
from backupd.command import ChildLedger
from backupd.interruption import shielded

_EVERYTHING = Exclusions(datadir=PurePosixPath())


class _Enough(Exception):
    """Nobody measures any more."""


class DryCopy:
    """Reads, archives and compresses a snapshot as a backup does, while its block lasts; it has ended when that has.

    `mounted` mounts the snapshot for one pass and yields where. What a pass raises is raised by `require_running`.
    """

    def __init__(
        self, mounted: Callable[[], AbstractContextManager[Path]], *, ledger: ChildLedger | None = None
    ) -> None:
        self._mounted = mounted
        self._ledger = ledger
        self._stop = threading.Event()
        self._reading = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="dry-copy")
        self._worker: Future[None] | None = None

    def __enter__(self) -> Self:
        self._worker = self._executor.submit(self._copy_again_and_again)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        with shielded():
            self._executor.shutdown(wait=True)
        if error is None and self._worker is not None:
            self._worker.result()

    def require_running(self, *, within_seconds: float = 60.0) -> None:
        """The first bytes have been read, and it goes on.

        Raises:
            SnapshotError: the snapshot could not be mounted or read, or gave no byte in that time.
        """
        assert self._worker is not None
        while not self._reading.wait(0.1):
            within_seconds -= 0.1
            if self._worker.done() or within_seconds <= 0:
                break
        if self._worker.done():
            self._worker.result()

    def pace(self, size: int) -> None:
        """As the copy's governor: on as fast as it goes, until nobody measures."""
        if size:
            self._reading.set()
        if self._stop.is_set():
            raise _Enough

    def write(self, data: bytes) -> None:
        """As the copy's sink: away with it."""

    def _copy_again_and_again(self) -> None:
        manner = CopyManner(governor=self, ledger=self._ledger)
        try:
            while not self._stop.is_set():
                with self._mounted() as root:
                    store_tree(root, list_members(root, _EVERYTHING), self, manner=manner)
        except _Enough:
            return
