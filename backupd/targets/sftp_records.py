"""A machine's owner records on an SFTP server: the `Records` of `chain`."""

from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from secrets import token_hex
from typing import Any, TypeVar

import asyncssh
from asyncssh import SFTPClient

from backupd.targets import chain
from backupd.targets.names import OWNER, partial_record
from backupd.targets.sftp_files import (
    create,
    make_durable,
    make_folders,
    name_once,
    names_in,
    read_all,
    remove_file,
    sync_folder,
)
from backupd.targets.sftp_root import SftpRoot

T = TypeVar("T")


class SftpRecords:
    """The machine's owner records: files that get their names by the plain rename, which never replaces."""

    def __init__(self, root: SftpRoot, machine: str) -> None:
        self._root = root
        self._folder = f"{root.path}/{machine}/{OWNER}"

    @property
    def where(self) -> str:
        return self._root.url(self._folder)

    def names(self) -> Collection[str]:
        return self._ask("list the owner records of", lambda sftp: names_in(sftp, self._folder)) or ()

    def content(self, name: str) -> bytes | None:
        path, most = f"{self._folder}/{name}", chain.MOST_BYTES + 1
        return self._ask("read an owner record from", lambda sftp: read_all(sftp, path, at_most=most))

    def create(self, name: str, content: bytes) -> None:
        async def write(sftp: SFTPClient) -> None:
            unfinished = f"{self._folder}/{partial_record(name, token_hex(8))}"
            await make_folders(sftp, self._root.path, self._folder)
            file = await create(sftp, unfinished)
            try:
                await file.write(content, 0)
                await make_durable(file, len(content))
                await name_once(sftp, unfinished, f"{self._folder}/{name}")
                await sync_folder(sftp, self._folder)
            finally:
                with suppress(asyncssh.SFTPError):
                    await sftp.remove(unfinished)

        self._ask("write an owner record to", write)

    def remove(self, name: str) -> None:
        async def removed(sftp: SFTPClient) -> None:
            await remove_file(sftp, self._folder, name)
            await sync_folder(sftp, self._folder)

        self._ask("remove an owner record from", removed)

    def _ask(self, doing: str, work: Callable[[SFTPClient], Coroutine[Any, Any, T]]) -> T:
        """Once: what a lost answer leaves unknown is looked up by whoever asked, and no outage is waited for."""

        async def present(sftp: SFTPClient) -> T:
            return await work(await self._root.present(sftp))

        with self._root.explained(doing):
            return self._root.line.ask(present)
