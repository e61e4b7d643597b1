"""A folder on another machine as a target, over SFTP.

Knows: PATH/MACHINE/JOB/RUN_ID/ as a directory target has it, what SFTP can make durable, and what its few errors hide.
Refuses to know: connections and keys (`ssh`), single steps (`sftp_files`), and what is stored.

SFTP 3 as OpenSSH speaks it (PROTOCOL, sftp-server.c of 9.2): `fsync@openssh.com` is asked of each object and of the
folders, which it opens as files; `posix-rename@openssh.com` moves an object to its name; the plain rename, which makes
a link and never replaces, moves the manifest and owner records. A full disk, a quota and a read-only file system are
all "Failure": `statvfs@openssh.com` tells which. An object's size is asked for after it was written. What the server
itself has cached cannot be bypassed from here: reading proves what it would hand out, not what its disks hold.
"""

import weakref
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from threading import Event
from typing import Any, TypeVar

import asyncssh
from asyncssh import SFTPClient

from backupd.config import SftpConfig
from backupd.policy import manifest as manifests
from backupd.policy.owner_record import OwnerRecord
from backupd.targets import UploadLedger, chain
from backupd.targets.names import (
    MANIFEST,
    OWNER,
    is_backups,
    is_jobs,
    is_machines,
    is_ours,
    is_proof,
    job_part,
    machine_part,
    not_attachable,
    part,
    partial,
    partial_record,
    sizes_told,
)
from backupd.targets.outages import Patience
from backupd.targets.sftp_files import (
    backup_in,
    create,
    folders_in,
    is_moved,
    make_durable,
    make_folders,
    name_once,
    names_in,
    read_all,
    read_exactly,
    remove_file,
    remove_folder,
    sizes_in,
    sync_folder,
)
from backupd.targets.sftp_transfer import Opened, Request, Transfer
from backupd.targets.ssh import Flight, SshLine, is_answer
from backupd.vocabulary.errors import NoRoom, TargetError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest, StoredBackup

T = TypeVar("T")

BLOCK_BYTES = 255 << 10  # of a request: what OpenSSH takes at most. A server that names no limit gets 16 KiB
UNDER_WAY_BYTES = 8 << 20  # of each object that is being written or read: the most memory it takes
_SYNC_BYTES = 512 << 20  # so that the last fsync has little left to do, and is answered in time
_READ_ONLY = 1  # SSH_FXE_STATVFS_ST_RDONLY
_LITTLE_BYTES = 1 << 20
_TIDY_SECONDS = 1.0  # for each thing that is done after a failure that is told already
_FAILURES = (asyncssh.Error, OSError)


class SftpTarget:
    """Backups in a folder that exists already on a machine that is known already."""

    def __init__(self, config: SftpConfig, *, machine: str, patience: Patience | None = None) -> None:
        self._config = config
        self._root = str(config.path)
        self._machine = machine_part(machine)
        self._line = SshLine(config, patience or Patience())
        self.close = weakref.finalize(self, self._line.close)
        """No connection and no thread is left: by itself when nobody has the target any more, or the process ends."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._config.name

    @property
    def machine(self) -> str:
        """Whose backups these are."""
        return self._machine

    @property
    def folder(self) -> None:
        """None of this host's."""

    def of_machine(self, machine: str) -> "SftpTarget":
        """The same folder, as another machine's target; with a connection of its own."""
        return SftpTarget(self._config, machine=machine, patience=self._line.outages.patience)

    def machines(self) -> Sequence[str]:
        """Those that have a folder there."""
        with self._explained("list"):
            self._line.ask(self._require_present)
            return [name for name in self._folders(self._root) if is_machines(name)]

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
        unwanted: Event | None = None,
    ) -> Iterator["_Writer"]:
        """Write one object; see the contract."""
        folder = self._folder(job, backup_id)
        place = _Place(name, folder, f"{folder}/{part(name)}", f"{folder}/{partial(name)}", unwanted)
        with ExitStack() as owed:
            with self._explained(place.doing):
                opened = self._begun(place)
            owed.callback(self._remove_quietly, place.unfinished)
            writer = _Writer(self, place, opened)
            owed.callback(writer.close)
            yield writer
            with self._explained(place.doing):
                writer.finish()
                self._name(place, owed)
                self._line.outlast(place.doing, lambda sftp: sync_folder(sftp, folder), unwanted=place.unwanted)
            writer.close()
            owed.pop_all()

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The object's bytes as the server hands them out; see the contract and the module's words on its cache.

        A connection that was lost is recreated, and reading continues at the byte.
        """
        path, doing = f"{self._folder(job, backup_id)}/{part(name)}", f"read {name} from"
        found: list[int] = []  # its bytes each time it was opened

        async def opened(sftp: SFTPClient) -> Opened:
            await self._require_present(sftp)
            file = await sftp.open(path, "rb", block_size=0)
            found.append((await file.stat()).size or 0)
            if found[-1] != found[0]:
                raise TargetError(f"{path} has changed while it was read", hint="does something else write there?")
            return sftp, file

        with self._explained(doing):
            begun = self._line.outlast(doing, opened)
        with ExitStack() as owed:
            transfer: Transfer[bytes] = Transfer(self._line, begun, doing=doing, reopen=opened)
            owed.callback(transfer.close)
            block = min(BLOCK_BYTES, begun[0].limits.max_read_len)
            end = found[0] if size is None else offset + size
            yield self._chunks(transfer, doing, offset=offset, end=end, block=block)

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract."""
        self._remove_quietly(f"{self._folder(manifest.job, manifest.run_id)}/{partial(MANIFEST)}")  # a dead process's
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
                    hint="it cannot be restored; choose another backup from `backupd history`",
                )

        with self._explained("read"):
            self._line.ask(require)
        with self.reading(job, backup_id, MANIFEST) as chunks:
            return manifests.from_chunks(chunks)

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there under a final name, and its bytes; see the contract."""
        folder = self._folder(job, backup_id)

        async def sizes(sftp: SFTPClient) -> Sequence[tuple[str, int]]:
            return await sizes_in(await self._require_present(sftp), folder)

        with self._explained("list"):
            return sizes_told(self._line.outlast("list", sizes), where=self._line.where)

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there; see the contract. The clock is that machine's."""
        with self._explained("list"):
            sftp = self._line.ask(self._require_present)
            ours = f"{self._root}/{self._machine}"
            jobs = [job_part(job)] if job is not None else filter(is_jobs, self._folders(ours))
            found: Flight[StoredBackup | None] = Flight(self._line, sftp, self._config.timeout_seconds)
            for each in jobs:
                for run in filter(is_backups, self._folders(f"{ours}/{each}")):
                    found.add(backup_in(sftp, ours, each, run))
            seen = [found.oldest() for _ in range(len(found))]
        return [backup for backup in seen if backup is not None]

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """Write a small object beside a finished backup; see the contract."""
        folder, doing = self._folder(job, backup_id), f"write {name} to"

        async def require(sftp: SFTPClient) -> None:
            await self._require_present(sftp)
            finished = await sftp.exists(f"{folder}/{MANIFEST}")
            if not is_proof(name) or not finished or await sftp.exists(f"{folder}/{name}"):
                raise not_attachable(name, folder)

        with self._explained(doing):
            self._line.outlast(doing, require)
        with self.writing(job, backup_id, name) as writer:
            writer.write(content)

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, its manifest first; see the contract."""
        folder = self._folder(job, backup_id)
        machine = f"{self._root}/{self._machine}"
        above = f"{machine}/{job_part(job)}"
        with self._explained("remove from"):
            self._line.ask(self._require_present)
            names = self._line.ask(lambda sftp: names_in(sftp, folder))
            if names is not None:
                ours = set(filter(is_ours, names))
                for name in sorted(ours, key=lambda name: name != MANIFEST):
                    self._remove_file(folder, name)
                if ours.issuperset(names):
                    self._line.ask(lambda sftp: remove_folder(sftp, above, backup_id))
            if self._line.ask(lambda sftp: names_in(sftp, above)) == []:
                self._line.ask(lambda sftp: remove_folder(sftp, machine, job))

    def owner(self) -> OwnerRecord | None:
        """Who wrote last; see the contract."""
        return chain.owner(_Records(self), self._machine)

    def last_owner_number(self) -> int:
        """The number of the last owner record; see the contract."""
        return chain.last(_Records(self))

    def succeed(self, record: OwnerRecord) -> bool:
        """Write an owner record; see the contract."""
        return chain.succeed(_Records(self), record)

    def _folders(self, path: str) -> list[str]:
        return self._line.ask(lambda sftp: folders_in(sftp, path))

    def _remove_file(self, folder: str, name: str) -> None:
        self._line.ask(lambda sftp: remove_file(sftp, folder, name))

    def _folder(self, job: str, backup_id: str) -> str:
        return f"{self._root}/{self._machine}/{job_part(job)}/{part(backup_id)}"

    async def _require_present(self, sftp: SFTPClient) -> SFTPClient:
        """The folder is there and, where a sentinel is named, its file system is mounted."""
        config = self._config
        if config.sentinel is not None and await sftp.exists(f"{self._root}/{config.sentinel}"):
            return sftp
        if not await sftp.isdir(self._root):
            raise TargetError(
                f"{self._line.where} does not exist or is not a folder",
                hint="mount its file system there, or create the folder",
            )
        if config.sentinel is not None:
            raise TargetError(
                f"the file system of {self._line.where} is not mounted: there is no {config.sentinel} in it",
                hint=f"mount it on that machine; only if it is mounted: touch {self._root}/{config.sentinel} there",
            )
        return sftp

    def _begun(self, place: "_Place") -> Opened:
        """The file that is to be written, in a folder of its own that holds no finished backup."""
        tried = False

        async def begin(sftp: SFTPClient) -> Opened:
            nonlocal tried
            await self._require_present(sftp)
            await make_folders(sftp, self._root, place.folder)
            if not is_proof(place.name) and await sftp.exists(f"{place.folder}/{MANIFEST}"):
                raise TargetError(
                    f"{place.folder} already has a finished backup", hint="a run never writes to another run's folder"
                )
            if tried:
                with suppress(asyncssh.SFTPNoSuchFile):
                    await sftp.remove(place.unfinished)  # made by a request whose answer was lost
            tried = True
            return sftp, await create(sftp, place.unfinished)

        try:
            return self._line.outlast(place.doing, begin, unwanted=place.unwanted)
        except BaseException as error:
            if not is_answer(error):
                self._remove_quietly(place.unfinished)
            raise

    def _name(self, place: "_Place", owed: ExitStack) -> None:
        """Give it its name; a name that may not outlive a power cut, or that nobody confirms, is taken away again."""
        tried = False

        async def move(sftp: SFTPClient) -> None:
            nonlocal tried
            if tried and await is_moved(sftp, place.unfinished, place.final):
                return
            tried = True
            rename = sftp.rename if place.is_linked else sftp.posix_rename
            await rename(place.unfinished, place.final)

        try:
            self._line.outlast(place.doing, move, unwanted=place.unwanted)
        except BaseException as error:
            if not is_answer(error):
                owed.callback(self._remove_if_moved, place)
            raise
        owed.callback(self._remove_quietly, place.final)

    def _chunks(self, transfer: Transfer[bytes], doing: str, *, offset: int, end: int, block: int) -> Iterator[bytes]:
        """The bytes that were asked for, in order, with the next ones on their way."""
        at = offset
        try:
            with self._explained(doing):
                while at < end or len(transfer):
                    while at < end and len(transfer) * block < UNDER_WAY_BYTES:
                        size = min(block, end - at)
                        transfer.add(_reading(at, size))
                        at += size
                    yield transfer.oldest()
        finally:
            transfer.forget()

    def _remove_quietly(self, path: str) -> None:
        """On the way out of a failure, which is told already; `remove` tries again and tells."""
        with suppress(TargetError, *_FAILURES):
            self._line.ask(lambda sftp: sftp.remove(path), at_most_seconds=_TIDY_SECONDS)

    def _remove_if_moved(self, place: "_Place") -> None:
        """The same, of the name that nobody has confirmed; where it is not what was written, it is somebody else's."""

        async def remove(sftp: SFTPClient) -> None:
            if not place.is_linked and await sftp.exists(place.unfinished):
                return
            if await is_moved(sftp, place.unfinished, place.final):
                await sftp.remove(place.final)

        with suppress(TargetError, *_FAILURES):
            self._line.ask(remove, at_most_seconds=_TIDY_SECONDS)

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
            return TargetError(
                f"{self._line.where} is mounted read-only", hint="check that machine's kernel log for the reason"
            )
        if room.bavail * room.frsize < _LITTLE_BYTES or (room.files and not room.favail):
            return NoRoom(
                f"no space left on {self._line.where}", hint="free space there, or let retention keep fewer backups"
            )
        return TargetError(
            f"could not {doing} {self._line.where}: {error.reason}",
            hint="a quota, a file size limit, or something else with this name; check the log of its sshd",
        )


def _reading(at: int, size: int) -> Request[bytes]:
    return lambda file: read_exactly(file, at, size)


class _Records:
    """The machine's owner records: files that get their names by the plain rename, which never replaces."""

    def __init__(self, target: SftpTarget) -> None:
        self._target = target
        self._folder = f"{target._root}/{target._machine}/{OWNER}"

    @property
    def where(self) -> str:
        config = self._target._config
        return f"sftp://{config.user}@{config.address}:{config.port}{self._folder}"

    def names(self) -> Collection[str]:
        return self._ask("list the owner records of", lambda sftp: names_in(sftp, self._folder)) or ()

    def content(self, name: str) -> bytes | None:
        path, most = f"{self._folder}/{name}", chain.MOST_BYTES + 1
        return self._ask("read an owner record from", lambda sftp: read_all(sftp, path, at_most=most))

    def create(self, name: str, content: bytes) -> None:
        async def write(sftp: SFTPClient) -> None:
            unfinished = f"{self._folder}/{partial_record(name, token_hex(8))}"
            await make_folders(sftp, self._target._root, self._folder)
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
            return await work(await self._target._require_present(sftp))

        with self._target._explained(doing):
            return self._target._line.ask(present)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one object goes, and whether anybody wants it."""

    name: str
    folder: str
    final: str
    unfinished: str
    given_up: Event | None

    @property
    def doing(self) -> str:
        """Completes "could not ..."."""
        return f"write {self.name} to"

    @property
    def is_linked(self) -> bool:
        """It gets its name by a rename that makes a link, and so never replaces."""
        return self.name == MANIFEST or is_proof(self.name)

    def unwanted(self) -> bool:
        """Nobody does any more."""
        return self.given_up is not None and self.given_up.is_set()


class _Writer:
    """An object that is being written under a temporary name, over as many connections as it takes."""

    def __init__(self, target: SftpTarget, place: _Place, opened: Opened) -> None:
        self._target = target
        self._place = place
        self._transfer: Transfer[int | None] = Transfer(
            target._line, opened, doing=place.doing, reopen=self._reopened, unwanted=place.unwanted
        )
        self._block = bytearray()
        self._block_bytes = min(BLOCK_BYTES, opened[0].limits.max_write_len)
        self._sent = self._synced = self._acknowledged = 0

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        with self._target._explained(self._place.doing):
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
        while len(self._transfer):
            self._settle()
        return self._sent

    def finish(self) -> None:
        """All of it is durable under its temporary name."""
        size = self.flushed()
        self._transfer.add(lambda file: make_durable(file, size))
        self._settle()

    def close(self) -> None:
        """Nobody waits for what is still under way, nor for the file."""
        self._transfer.close()

    def _send(self) -> None:
        block, self._block = bytes(self._block), bytearray()
        at = self._sent
        self._transfer.add(lambda file: file.write(block, at))
        self._sent += len(block)
        if self._sent - self._synced >= _SYNC_BYTES:
            self._transfer.add(lambda file: file.fsync())
            self._synced = self._sent
        while len(self._transfer) * self._block_bytes >= UNDER_WAY_BYTES:
            self._settle()

    def _settle(self) -> None:
        self._acknowledged += self._transfer.oldest() or 0

    async def _reopened(self, sftp: SFTPClient) -> Opened:
        """The same file on another connection. A server that restarted may have lost what it had not synced.

        Such a file is not gone on with: what it lacks is in nobody's memory any more. That a server kept the length and
        lost the bytes is seen when the run reads its copies back.
        """
        await self._target._require_present(sftp)
        file = await sftp.open(self._place.unfinished, "r+b", block_size=0)
        size = (await file.stat()).size or 0
        if size < self._acknowledged:
            raise TargetError(
                f"{self._target._line.where} has {size} bytes of {self._place.name} where it acknowledged"
                f" {self._acknowledged}",
                hint="that machine has restarted, or its storage loses writes: check its kernel log",
            )
        return sftp, file
