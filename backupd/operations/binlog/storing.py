"""From the spool to the targets: each target is given the segments that it lacks, in their order, by its own thread.

Knows: that nothing is stored in a folder that another machine has taken over, nor once this machine has another name,
under which the catalogue tells of nothing that waits; that a target that is away is tried again
and keeps no other waiting, and so is a catalogue that cannot be asked for a moment: whoever receives finds out if that
lasts; that one that hangs keeps no archive from ending; that a segment leaves the spool once all targets have it; what
a writer that died between storing a segment and recording that has left.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from backupd.catalogue.store import Catalogue
from backupd.host.daemon_thread import answered
from backupd.host.scoped_thread import ScopedThread
from backupd.host.signals import shielded
from backupd.operations.binlog.spool import BinlogSpool
from backupd.operations.ownership import Ownership
from backupd.policy.segment_file import LONGEST_LINE, from_line
from backupd.targets import Target
from backupd.targets.listing import is_returned
from backupd.targets.names import BINLOG
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment, segment_name
from backupd.vocabulary.errors import (
    AlreadyThere,
    CatalogueError,
    TargetError,
    Unreadable,
    UsageError,
    VerificationError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_ANSWER_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0  # for what a target is at when the archive ends
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
_BLOCK = 1 << 20
_HINT = (
    "check who removes files from binlog.spool; the archive starts again by itself, and reports as a gap what is lost"
)


@dataclass(frozen=True, slots=True)
class SegmentStore:
    """Where the segments of one job go."""

    job: str
    targets: Sequence[Target]
    catalogue: Catalogue
    spool: BinlogSpool
    ownership: Ownership

    @contextmanager
    def storing(self) -> Iterator["Senders"]:
        """For the length of the block, what is kept in the spool is stored on every target. At the end what is being
        written is given up, and nothing of it is left; where a target hangs, its thread is left to the process's end.
        """
        stop = threading.Event()
        senders = Senders([_Sender(self, target, stop) for target in self.targets])
        with ExitStack() as working:
            with shielded():
                for sender in senders.each:
                    working.enter_context(sender)
            yield senders

    def released(self, segment: BinlogSegment) -> bool:
        """It leaves the spool where every target has it; whether that is so."""
        if not self.catalogue.segment_targets(segment.name) >= {target.name for target in self.targets}:
            return False
        self.catalogue.left_spool([segment.name])
        self.spool.forget(segment.name)
        return True

    def take_up(self, name: str) -> None:
        """What waits under this name has its row, if it is a segment of this machine's and the catalogue has no other.

        Raises:
            UsageError: it is another machine's.
            Unreadable: a newer backupd wrote it.
        """
        with self.spool.reading(name) as file:
            line = file.readline(LONGEST_LINE)
        try:
            segment, machine = from_line(line), self.catalogue.identity().name
            if segment.machine != machine:
                raise UsageError(
                    f"the binlog spool has {name} of machine {segment.machine}, and this is {machine}",
                    hint=f"if it is the same host: `backupd identity adopt {segment.machine}`; on a clone, or if nobody"
                    f" needs them: remove the segments of job {self.job} from binlog.spool",
                )
            self.catalogue.add_segment(segment)
        except Unreadable:
            raise
        except VerificationError as error:
            log.warning("job %s: %s in the binlog spool cannot be used: %s", self.job, name, error.message)

    def taken(self, spooled: Collection[str]) -> set[str]:
        """The names of these in the spool under which a target that lacks them has another segment; of one that does
        not answer soon nobody knows.
        """
        found: set[str] = set()
        for target in self.targets:
            lacking = [one for one in self.catalogue.lacking_segments(self.job, target.name) if one.name in spooled]
            if lacking:
                found |= _told_soon(partial(self._taken_on, target, lacking), otherwise=set[str](), by=target.name)
        return found

    def _taken_on(self, target: Target, lacking: Sequence[BinlogSegment]) -> set[str]:
        self.ownership.require_ours(target)
        first = min(lacking, key=lambda segment: segment.name)
        there = target.segments(self.job, after=segment_name(first.chain, first.number - 1))
        return {each.name for each in lacking if each.name in there and not self.is_same(each, target)}

    def is_same(self, segment: BinlogSegment, target: Target) -> bool:
        """Whether what lies there under its name is what waits in the spool.

        Raises:
            TargetError: it cannot be read.
        """
        with self.spool.reading(segment.name) as file:
            ours, found = hashlib.sha256(), hashlib.sha256()
            while block := file.read(_BLOCK):
                ours.update(block)
        with target.reading(self.job, BINLOG, segment.name) as chunks:
            for chunk in chunks:
                found.update(chunk)
        return found.digest() == ours.digest()

    def require_same_machine(self) -> None:
        """The catalogue is that of the machine whose segments these targets get: it tells nothing of another one's.

        Raises:
            UsageError: this machine has another name by now; the archive restarts under that.
            Refused: the catalogue is another machine's.
        """
        here = self.ownership.require_here().name
        for other in {target.machine for target in self.targets} - {here}:
            raise UsageError(
                f"this machine is now {here}, but the archive of job {self.job} was started as {other}",
                hint="the archive restarts under the new name and then reports the segments left in binlog.spool under"
                " the old one",
            )

    def require_spool_of(self, waiting: Sequence[BinlogSegment]) -> None:
        """The spool is the one that these wait in, as far as that can be told where none of them is there.

        Raises:
            UsageError: it is new: they may lie whole in another one, and would be given up as lost.
        """
        if waiting and self.spool.is_new:
            received = self.spool.received
            raise UsageError(
                f"the binlog spool {received.parent} is new, and has none of the {len(waiting)} segments that wait for"
                " a target",
                hint="was binlog.spool changed, or is it not mounted? Mount it, set it back, or move the segments."
                f" If they are lost: `mkdir -m 700 {received}`, and the archive continues with a gap",
            )

    def is_last(self, segment: BinlogSegment) -> bool:
        """Whether no target has a later one of its chain; one that does not answer soon may. A listing may lie: the
        next one is asked for by name, too.
        """
        following = segment_name(segment.chain, segment.number + 1)

        def is_last_on(target: Target) -> bool:
            listed = target.segments(self.job, after=segment.name)
            has_more = any(name.startswith(segment.chain) for name in listed)
            return not has_more and not is_returned(target, self.job, BINLOG, following)

        return all(_told_soon(partial(is_last_on, target), otherwise=False, by=target.name) for target in self.targets)

    def dropped(self, segment: BinlogSegment, gaps: Iterable[ArchiveGap]) -> None:
        """It no longer waits, whoever lacks it, as these gaps tell. Of one who dies in between, the next start finds
        what waits and is not in the spool.
        """
        self.spool.forget(segment.name)
        self.catalogue.segment_dropped(self.job, segment.name, gaps)


def _told_soon(look: Callable[[], T], *, otherwise: T, by: str) -> T:
    """What a target tells; one that is away, or hangs, keeps nobody from receiving what the server writes."""
    try:
        return answered(look, within_seconds=_ANSWER_SECONDS, name=f"binlog look at {by}")
    except (TargetError, TimeoutError) as error:
        log.warning("target %s: %s", by, error)
        return otherwise


@dataclass(frozen=True, slots=True)
class Senders:
    """Those of all targets. Each ring makes each of them ask the catalogue what its target lacks."""

    each: Sequence["_Sender"]

    def ring(self) -> None:
        """There is something new. Raises what has ended one of them."""
        self.require_working()
        for sender in self.each:
            sender.ring()

    def rest(self, *, within_seconds: float) -> None:
        """Every target that answers has what waits, or so much time has passed. Raises what has ended one of them."""
        over = time.monotonic() + within_seconds
        while time.monotonic() < over and not all(sender.rests for sender in self.each):
            self.require_working()
            time.sleep(_LOOK_SECONDS)

    def require_working(self) -> None:
        """Raises what has ended one of them."""
        for sender in self.each:
            sender.require_working()


class _Sender(ScopedThread):
    """What gives one target what it lacks."""

    def __init__(self, store: SegmentStore, target: Target, stop: threading.Event) -> None:
        self._store, self._target, self._stop = store, target, stop
        self._news, self._rests = threading.Event(), threading.Event()
        self._stored: BinlogSegment | None = None  # whether it leaves the spool is to be asked, or once more
        self._looked_at: float | None = None  # when the folder was found to be this machine's, in this process
        super().__init__(f"binlog {target.name}", self._work_on, stop=self._end, end_seconds=_END_SECONDS)

    def ring(self) -> None:
        """There is something new."""
        self._news.set()

    @property
    def rests(self) -> bool:
        """Its target has all that waits, or was away when it was tried last."""
        return self._rests.is_set() and not self._news.is_set()

    def _end(self) -> None:
        self._stop.set()
        self._news.set()

    def _work_on(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while not self._stop.is_set():
            self._rests.clear()
            self._news.clear()
            try:
                self._send_all()
                self._rests.set()
                wait = _FIRST_WAIT_SECONDS
            except (TargetError, CatalogueError) as error:
                if self._stop.is_set():
                    return
                log.warning("target %s: segments wait in the spool: %s", self._target.name, error.message)
                self._rests.set()
                self._stop.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
                continue
            self._news.wait(_LONGEST_WAIT_SECONDS)

    def _send_all(self) -> None:
        store, gone = self._store, set[str]()
        store.require_same_machine()
        self._let_go()
        while lacking := store.catalogue.lacking_segments(store.job, self._target.name):
            for segment in lacking:
                if self._stop.is_set():
                    return
                self._require_ours()
                try:
                    self._send(segment)
                except FileNotFoundError as error:  # it was dropped, for the spool was full: then it no longer waits
                    if segment.name in gone:
                        raise UsageError(f"{segment.name} is not in the binlog spool any more", hint=_HINT) from error
                    gone.add(segment.name)
                    continue
                self._stored = segment
                store.catalogue.segment_stored(segment.name, self._target.name, at=datetime.now(UTC))
                self._let_go()

    def _require_ours(self) -> None:
        """The folder is this machine's, as of a minute ago at most: an archive lives for months, and another machine
        may take its identity over meanwhile. Where an owner record is missing, it is written.

        Raises:
            NotOurs: somebody else has written there.
            TargetError: nobody can tell.
        """
        ownership, now = self._store.ownership, self._store.ownership.clock()
        if self._looked_at is not None and now - self._looked_at < ownership.renewal_seconds:
            return
        if self._looked_at is None or ownership.require_ours(self._target):
            ownership.take(self._target)
        self._looked_at = now

    def _let_go(self) -> None:
        """What was stored last leaves the spool where every target has it: it is lacking no more, and not asked for."""
        if self._stored is not None:
            self._store.released(self._stored)
            self._stored = None

    def _send(self, segment: BinlogSegment) -> None:
        """It is on the target, whoever brought it there."""
        store = self._store
        with store.spool.reading(segment.name) as file:
            try:
                with self._target.writing(store.job, BINLOG, segment.name, unwanted=self._stop) as writer:
                    while block := file.read(_BLOCK):
                        writer.write(block)
            except AlreadyThere:
                self._require_same(segment)

    def _require_same(self, segment: BinlogSegment) -> None:
        """What lies there is what we would have written: a process that died had written it.

        Raises:
            UsageError: it is something else: the archive continues in a new chain.
            TargetError: it cannot be read.
        """
        if not self._store.is_same(segment, self._target):
            raise UsageError(
                f"{segment.name} on target {self._target.name} is not the segment that is to be stored there",
                hint="a clone of this machine wrote it, or this machine before it was rolled back, or somebody else who"
                " can write to the target; the archive continues in a new chain",
            )
