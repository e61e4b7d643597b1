"""Where a scratch server has what is not of its copy: one folder of its own in the temporary folder.

Knows: what lies there, that a host without room for it says nothing of the copy, and which folders killed ones leave.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.host.filesystem import read_plain
from backupd.host.held_folders import held_folder, remove_abandoned
from backupd.vocabulary.errors import ServerError, Undecided

_FOLDERS = "backupd-drill-"  # how the names of all of them begin
_LARGEST_LOG = 64 << 20  # bytes: of 200,000 tables a line or two each
_SOCKET_LENGTH = 107  # unix(7): sun_path has 108 bytes with its terminator


@dataclass(frozen=True, slots=True)
class ScratchPlaces:
    """Files of a scratch server that are not of the copy; all in one folder that only its owner can enter."""

    folder: Path

    @property
    def pattern(self) -> Path:
        """Of the folders of all such servers."""
        return self.folder.with_name(f"{_FOLDERS}*")

    @property
    def socket(self) -> Path:
        """The only way in."""
        return self.folder / "s"

    @property
    def error_log(self) -> Path:
        """MariaDB appends `.err` to a name that has no ending."""
        return self.folder / "log.err"

    @property
    def said(self) -> str:
        """What the server has written to its log, which is in a folder of its own: a plain file of its, or nothing.

        Raises:
            ServerError: something else lies there, or it is beyond all measure.
        """
        owner = self.folder.stat().st_uid
        try:
            text = read_plain(self.error_log, beneath=self.folder, at_most=_LARGEST_LOG, owners=(owner,))
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ServerError(
                f"cannot read the error log of the server on the restored files: {error.strerror}"
            ) from error
        return text.decode(errors="replace")

    @property
    def copy(self) -> Path:
        """Where the copy is seen by a server that may not enter the folders around it."""
        return self.folder / "copy"

    @property
    def binlog_index(self) -> Path:
        """Ours, because the copy's own may name the live server's binlogs by absolute paths."""
        return self.folder / "binlog.index"


def remove_abandoned_folders() -> tuple[Path, ...]:
    """What killed scratch servers left in the temporary folder (a log, a copy of a keyring) is gone; it was in these.

    Raises:
        OSError: the temporary folder cannot be read.
    """
    return remove_abandoned(_temporary(), _FOLDERS)


@contextmanager
def prepared() -> Iterator[None]:
    """What cannot be made ready for a server is no fault of the copy's.

    Raises:
        Undecided: it was the operating system that refused.
    """
    try:
        yield
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        undecided = Undecided(
            f"no server could be started on the restored files: {where}{error.strerror}",
            hint=f"check the free space and the mode of {_temporary()}, and those of the folder with the copy",
        )
        for note in getattr(error, "__notes__", ()):
            undecided.add_note(note)
        raise undecided from error


@contextmanager
def private_folder() -> Iterator[ScratchPlaces]:
    with held_folder(_temporary(), _FOLDERS) as folder:
        yield ScratchPlaces(folder)


def _temporary() -> Path:
    roots = (root for root in (tempfile.gettempdir(), "/tmp") if len(root) < _SOCKET_LENGTH - 30)  # noqa: S108
    return Path(next(roots))
