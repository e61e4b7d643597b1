"""A folder on another machine as a target, over SFTP.

Knows: PATH/MACHINE/JOB/RUN_ID/ as a directory target has it, and what SFTP can make durable. Connections and keys are
in `ssh`, single steps in `sftp_files`, what its few errors hide in `sftp_root`.

SFTP 3 as OpenSSH speaks it (PROTOCOL, sftp-server.c of 9.2): `fsync@openssh.com` is asked of each object and of the
folders, which it opens as files; `posix-rename@openssh.com` moves an object to its name; the plain rename, which makes
a link and never replaces, moves the manifest and owner records. A full disk, a quota and a read-only file system are
all "Failure": `statvfs@openssh.com` tells which. An object's size is asked for after it was written. What the server
itself has cached cannot be bypassed from here: reading proves what it would hand out, not what its disks hold.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Event
from typing import TypeVar

import asyncssh
from asyncssh import SFTPClient

from backupd.config import SftpConfig
from backupd.policy import manifest as manifests
from backupd.targets import UploadLedger
from backupd.targets import sftp_segments as segments
from backupd.targets.chain import OwnedFolder
from backupd.targets.names import (
    BINLOG,
    MANIFEST,
    already_finished,
    backup_part,
    is_backups,
    is_jobs,
    is_machines,
    is_ours,
    is_proof,
    job_part,
    machine_part,
    new_trial,
    not_attachable,
    part,
    partial,
    segment_part,
    sizes_told,
    unfinished_backup,
)
from backupd.targets.outages import Patience
from backupd.targets.sftp_files import (
    backup_in,
    create,
    folders_in,
    is_moved,
    make_folders,
    names_in,
    reading_exactly,
    remove_file,
    remove_folder,
    remove_trials,
    sizes_in,
    sync_folder,
)
from backupd.targets.sftp_records import SftpRecords
from backupd.targets.sftp_root import FAILURES, TIDY_SECONDS, SftpRoot
from backupd.targets.sftp_transfer import Opened, Transfer
from backupd.targets.sftp_writer import BLOCK_BYTES, UNDER_WAY_BYTES, ObjectPlace, SftpWriter
from backupd.targets.ssh import Flight, SshLine, is_answer
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest, StoredBackup

T = TypeVar("T")


class SftpTarget(OwnedFolder):
    """Backups in a folder that exists already on a machine that is known already."""

    def __init__(self, config: SftpConfig, *, machine: str, patience: Patience | None = None) -> None:
        self._config = config
        self._line = SshLine(config, patience or Patience())
        self._root = SftpRoot(config, self._line)
        super().__init__(machine_part(machine), SftpRecords(self._root, machine))
        self.close = weakref.finalize(self, self._line.close)
        """No connection and no thread is left: by itself when nobody has the target any more, or the process ends."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._config.name

    @property
    def folder(self) -> None:
        """None of this host's."""

    def of_machine(self, machine: str) -> "SftpTarget":
        """The same folder, as another machine's target; with a connection of its own."""
        return SftpTarget(self._config, machine=machine, patience=self._line.outages.patience)

    def machines(self) -> Sequence[str]:
        """Those that have a folder there."""
        with self._root.explained("list"):
            self._line.ask(self._root.present)
            return [name for name in self._folders(self._root.path) if is_machines(name)]

    def location(self, job: str, backup_id: str) -> str:
        """As `sftp` takes it: sftp://USER@HOST:PORT/PATH."""
        return self._root.url(self._folder(job, backup_id))

    def require_usable(self) -> int | None:
        """Prove that a file can be written there, synced, renamed and removed; the free bytes, if the server tells.

        Raises:
            TargetError: unreachable, not the server that we know, missing, full or read-only.
        """
        name = f"{self._root.path}/{new_trial(self._machine)}"

        async def probe(sftp: SFTPClient) -> int | None:
            await self._root.present(sftp)
            try:
                async with await create(sftp, f"{name}.partial") as file:
                    await file.write(bytes(4096), 0)
                    await file.fsync()
                await sftp.posix_rename(f"{name}.partial", name)
                await remove_trials(sftp, self._root.path, self._machine, (await sftp.stat(name)).mtime)
            finally:
                for path in (f"{name}.partial", name):
                    with suppress(asyncssh.SFTPError):
                        await sftp.remove(path)
            try:
                room = await sftp.statvfs(self._root.path)
            except asyncssh.SFTPOpUnsupported:
                return None
            return room.bavail * room.frsize

        with self._root.explained("use"):
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
    ) -> Iterator[SftpWriter]:
        """Write one object; see the contract."""
        if backup_id == BINLOG:
            with self._writing_segment(job, name, unwanted) as segment:
                yield segment
            return
        folder = self._folder(job, backup_id)
        place = ObjectPlace(name, folder, f"{folder}/{part(name)}", f"{folder}/{partial(name)}", unwanted)
        with ExitStack() as owed:
            with self._root.explained(place.doing):
                opened = self._begun(place)
            owed.callback(self._remove_quietly, place.unfinished)
            writer = SftpWriter(self._root, place, opened)
            owed.callback(writer.close)
            yield writer
            with self._root.explained(place.doing):
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
            await self._root.present(sftp)
            file = await sftp.open(path, "rb", block_size=0)
            found.append((await file.stat()).size or 0)
            if found[-1] != found[0]:
                raise TargetError(f"{path} has changed while it was read", hint="does something else write there?")
            return sftp, file

        with self._root.explained(doing):
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
            await self._root.present(sftp)
            if not await sftp.isdir(folder):
                raise TargetError(
                    f"no backup {backup_id} of job {job} on {self._line.where}", hint="see `backupd history`"
                )
            if not await sftp.exists(f"{folder}/{MANIFEST}"):
                raise unfinished_backup(backup_id, self.name)

        with self._root.explained("read"):
            self._line.ask(require)
        with self.reading(job, backup_id, MANIFEST) as chunks:
            return manifests.from_chunks(chunks)

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there under a final name, and its bytes; see the contract."""
        folder = self._folder(job, backup_id)

        async def sizes(sftp: SFTPClient) -> Sequence[tuple[str, int]]:
            return await sizes_in(await self._root.present(sftp), folder)

        with self._root.explained("list"):
            return sizes_told(self._line.outlast("list", sizes), where=self._line.where)

    def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
        """What lies in their folder; see the contract."""
        told = segments.listed(self._root, self._folder(job, BINLOG))
        return sizes_told((one for one in told if one[0] > after), where=self._line.where)

    def archived_jobs(self) -> Sequence[str]:
        """Those that have the folder; see the contract."""
        with self._root.explained("list"):
            self._line.ask(self._root.present)
            ours = f"{self._root.path}/{self._machine}"
            return [job for job in filter(is_jobs, self._folders(ours)) if BINLOG in self._folders(f"{ours}/{job}")]

    def remove_segments(self, job: str, names: Sequence[str]) -> None:
        """Remove them, and what dead writers left; see the contract."""
        folder = self._folder(job, BINLOG)
        if wanted := [segment_part(name) for name in names]:
            with self._root.explained("remove from"):
                segments.remove_segments(self._root, folder, wanted, timeout_seconds=self._config.timeout_seconds)

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there; see the contract. The clock is that machine's."""
        with self._root.explained("list"):
            sftp, ours = self._line.ask(self._root.present), f"{self._root.path}/{self._machine}"
            jobs = [job_part(job)] if job is not None else filter(is_jobs, self._folders(ours))
            runs = [(each, run) for each in jobs for run in filter(is_backups, self._folders(f"{ours}/{each}"))]
            found: Flight[StoredBackup | None] = Flight(self._line, sftp, self._config.timeout_seconds)
            for each, run in runs:
                found.add(backup_in(sftp, ours, each, run))
            seen: list[StoredBackup | None] = []
            for each, run in runs:
                with self._root.explained(f"look into {ours}/{each}/{run} on"):  # a person must find it
                    seen.append(found.oldest())
        return [backup for backup in seen if backup is not None]

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """Write a small object beside a finished backup; see the contract."""
        folder, doing = self._folder(job, backup_id), f"write {name} to"

        async def require(sftp: SFTPClient) -> None:
            await self._root.present(sftp)
            finished = await sftp.exists(f"{folder}/{MANIFEST}")
            if not is_proof(name) or not finished or await sftp.exists(f"{folder}/{name}"):
                raise not_attachable(name, folder)

        with self._root.explained(doing):
            self._line.outlast(doing, require)
        with self.writing(job, backup_id, name) as writer:
            writer.write(content)

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, its manifest first; see the contract."""
        folder = self._folder(job, backup_part(backup_id))
        machine = f"{self._root.path}/{self._machine}"
        above = f"{machine}/{job_part(job)}"
        with self._root.explained("remove from"):
            self._line.ask(self._root.present)
            names = self._line.ask(lambda sftp: names_in(sftp, folder))
            if names is not None:
                ours = set(filter(is_ours, names))
                for name in sorted(ours, key=lambda name: name != MANIFEST):
                    self._remove_file(folder, name)
                if ours.issuperset(names):
                    self._line.ask(lambda sftp: remove_folder(sftp, above, backup_id))
            if self._line.ask(lambda sftp: names_in(sftp, above)) == []:
                self._line.ask(lambda sftp: remove_folder(sftp, machine, job))

    def _folders(self, path: str) -> list[str]:
        return self._line.ask(lambda sftp: folders_in(sftp, path))

    def _remove_file(self, folder: str, name: str) -> None:
        self._line.ask(lambda sftp: remove_file(sftp, folder, name))

    def _folder(self, job: str, backup_id: str) -> str:
        return f"{self._root.path}/{self._machine}/{job_part(job)}/{part(backup_id)}"

    @contextmanager
    def _writing_segment(self, job: str, name: str, unwanted: Event | None) -> Iterator[SftpWriter]:
        segment = segments.SegmentPlace(self._root, self._folder(job, BINLOG), name)
        place = ObjectPlace(name, segment.folder, segment.final, segment.unfinished, unwanted)
        with ExitStack() as owed:
            owed.callback(segment.undo, self._line)
            with self._root.explained(place.doing):
                opened = self._line.outlast(place.doing, segment.begin, unwanted=place.unwanted)
            owed.callback(segment.close, self._line)
            writer = SftpWriter(self._root, place, opened)
            owed.callback(writer.close)
            yield writer
            with self._root.explained(place.doing):
                writer.finish()
                self._line.outlast(place.doing, segment.give_name, unwanted=place.unwanted)
            owed.pop_all()
        writer.close()
        segment.close(self._line)

    def _begun(self, place: ObjectPlace) -> Opened:
        """The file that is to be written, in a folder of its own that holds no finished backup."""
        tried = False

        async def begin(sftp: SFTPClient) -> Opened:
            nonlocal tried
            await self._root.present(sftp)
            await make_folders(sftp, self._root.path, place.folder)
            if not is_proof(place.name) and await sftp.exists(f"{place.folder}/{MANIFEST}"):
                raise already_finished(place.folder)
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

    def _name(self, place: ObjectPlace, owed: ExitStack) -> None:
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
            with self._root.explained(doing):
                while at < end or len(transfer):
                    while at < end and len(transfer) * block < UNDER_WAY_BYTES:
                        size = min(block, end - at)
                        transfer.add(reading_exactly(at, size))
                        at += size
                    yield transfer.oldest()
        finally:
            transfer.forget()

    def _remove_quietly(self, path: str) -> None:
        """On the way out of a failure, which is told already; `remove` tries again and tells."""
        with suppress(TargetError, *FAILURES):
            self._line.ask(lambda sftp: sftp.remove(path), at_most_seconds=TIDY_SECONDS)

    def _remove_if_moved(self, place: ObjectPlace) -> None:
        """The same, of the name that nobody has confirmed; where it is not what was written, it is somebody else's."""

        async def remove(sftp: SFTPClient) -> None:
            if not place.is_linked and await sftp.exists(place.unfinished):
                return
            if await is_moved(sftp, place.unfinished, place.final):
                await sftp.remove(place.final)

        with suppress(TargetError, *FAILURES):
            self._line.ask(remove, at_most_seconds=TIDY_SECONDS)
