"""A client program that receives a binlog, for the length of a block, and the bytes that it has written.

Knows: in which order its files come, when one of them is over, that nothing unread may fill the disk, how it ended.
Refuses to know events: what it hands on may end within one. Nor does it notice by itself that the server's log was
RESET while nothing is written: `source.end_of_log` tells.

The server names the files that the program writes, and the program puts them where those names lead. So it is bound to
its folder, as whatever handles a stranger's bytes is, and its files are taken only under names that continue the first.
"""

import logging
import os
import re
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.host import process
from backupd.host.filesystem import remove_tree
from backupd.host.memory_file import memory_file
from backupd.host.own_files import private_folder
from backupd.host.process import ChildLedger
from backupd.host.sandbox import Bounds, not_confined
from backupd.host.scoped_thread import ScopedThread
from backupd.host.signals import shielded
from backupd.mysql.binlog.client import BinlogClient, environment, option_file, receiving_argv
from backupd.mysql.binlog.endings import STREAM_ENDED, EndKind, ReceiverEnd, judged_end
from backupd.mysql.login import Login
from backupd.mysql.recorded import is_binlog
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import CleanupIncomplete, ServerError
from backupd.vocabulary.escaping import on_one_line

log = logging.getLogger(__name__)

_READ_BYTES = 8 << 20  # of one poll
_WATCH_SECONDS = 0.5
_LOOK_SECONDS = 0.2  # of a segment's seconds it is little, and five times a second cost an idle host nothing
_SAID_BYTES = 2048  # of the last that the program said
_LINE = 500  # characters of it
_NUMBER = re.compile(r"\.([0-9]+)\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReceivedBytes:
    """A piece of a file that the program writes.

    Each file begins with the magic and its format description event. Where the receiver began behind these, the event
    is there all the same, as the server sends it: with the time of the file's first one, and with 0 as its end.
    """

    file: str
    at: int  # offset of `data` in the received file; that of the server's own only where it was received from its start
    data: bytes
    file_ended: bool  # the server has gone on to another file, and nothing follows in this one


class Receiver:
    """What has been received, in order. Only its own thread may call it."""

    def __init__(
        self, child: "subprocess.Popen[bytes]", end: select.poll, folder: Path, said: int, *, first: str, limit: int
    ) -> None:
        """`end` tells that the program has ended."""
        self._child, self._end, self._folder, self._said = child, end, folder, said
        self._file, self._at = first, 0
        self._limit, self._over_limit = limit, threading.Event()
        self._watching = threading.Event()

    @property
    def ended(self) -> ReceiverEnd | None:
        """None while the program runs; else why it does no more. What it had written before can still be polled."""
        if self._child.poll() is None:
            return None
        if self._over_limit.is_set():
            return ReceiverEnd(EndKind.TOO_MUCH_UNREAD, f"more than {self._limit} bytes were received and not read")
        said = self._last_line()
        if (unbound := not_confined(self._child.returncode, said, doing="receiving the binlog")) is not None:
            raise unbound
        if not said and self._child.returncode == 0:
            return STREAM_ENDED
        return judged_end(said or f"the program ended with status {self._child.returncode}, and said nothing")

    def poll(self, most: int = _READ_BYTES) -> list[ReceivedBytes]:
        """What is new since the last poll, at most so many bytes of it; nothing where nothing is.

        A file that is over and read is deleted.

        Raises:
            ServerError: the server names a file that does not continue the first.
            OSError: the folder cannot be read.
        """
        pieces: list[ReceivedBytes] = []
        while most > 0:
            following = self._following()  # looked for first: then what the file has now is all that it will have
            data = self._read(most)
            over = following is not None and len(data) < most
            if data or over:
                pieces.append(ReceivedBytes(self._file, self._at, data, file_ended=over))
            self._at += len(data)
            most -= len(data)
            if not over or following is None:
                break
            (self._folder / self._file).unlink(missing_ok=True)
            self._file, self._at = following, 0
        return pieces

    def wait(self, seconds: float) -> None:
        """Until there is something to poll, the program has ended, or so much time is over."""
        over = time.monotonic() + seconds
        while not self._has_more() and (left := over - time.monotonic()) > 0:
            if self._end.poll(min(left, _LOOK_SECONDS) * 1000):
                return

    def watch(self) -> None:
        """Until `stop_watching`, or the program had to be killed: what is not read does not fill the disk."""
        while not self._watching.wait(_WATCH_SECONDS):
            if self._unread() > self._limit:
                self._over_limit.set()
                log.warning("the receiver was ended: more than %d bytes lie in %s unread", self._limit, self._folder)
                self._child.kill()
                return

    def stop_watching(self) -> None:
        """`watch` returns."""
        self._watching.set()

    def _following(self) -> str | None:
        """The next file, if the server has gone on to one."""
        names = sorted(os.listdir(self._folder), key=_number)  # noqa: PTH208 - names are enough
        for name in names:
            if not is_binlog(name) or _base(name) != _base(self._file):
                raise ServerError(
                    f"the server's binlogs have a new name: {on_one_line(name)!r:.200} after {self._file}",
                    hint="was log_bin changed? take a backup now: the archive starts a new chain from it",
                )
        return next((name for name in names if _number(name) > _number(self._file)), None)

    def _read(self, most: int) -> bytes:
        """The program makes the file when it has the first event of it."""
        try:
            descriptor = os.open(self._folder / self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            file.seek(self._at)
            return file.read(most)

    def _has_more(self) -> bool:
        return self._unread() > 0

    def _unread(self) -> int:
        """Bytes; of the file that is being read those before `_at` are not counted."""
        total = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                try:
                    total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:  # it was read and deleted meanwhile
                    continue
        return max(0, total - self._at)

    def _last_line(self) -> str:
        size = os.fstat(self._said).st_size
        text = os.pread(self._said, _SAID_BYTES, max(0, size - _SAID_BYTES)).decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return on_one_line(lines[-1].strip())[-_LINE:] if lines else ""


@contextmanager
def receiving(
    client: BinlogClient,
    login: Login,
    start: BinlogPlace,
    folder: Path,
    *,
    server_id: int,
    limit: int,
    ledger: ChildLedger | None = None,
    confined: bool = True,
) -> Iterator[Receiver]:
    """The binlog is received from `start` on for the length of the block; then the program has ended.

    `folder` is made, for us alone, and emptied, before and after: what is not read in the block is received again
    another time. The program is killed when `limit` bytes lie there unread, and when the thread that has entered the
    block ends. Where not `confined`, only the server's good will keeps the program in its folder.

    Raises:
        ServerError: over this way the password is not sent, or `start` is in no binlog.
        CommandError: the program cannot be started.
        CleanupIncomplete: the folder cannot be emptied.
        OSError: it cannot be made.
    """
    if not is_binlog(start.file):
        raise ServerError(f"{on_one_line(start.file)!r:.200} is not the name of a binlog")
    options = option_file(login, client.flavour)
    argv = receiving_argv(client, folder, start=start, server_id=server_id)
    prefix = Bounds(writable=(folder,), network=True).prefix() if confined else []
    with _emptied(folder), ExitStack() as held, memory_file(options) as told, memory_file() as said:
        child = held.enter_context(
            process.spawned(
                [*prefix, *argv],
                stdin=told,
                stdout=subprocess.DEVNULL,
                stderr=said,
                environment=environment(),
                only_this_environment=True,
                ledger=ledger,
            )
        )
        end = held.enter_context(_end_of(child))
        receiver = Receiver(child, end, folder, said, first=start.file, limit=limit)
        with shielded():
            held.enter_context(ScopedThread("binlog-watch", receiver.watch, stop=receiver.stop_watching))
        yield receiver


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """It is ours alone and empty, and is empty again when the block has ended: what is received is not encrypted.

    Where something is in the way of that then, it is logged: whoever begins the next time is told.
    """
    _empty(folder)
    try:
        yield
    finally:
        with shielded():
            try:
                _empty(folder)
            except (CleanupIncomplete, OSError) as error:
                log.error("what was received and is not encrypted is left in %s: %s", folder, error)


def _empty(folder: Path) -> None:
    remove_tree(folder)
    private_folder(folder)


@contextmanager
def _end_of(child: "subprocess.Popen[bytes]") -> Iterator[select.poll]:
    """Readable when the program has ended."""
    descriptor = os.pidfd_open(child.pid)
    try:
        end = select.poll()
        end.register(descriptor, select.POLLIN)
        yield end
    finally:
        os.close(descriptor)


def _base(name: str) -> str:
    return name.rpartition(".")[0]


def _number(name: str) -> int:
    found = _NUMBER.search(name)
    return int(found[1]) if found else -1
