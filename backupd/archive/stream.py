"""A mounted snapshot to objects: GNU tar for each stream, one thread that reads them all; the binlog and small things.

Knows: that all streams are read at once under one governor, and that a failure of any of them fails the whole. Refuses
to know which files belong in the archive (`sources`), how fast it may go (a `Governor`), what becomes of the bytes
(`packing`) and where they go (whatever `open_object` opens).
"""

import fcntl
import os
import select
import stat
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from backupd.archive import Governor, Sink
from backupd.archive.conveyor import BLOCK_BYTES
from backupd.archive.governor import CHECK_SECONDS
from backupd.archive.index import Member
from backupd.archive.packing import CopyManner, Packing, automatic_streams
from backupd.archive.sources import BinlogCut, Listing, divide
from backupd.archive.stopwatch import Stopwatch, totals
from backupd.archive.tarchild import TarChild
from backupd.errors import SnapshotError
from backupd.model import StoredObject, Throughput

BINLOG_OBJECT = "binlog.tar.zst"

OpenObject = Callable[[str], AbstractContextManager[Sink]]


def data_object(number: int) -> str:
    """What the stream of that number, counted from 1, is called."""
    return f"data-{number}.tar.zst"


@dataclass(frozen=True, slots=True)
class StoredStreams:
    """What became of a tree."""

    objects: tuple[StoredObject, ...]
    members: Mapping[str, tuple[Member, ...]]  # by the object's name without `.age`, as the index wants it
    throughput: tuple[Throughput, ...]  # read, digest, compress, encrypt, digest-stored, write: all streams together


def store_streams(
    root: Path, listing: Listing, open_object: OpenObject, *, streams: int, manner: CopyManner
) -> StoredStreams:
    """Write the files of `listing`, which `sources.list_members` made of `root`, as objects `data-N.tar.zst`.

    At most `streams` of them, 0 for as many as suit the host. `open_object` is called by this thread once for each,
    and all are open at once; what it opens is written by a thread of the stream's. Holes stay holes. Nothing is left
    running, whether this returns or raises.

    Raises:
        SnapshotError: a file could not be read, vanished or changed: on a snapshot each of them is a fault.
        TargetError: a sink failed.
        Anything that the governor raises.
    """
    with ExitStack() as owed:
        bell = owed.enter_context(_Bell())
        flows = []
        for number, part in enumerate(divide(listing, streams or automatic_streams()), 1):
            name = manner.object_name(data_object(number))
            sink = owed.enter_context(open_object(name))
            tar = owed.enter_context(_tar(root, part, manner))
            packing = owed.enter_context(Packing(name, sink, manner, on_room=bell.ring))
            flows.append(_Flow(tar, packing, part.files, manner.governor))
        _read_all(flows, bell, manner.governor)
        objects = tuple(flow.finish() for flow in flows)
    return StoredStreams(
        objects=objects,
        members={data_object(number): flow.packing.members for number, flow in enumerate(flows, 1)},
        throughput=totals(watch for flow in flows for watch in (flow.reading, *flow.packing.watches)),
    )


def store_tree(root: Path, listing: Listing, writer: Sink, *, manner: CopyManner) -> StoredObject:
    """`store_streams` with one stream to a writer that is open already."""
    return store_streams(root, listing, lambda _name: nullcontext(writer), streams=1, manner=manner).objects[0]


def store_content(name: str, content: bytes, *, open_object: OpenObject, manner: CopyManner) -> StoredObject:
    """Write something small, a tar if `name` says so, as one object.

    Raises:
        TargetError: the sink failed.
        Anything that the governor raises.
    """
    name = manner.object_name(name)
    with open_object(name) as sink, Packing(name, sink, manner, is_tar=".tar." in name) as packing:
        for start in range(0, len(content), BLOCK_BYTES):
            packing.write(content[start : start + BLOCK_BYTES])
        return packing.finish()


def store_binlog(cut: BinlogCut, *, open_object: OpenObject, manner: CopyManner) -> StoredObject:
    """Write a binlog's first `offset` bytes, and an index that ends with it, as one object.

    Raises:
        SnapshotError: the file cannot be read or is shorter than the position says.
        TargetError: the sink failed.
        Anything that the governor raises.
    """
    name = manner.object_name(BINLOG_OBJECT)
    try:
        with cut.file.open("rb") as file, open_object(name) as sink, Packing(name, sink, manner) as packing:
            _write_binlog(cut, file, packing)
            return packing.finish()
    except OSError as error:
        raise SnapshotError(f"the binlog could not be read: {error}") from error


class _Bell:
    """Wakes the thread that reads, from any other, for the length of a `with`; silent afterwards."""

    def __init__(self) -> None:
        self.file = -1
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.file = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:  # a thread that nobody could end may ring yet, and the number may be another file's by then
            os.close(self.file)
            self.file = -1

    def ring(self) -> None:
        """The reader looks around once more."""
        with self._lock:
            if self.file >= 0:
                os.eventfd_write(self.file, 1)

    def heard(self) -> None:
        """It does."""
        os.eventfd_read(self.file)


class _Flow:
    """One stream on its way from tar to its sink."""

    def __init__(self, tar: TarChild, packing: Packing, files: int, governor: Governor) -> None:
        self.packing = packing
        self.pipe = tar.stdout
        self.reading = Stopwatch("read")
        self._tar = tar
        self._files = files
        self._governor = governor
        fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)

    def read(self) -> bool:
        """Pass a block on; False when there is none any more, and tar has ended well.

        Raises:
            SnapshotError: it has not.
        """
        with self.reading:
            block = os.read(self.pipe, BLOCK_BYTES)
        self.reading.bytes += len(block)
        if block:
            self.packing.write(block)
            return True
        complaint = self._tar.ended(idle=lambda: self._governor.pace(0))
        if complaint is not None:
            raise SnapshotError(
                f"the snapshot could not be read whole: {complaint}",
                hint="see whether the snapshot is intact (lvs) and whether the kernel's log has I/O errors",
            )
        return False

    def finish(self) -> StoredObject:
        """What the stream has become, with as many files as were asked for."""
        stored = self.packing.finish()
        if stored.files != self._files:
            raise SnapshotError(f"the archive has {stored.files} files where {self._files} were to be stored")
        return stored


def _read_all(flows: Sequence[_Flow], bell: _Bell, governor: Governor) -> None:
    """Read whichever pipe has something for a stream that has room for it; the governor is asked when none has."""
    left = {flow.pipe: flow for flow in flows}
    while left:
        hungry = [flow for flow in left.values() if flow.packing.has_room]
        poller = select.poll()
        for file in (bell.file, *(flow.pipe for flow in hungry)):
            poller.register(file, select.POLLIN)
        with ExitStack() as waiting:  # for their tars
            for flow in hungry:
                waiting.enter_context(flow.reading)
            ready = poller.poll(CHECK_SECONDS * 1000)
        if not ready:
            governor.pace(0)
        for file, _ in ready:
            if file == bell.file:
                bell.heard()
            elif not left[file].read():
                del left[file]


def _tar(root: Path, part: Listing, manner: CopyManner) -> TarChild:
    return TarChild(_create_argv(root), given=part.names, ledger=manner.ledger, gently=manner.gently)


def _create_argv(root: Path) -> list[str]:
    return [
        "tar",
        "--create",
        "--file=-",
        f"--directory={root}",
        "--no-recursion",
        "--null",  # names as they are, whatever they begin with
        "--files-from=-",
        "--format=posix",
        "--pax-option=delete=atime,delete=ctime",  # nobody restores them, and they cost a header for every member
        "--sparse",
        "--numeric-owner",
        "--xattrs",
        "--acls",
        "--blocking-factor=20",  # what `tar -x` reads at a time: it leaves more padding unread, and zstd a broken pipe
    ]


def _write_binlog(cut: BinlogCut, file: BinaryIO, packing: Packing) -> None:
    facts = os.fstat(file.fileno())
    if facts.st_size < cut.offset:
        raise SnapshotError(
            f"the binlog {cut.file.name} has {facts.st_size} bytes, but the recorded position is at {cut.offset}",
            hint="the snapshot or the binlog's file system lost writes; the backup would end before its position",
        )
    index = "".join(f"./{name}\n" for name in (*cut.earlier, cut.arcname.name)).encode()
    _write_member(packing, _member(cut.arcname, cut.offset, facts), file)
    _write_member(packing, _member(cut.arcname.with_suffix(".index"), len(index), facts), BytesIO(index))
    packing.write(bytes(2 * tarfile.BLOCKSIZE))


def _member(name: PurePosixPath, size: int, like: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(str(name))
    member.size, member.mode = size, stat.S_IMODE(like.st_mode)
    member.uid, member.gid, member.mtime = like.st_uid, like.st_gid, int(like.st_mtime)
    return member


def _write_member(packing: Packing, member: tarfile.TarInfo, content: BinaryIO) -> None:
    packing.write(member.tobuf(tarfile.PAX_FORMAT))
    left = member.size
    while left:
        block = content.read(min(left, BLOCK_BYTES))
        if not block:
            raise SnapshotError(f"the binlog {member.name} became shorter while it was read")
        packing.write(block)
        left -= len(block)
    packing.write(bytes(-member.size % tarfile.BLOCKSIZE))
