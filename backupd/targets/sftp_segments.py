"""Segments of a binlog archive on an SFTP server: how one is begun and gets its name, in as few answers as it takes.

Knows: MACHINE/JOB/binlog/NAME, and MACHINE/JOB/.NAME.TOKEN.partial while it is written, as `directory_segments` has it.

A small segment costs three times the way there and back: its file and the folder are opened; it is written, synced and
measured; it is renamed and the folder is synced. What is asked for at once is answered as if each had waited for the
one before (draft-ietf-secsh-filexfer-02, 3: "the results in the responses will be the same").
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from secrets import token_hex

import asyncssh
from asyncssh import SFTPClient, SFTPClientFile, SFTPName

from backupd.targets.names import already_there, partial_segment, segment_of, segment_part
from backupd.targets.sftp_files import create, make_folders, names_in, open_folder, sync_folder, told_sizes
from backupd.targets.sftp_root import FAILURES, TIDY_SECONDS, SftpRoot
from backupd.targets.sftp_transfer import Opened
from backupd.targets.ssh import Flight, SshLine, is_answer
from backupd.vocabulary.errors import TargetError

_AT_ONCE = 100  # removals that are under way
_PAGE = 1000  # entries of a listing that are waited for together


class SegmentPlace:
    """Where one segment goes, over as many connections as it takes."""

    def __init__(self, root: SftpRoot, folder: str, name: str) -> None:
        self.final = f"{folder}/{segment_part(name)}"
        self.unfinished = f"{folder.rpartition('/')[0]}/{partial_segment(name, token_hex(8))}"
        self.folder = folder
        self._root = root
        self._opened: tuple[SFTPClient, SFTPClientFile] | None = None  # the folder, to be synced
        self._was_begun = False
        self._may_be_named = False

    async def begin(self, sftp: SFTPClient) -> Opened:
        """The file that is to be written is there, and open."""
        if self._was_begun:
            with suppress(asyncssh.SFTPNoSuchFile):
                await sftp.remove(self.unfinished)  # made by a request whose answer was lost
        self._was_begun = True
        try:
            return await self._opened_file(sftp)
        except asyncssh.SFTPNoSuchFile:
            await make_folders(sftp, self._root.path, self.folder)
            return await self._opened_file(sftp)

    async def give_name(self, sftp: SFTPClient) -> None:
        """The file has its name, durably; one that has it already keeps it.

        The plain rename makes a link, and so never replaces; it says no more than "Failure" then.
        """
        if self._may_be_named and not await sftp.exists(self.unfinished) and await sftp.exists(self.final):
            await sync_folder(sftp, self.folder)  # by a request whose answer was lost: nobody else could have moved it
            return
        self._may_be_named = True
        if self._opened is None or self._opened[0] is not sftp:
            await self._rename(sftp)
            await sync_folder(sftp, self.folder)
            return
        renamed, synced = await asyncio.gather(self._rename(sftp), self._opened[1].fsync(), return_exceptions=True)
        for answer in (renamed, synced):
            if isinstance(answer, BaseException):
                raise answer

    def close(self, line: SshLine) -> None:
        """Nobody waits for the folder."""
        if self._opened is not None:
            on, folder = self._opened
            line.tell(lambda _: folder.close(), on=on)

    def undo(self, line: SshLine) -> None:
        """Nothing is left of it, on the way out of a failure, which is told already."""

        async def remove(sftp: SFTPClient) -> None:
            is_named = self._may_be_named and not await sftp.exists(self.unfinished)
            await sftp.remove(self.final if is_named else self.unfinished)

        if self._was_begun:
            with suppress(TargetError, *FAILURES):
                line.ask(remove, at_most_seconds=TIDY_SECONDS)

    async def _opened_file(self, sftp: SFTPClient) -> Opened:
        _, file, folder = answers = await asyncio.gather(
            self._root.present(sftp),
            create(sftp, self.unfinished),
            open_folder(sftp, self.folder),
            return_exceptions=True,
        )
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if failed:
            if isinstance(file, SFTPClientFile):
                await file.close()
                await sftp.remove(self.unfinished)
            raise failed[0]
        assert isinstance(file, SFTPClientFile)
        self._opened = (sftp, folder) if isinstance(folder, SFTPClientFile) else None
        return sftp, file

    async def _rename(self, sftp: SFTPClient) -> None:
        try:
            await sftp.rename(self.unfinished, self.final)
        except asyncssh.SFTPError as error:
            if is_answer(error):
                self._may_be_named = False
                if await sftp.exists(self.final):
                    await sync_folder(sftp, self.folder)  # its writer may have died before that
                    raise already_there(self.final.rpartition("/")[2], self._root.url(self.folder)) from error
            raise


def listed(root: SftpRoot, folder: str) -> Iterator[tuple[str, int]]:
    """What the server lists there, nothing where the folder is missing; from the beginning again after an outage.

    Raises:
        TargetError: it cannot be read.
    """
    on: SFTPClient | None = None
    entries: AsyncIterator[SFTPName]

    async def page(sftp: SFTPClient) -> list[SFTPName]:
        nonlocal on, entries
        if sftp is not on:
            on, entries = sftp, (await root.present(sftp)).scandir(folder)
        found: list[SFTPName] = []
        with suppress(asyncssh.SFTPNoSuchFile):
            async for entry in entries:
                found.append(entry)
                if len(found) == _PAGE:
                    break
        return found

    with root.explained("list"):
        while found := root.line.outlast("list", page):
            yield from told_sizes(found)


def remove_segments(root: SftpRoot, folder: str, names: Sequence[str], *, timeout_seconds: float) -> None:
    """They are durably not there, nor what dead writers have left of them and of older ones, nor empty folders."""
    above = folder.rpartition("/")[0]
    line, last = root.line, max(names)
    _remove(root, [f"{folder}/{name}" for name in names], timeout_seconds)
    beside = line.ask(lambda sftp: names_in(sftp, above)) or ()
    unfinished = {each: segment_of(each) for each in beside}
    _remove(
        root,
        [f"{above}/{each}" for each, name in unfinished.items() if name is not None and name <= last],
        timeout_seconds,
    )
    line.ask(lambda sftp: _tidied(sftp, folder))


def _remove(root: SftpRoot, paths: Sequence[str], timeout_seconds: float) -> None:
    """One after the other, without waiting for each."""
    sftp = root.line.ask(root.present)
    flight: Flight[None] = Flight(root.line, sftp, timeout_seconds)
    for path in paths:
        flight.add(_gone(sftp, path))
        if len(flight) == _AT_ONCE:
            flight.oldest()
    while len(flight):
        flight.oldest()


async def _gone(sftp: SFTPClient, path: str) -> None:
    with suppress(asyncssh.SFTPNoSuchFile):
        await sftp.remove(path)


async def _tidied(sftp: SFTPClient, folder: str) -> None:
    """What was removed from it is durable; it, and its job's folder, are gone where nothing is in them."""
    with suppress(asyncssh.SFTPNoSuchFile, asyncssh.SFTPFailure):  # of a folder that is not empty it says "Failure"
        await sync_folder(sftp, folder)
        for path in (folder, folder.rpartition("/")[0]):
            await sftp.rmdir(path)
            await sync_folder(sftp, path.rpartition("/")[0])
