"""The copies of one run: what is read once goes to every target, and one that fails does not fail the others.

Knows: a thread for each target and object with a bounded queue, so that targets write beside each other and what is
in memory does not grow; who has dropped out, and of what.

A slow target slows the run; one that answers no more is ended by its own time-outs, as its contract demands, or where
it has none (`silent_seconds`) drops out.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from queue import Full, Queue
from typing import Self

from backupd.archive import Sink
from backupd.host.daemon_thread import TimeWaited, begin, goes_on
from backupd.host.priority import give_way_copying
from backupd.host.signals import shielded
from backupd.operations.hanging_targets import no_answer, silent_seconds
from backupd.targets import ObjectWriter, Target, UploadLedger
from backupd.vocabulary.errors import BackupdError, TargetError, VerificationError
from backupd.vocabulary.penalty import Throughput

log = logging.getLogger(__name__)

_BLOCKS_PER_QUEUE = 8  # of at most a mebibyte or so, as the archive hands them over
_TICK_SECONDS = 0.1
_END_SECONDS = 20.0  # to give up an upload; `backupd cancel` waits for thirty


class _Abandoned(Exception):
    """Nobody wants this object any more; somebody else has the error."""


class Copies:
    """The targets of one run that have everything so far. No thread of it is left at its block's end.

    Where one is (its target does not answer), it is told as an ERROR, and `require_ended` keeps its objects from being
    taken for released.
    """

    def __init__(self, targets: Sequence[Target], job: str, run_id: str, *, ledger: UploadLedger | None = None) -> None:
        self._all = tuple(targets)
        self._job, self._run_id = job, run_id
        self._ledger = ledger
        self._lock = threading.Lock()
        self._lost: dict[str, BackupdError] = {}
        self._fatal: list[BaseException] = []
        self._writers: list[_Writer] = []
        self._occupied: list[str] = []  # targets that somebody is inside a `dropping` block with

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._end(self._writers)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Those that nothing has failed on, in the job's order."""
        return tuple(target for target in self._all if target.name not in self._lost)

    @property
    def lost(self) -> Mapping[str, BackupdError]:
        """Those that dropped out, by name and in that order, each with the first error that it had."""
        return dict(self._lost)

    @property
    def throughput(self) -> tuple[Throughput, ...]:
        """What writing to each target took, over all objects that have ended; its last word (an fsync) is in it."""
        return tuple(
            Throughput(
                f"write:{target.name}",
                sum(writer.bytes for writer in self._writers if writer.target is target),
                sum(writer.busy_seconds for writer in self._writers if writer.target is target),
            )
            for target in self._all
        )

    @contextmanager
    def open_object(
        self, name: str, *, at_most: int | None = None, idle: Callable[[], None] = lambda: None
    ) -> Iterator[Sink]:
        """Write one object to every target that is left. When the block ends well, it is durable on those that are.

        Whatever thread writes into it, the block begins and ends in the main one, and calls `idle` while it waits.
        Where that fails, no target has half of it; one that was quick may have it whole, which its holding removes.

        Raises:
            TargetError: no target is left; it is the first one's error, and the others' are notes on it.
            Anything but a target's failure that a writer met.
        """
        self.require_some()
        job, run_id, ledger = self._job, self._run_id, self._ledger
        writers = []
        for target in self.targets:
            unwanted = threading.Event()
            opened = target.writing(job, run_id, name, at_most=at_most, ledger=ledger, unwanted=unwanted)
            writers.append(_Writer(target, opened, unwanted, failed=self._failed))
        try:
            self._writers += writers
            for writer in writers:
                begin(writer.thread)
            fan_out = _FanOut(self, writers)
            yield fan_out

            def look() -> None:
                fan_out.require_answers()
                idle()

            for writer in writers:
                writer.put(None, look)
            for writer in writers:
                writer.wait(look)
            self.require_some()
        finally:
            self._end(writers)

    @contextmanager
    def dropping(self, target: Target) -> Iterator[None]:
        """What fails in the block fails on this target: it drops out, and nothing is raised. Any thread may enter."""
        self._occupied.append(target.name)
        try:
            yield
        except (TargetError, VerificationError) as error:
            self.drop(target, error)
        finally:
            self._occupied.remove(target.name)

    def require_some(self) -> None:
        """There is a target that has everything so far.

        Raises:
            BackupdError: the first target's error, with the others' as notes; or what failed that is no target's fault.
        """
        if self._fatal:
            raise self._fatal[0]
        if not self.targets:
            (_, first), *others = self._lost.items()
            said = getattr(first, "__notes__", ())
            for name, error in others:
                note = f"target {name}: {error.message}"
                if note not in said:
                    first.add_note(note)
            raise first

    def give_up(self) -> None:
        """Nobody wants any of it any more: whatever waits for a target, one in an outage too, ends soon.

        For who has to end others before the blocks that they write in.
        """
        for writer in self._writers:
            writer.abandon()

    def require_ended(self, target: str) -> None:
        """Nothing is being done to this target any more, so that what is there can be removed.

        Raises:
            TargetError: a thread is still inside a call to it.
        """
        writing = any(writer.thread.is_alive() for writer in self._writers if writer.target.name == target)
        if writing or target in self._occupied:
            raise TargetError(
                f"target {target} does not answer: a call to it has not returned yet",
                hint="`backupd recover` removes what is left there once this process has ended",
            )

    def _failed(self, writer: "_Writer", error: BaseException) -> None:
        """A target's own error ends that target, any other the run."""
        if isinstance(error, TargetError):
            self.drop(writer.target, error)
        else:
            self._fatal.append(error)
            for each in self._writers:
                each.abandon()

    def drop(self, target: Target, error: BackupdError) -> None:
        """The target is out of this run: nothing more is written to it. Any thread may say so."""
        with self._lock:
            first = self._lost.setdefault(target.name, error) is error
        if first:
            log.error("target %s dropped out of this run: %s", target.name, error.message)
        for writer in self._writers:
            if writer.target is target:
                writer.abandon()

    def _end(self, writers: Sequence["_Writer"]) -> None:
        """End the threads, whatever they are at; nothing happens to those that have ended."""
        with shielded():
            for writer in writers:
                writer.abandon()
            deadline = time.monotonic() + _END_SECONDS
            for writer in writers:
                if writer.thread.ident is not None:
                    writer.thread.join(max(0.0, deadline - time.monotonic()))
                if writer.thread.is_alive():
                    log.error("target %s does not answer: its writer stops with this process", writer.target.name)


class _FanOut:
    """One object on its way to all targets."""

    def __init__(self, copies: Copies, writers: Sequence["_Writer"]) -> None:
        self._copies = copies
        self._writers = writers

    def write(self, data: bytes) -> None:
        """Hand a block to every target that is left; waits for the slowest."""
        taken = [writer.put(data, self.require_answers) for writer in self._writers]
        if not any(taken):
            self._copies.require_some()
            raise _Abandoned

    def require_answers(self) -> None:
        """A target that has not returned from a call for too long fails, whichever is waited for."""
        for writer in self._writers:
            writer.require_answer()


class _Writer:
    """One object on its way to one target, in a thread of its own."""

    def __init__(
        self,
        target: Target,
        opened: AbstractContextManager[ObjectWriter],
        unwanted: threading.Event,
        *,
        failed: Callable[["_Writer", BaseException], None],
    ) -> None:
        self.target = target
        self.bytes = 0
        self.busy_seconds = 0.0
        self.thread = threading.Thread(target=self._work, name=f"backupd write {target.name}", daemon=True)
        self._opened = opened
        self._failed = failed
        self._abandoned = unwanted
        self._asked_at: float | None = None  # monotonic: when the call began that it is in
        self._waited: tuple[float, TimeWaited] | None = None  # for the call that began then
        self._queue: Queue[bytes | None] = Queue(_BLOCKS_PER_QUEUE)

    def put(self, block: bytes | None, idle: Callable[[], None]) -> bool:
        """Hand over a block, None after the last one; False where nobody takes it any more."""
        while not self._abandoned.is_set():
            try:
                self._queue.put(block, timeout=_TICK_SECONDS)
            except Full:
                idle()
            else:
                return True
        return False

    def wait(self, idle: Callable[[], None]) -> None:
        """Return when the object is durable, or the writer has ended otherwise."""
        while not self._abandoned.is_set() and goes_on(self.thread, after_seconds=_TICK_SECONDS):
            idle()

    def abandon(self) -> None:
        """End it with nothing left of its object; nothing happens where that is complete."""
        self._abandoned.set()
        with suppress(Full):
            self._queue.put_nowait(None)  # wakes it where it waits for a block

    def _work(self) -> None:
        try:
            give_way_copying()
            with ExitStack() as opened:
                with self._asked():
                    writer = opened.enter_context(self._opened)
                for block in self._blocks():
                    with self._asked():
                        writer.write(block)
                    self.bytes += len(block)
                with self._asked():
                    opened.close()
        except _Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: the main thread raises it
            if isinstance(error, TargetError) and self._abandoned.is_set():
                log.debug("target %s: ended: %s", self.target.name, error.message)  # somebody else has the error
                return
            self._failed(self, error)  # which abandons it: whoever finds it abandoned finds the cause as well

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """The target is being called."""
        self._asked_at = began = time.monotonic()
        try:
            yield
        finally:
            self._asked_at = None
            self.busy_seconds += time.monotonic() - began

    def require_answer(self) -> None:
        """To be called again and again while somebody waits: a target that does not return from a call fails."""
        asked_at, most = self._asked_at, silent_seconds(self.target, self.bytes)
        if asked_at is None or self._abandoned.is_set():
            return
        if self._waited is None or self._waited[0] != asked_at:
            self._waited = asked_at, TimeWaited()
        elif self._waited[1].seconds() > most:
            self._failed(self, no_answer(self.target, most))

    def _blocks(self) -> Iterator[bytes]:
        while True:
            block = self._queue.get()
            if self._abandoned.is_set():
                raise _Abandoned
            if block is None:
                return
            yield block
