"""Which files of a mounted snapshot belong in its archive.

Knows: what a restored server does not need (earlier binlogs, relay logs, temporary tablespaces, pid files, sockets,
our own probe files). Refuses to know how files become an archive. No pattern here begins with `#`: `#innodb_redo` and
`#ib_*.dblwr` are the server's crash recovery, and `#sql…` may be a table in the middle of an ALTER.
"""

import heapq
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from backupd.archive.members import leads_outside
from backupd.errors import SnapshotError

_OURS = ".backupd-"  # probe folders and the marker of an unfinished restore
_HEADER_BYTES = 1536  # of a member in a pax archive: its header, and usually an extended one


@dataclass(frozen=True)
class Exclusions:
    """What is left out, by paths relative to the mount's root. Without slots: patterns are compiled once."""

    datadir: PurePosixPath  # `.` where the mount's root is the datadir
    binlog: PurePosixPath | None = None  # the server's log_bin_basename, where it lies on the volume
    relay_log: PurePosixPath | None = None  # the server's relay_log_basename
    named_binlog: str | None = None  # file name of the binlog that the position names: an object of its own
    include_binlogs: bool = False  # keep the earlier ones
    kept_binlogs: frozenset[str] = frozenset()  # file names of earlier ones that are kept in any case

    def left_out(self, path: PurePosixPath) -> bool:
        """Whether this file or folder, relative to the mount's root, is left out of the archive."""
        if path.parts[0].startswith(_OURS) or path == PurePosixPath("lost+found"):
            return True
        if path.parent == self.datadir and (path.name == "ibtmp1" or path.name.endswith((".pid", ".sock.lock"))):
            return True
        if path.parent == self.datadir / "#innodb_temp":
            return True
        if self._binlogs is not None and path.parent == self._binlog_folder and self._binlogs.fullmatch(path.name):
            kept = self.include_binlogs or path.name in self.kept_binlogs
            return not kept or self._told_elsewhere(path.name)
        return bool(
            self._relay_logs is not None
            and self.relay_log is not None
            and path.parent == self.relay_log.parent
            and self._relay_logs.fullmatch(path.name)
        )

    def _told_elsewhere(self, name: str) -> bool:
        """The index and the named binlog, with MariaDB's GTID index of it, come with the binlog's own object."""
        return name.endswith(".index") or (
            self.named_binlog is not None and name in (self.named_binlog, f"{self.named_binlog}.idx")
        )

    @property
    def _binlog_folder(self) -> PurePosixPath | None:
        return None if self.binlog is None else self.binlog.parent

    @cached_property
    def _binlogs(self) -> re.Pattern[str] | None:
        return None if self.binlog is None else re.compile(re.escape(self.binlog.name) + r"\.(\d{6,}(\.idx)?|index)")

    @cached_property
    def _relay_logs(self) -> re.Pattern[str] | None:
        if self.relay_log is None:  # `-CHANNEL` where there are several sources
            return None
        return re.compile(re.escape(self.relay_log.name) + r"(-.+)?\.(\d{6,}|index)")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that an archive will hold."""

    name: bytes  # relative to the root
    size: int  # an estimate of its share of the tar stream: holes, and a file's second name, are not counted
    folder: bool
    linked: tuple[int, int] | None = None  # device and inode of a file that has several names


@dataclass(frozen=True, slots=True)
class Listing:
    """What an archive will hold, in its order: a folder before what is in it."""

    entries: tuple[Entry, ...]

    @property
    def names(self) -> bytes:
        """Each ended by a NUL, as `tar --null --files-from` takes them."""
        return b"".join(entry.name + b"\0" for entry in self.entries)

    @property
    def files(self) -> int:
        """All that is not a folder."""
        return sum(not entry.folder for entry in self.entries)

    @property
    def size(self) -> int:
        """An estimate of the tar stream's length."""
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True, slots=True)
class BinlogCut:
    """A binlog up to a position."""

    file: Path
    offset: int
    arcname: PurePosixPath  # its name in the restored folder; the index lies beside it
    earlier: Sequence[str] = ()  # file names of the earlier binlogs that the data object has


def list_members(root: Path, exclusions: Exclusions) -> Listing:
    """Walk a mounted snapshot once. Other file systems mounted in it, sockets, pipes and devices are not in the list.

    Raises:
        SnapshotError: something could not be read, or a link leads out of the tree: a restored server would follow it
            to the live server's files.
    """
    seen: set[tuple[int, int]] = set()
    try:
        return Listing(tuple(_entry(name, info, seen) for name, info in _walk(root, PurePosixPath(), exclusions)))
    except OSError as error:
        raise SnapshotError(f"the snapshot could not be read: {error}") from error


def divide(listing: Listing, streams: int) -> tuple[Listing, ...]:
    """At most that many listings of about the same size, each file in one of them, in the order that it had.

    The names of one file stay together. Each listing has the folders that its files lie in, so that any of them can be
    unpacked by itself; the first has the empty folders too. None is without a file, except when there is no file.
    """
    together: dict[tuple[int, int] | bytes, list[int]] = {}
    for number, entry in enumerate(listing.entries):
        if not entry.folder:
            together.setdefault(entry.linked or entry.name, []).append(number)
    sizes = {key: sum(listing.entries[number].size for number in numbers) for key, numbers in together.items()}
    shares = [(0, 0, share) for share in range(max(1, min(streams, len(together))))]
    share_of: dict[int, int] = {}
    for key in sorted(together, key=lambda key: sizes[key], reverse=True):
        size, files, share = heapq.heappop(shares)  # the smallest so far takes the largest that is left
        heapq.heappush(shares, (size + sizes[key], files + 1, share))
        share_of.update(dict.fromkeys(together[key], share))
    return tuple(_share(listing, share_of, share) for share in range(len(shares)))


def _share(listing: Listing, share_of: Mapping[int, int], share: int) -> Listing:
    chosen = {number for number, of in share_of.items() if of == share}
    needed = {folder for number in chosen for folder in _folders(listing.entries[number].name)}
    return Listing(
        tuple(
            entry
            for number, entry in enumerate(listing.entries)
            if number in chosen or (entry.folder and (share == 0 or entry.name in needed))
        )
    )


def _folders(name: bytes) -> Iterator[bytes]:
    """Those that it lies in, the root too."""
    yield b"."
    while b"/" in name:
        name = name.rpartition(b"/")[0]
        yield name


def _entry(path: PurePosixPath, info: os.stat_result, seen: set[tuple[int, int]]) -> Entry:
    folder = stat.S_ISDIR(info.st_mode)
    inode = (info.st_dev, info.st_ino)
    linked = inode if info.st_nlink > 1 and not folder else None
    size = _HEADER_BYTES
    if stat.S_ISREG(info.st_mode) and linked not in seen:
        size += min(info.st_size, info.st_blocks * 512)
    if linked is not None:
        seen.add(linked)
    return Entry(os.fsencode(path), size, folder, linked)


def _walk(root: Path, folder: PurePosixPath, exclusions: Exclusions) -> Iterator[tuple[PurePosixPath, os.stat_result]]:
    here = (root / folder).lstat()
    yield folder, here
    with os.scandir(root / folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = folder / entry.name
        if exclusions.left_out(path):
            continue
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode) and info.st_dev == here.st_dev:
            yield from _walk(root, path, exclusions)
        elif stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
            yield path, info
        elif stat.S_ISLNK(info.st_mode):
            _require_inside(path, root)
            yield path, info


def _require_inside(path: PurePosixPath, root: Path) -> None:
    link = str((root / path).readlink())
    if leads_outside(str(path), link):
        raise SnapshotError(
            f"the link {path} leads out of the volume's tree, to {link}",
            hint="a restored server would follow it to the live files: replace it by a relative link or by what it is",
        )
