"""Files to objects: GNU tar, SHA-256, zstd frames, SHA-256 again, a target's writer; and reading back what was stored.

Knows: the order of the stages and that a failure of any of them fails the whole. Refuses to know which files belong
in the archive (`sources`), how fast it may go (a `Governor`) and where it goes (an `Sink`).

An object opens without backupd: `zstd -dc data.tar.zst | tar -x`.
"""

import fcntl
import os
import select
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from backupd.archive import Governor, Sink
from backupd.archive.conveyor import BLOCK_BYTES, Conveyor, Station
from backupd.archive.governor import CHECK_SECONDS, Unhindered
from backupd.archive.members import Members
from backupd.archive.sources import BinlogCut, Listing
from backupd.archive.stations import Compressor, Digest, Store, require_stored
from backupd.archive.tarchild import TarChild
from backupd.command import ChildLedger
from backupd.errors import SnapshotError
from backupd.model import StoredObject

DATA_OBJECT = "data.tar.zst"
BINLOG_OBJECT = "binlog.tar.zst"


@dataclass(frozen=True, slots=True)
class CopyManner:
    """How a copy is made: what paces it, how hard it compresses, who is told of its children."""

    governor: Governor = field(default_factory=Unhindered)
    level: int = 1  # of zstd
    threads: int = 1  # of zstd
    ledger: ChildLedger | None = None


def store_tree(
    root: Path, listing: Listing, writer: Sink, *, manner: CopyManner, name: str = DATA_OBJECT
) -> StoredObject:
    """Write the files of `listing`, which `sources.list_members` made of `root`, as one object.

    Holes stay holes. Nothing is left running, whether this returns or raises.

    Raises:
        SnapshotError: a file could not be read, vanished or changed: on a snapshot each of them is a fault.
        TargetError: the writer failed.
        Anything that the governor raises.
    """
    with (
        TarChild(_create_argv(root), given=listing.names, ledger=manner.ledger) as tar,
        _Packing(name, writer, manner) as packing,
    ):
        for block in _blocks(tar.stdout, manner.governor):
            packing.write(block)
        complaint = tar.ended(idle=lambda: manner.governor.pace(0))
        if complaint is not None:
            raise SnapshotError(
                f"the snapshot could not be read whole: {complaint}",
                hint="see whether the snapshot is intact (lvs) and whether the kernel's log has I/O errors",
            )
        stored = packing.finish()
    if stored.files != listing.files:
        raise SnapshotError(f"the archive has {stored.files} files where {listing.files} were to be stored")
    return stored


def store_binlog(cut: BinlogCut, writer: Sink, *, manner: CopyManner, name: str = BINLOG_OBJECT) -> StoredObject:
    """Write a binlog's first `offset` bytes, and an index that ends with it, as one object.

    Raises:
        SnapshotError: the file cannot be read or is shorter than the position says.
        TargetError: the writer failed.
        Anything that the governor raises.
    """
    try:
        with cut.file.open("rb") as file, _Packing(name, writer, manner) as packing:
            _write_binlog(cut, file, packing)
            return packing.finish()
    except OSError as error:
        raise SnapshotError(f"the binlog could not be read: {error}") from error


def verify(chunks: Iterator[bytes], expected: StoredObject, *, governor: Governor | None = None) -> None:
    """What was read back is what was stored, by size and digest.

    Raises:
        VerificationError: it is not; names the object, what was expected and what was found.
        TargetError: from `chunks`, when it cannot be read.
        Anything that the governor raises.
    """
    pacing = governor or Unhindered()
    found = Digest(at_most=expected.stored_bytes, what=f"{expected.name} as stored")
    with Conveyor([found], idle=lambda: pacing.pace(0)) as conveyor:
        for chunk in chunks:
            pacing.pace(len(chunk))
            conveyor.put(chunk)
        conveyor.finish()
    require_stored(found, expected)


class _Packing:
    """The way of plain bytes to a target, for the length of a `with`."""

    def __init__(self, name: str, writer: Sink, manner: CopyManner) -> None:
        self._name = name
        self._manner = manner
        self._plain, self._stored = Digest(), Store(writer)
        self._members = Members(name)
        compressor = Compressor(level=manner.level, threads=manner.threads)
        stations: list[Station] = [self._plain, self._members, compressor, self._stored]
        self._conveyor = Conveyor(stations, idle=lambda: manner.governor.pace(0))

    def __enter__(self) -> "_Packing":
        self._conveyor.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._conveyor.close()

    def write(self, block: bytes) -> None:
        self._manner.governor.pace(len(block))
        self._conveyor.put(block)

    def finish(self) -> StoredObject:
        self._conveyor.finish()
        return StoredObject(
            name=self._name,
            plain_bytes=self._plain.size,
            stored_bytes=self._stored.size,
            plain_sha256=self._plain.sha256,
            stored_sha256=self._stored.sha256,
            files=self._members.files,
        )


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
        f"--blocking-factor={(BLOCK_BYTES // 4) // 512}",  # few system calls; the stream is padded to this
    ]


def _blocks(pipe: int, governor: Governor) -> Iterator[bytes]:
    """What comes out of a pipe, in whole blocks; the governor is asked while nothing comes."""
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    held: list[bytes] = []
    size = 0
    while True:
        if not poller.poll(CHECK_SECONDS * 1000):
            governor.pace(0)
            continue
        piece = os.read(pipe, BLOCK_BYTES - size)
        held.append(piece)
        size += len(piece)
        if size and (size == BLOCK_BYTES or not piece):
            yield b"".join(held)
            held, size = [], 0
        if not piece:
            return


def _write_binlog(cut: BinlogCut, file: BinaryIO, packing: _Packing) -> None:
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


def _write_member(packing: _Packing, member: tarfile.TarInfo, content: BinaryIO) -> None:
    packing.write(member.tobuf(tarfile.PAX_FORMAT))
    left = member.size
    while left:
        block = content.read(min(left, BLOCK_BYTES))
        if not block:
            raise SnapshotError(f"the binlog {member.name} became shorter while it was read")
        packing.write(block)
        left -= len(block)
    packing.write(bytes(-member.size % tarfile.BLOCKSIZE))
