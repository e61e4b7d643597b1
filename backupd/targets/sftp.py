"""A folder on another machine as a target, over SFTP.

Knows: PATH/JOB/RUN_ID/ as a directory target has it, what SFTP can make durable, and what its few errors hide.
Refuses to know: connections and keys (`ssh`), single steps (`sftp_files`), and what is stored.

SFTP 3 as OpenSSH speaks it (PROTOCOL, sftp-server.c of 9.2): `fsync@openssh.com` is asked of each object and of the
folders, which it opens as files; `posix-rename@openssh.com` moves an object to its name; the plain rename, which makes
a link and never replaces, moves the manifest. A full disk, a quota and a read-only file system are all "Failure":
`statvfs@openssh.com` tells which. An object's size is asked for after it was written. What the server itself has
cached cannot be bypassed from here: reading proves what it would hand out, not what its disks hold.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from secrets import token_hex

import asyncssh
from asyncssh import SFTPClient, SFTPClientFile

from backupd import manifest as manifests
from backupd.config import SftpConfig
from backupd.errors import TargetError
from backupd.model import Holding, Manifest, StoredBackup
from backupd.targets import UploadLedger
from backupd.targets.names import MANIFEST, is_jobs, part, partial
from backupd.targets.sftp_files import (
    backup_in,
    create,
    folders_in,
    make_durable,
    make_folder,
    names_in,
    read_exactly,
    remove_file,
    remove_folder,
    sizes_in,
    sync_folder,
)
from backupd.targets.ssh import Flight, SshLine, is_answer

BLOCK_BYTES = 255 << 10  # of a request: what OpenSSH takes at most. A server that names no limit gets 16 KiB
UNDER_WAY_BYTES = 8 << 20  # of each object that is being written or read: the most memory it takes
_SYNC_BYTES = 512 << 20  # so that the last fsync has little left to do, and is answered in time
_READ_ONLY = 1  # SSH_FXE_STATVFS_ST_RDONLY
_LITTLE_BYTES = 1 << 20
_TIDY_SECONDS = 1.0  # for each thing that is done after a failure that is told already
_FAILURES = (asyncssh.Error, OSError)


class SftpTarget:
    """Backups in a folder that exists already on a machine that is known already."""

    def __init__(self, config: SftpConfig) -> None:
        self._config = config
        self._root = str(config.path)
        self._line = SshLine(config)
        self.close = weakref.finalize(self, self._line.close)
        """No connection and no thread is left: by itself when nobody has the target any more, or the process ends."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._config.name

    @property
    def folder(self) -> None:
        """None of this host's."""

    def location(self, job: str, backup_id: str) -> str:
        """As `sftp` takes it: sftp://USER@HOST:PORT/PATH."""
        config = self._config
        return f"sftp://{config.user}@{config.address}:{config.port}{self._folder(job, backup_id)}"

    def require_usable(self) -> int | None:
        """Prove that a file can be written there, synced, renamed and removed; the free bytes, if the server tells.

        Raises:
            TargetError: unreachable, not the server that we know, missing, full or read-only.
        """
        name = f"{self._root}/.backupd-writable-{token_hex(4)}"

        async def probe(sftp: SFTPClient) -> int | None:
            await self._require_present(sftp)
            try:
                async with await create(sftp, f"{name}.partial") as file:
                    await file.write(bytes(4096), 0)
                    await file.fsync()
                await sftp.posix_rename(f"{name}.partial", name)
            finally:
                for path in (f"{name}.partial", name):
                    with suppress(asyncssh.SFTPError):
                        await sftp.remove(path)
            try:
                room = await sftp.statvfs(self._root)
            except asyncssh.SFTPOpUnsupported:
                return None
            return room.bavail * room.frsize

        with self._explained("use"):
            return self._line.ask(probe)

    @contextmanager
    def writing(
        self,
        job: str,
        backup_id: str,
        name: str,
        *,
        at_most: int | None = None,  # noqa: ARG002 - a file grows as it must
        ledger: UploadLedger | None = None,  # noqa: ARG002 - an unfinished file is in the backup's folder
    ) -> Iterator["_Writer"]:
        """Write one object; see the contract."""
        folder = self._folder(job, backup_id)
        final, unfinished = f"{folder}/{part(name)}", f"{folder}/{partial(name)}"
        doing = f"write {name} to"
        with ExitStack() as owed:
            with self._explained(doing):
                sftp, file = self._begun(folder, unfinished)
            owed.callback(self._remove_quietly, unfinished)
            owed.callback(self._line.tell, lambda _: file.close(), on=sftp)
            flight: Flight[object] = Flight(self._line, sftp, self._config.timeout_seconds)
            writer = _Writer(self, name, file, flight, block_bytes=min(BLOCK_BYTES, sftp.limits.max_write_len))
            owed.callback(writer.forget)
            yield writer
            with self._explained(doing):
                size = writer.flushed()
                self._line.ask(lambda _: make_durable(file, size), on=sftp)
                self._name(sftp, unfinished, final, owed)
                self._line.ask(lambda sftp: sync_folder(sftp, folder), on=sftp)
            owed.pop_all()

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The object's bytes as the server hands them out; see the contract and the module's words on its cache."""
        path = f"{self._folder(job, backup_id)}/{part(name)}"

        async def opened(sftp: SFTPClient) -> tuple[SFTPClient, SFTPClientFile, int]:
            await self._require_present(sftp)
            file = await sftp.open(path, "rb", block_size=0)
            return sftp, file, (await file.stat()).size or 0

        with self._explained(f"read {name} from"):
            sftp, file, whole = self._line.ask(opened)
        with ExitStack() as owed:
            owed.callback(self._line.tell, lambda _: file.close(), on=sftp)
            yield self._chunks(sftp, file, name, offset=offset, end=whole if size is None else offset + size)

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract."""
        with self.writing(manifest.job, manifest.run_id, MANIFEST) as writer:
            writer.write(manifests.to_text(manifest).encode())

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back; see the contract."""
        folder = self._folder(job, backup_id)

        async def require(sftp: SFTPClient) -> None:
            await self._require_present(sftp)
            if not await sftp.isdir(folder):
                raise TargetError(
                    f"no backup {backup_id} of job {job} on {self._line.where}", hint="see `backupd history`"
                )
            if not await sftp.exists(f"{folder}/{MANIFEST}"):
                raise TargetError(
                    f"the backup {backup_id} on target {self.name} is unfinished: it has no manifest",
                    hint="it cannot be restored; choose another one from `backupd history`",
                )

        with self._explained("read"):
            self._line.ask(require)
        with self.reading(job, backup_id, MANIFEST) as chunks:
            return manifests.from_text(b"".join(chunks))

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there under a final name, and its bytes; see the contract."""
        folder = self._folder(job, backup_id)
        with self._explained("list"):
            self._line.ask(self._require_present)
            return self._line.ask(lambda sftp: sizes_in(sftp, folder))

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there; see the contract. The clock is that machine's."""
        with self._explained("list"):
            sftp = self._line.ask(self._require_present)
            jobs = [part(job)] if job is not None else filter(is_jobs, self._folders(self._root))
            found: Flight[StoredBackup | None] = Flight(self._line, sftp, self._config.timeout_seconds)
            for each in jobs:
                for run in self._folders(f"{self._root}/{each}"):
                    found.add(backup_in(sftp, self._root, each, run))
            seen = [found.oldest() for _ in range(len(found))]
        return [backup for backup in seen if backup is not None]

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, its manifest first; see the contract."""
        folder = self._folder(job, backup_id)
        above = f"{self._root}/{part(job)}"
        with self._explained("remove from"):
            self._line.ask(self._require_present)
            names = self._line.ask(lambda sftp: names_in(sftp, folder))
            if names is not None:
                for name in sorted(names, key=lambda name: name != MANIFEST):
                    self._remove_file(folder, name)
                self._line.ask(lambda sftp: remove_folder(sftp, above, backup_id))
            if self._line.ask(lambda sftp: names_in(sftp, above)) == []:
                self._line.ask(lambda sftp: remove_folder(sftp, self._root, job))

    def _folders(self, path: str) -> list[str]:
        return self._line.ask(lambda sftp: folders_in(sftp, path))

    def _remove_file(self, folder: str, name: str) -> None:
        self._line.ask(lambda sftp: remove_file(sftp, folder, name))

    def _folder(self, job: str, backup_id: str) -> str:
        return f"{self._root}/{part(job)}/{part(backup_id)}"

    async def _require_present(self, sftp: SFTPClient) -> SFTPClient:
        """The folder is there and, where a sentinel is named, its file system is mounted."""
        config = self._config
        if config.sentinel is not None and await sftp.exists(f"{self._root}/{config.sentinel}"):
            return sftp
        if not await sftp.isdir(self._root):
            raise TargetError(
                f"{self._line.where} is not there, or is no folder", hint="mount its file system there, or create it"
            )
        if config.sentinel is not None:
            raise TargetError(
                f"the file system of {self._line.where} is not mounted: there is no {config.sentinel} in it",
                hint=f"mount it on that machine; only if it is mounted: touch {self._root}/{config.sentinel} there",
            )
        return sftp

    def _begun(self, folder: str, unfinished: str) -> tuple[SFTPClient, SFTPClientFile]:
        """The file that is to be written, in a folder of its own that holds no finished backup."""

        async def begin(sftp: SFTPClient) -> tuple[SFTPClient, SFTPClientFile]:
            await self._require_present(sftp)
            above = folder.rpartition("/")[0]
            await make_folder(sftp, above)
            await make_folder(sftp, folder)
            if await sftp.exists(f"{folder}/{MANIFEST}"):
                raise TargetError(f"{folder} holds a finished backup already", hint="a run never writes to another's")
            return sftp, await create(sftp, unfinished)

        try:
            return self._line.ask(begin)
        except BaseException as error:
            if not is_answer(error):
                self._remove_quietly(unfinished)
            raise

    def _name(self, sftp: SFTPClient, unfinished: str, final: str, owed: ExitStack) -> None:
        """Give it its name; a name that may not outlive a power cut, or that nobody confirms, is taken away again."""
        rename = sftp.rename if final.endswith(f"/{MANIFEST}") else sftp.posix_rename
        try:
            self._line.ask(lambda _: rename(unfinished, final), on=sftp)
        except BaseException as error:
            if not is_answer(error):
                owed.callback(self._remove_quietly, final)
            raise
        owed.callback(self._remove_quietly, final)

    def _chunks(self, sftp: SFTPClient, file: SFTPClientFile, name: str, *, offset: int, end: int) -> Iterator[bytes]:
        """The bytes that were asked for, in order, with the next ones on their way."""
        flight: Flight[bytes] = Flight(self._line, sftp, self._config.timeout_seconds)
        block = min(BLOCK_BYTES, sftp.limits.max_read_len)
        at = offset
        try:
            with self._explained(f"read {name} from"):
                while at < end or len(flight):
                    while at < end and len(flight) * block < UNDER_WAY_BYTES:
                        size = min(block, end - at)
                        flight.add(read_exactly(file, at, size))
                        at += size
                    yield flight.oldest()
        finally:
            flight.forget()

    def _remove_quietly(self, path: str) -> None:
        """On the way out of a failure, which is told already; `remove` tries again and tells."""
        with suppress(TargetError, *_FAILURES):
            self._line.ask(lambda sftp: sftp.remove(path), at_most_seconds=_TIDY_SECONDS)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """What SFTP says becomes a sentence with a hint."""
        try:
            yield
        except asyncssh.SFTPFailure as error:
            raise self._failure(error, doing) from error
        except _FAILURES as error:
            raise self._line.sentence(error, doing) from error

    def _failure(self, error: asyncssh.SFTPFailure, doing: str) -> TargetError:
        """The server has said no more than "Failure": look for what is known to be behind it."""
        try:
            room = self._line.ask(lambda sftp: sftp.statvfs(self._root), at_most_seconds=_TIDY_SECONDS)
        except (TargetError, *_FAILURES):
            return self._line.sentence(error, doing)
        if room.flags & _READ_ONLY:
            return TargetError(f"{self._line.where} is mounted read-only", hint="see that machine's kernel log for why")
        if room.bavail * room.frsize < _LITTLE_BYTES or (room.files and not room.favail):
            return TargetError(
                f"no room left on {self._line.where}", hint="free room there, or let retention keep fewer backups"
            )
        return TargetError(
            f"could not {doing} {self._line.where}: {error.reason}",
            hint="a quota, a limit on the size of files, or something of this name there; see the log of its sshd",
        )


class _Writer:
    """An object that is being written under a temporary name."""

    def __init__(
        self, target: SftpTarget, name: str, file: SFTPClientFile, flight: Flight[object], *, block_bytes: int
    ) -> None:
        self._target = target
        self._name = name
        self._file = file
        self._flight = flight
        self._block = bytearray()
        self._block_bytes = block_bytes
        self._sent = self._synced = 0

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        with self._target._explained(f"write {self._name} to"):
            while view:
                taken = view[: self._block_bytes - len(self._block)]
                self._block += taken
                view = view[len(taken) :]
                if len(self._block) == self._block_bytes:
                    self._send()

    def flushed(self) -> int:
        """The bytes that were written, when the server has said so of each."""
        if self._block:
            self._send()
        while len(self._flight):
            self._flight.oldest()
        return self._sent

    def forget(self) -> None:
        """Nobody waits for what is still under way."""
        self._flight.forget()

    def _send(self) -> None:
        block, self._block = bytes(self._block), bytearray()
        self._flight.add(self._file.write(block, self._sent))
        self._sent += len(block)
        if self._sent - self._synced >= _SYNC_BYTES:
            self._flight.add(self._file.fsync())
            self._synced = self._sent
        while len(self._flight) * self._block_bytes >= UNDER_WAY_BYTES:
            self._flight.oldest()
