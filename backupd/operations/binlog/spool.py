"""Where sealed segments wait until every target has them: files in a folder of the job's own, each whole or not there.

Knows: that a name appears only once its bytes are durable. Refuses to know which target lacks what: the catalogue does.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from backupd.host.filesystem import sync_folder
from backupd.host.own_files import private_folder
from backupd.targets.names import is_segments
from backupd.vocabulary.errors import UsageError

RECEIVED: Final = "received"  # the folder in it that a receiver writes into
_PART = ".part"
_HINT = "check binlog.spool of the job: the segments that wait for a target lie there"


class BinlogSpool:
    """The folder of one job. One process at a time has it: whoever holds the job's claim on its archive."""

    def __init__(self, root: Path, job: str) -> None:
        self._folder = root / job

    @property
    def received(self) -> Path:
        """Where a receiver may write. Nothing in it has to outlive the receiver; the folder itself stays."""
        return self._folder / RECEIVED

    @property
    def is_new(self) -> bool:
        """No receiver has been at work here.

        Raises:
            UsageError: the folder cannot be read.
        """
        with _explained(self._folder):
            return not self.received.is_dir()

    def open(self) -> None:
        """It is there, closed to others, and nothing in it is half written.

        Raises:
            UsageError: it cannot be had.
        """
        with _explained(self._folder):
            private_folder(self._folder)
            for part in self._folder.glob(f"*{_PART}"):
                part.unlink()

    def keep(self, name: str, line: bytes, content: bytes) -> None:
        """A segment's description and its bytes are durable under this name.

        Raises:
            UsageError: they are not: no room, or the folder cannot be written. Nothing is left of it.
        """
        part = self._folder / f"{name}{_PART}"
        with _explained(part):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
                    file.write(line)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                part.rename(self._folder / name)
            finally:
                part.unlink(missing_ok=True)
            sync_folder(self._folder)

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        """The file of a segment.

        Raises:
            FileNotFoundError: it is not there (any more).
            UsageError: it cannot be read.
        """
        path = self._folder / name
        with _explained(path), path.open("rb") as file:
            yield file

    def forget(self, name: str) -> None:
        """It is not there.

        Raises:
            UsageError: it cannot be removed.
        """
        with _explained(self._folder / name):
            (self._folder / name).unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """The segments that wait and their bytes, oldest first.

        Raises:
            UsageError: the folder cannot be read.
        """
        found: dict[str, int] = {}
        with _explained(self._folder), os.scandir(self._folder) as entries:
            for each in entries:
                with suppress(FileNotFoundError):  # every target has it by now
                    if _is_one(each):
                        found[each.name] = each.stat(follow_symlinks=False).st_size
        return dict(sorted(found.items()))


def _is_one(entry: "os.DirEntry[str]") -> bool:
    return is_segments(entry.name) and entry.is_file(follow_symlinks=False)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"the binlog spool cannot be used: {path}: {error.strerror}", hint=_HINT) from error
