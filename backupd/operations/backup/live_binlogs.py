"""Binlogs that lie outside of the snapshot: opened around the lock, so that neither PURGE nor RESET takes them away.

Knows: that an open file keeps its bytes whatever becomes of its name, and that the server only appends to the newest
binlog and never writes to an earlier one again. It touches no disk under the lock.

The newest binlog is opened before the lock. If the server has gone on to the next one meanwhile, that one is opened
after the lock. Then the former newest one must still have its name: RESET takes it away or makes another file of it, so
nobody said that since, and the one that the position names is the one that it was under the lock.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from backupd.archive.sources import WholeBinlog
from backupd.host.filesystem import opened_plain
from backupd.mysql.binlogs import listed, listed_paths
from backupd.vocabulary.errors import ServerError, SnapshotError

_MOST_EARLIER = 400  # open files: a process has 1024 as a rule


@dataclass(slots=True)
class LiveBinlogs:
    """The files of one server's binlog that are held open."""

    index: Path
    folder: Path
    owed: ExitStack
    newest: str = ""  # before the lock
    earlier: Sequence[WholeBinlog] = ()  # the oldest first; none is missing between any of them and the named one
    left_out: str = ""  # how many earlier ones that the server lists are not held, and why
    _open: dict[str, BinaryIO] = field(default_factory=dict)

    def hold(self, named: str, *, with_earlier: bool) -> None:
        """To be called as soon as the lock has ended: what the position names is held open from now on.

        Raises:
            SnapshotError: it is not the file any more that it was under the lock, or not there.
            ServerError: the index cannot be read.
        """
        if named != self.newest:
            self.keep(named)
        if not self._has_its_name(self.newest):
            raise SnapshotError(
                f"the binlog {self.newest} was removed or recreated while the backup took its snapshot",
                hint="nothing was stored; did somebody run RESET MASTER? Start the backup again",
            )
        if with_earlier:
            self._hold_earlier(named)

    def file(self, name: str) -> Path:
        """Where an open one can be read, by this process, whatever became of its name."""
        return Path("/proc/self/fd", str(self._open[name].fileno()))

    def _hold_earlier(self, named: str) -> None:
        before = self._before(named)
        held: list[WholeBinlog] = []
        why = f"only {_MOST_EARLIER} are taken from outside the snapshot"
        for path in reversed(before[-_MOST_EARLIER:]):  # over a gap no replay goes: what is before it is no use
            if not self._is_here(path):
                why = f"{path} is in another folder than {named}"
                break
            try:
                file = self.keep(path.name)
            except SnapshotError:
                is_link = (self.folder / path.name).is_symlink()
                why = f"{path.name} is a symbolic link" if is_link else f"{path.name} could not be opened"
                break
            held.append(WholeBinlog(self.file(path.name), path.name, os.fstat(file.fileno()).st_size))
        self.earlier = tuple(reversed(held))
        if len(held) < len(before):
            self.left_out = f"{len(before) - len(held)} binlogs before {named} are not stored: {why}"

    def _before(self, named: str) -> Sequence[Path]:
        """What the index lists before this one of the server's folder."""
        paths = listed_paths(self.index)
        at = (at for at in reversed(range(len(paths))) if paths[at].name == named and self._is_here(paths[at]))
        return paths[: next(at, 0)]

    def _is_here(self, path: Path) -> bool:
        """In the server's folder: so is what has no absolute path (MySQL, `normalize_binlog_name`)."""
        return not path.is_absolute() or path.parent.resolve() == self.folder.resolve()

    def keep(self, name: str) -> BinaryIO:
        """The file that has this name now is held open.

        Raises:
            SnapshotError: it cannot be opened.
        """
        path = self.folder / name
        try:
            self._open[name] = self.owed.enter_context(opened_plain(path, beneath=self.folder))
        except OSError as error:
            if path.is_symlink():  # what it leads to would be stored, and whoever owns the folder chooses that
                raise SnapshotError(
                    f"the binlog {path} is a symbolic link, and none is followed there",
                    hint="nothing was stored; move the file back, or put the whole folder behind a link instead",
                ) from error
            raise SnapshotError(
                f"the binlog {path} could not be opened: {error.strerror}",
                hint="nothing was stored; was it purged at that moment? Start the backup again",
            ) from error
        return self._open[name]

    def _has_its_name(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat((self.folder / name).stat(), os.fstat(self._open[name].fileno()))
        return False


@contextmanager
def live_binlogs(index: Path, folder: Path) -> Iterator[LiveBinlogs]:
    """The newest of a server's binlogs is open, and whatever else is to be held is open until the block ends.

    Raises:
        SnapshotError: it cannot be opened, or the index cannot be read.
    """
    with ExitStack() as owed:
        held = LiveBinlogs(index, folder, owed)
        try:
            held.newest = listed(index)[-1]
        except ServerError as error:
            raise SnapshotError(error.message, hint=error.hint) from error
        held.keep(held.newest)
        yield held
