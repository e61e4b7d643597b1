"""GNU tar as a child that unpacks. What it complains of is kept in a memory file: no thread is needed to drain it, and
no pipe can fill up.
"""

import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fcntl import F_SETPIPE_SZ, fcntl
from types import TracebackType
from typing import Self

from backupd.archive.pipeline import BLOCK_BYTES
from backupd.host.process import ChildLedger, spawned
from backupd.host.sandbox import Bounds, not_confined
from backupd.vocabulary.errors import UsageError

_COMPLAINT_BYTES = 600
_LINES_BYTES = 16 << 10  # more than the longest name and what is said of it
_NOT_WRITTEN = re.compile(
    rb": (Wrote only \d+ of \d+ bytes|Cannot write: .+|.+: (No space left on device|Disk quota .+))$"
)
_HARMLESS = re.compile(rb": (time stamp .+ in the future|implausibly old time stamp .+)$")
_TICK_SECONDS = 0.1
_STALLED_SECONDS = 900.0  # as long as an outage of a target is waited for: a disk over a network has those too


class TarEnded(Exception):
    """Nobody reads the archive any more; `TarChild.ended` says why."""


class TarStalled(Exception):
    """Tar has neither taken a byte nor ended for so long that it is not waited for any more."""

    def __init__(self) -> None:
        super().__init__(f"tar has done nothing for {_STALLED_SECONDS:g} s")


class TarChild:
    """A tar for the length of a `with`; `stdin` is a pipe to it."""

    def __init__(
        self,
        argv: Sequence[str],
        bounds: Bounds | None,
        *,
        ledger: ChildLedger | None,
        gently: bool = True,
    ) -> None:
        """Within these bounds; None: within none."""
        self._argv = [*bounds.prefix(), *argv] if bounds is not None else list(argv)
        self._ledger = ledger
        self._gently = gently
        self._owed = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as owed:
            self._complaints = os.memfd_create("backupd")
            owed.callback(os.close, self._complaints)
            self._looked_at = 0  # bytes of them
            self.complained = False  # of a member that is not as it should be, as far as `not_written` has looked
            self._process = owed.enter_context(
                spawned(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=self._complaints,
                    ledger=self._ledger,
                    lowest_priority=self._gently,
                )
            )
            self._owed = owed.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owed.__exit__(kind, error, trace)

    @property
    def stdin(self) -> int:
        """The pipe that the archive goes into."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def close_stdin(self) -> None:
        """The archive is complete."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def not_confined(self) -> UsageError | None:
        """Why it was not even started: the kernel has nothing to bind it. To be asked once it has ended."""
        said = os.pread(self._complaints, _COMPLAINT_BYTES, 0).decode("utf-8", "replace")
        return not_confined(self._process.wait(), said, doing="unpacking")

    def not_written(self) -> str | None:
        """What it has said, since this was last asked, of a file that it could not write: a full disk, most often.

        It continues with the next file all the same, and reads an archive of any size to its end.
        """
        said = os.pread(self._complaints, _LINES_BYTES, self._looked_at)
        whole = said[: said.rfind(b"\n") + 1]
        self._looked_at += len(whole)
        lines = [line for line in whole.splitlines() if not _HARMLESS.search(line)]
        self.complained = self.complained or bool(lines)
        found = next((line for line in lines if _NOT_WRITTEN.search(line)), None)
        return None if found is None else found.decode("utf-8", "replace").removeprefix("tar: ")

    def ended(self, *, idle: Callable[[], None] = lambda: None) -> str | None:
        """Wait for its end; None when all went well, otherwise what it said. `idle` is called while waiting.

        Raises:
            TarStalled: it does not come.
        """
        deadline = time.monotonic() + _STALLED_SECONDS
        while True:
            try:
                status = self._process.wait(_TICK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                idle()
                if time.monotonic() > deadline:
                    raise TarStalled from None
        if status == 0:
            return None
        lines = os.pread(self._complaints, _LINES_BYTES, 0).splitlines()
        said = next((line for line in lines if line.strip() and not _HARMLESS.search(line)), b"")
        first = said[:_COMPLAINT_BYTES].decode("utf-8", "replace").removeprefix("tar: ")
        return first or (f"tar was killed by signal {-status}" if status < 0 else f"tar ended with status {status}")


class Feed:
    """The end of the way: into tar's standard input, without ever being stuck in it. A station of the archive's."""

    def __init__(self, pipe: int, count: Callable[[int], None]) -> None:
        self._pipe = pipe
        self._count = count
        os.set_blocking(pipe, False)
        fcntl(pipe, F_SETPIPE_SZ, BLOCK_BYTES)
        self._poller = select.poll()
        self._poller.register(pipe, select.POLLOUT)

    def take(self, block: bytes) -> Iterator[bytes]:
        """Nothing, now and then: that lets the caller end a feed whose tar is busy.

        Raises:
            TarEnded: nobody reads it any more.
            TarStalled: tar takes nothing.
        """
        view, deadline = memoryview(block), time.monotonic() + _STALLED_SECONDS
        while view:
            if self._poller.poll(_TICK_SECONDS * 1000):
                try:
                    written = os.write(self._pipe, view)
                except BrokenPipeError as error:
                    raise TarEnded from error
                self._count(written)
                view, deadline = view[written:], time.monotonic() + _STALLED_SECONDS
            elif time.monotonic() > deadline:
                raise TarStalled
            yield b""

    def end(self) -> Iterator[bytes]:
        """Nothing more."""
        yield from ()
