"""A machine's owner records in a folder of this host: the `OwnerRecords` of `chain`."""

import os
import secrets
from collections.abc import Collection
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path

from backupd.host.filesystem import sync_folder
from backupd.targets import chain
from backupd.targets.directory_root import NO_LINKS, RootFolder, open_regular, remove_quietly
from backupd.targets.names import OWNER, partial_record


class DirectoryRecords:
    """The machine's owner records: files that get their names by a hard link, which never replaces (link(2))."""

    def __init__(self, root: RootFolder, machine: str) -> None:
        self._root = root
        self._folders = (machine, OWNER)

    @property
    def where(self) -> str:
        return str(self._root.path.joinpath(*self._folders))

    def names(self) -> Collection[str]:
        within, nothing = self._root.within(*self._folders), suppress(FileNotFoundError, NotADirectoryError)
        with self._root.present("list the owner records of"), nothing, within as (_, folder):
            return [path.name for path in folder.iterdir()]
        return ()

    def content(self, name: str) -> bytes | None:
        within, nothing = self._root.within(*self._folders), suppress(FileNotFoundError)
        with self._root.present("read an owner record from"), nothing, within as (_, folder):
            file = open_regular(folder / name)
            with FileIO(file) as record:
                return record.read(chain.MOST_BYTES + 1)
        return None

    def create(self, name: str, content: bytes) -> None:
        with self._root.present("write an owner record to"), self._root.made(*self._folders) as (_, folder):
            unfinished = folder / partial_record(name, secrets.token_hex(8))
            try:
                with FileIO(
                    os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w"
                ) as file:
                    file.write(content)
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    _name_once(unfinished, folder / name, content)
            finally:
                unfinished.unlink(missing_ok=True)
            sync_folder(folder)

    def remove(self, name: str) -> None:
        with self._root.present("remove an owner record from"), self._root.within(*self._folders) as (_, folder):
            (folder / name).unlink(missing_ok=True)
            sync_folder(folder)


def _name_once(unfinished: Path, final: Path, content: bytes) -> None:
    """The file has its name as well; FileExistsError where another one has it.

    Where the file system knows no hard links (exFAT, SMB), the name itself is created: a crash before its content is
    written leaves an empty record, which says so when it is read. The content is not read back: whoever serves the
    folder may have put a link to a file of this host in its place.
    """
    try:
        final.hardlink_to(unfinished)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with ExitStack() as owed, final.open("xb") as file:
            owed.callback(remove_quietly, final)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            owed.pop_all()
