"""A folder as a target: a local disk, or NFS.

Knows: PATH/MACHINE/JOB/RUN_ID/ with the objects and `manifest.json`; temporary names, fsync of files and folders. What
a failing file system says is in `directory_root`.

NFS tells of a full disk or an exceeded quota as late as at fsync or close: both count as writing.
"""

import errno
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Event

from backupd.host.filesystem import sync_folder
from backupd.policy import manifest as manifests
from backupd.targets import UploadLedger
from backupd.targets.chain import OwnedFolder
from backupd.targets.directory_records import DirectoryRecords
from backupd.targets.directory_root import RootFolder, remove_quietly
from backupd.targets.directory_segments import name_segment, remove_segments
from backupd.targets.names import (
    BINLOG,
    MANIFEST,
    already_finished,
    already_there,
    backup_part,
    is_backups,
    is_jobs,
    is_machines,
    is_ours,
    is_partial,
    is_proof,
    job_part,
    machine_part,
    new_trial,
    not_attachable,
    object_part,
    part,
    partial,
    partial_segment,
    segment_part,
    unfinished_backup,
)
from backupd.targets.told_times import seen_backup
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest, StoredBackup

_WRITE_BEHIND_BYTES = 16 << 20
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class DirectoryTarget(OwnedFolder):
    """Backups in a folder that exists already: creating it would hide that a file system is not mounted."""

    def __init__(self, name: str, path: Path, *, machine: str, sentinel: str | None = None) -> None:
        self._name = name
        self._path = path
        self._sentinel = sentinel
        self._root = RootFolder(name, path, sentinel)
        super().__init__(machine_part(machine), DirectoryRecords(self._root, machine))

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._name

    @property
    def folder(self) -> Path:
        """The folder itself."""
        return self._path

    def of_machine(self, machine: str) -> "DirectoryTarget":
        """The same folder, as another machine's target."""
        return DirectoryTarget(self._name, self._path, machine=machine, sentinel=self._sentinel)

    def machines(self) -> Sequence[str]:
        """Those that have a folder there."""
        with self._root.present("list"):
            return [name for name in _folders(self._path) if is_machines(name)]

    def location(self, job: str, backup_id: str) -> str:
        """The backup's folder."""
        return str(self._path.joinpath(*self._parts(job, backup_id)))

    def require_usable(self) -> int:
        """Prove that the folder is there and that a file in it can be written, synced and removed; its free bytes.

        What a process left there that was killed within is removed.

        Raises:
            TargetError: it is not there, full or read-only.
        """
        probe = self._path / new_trial(self._machine)
        with self._root.present("use"):
            file = FileIO(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w")
            try:
                with file:
                    file.write(bytes(4096))
                    os.fsync(file.fileno())
                    now = os.fstat(file.fileno()).st_mtime
            finally:
                self._root.remove_trial(probe)
            self._root.remove_trials(self._machine, now)
            room = os.statvfs(self._path)
        return room.f_bavail * room.f_frsize

    @contextmanager
    def writing(
        self,
        job: str,
        backup_id: str,
        name: str,
        *,
        at_most: int | None = None,  # noqa: ARG002 - a file grows as it must
        ledger: UploadLedger | None = None,  # noqa: ARG002 - an unfinished file is in the backup's folder
        unwanted: Event | None = None,  # noqa: ARG002 - the kernel waits, and hears of nothing
    ) -> Iterator["_Writer"]:
        """Write one object; see the contract."""
        where, is_segment = self.location(job, backup_id), backup_id == BINLOG
        with ExitStack() as opened, ExitStack() as owed:
            with self._root.present(f"write {name} to"):
                _, jobs, folder = opened.enter_context(self._root.made(*self._parts(job, backup_id)))
                final, unfinished = folder / object_part(backup_id, name), folder / partial(name)
                if is_segment:
                    unfinished = jobs / partial_segment(name, secrets.token_hex(8))
                if not (is_segment or is_proof(name)) and os.path.lexists(folder / MANIFEST):
                    raise already_finished(where)
                if name == MANIFEST:
                    remove_quietly(unfinished)  # a dead process's
                file = FileIO(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w")
            owed.callback(remove_quietly, unfinished)
            owed.callback(_close_quietly, file)
            yield _Writer(self._root, file, name)
            with self._root.explained(f"write {name} to"):
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                itself = os.fstat(file.fileno())
                file.close()
                owed.callback(_remove_itself, final, itself)  # a name that may not outlive a power cut is none
                if is_segment:
                    _name_segment(unfinished, final, where)
                else:
                    unfinished.rename(final)
                sync_folder(folder)
            owed.pop_all()

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The object's bytes as the storage has them; see the contract and `past_cache`."""
        folders = self._parts(job, backup_id)
        with self._root.past_cache(folders, part(name), offset=offset, size=size) as chunks:
            yield chunks

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract."""
        with self.writing(manifest.job, manifest.run_id, MANIFEST) as writer:
            writer.write(manifests.to_text(manifest).encode())

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back; see the contract."""
        with self._root.present("read"):
            there = self._names_of(job, backup_id, MANIFEST)
            if there is None:
                raise TargetError(
                    f"no backup {backup_id} of job {job} on target {self._name} ({self._path})",
                    hint="see `backupd history`; is the target's file system mounted?",
                )
            if not there:
                raise unfinished_backup(backup_id, self._name)
        with self._root.past_cache(self._parts(job, backup_id), MANIFEST) as chunks:
            return manifests.from_chunks(chunks)

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there under a final name, and its bytes; see the contract."""
        return self._listed(job, backup_id)

    def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
        """What lies in their folder; see the contract."""
        return self._listed(job, BINLOG, after=after)

    def archived_jobs(self) -> Sequence[str]:
        """Those that have the folder; see the contract."""
        with self._root.present("list"):
            return [job for job in self._jobs() if self._names_of(job, BINLOG) is not None]

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there; see the contract. The clock is that of the machine that writes, of NFS the server's."""
        with self._root.present("list"):
            jobs = self._jobs() if job is None else [job_part(job)]
            return [backup for each in jobs if is_jobs(each) for backup in self._backups_of(each)]

    def remove_segments(self, job: str, names: Sequence[str]) -> None:
        """Remove them, and what dead writers left; see the contract."""
        wanted, folders = [segment_part(name) for name in names], self._parts(job, BINLOG)
        with self._root.present("remove from"), suppress(*_NOT_THERE):
            if wanted:
                with self._root.within(*folders) as (machine, jobs, folder):
                    remove_segments(folder, wanted, beside=jobs)
                    _remove_if_empty(jobs / BINLOG)
                    _remove_if_empty(machine / job)

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """Write a small object beside a finished backup; see the contract."""
        with self._root.present(f"write {name} to"):
            if not is_proof(name) or self._names_of(job, backup_id, MANIFEST, name) != [MANIFEST]:
                raise not_attachable(name, self.location(job, backup_id))
        with self.writing(job, backup_id, name) as writer:
            writer.write(content)

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, its manifest first; see the contract."""
        folders = self._parts(job, backup_part(backup_id))
        with self._root.present("remove from"):
            with suppress(*_NOT_THERE), self._root.within(*folders) as (_, jobs, folder):
                (folder / MANIFEST).unlink(missing_ok=True)
                sync_folder(folder)
                _remove_ours(folder)
                _remove_if_empty(jobs / backup_id)
            with suppress(*_NOT_THERE), self._root.within(self._machine) as (machine,):
                _remove_if_empty(machine / job)

    def _jobs(self) -> list[str]:
        with suppress(*_NOT_THERE), self._root.within(self._machine) as (machine,):
            return [name for name in _folders(machine) if is_jobs(name)]
        return []

    def _backups_of(self, job: str) -> list[StoredBackup]:
        with suppress(*_NOT_THERE), self._root.within(self._machine, job) as (_, folder):
            names = filter(is_backups, _folders(folder))
            found = [self._found(job, folder / name) for name in names]
            return [backup for backup in found if backup is not None]
        return []

    def _found(self, job: str, folder: Path) -> StoredBackup | None:
        """None where it was removed meanwhile. Where one cannot be looked into it is named: a person must find it."""
        where = self.location(job, folder.name)
        with self._root.explained(f"look into {where} on"):
            return _found(job, folder, where=where)

    def _names_of(self, job: str, backup_id: str, *names: str) -> list[str] | None:
        """Those of these names that are in its folder; None where that is not there."""
        with suppress(*_NOT_THERE), self._root.within(*self._parts(job, backup_id)) as (*_, folder):
            return [name for name in names if os.path.lexists(folder / name)]
        return None

    def _listed(self, job: str, backup_id: str, *, after: str = "") -> Mapping[str, int]:
        within = self._root.within(*self._parts(job, backup_id))
        with self._root.present("list"), suppress(*_NOT_THERE), within as (*_, folder), os.scandir(folder) as entries:
            found = (
                _size(entry)
                for entry in entries
                if entry.name > after and entry.name != MANIFEST and not is_partial(entry.name)
            )
            return dict(one for one in found if one is not None)
        return {}

    def _parts(self, job: str, backup_id: str) -> tuple[str, str, str]:
        """The names of the folders that lead to it."""
        return self._machine, job_part(job), part(backup_id)


class _Writer:
    """An object that is being written under a temporary name."""

    def __init__(self, root: RootFolder, file: FileIO, name: str) -> None:
        self._root = root
        self._file = file
        self._name = name
        self._written = self._behind = 0

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        with self._root.explained(f"write {self._name} to"):
            while view:
                done = self._file.write(view)
                view = view[done:]
                self._written += done
            if self._written - self._behind >= _WRITE_BEHIND_BYTES:
                self._write_behind()

    def _write_behind(self) -> None:
        """Have the kernel write what is dirty, and forget what it has written, without waiting (mm/fadvise.c).

        Otherwise a copy fills the page cache with dirty pages until the database's own writes are throttled for it.
        """
        start = max(0, self._behind - _WRITE_BEHIND_BYTES)
        os.posix_fadvise(self._file.fileno(), start, self._written - start, os.POSIX_FADV_DONTNEED)
        self._behind = self._written


def _name_segment(unfinished: Path, final: Path, where: str) -> None:
    """It has its name. Of one that has it already, the name is durable: its writer may have died before that."""
    try:
        name_segment(unfinished, final)
    except FileExistsError as error:
        sync_folder(final.parent)
        raise already_there(final.name, where) from error


def _folders(path: Path) -> list[str]:
    """The names of those in it that can be a job's or a backup's; none where it has vanished meanwhile."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return [
            entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
    return []


def _found(job: str, folder: Path, *, where: str) -> StoredBackup | None:
    """None where it was removed meanwhile. What is in it may be renamed and removed while it is looked at."""
    written = {}
    try:
        itself = folder.lstat().st_mtime
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    written[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return None
    return seen_backup(job, folder.name, written, itself, where=where)


def _size(entry: "os.DirEntry[str]") -> tuple[str, int] | None:
    """What is told of an entry; None where it was removed meanwhile. A link is as long as itself."""
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name}/", 0
    with suppress(OSError):
        return entry.name, entry.stat(follow_symlinks=False).st_size
    return None


def _remove_ours(folder: Path) -> None:
    """Nothing that backupd has written is in the folder any more."""
    with os.scandir(folder) as entries:
        ours = [Path(entry) for entry in entries if is_ours(entry.name) and not entry.is_dir(follow_symlinks=False)]
    for path in ours:
        path.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    """Durably; another run may put something into it at any time."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
    else:
        with suppress(FileNotFoundError):  # it was the last thing in there, and who removed that came before us
            sync_folder(folder.parent)


def _close_quietly(file: FileIO) -> None:
    """On the way out of a failure, which is told already; a failure of the good end's own close is not muted."""
    with suppress(OSError):
        file.close()


def _remove_itself(path: Path, itself: os.stat_result) -> None:
    """The same, of this very file: another one of the name is somebody else's."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), itself):
            path.unlink()
