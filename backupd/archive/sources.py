"""Which files of a mounted snapshot belong in its archive.

Knows: what a restored server does not need (earlier binlogs, relay logs, temporary tablespaces, unused redo files,
pid files, sockets, our own probe files). Of what begins with `#` only what a server itself throws away before it
recovers is left out: the rest of `#innodb_redo` and `#ib_*.dblwr` are its crash recovery, and `#sql…` may be a table
in the middle of an ALTER.

The unused redo files are those of MySQL from 8.0.30 on, `#ib_redoN_tmp`: its manual (InnoDB, "Redo Log") calls them
spare, waiting to be used. At each start, before it recovers, `log_sys_init` (storage/innobase/log/log0log.cc) deletes
them all, whatever is in them; and `log_list_existing_files` (log0files_io.cc), by which recovery finds its log, takes
no name that ends in `_tmp`. MariaDB has no such files.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from backupd.archive.listing import Entry, Listing, Packed
from backupd.archive.members import leads_outside
from backupd.archive.redo import RedoCut
from backupd.vocabulary.errors import SnapshotError

_OURS = ".backupd-"  # probe folders, the marker of an unfinished restore, a restored binlog that no server uses
_UNUSED_REDO = re.compile(r"#ib_redo[0-9]+_tmp")  # of MySQL: see above
_HEADER_BYTES = 1536  # of a member in a pax archive: its header, and usually an extended one


@dataclass(frozen=True)
class Exclusions:
    """What is left out, by paths relative to the mount's root. Without slots: patterns are compiled once."""

    datadir: PurePosixPath  # `.` where the mount's root is the datadir
    binlog: PurePosixPath | None = None  # the server's log_bin_basename, where it is on the volume
    relay_log: PurePosixPath | None = None  # the server's relay_log_basename
    named_binlog: str | None = None  # file name of the binlog that the position names: an object of its own
    include_binlogs: bool = False  # keep the earlier ones
    kept_binlogs: frozenset[str] = frozenset()  # file names of earlier ones that are kept in any case

    def left_out(self, path: PurePosixPath) -> bool:
        """Whether this file or folder, relative to the mount's root, is left out of the archive."""
        if path.parts[0].startswith(_OURS) and not self._has_the_binlog(path):
            return True
        if path == PurePosixPath("lost+found"):
            return True
        if self._made_anew(path):
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

    def _made_anew(self, path: PurePosixPath) -> bool:
        """A server makes it when it starts, and would throw away what it found."""
        if path.parent.name == "#innodb_redo":  # wherever the log is; a database of that name has `@0023` for the `#`
            return _UNUSED_REDO.fullmatch(path.name) is not None
        if path.parent == self.datadir:
            return path.name == "ibtmp1" or path.name.endswith((".pid", ".sock.lock"))
        return path.parent == self.datadir / "#innodb_temp"

    def _has_the_binlog(self, path: PurePosixPath) -> bool:
        """A server that was restored with its binlog in a folder of ours (`contents`) may live there since."""
        return self._binlog_folder is not None and self._binlog_folder.parts[:1] == path.parts[:1]

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
class WholeBinlog:
    """An earlier binlog, to which nothing is written any more."""

    file: Path
    name: str  # of the file in the server's folder
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class BinlogCut:
    """A binlog up to a position."""

    file: Path
    offset: int
    arcname: PurePosixPath  # its name in the restored folder; the index lies beside it
    earlier: Sequence[str] = ()  # file names of the earlier binlogs that the data object has
    whole: Sequence[WholeBinlog] = ()  # earlier ones that are stored with it
    folder_like: Path | None = None  # whose owner and mode its folder gets; None where another object has that folder

    @property
    def size(self) -> int:
        """Bytes of all that is stored with it, and of itself."""
        return self.offset + sum(binlog.size for binlog in self.whole)

    @property
    def files(self) -> int:
        """How many are stored: itself, the index, and those that are stored with it."""
        return 2 + len(self.whole)


def list_members(root: Path, exclusions: Exclusions, redo: RedoCut | None = None) -> Listing:
    """Walk a mounted snapshot once. Other file systems mounted in it, sockets, pipes and devices are not in the list.

    Of the redo log only what `redo` says is to be stored.

    Raises:
        SnapshotError: something could not be read, or a link leads out of the tree: a restored server would follow it
            to the live server's files.
    """
    seen: set[tuple[int, int]] = set()
    try:
        found = (_entry(name, info, seen) for name, info in _walk(root, PurePosixPath(), exclusions))
        return Listing(Packed(_cut(entry, redo) for entry in found), redo)
    except OSError as error:
        raise SnapshotError(f"the snapshot could not be read: {error}") from error


def _cut(entry: Entry, redo: RedoCut | None) -> Entry:
    if redo is None or entry.name != redo.name:
        return entry
    return replace(entry, size=min(entry.size, redo.kept + _HEADER_BYTES))


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
        names = sorted(entry.name for entry in entries)  # alone: of a million files in one folder all else is too much
    for name in names:
        path = folder / name
        if exclusions.left_out(path):
            continue
        info = (root / path).lstat()
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
            f"the link {path} points outside of the volume, to {link}",
            hint=(
                "a restored server would follow it to the live files: replace it with a relative link or with its"
                " target"
            ),
        )
