"""What is asked of files and folders over SFTP, one step at a time.

Knows: which answers SFTP 3 has for what happened, and what must be asked to have it durable. Refuses to know:
connections, sentences for people, and in which order a backup is written. Every step raises asyncssh's errors.
"""

import stat
from contextlib import suppress
from datetime import UTC, datetime

import asyncssh
from asyncssh import SFTPAttrs, SFTPClient, SFTPClientFile, SFTPName

from backupd.errors import TargetError
from backupd.model import StoredBackup
from backupd.targets.names import MANIFEST


async def create(sftp: SFTPClient, path: str) -> SFTPClientFile:
    """A new file that only its owner can read; one of this name that is there already is a failure."""
    return await sftp.open(path, "xb", SFTPAttrs(permissions=0o600), block_size=0)


async def make_durable(file: SFTPClientFile, size: int) -> None:
    """Synced, closed, and as long as it should be."""
    await file.fsync()
    stored = (await file.stat()).size
    await file.close()
    if stored != size:
        raise TargetError(
            f"{size} bytes were written and the server has {stored}", hint="see that machine's kernel log"
        )


async def sync_folder(sftp: SFTPClient, path: str) -> None:
    """The names in it are durable; a server that opens no folder as a file is trusted with them."""
    try:
        folder = await sftp.open(path, "rb", block_size=0)
    except (asyncssh.SFTPFailure, asyncssh.SFTPPermissionDenied, asyncssh.SFTPFileIsADirectory):
        return
    async with folder:
        await folder.fsync()


async def make_folder(sftp: SFTPClient, path: str) -> None:
    """It is there, and durable in the one above."""
    if await sftp.isdir(path):
        return
    try:
        await sftp.mkdir(path, SFTPAttrs(permissions=0o700))
    except asyncssh.SFTPFailure:
        if not await sftp.isdir(path):  # another object's writer may have been first
            raise
    await sync_folder(sftp, path.rpartition("/")[0])


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
        got.append(piece)
        missing -= len(piece)
    return b"".join(got)


async def _entries(sftp: SFTPClient, path: str) -> list[SFTPName]:
    return [entry for entry in await sftp.readdir(path) if entry.filename not in (".", "..")]


async def names_in(sftp: SFTPClient, path: str) -> list[str] | None:
    """What is in this folder; None where it is not there."""
    try:
        return [str(entry.filename) for entry in await _entries(sftp, path)]
    except asyncssh.SFTPNoSuchFile:
        return None


async def sizes_in(sftp: SFTPClient, path: str) -> dict[str, int]:
    """The objects in this folder; none where it is not there."""
    try:
        entries = await _entries(sftp, path)
    except asyncssh.SFTPNoSuchFile:
        return {}
    named = {str(entry.filename): entry.attrs.size or 0 for entry in entries}
    return {name: size for name, size in named.items() if name != MANIFEST and not name.startswith(".")}


async def folders_in(sftp: SFTPClient, path: str) -> list[str]:
    """The folders in this one; none where it is not there."""
    try:
        entries = await _entries(sftp, path)
    except asyncssh.SFTPNoSuchFile:
        return []
    return [str(entry.filename) for entry in entries if stat.S_ISDIR(entry.attrs.permissions or 0)]


async def backup_in(sftp: SFTPClient, root: str, job: str, run: str) -> StoredBackup | None:
    """The backup in this folder; None where it was removed while we looked."""
    try:
        itself = await sftp.stat(f"{root}/{job}/{run}")
        entries = await _entries(sftp, f"{root}/{job}/{run}")
    except asyncssh.SFTPNoSuchFile:
        return None
    written = {entry.filename: entry.attrs.mtime or 0 for entry in entries}
    newest = written.get(MANIFEST, max(written.values(), default=itself.mtime or 0))
    return StoredBackup(job, run, MANIFEST in written, datetime.fromtimestamp(newest, UTC))


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
