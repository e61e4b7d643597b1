"""A tar stream of files: what is in it in which order, before anything of their content is read.

Knows: headers (`pax`), second names of a file, holes, where on the disk a file begins (ioctl_fiemap(2)). A span could
as well be told from elsewhere, for a file that has certainly not changed.
"""

import errno
import os
import stat
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fcntl import ioctl
from itertools import islice
from pathlib import Path, PurePosixPath

from backupd.archive.listing import Entry, Listing
from backupd.archive.pax import BLOCK, RECORD, Header, HeaderType, padding, sparse_map
from backupd.archive.redo import RedoCut
from backupd.archive.source_file import REQUEST_BYTES, Part, ReadSpan, SourceFile, readable_name, size_of, unreadable
from backupd.archive.sources import BinlogCut
from backupd.vocabulary.errors import SnapshotError

_NEAR_BYTES = 64 << 10  # a hole that is smaller is read with what is around it: the disk is not asked for it
_SORTED_FILES = 1024  # at a time; a folder with more is gone through in as many passes

_ANOTHER_KIND = "its type has changed"

_FS_IOC_FIEMAP = 0xC020660B  # linux/fiemap.h, and of its structures:
_FIEMAP = struct.Struct("=QQIIII")  # start, length, flags, mapped, count, reserved; extents follow
_EXTENT = struct.Struct("=QQQ32x")  # logical, physical, length
_WHOLE_FILE = (1 << 64) - 1


def tar_stream(root: Path, listing: Listing) -> Iterator[Part]:
    """The tar stream of what `listing` has, found in `root`. A folder comes before what is in it.

    The files of one folder come in the order in which they lie on the disk, where the file system tells; of a file that
    has several names the first one has the content.

    Raises:
        SnapshotError: a file vanished, or is not of the kind that it was.
    """
    return _ended(_members(os.fsencode(root), listing))


def _ended(members: Iterable[Part]) -> Iterator[Part]:
    """The members with what ends an archive."""
    at = 0
    for part in members:
        at += size_of(part)
        yield part
    yield bytes(2 * BLOCK + -(at + 2 * BLOCK) % RECORD)


def binlog_stream(cut: BinlogCut) -> Iterator[Part]:
    """A binlog's first `offset` bytes, whole ones before it, and an index that ends with it.

    Their folder is in it where no other object has it.

    Raises:
        SnapshotError: a file is not there, or shorter than the position says.
    """
    return _ended(_binlogs(cut))


def _binlogs(cut: BinlogCut) -> Iterator[Part]:
    try:
        facts = cut.file.stat()
        if facts.st_size < cut.offset:
            raise SnapshotError(
                f"the binlog {cut.arcname.name} has {facts.st_size} bytes,"
                f" but the recorded position is at {cut.offset}",
                hint="the snapshot or the binlog's file system lost writes; the backup would end before its position",
            )
        if cut.folder_like is not None:  # or it would be root's, and no server could write there
            yield Header(os.fsencode(cut.arcname.parent), HeaderType.FOLDER, cut.folder_like.stat()).encoded()
        for binlog in cut.whole:
            yield from _binlog(binlog.file, cut.arcname.with_name(binlog.name), binlog.size)
        yield from _binlog(cut.file, cut.arcname, cut.offset)
    except OSError as error:
        raise SnapshotError(f"the binlog could not be read: {error}") from error
    names = (*cut.earlier, *(binlog.name for binlog in cut.whole), cut.arcname.name)
    index = "".join(f"./{name}\n" for name in names).encode()
    yield Header(os.fsencode(cut.arcname.with_suffix(".index")), HeaderType.FILE, facts, size=len(index)).encoded()
    yield index
    yield padding(len(index))


def _binlog(file: Path, arcname: PurePosixPath, size: int) -> Iterator[Part]:
    source = SourceFile(os.fsencode(file), os.fsencode(arcname), file.stat(), live=True)
    yield Header(source.name, HeaderType.FILE, source.facts, size=size).encoded()
    yield from _content(source, size)


def _members(root: bytes, listing: Listing) -> Iterator[Part]:
    first: dict[tuple[int, int], bytes] = {}  # of a file's names
    for entry in _in_disk_order(root, listing.entries):
        path = root + b"/" + entry.name
        try:
            facts = os.lstat(path)
            if stat.S_ISDIR(facts.st_mode) != entry.folder:
                raise unreadable(entry.name, _ANOTHER_KIND)
            inode = (facts.st_dev, facts.st_ino)
            several = facts.st_nlink > 1 and not entry.folder
            original = first.setdefault(inode, entry.name) if several else entry.name
            if original != entry.name:
                yield Header(entry.name, HeaderType.HARD_LINK, facts, target=original).encoded()
            else:
                redo = listing.redo if listing.redo is not None and listing.redo.name == entry.name else None
                yield from _member(path, entry.name, facts, redo)
        except OSError as error:
            raise unreadable(entry.name, error.strerror) from error


def _member(path: bytes, name: bytes, facts: os.stat_result, redo: RedoCut | None) -> Iterator[Part]:
    xattrs = {keyword: _xattr(path, keyword) for keyword in _xattrs(path)}
    if stat.S_ISDIR(facts.st_mode):
        yield Header(name, HeaderType.FOLDER, facts, xattrs=xattrs).encoded()
    elif stat.S_ISLNK(facts.st_mode):
        yield Header(name, HeaderType.SYMLINK, facts, target=os.readlink(path), xattrs=xattrs).encoded()  # noqa: PTH115
    elif stat.S_ISREG(facts.st_mode):
        yield from _file(SourceFile(path, name, facts), xattrs, redo)
    else:
        raise unreadable(name, _ANOTHER_KIND)


def _xattrs(path: bytes) -> list[bytes]:
    try:
        return [os.fsencode(name) for name in os.listxattr(path, follow_symlinks=False)]
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # a file system that has none
            return []
        raise


def _xattr(path: bytes, keyword: bytes) -> bytes:
    try:
        return os.getxattr(path, keyword, follow_symlinks=False)
    except OSError as error:
        raise OSError(error.errno, f"attribute {readable_name(keyword)}: {error.strerror}") from error


def _file(source: SourceFile, xattrs: Mapping[bytes, bytes], redo: RedoCut | None) -> Iterator[Part]:
    name, facts = source.name, source.facts
    pieces = _pieces(source) if facts.st_blocks * BLOCK < facts.st_size else None
    if redo is not None:
        pieces = _kept(source, pieces, redo)
    if pieces is None:
        yield Header(name, HeaderType.FILE, facts, size=facts.st_size, xattrs=xattrs).encoded()
        yield from _content(source, facts.st_size)
        return
    held, count = sum(islice(pieces, 1, None, 2)), len(pieces) // 2
    told = sum(map(len, sparse_map(_pairs(pieces), count)))
    yield Header(name, HeaderType.FILE, facts, size=told + held, xattrs=xattrs, real_size=facts.st_size).encoded()
    yield from sparse_map(_pairs(pieces), count)
    yield from _spans(source, _pairs(pieces))
    yield padding(held)


def _content(source: SourceFile, size: int) -> Iterator[Part]:
    """The first `size` bytes of a file, as they follow its header."""
    yield from _spans(source, ((0, size),))
    yield padding(size)


def _spans(source: SourceFile, pieces: Iterable[tuple[int, int]]) -> Iterator[ReadSpan]:
    """These pieces, offset and size of each, in requests that end where a multiple of their size does."""
    wanted: list[tuple[int, int]] = []
    for begin, end in _cut(pieces):
        if wanted:
            before = sum(wanted[-1])
            if begin - before > _NEAR_BYTES or begin // REQUEST_BYTES != wanted[0][0] // REQUEST_BYTES:
                yield ReadSpan(source, wanted)
                wanted = []
        wanted.append((begin, end - begin))
    if wanted:
        yield ReadSpan(source, wanted)


def _cut(pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where each begins and ends, once it was cut at the multiples."""
    for offset, size in pieces:
        begin, last = offset, offset + size
        while begin < last:
            end = min(last, begin - begin % REQUEST_BYTES + REQUEST_BYTES)
            yield begin, end
            begin = end


def _pieces(source: SourceFile) -> "array[int] | None":
    """Where there is data in a file with holes: offset and size of each piece, and its end. None: it has no holes."""
    size = source.facts.st_size
    found = array("q")
    file = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        end = 0
        while end < size and (begin := _data_from(file, end)) is not None:
            end = min(os.lseek(file, begin, os.SEEK_HOLE), size)
            found.extend((begin, end - begin))
    finally:
        os.close(file)
    if found == array("q", (0, size)):
        return None
    if end < size:
        found.extend((size, 0))
    return found


def _kept(source: SourceFile, pieces: "array[int] | None", redo: RedoCut) -> "array[int]":
    """What there is, and is stored, of a redo log: offset and size of each piece, and its end.

    Raises:
        SnapshotError: it is not as long as it was when that was decided.
    """
    size = source.facts.st_size
    if size != redo.size:
        raise source.fault("it was changed while the backup was made")
    found = array("q")
    for begin, length in _pairs(pieces) if pieces is not None else ((0, size),):
        for piece in redo.kept_of(begin, length):
            found.extend(piece)
    if not found or found[-2] + found[-1] < size:
        found.extend((size, 0))
    return found


def _data_from(file: int, offset: int) -> int | None:
    """Where the next data of a file begins; None where there is none any more."""
    try:
        return os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _pairs(pieces: "array[int]") -> Iterator[tuple[int, int]]:
    numbers = iter(pieces)
    return zip(numbers, numbers, strict=True)


def _in_disk_order(root: bytes, entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, those of them sorted that follow one another and are files of one folder."""
    disk = _Disk(root)
    files: list[Entry] = []
    for entry in entries:
        if files and (entry.folder or len(files) == _SORTED_FILES or not _beside(entry, files[0])):
            yield from disk.sorted(files)
            files = []
        if entry.folder:
            yield entry
        else:
            files.append(entry)
    yield from disk.sorted(files)


def _beside(one: Entry, other: Entry) -> bool:
    return one.name.rpartition(b"/")[0] == other.name.rpartition(b"/")[0]


class _Disk:
    """Where files begin on the disk, as far as their file system tells."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._answers = True

    def sorted(self, files: list[Entry]) -> list[Entry]:
        """In the order in which they lie there; what lies nowhere first, in the order that it had."""
        return sorted(files, key=lambda entry: self._place(entry.name)) if len(files) > 1 else files

    def _place(self, name: bytes) -> int:
        """The first extent's. A file that cannot be opened says why when it is read."""
        if not self._answers:
            return 0
        with suppress(OSError):
            file = os.open(self._root + b"/" + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return self._first_extent(file)
            finally:
                os.close(file)
        return 0

    def _first_extent(self, file: int) -> int:
        asked = bytearray(_FIEMAP.pack(0, _WHOLE_FILE, 0, 0, 1, 0))
        asked += bytes(_EXTENT.size)
        try:
            ioctl(file, _FS_IOC_FIEMAP, asked)
        except OSError:
            self._answers = False
            raise
        mapped = _FIEMAP.unpack_from(asked)[3]
        return _EXTENT.unpack_from(asked, _FIEMAP.size)[1] if mapped else 0
