"""What is asked of files and folders over SFTP, one step at a time.

Knows: which answers SFTP 3 has for what happened, and what must be asked to have it durable. Every step raises
asyncssh's errors.
"""

import asyncio
import stat
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import asyncssh
from asyncssh import SFTPAttrs, SFTPClient, SFTPClientFile, SFTPName

from backupd.targets.names import MANIFEST, is_left_trial, is_partial
from backupd.targets.told_times import seen_backup
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.storage import StoredBackup

_TRIES = 3  # of what another process may undo at any moment


async def create(sftp: SFTPClient, path: str) -> SFTPClientFile:
    """A new file that only its owner can read; one of this name that is there already is a failure."""
    return await sftp.open(path, "xb", SFTPAttrs(permissions=0o600), block_size=0)


async def make_durable(file: SFTPClientFile, size: int) -> None:
    """Synced, and as long as it should be. Both are asked for at once: a server keeps the order of one's requests."""
    _, attributes = await asyncio.gather(file.fsync(), file.stat())
    stored = attributes.size
    if stored != size:
        raise TargetError(
            f"{size} bytes were written and the server has {stored}", hint="check that machine's kernel log"
        )


async def is_moved(sftp: SFTPClient, path: str, to: str) -> bool:
    """Whether a file has its new name after a rename whose answer was lost.

    SFTP's own rename makes a link and then removes the old name (process_rename of sftp-server.c): where both names
    are there with the same content, that is finished here.
    """
    if not await sftp.exists(to):
        return False
    if not await sftp.exists(path):
        return True  # nobody but us could have moved it
    if await _content(sftp, path) != await _content(sftp, to):
        return False
    await sftp.remove(path)
    return True


async def _content(sftp: SFTPClient, path: str) -> bytes:
    async with sftp.open(path, "rb") as file:
        content: bytes = await file.read()
    return content


async def sync_folder(sftp: SFTPClient, path: str) -> None:
    """The names in it are durable; a server that opens no folder as a file is trusted with them."""
    folder = await open_folder(sftp, path)
    if folder is not None:
        async with folder:
            await folder.fsync()


async def open_folder(sftp: SFTPClient, path: str) -> SFTPClientFile | None:
    """To be synced; None where the server opens no folder as a file."""
    try:
        return await sftp.open(path, "rb", block_size=0)
    except (asyncssh.SFTPFailure, asyncssh.SFTPPermissionDenied, asyncssh.SFTPFileIsADirectory):
        return None


async def make_folders(sftp: SFTPClient, root: str, path: str) -> None:
    """This folder and those between it and `root`, which is there, are there, each durable in the one above.

    One that was there may be gone a moment later: whoever removes the last thing in it removes it as well.
    """
    for _ in range(_TRIES):
        with suppress(asyncssh.SFTPNoSuchFile):
            await _make_folders(sftp, root, path)
            return
    await _make_folders(sftp, root, path)


async def _make_folders(sftp: SFTPClient, root: str, path: str) -> None:
    at = root
    for name in path.removeprefix(f"{root}/").split("/"):
        at = f"{at}/{name}"
        await _make_folder(sftp, at)


async def _make_folder(sftp: SFTPClient, path: str) -> None:
    """It is there, and durable in the one above."""
    if await sftp.isdir(path):
        return
    try:
        await sftp.mkdir(path, SFTPAttrs(permissions=0o700))
    except asyncssh.SFTPFailure:
        if not await sftp.isdir(path):  # another object's writer may have been first
            raise
    await sync_folder(sftp, path.rpartition("/")[0])


async def name_once(sftp: SFTPClient, path: str, final: str) -> None:
    """The file has its name; where another one has it, that one keeps it.

    The plain rename says no more than "Failure" then, as it does of a full disk.
    """
    try:
        await sftp.rename(path, final)
    except asyncssh.SFTPFailure:
        if not await sftp.exists(final):
            raise


async def read_all(sftp: SFTPClient, path: str, *, at_most: int) -> bytes | None:
    """All of a small file, or its beginning where it is larger than that; None where it is not there."""
    try:
        file = await sftp.open(path, "rb", block_size=0)
    except asyncssh.SFTPNoSuchFile:
        return None
    try:
        return await read_exactly(file, 0, min((await file.stat()).size or 0, at_most))
    finally:
        await file.close()


def reading_exactly(at: int, size: int) -> Callable[[SFTPClientFile], Coroutine[Any, Any, bytes]]:
    """The request for these bytes of a file that is open on whichever connection there is by then."""
    return lambda file: read_exactly(file, at, size)


async def read_exactly(file: SFTPClientFile, at: int, size: int) -> bytes:
    """These bytes; a server may send fewer at a time than it was asked for."""
    got: list[bytes] = []
    missing = size
    while missing:
        piece: bytes = await file.read(missing, at + size - missing)
        if not piece:
            raise TargetError(
                f"it ended at byte {at + size - missing}, before its end", hint="it was cut on the target"
            )
        if len(piece) > missing:  # asyncssh takes a negative size for all up to the file's end
            raise TargetError(
                f"{len(piece)} bytes were returned where {missing} were asked for",
                hint="do not rely on this server: it does not answer what it is asked",
            )
        got.append(piece)
        missing -= len(piece)
    return b"".join(got)


async def _entries(sftp: SFTPClient, path: str) -> list[SFTPName]:
    return [entry for entry in await sftp.readdir(path) if entry.filename not in (".", "..")]


async def remove_trials(sftp: SFTPClient, path: str, machine: str, now: int | None) -> None:
    """What a process of this machine left in this folder that tried it and was killed is gone, as far as that can be;
    `now` by the server's clock, where it has one.
    """
    try:
        entries = await _entries(sftp, path)
    except asyncssh.SFTPPermissionDenied:  # it may be written to all the same
        return
    for entry in entries:
        at = entry.attrs.mtime
        if now is not None and at is not None and is_left_trial(_name(entry), machine, now - at):
            with suppress(asyncssh.SFTPError):
                await sftp.remove(f"{path}/{_name(entry)}")


async def names_in(sftp: SFTPClient, path: str) -> list[str] | None:
    """What is in this folder, of a folder the name with a slash at its end; None where it is not there."""
    try:
        return [_name(entry) for entry in await _entries(sftp, path)]
    except asyncssh.SFTPNoSuchFile:
        return None


async def sizes_in(sftp: SFTPClient, path: str) -> list[tuple[str, int]]:
    """What the server lists in this folder, the manifest and what is being written left out; nothing where it is not.

    The same name as often as the server tells it.
    """
    try:
        entries = await _entries(sftp, path)
    except asyncssh.SFTPNoSuchFile:
        return []
    return told_sizes(entries)


def told_sizes(entries: Iterable[SFTPName]) -> list[tuple[str, int]]:
    """What is told of a listing's entries."""
    sizes = [(_name(entry), 0 if _is_folder(entry) else entry.attrs.size or 0) for entry in entries]
    return [(name, size) for name, size in sizes if name not in (MANIFEST, "./", "../") and not is_partial(name)]


async def folders_in(sftp: SFTPClient, path: str) -> list[str]:
    """The folders in this one; none where it is not there."""
    try:
        entries = await _entries(sftp, path)
    except asyncssh.SFTPNoSuchFile:
        return []
    return [str(entry.filename) for entry in entries if _is_folder(entry)]


def _is_folder(entry: SFTPName) -> bool:
    return stat.S_ISDIR(entry.attrs.permissions or 0)


def _name(entry: SFTPName) -> str:
    return f"{entry.filename!s}/" if _is_folder(entry) else str(entry.filename)


async def backup_in(sftp: SFTPClient, root: str, job: str, run: str) -> StoredBackup | None:
    """The backup in this folder; None where it was removed while we looked."""
    try:
        itself = await sftp.stat(f"{root}/{job}/{run}")
        entries = await _entries(sftp, f"{root}/{job}/{run}")
    except asyncssh.SFTPNoSuchFile:
        return None
    written = {str(entry.filename): entry.attrs.mtime or 0 for entry in entries}
    return seen_backup(job, run, written, itself.mtime or 0, where=f"{root}/{job}/{run}")


async def remove_file(sftp: SFTPClient, folder: str, name: str) -> None:
    """It is not there; a manifest durably, before anything else of its backup goes."""
    with suppress(asyncssh.SFTPNoSuchFile):
        await sftp.remove(f"{folder}/{name}")
    if name == MANIFEST:
        await sync_folder(sftp, folder)


async def remove_folder(sftp: SFTPClient, above: str, name: str) -> None:
    """It is durably not there; one that is not empty is a failure."""
    with suppress(asyncssh.SFTPNoSuchFile):
        await sftp.rmdir(f"{above}/{name}")
        await sync_folder(sftp, above)
