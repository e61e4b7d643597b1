"""A folder as a target: a local disk, or NFS.

Knows: PATH/MACHINE/JOB/RUN_ID/ with the objects and `manifest.json`; temporary names, fsync of files and folders,
reading past the page cache, what the errors of a full, read-only or vanished file system mean. Refuses to know what is
stored.

NFS tells of a full disk or an exceeded quota as late as at fsync or close: both count as writing.
"""

import errno
import mmap
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from threading import Event

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
    is_partial,
    is_proof,
    job_part,
    machine_part,
    not_attachable,
    part,
    partial,
    partial_record,
)
from backupd.vocabulary.errors import NoRoom, TargetError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest, StoredBackup

_READ_BYTES = 1 << 20
_WRITE_BEHIND_BYTES = 16 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class DirectoryTarget:
    """Backups in a folder that exists already: creating it would hide that a file system is not mounted."""

    def __init__(self, name: str, path: Path, *, machine: str, sentinel: str | None = None) -> None:
        self._name = name
        self._path = path
        self._machine = machine_part(machine)
        self._sentinel = sentinel  # a file that is in the folder when its file system is mounted

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._name

    @property
    def machine(self) -> str:
        """Whose backups these are."""
        return self._machine

    @property
    def folder(self) -> Path:
        """The folder itself."""
        return self._path

    def of_machine(self, machine: str) -> "DirectoryTarget":
        """The same folder, as another machine's target."""
        return DirectoryTarget(self._name, self._path, machine=machine, sentinel=self._sentinel)

    def machines(self) -> Sequence[str]:
        """Those that have a folder there."""
        with self._present("list"):
            return [path.name for path in _folders(self._path) if is_machines(path.name)]

    def location(self, job: str, backup_id: str) -> str:
        """The backup's folder."""
        return str(self._folder(job, backup_id))

    def require_usable(self) -> int:
        """Prove that the folder is there and that a file in it can be written, synced and removed; its free bytes.

        Raises:
            TargetError: it is not there, full or read-only.
        """
        probe = self._path / f".backupd-writable-{secrets.token_hex(4)}"
        with self._present("use"):
            try:
                with FileIO(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
                    file.write(bytes(4096))
                    os.fsync(file.fileno())
            finally:
                probe.unlink(missing_ok=True)
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
        folder = self._folder(job, backup_id)
        final, unfinished = folder / part(name), folder / partial(name)
        with self._present(f"write {name} to"):
            self._make_folders(folder)
            if (folder / MANIFEST).exists() and not is_proof(name):
                raise TargetError(
                    f"{folder} already has a finished backup", hint=("a run never writes to another run's folder")
                )
            file = FileIO(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w")
        with ExitStack() as owed:
            owed.callback(_remove_quietly, unfinished)
            owed.callback(_close_quietly, file)
            yield _Writer(self, file, name)
            with self._explained(f"write {name} to"):
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                itself = os.fstat(file.fileno())
                file.close()
                owed.callback(_remove_itself, final, itself)  # a name that may not outlive a power cut is none
                unfinished.rename(final)
                _sync_folder(folder)
            owed.pop_all()

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The object's bytes as the storage has them; see the contract.

        They are read with O_DIRECT, which asks the storage whatever is cached. Where the file system has none (tmpfs,
        some FUSE), cached pages are dropped first, which is as much as can be asked there.
        """
        with self._past_cache(self._folder(job, backup_id) / part(name), offset=offset, size=size) as chunks:
            yield chunks

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract."""
        _remove_quietly(self._folder(manifest.job, manifest.run_id) / partial(MANIFEST))  # a dead process's
        with self.writing(manifest.job, manifest.run_id, MANIFEST) as writer:
            writer.write(manifests.to_text(manifest).encode())

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back; see the contract."""
        folder = self._folder(job, backup_id)
        with self._present("read"):
            if not folder.is_dir():
                raise TargetError(
                    f"no backup {backup_id} of job {job} on target {self._name} ({self._path})",
                    hint="see `backupd history`; is the target's file system mounted?",
                )
            if not (folder / MANIFEST).exists():
                raise TargetError(
                    f"the backup {backup_id} on target {self._name} is unfinished: it has no manifest",
                    hint="it cannot be restored; choose another backup from `backupd history`",
                )
        with self._past_cache(folder / MANIFEST) as chunks:
            return manifests.from_chunks(chunks)

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there under a final name, and its bytes; see the contract."""
        folder = self._folder(job, backup_id)
        with self._explained("list"):
            if not folder.is_dir():
                return {}
            with os.scandir(folder) as entries:
                found = [_size(entry) for entry in entries if entry.name != MANIFEST and not is_partial(entry.name)]
        return dict(one for one in found if one is not None)

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there; see the contract. The clock is that of the machine that writes, of NFS the server's."""
        with self._present("list"):
            wanted = None if job is None else job_part(job)
            jobs = [path for path in _folders(self._path / self._machine) if wanted in (None, path.name)]
            runs = [folder for path in jobs if is_jobs(path.name) for folder in _folders(path)]
            found = [_found(folder) for folder in runs if is_backups(folder.name)]
            return [backup for backup in found if backup is not None]

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """Write a small object beside a finished backup; see the contract."""
        folder = self._folder(job, backup_id)
        with self._present(f"write {name} to"):
            if not is_proof(name) or not (folder / MANIFEST).exists() or (folder / name).exists():
                raise not_attachable(name, str(folder))
        with self.writing(job, backup_id, name) as writer:
            writer.write(content)

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Remove a backup, its manifest first; see the contract."""
        folder = self._folder(job, backup_id)
        with self._present("remove from"):
            if folder.exists():
                (folder / MANIFEST).unlink(missing_ok=True)
                _sync_folder(folder)
                _remove_ours(folder)
                _remove_if_empty(folder)
            if folder.parent.is_dir():
                _remove_if_empty(folder.parent)

    def owner(self) -> OwnerRecord | None:
        """Who wrote last; see the contract."""
        return chain.owner(_Records(self), self._machine)

    def last_owner_number(self) -> int:
        """The number of the last owner record; see the contract."""
        return chain.last(_Records(self))

    def succeed(self, record: OwnerRecord) -> bool:
        """Write an owner record; see the contract."""
        return chain.succeed(_Records(self), record)

    def _folder(self, job: str, backup_id: str) -> Path:
        return self._path / self._machine / job_part(job) / part(backup_id)

    def _make_folders(self, folder: Path) -> None:
        """All levels below the target's own folder, each durable in the one above."""
        levels = [*reversed(folder.parents), folder]
        for new in levels[levels.index(self._path) + 1 :]:
            if not new.is_dir():
                new.mkdir(mode=0o700, exist_ok=True)
                _sync_folder(new.parent)

    @contextmanager
    def _past_cache(self, path: Path, *, offset: int = 0, size: int | None = None) -> Iterator[Iterator[bytes]]:
        with self._present(f"read {path.name} from"):
            file, direct = _open_past_cache(path)
        with ExitStack() as owed:
            owed.callback(os.close, file)
            yield self._chunks(file, path.name, direct=direct, offset=offset, size=size)

    def _chunks(self, file: int, name: str, *, direct: bool, offset: int, size: int | None) -> Iterator[bytes]:
        """The bytes that were asked for. O_DIRECT wants memory and offsets aligned, hence whole pages and blocks."""
        with self._explained(f"read {name} from"), mmap.mmap(-1, _READ_BYTES) as buffer:
            whole = os.fstat(file).st_size
            end = whole if size is None else offset + size
            at = offset - offset % mmap.PAGESIZE
            while at < end:
                got = os.preadv(file, [buffer], at)
                if direct and at + got < whole:
                    got -= got % mmap.PAGESIZE  # a short read; the next one must begin at a whole page again
                if not got:
                    raise OSError(errno.EIO, f"it ended at byte {at} of {end}")
                yield buffer[max(0, offset - at) : min(got, end - at)]
                at += got

    @contextmanager
    def _present(self, doing: str) -> Iterator[None]:
        """An operation on a folder that shows itself to be the right one."""
        with self._explained(doing):
            self._path.stat()
            if self._sentinel is not None and not (self._path / self._sentinel).exists():
                raise TargetError(
                    f"the file system of {self._path} is not mounted: there is no {self._sentinel} in it",
                    hint=f"mount it; on a new one, once: touch {self._path / self._sentinel}",
                )
            yield

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """An operating system's error becomes a sentence with a hint."""
        try:
            yield
        except OSError as error:
            where = f"target {self._name} ({self._path})"
            if error.errno in _NO_ROOM:
                quota = " (quota)" if error.errno == errno.EDQUOT else ""
                raise NoRoom(
                    f"no space left on {where}{quota}", hint="free space there, or let retention keep fewer backups"
                ) from error
            if error.errno == errno.EROFS:
                message, hint = (
                    f"{where} is mounted read-only",
                    ("check the kernel log for the reason (dmesg), then mount it writable"),
                )
            elif not self._path.is_dir():
                message = f"{where} does not exist" if not self._path.exists() else f"{where} is not a folder"
                hint = "mount its file system, or create the folder if no file system belongs there"
            else:
                message, hint = f"could not {doing} {where}: {error.strerror or error}", _hint(error)
            raise TargetError(message, hint=hint) from error


class _Writer:
    """An object that is being written under a temporary name."""

    def __init__(self, target: DirectoryTarget, file: FileIO, name: str) -> None:
        self._target = target
        self._file = file
        self._name = name
        self._written = self._behind = 0

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        with self._target._explained(f"write {self._name} to"):
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


class _Records:
    """The machine's owner records: files that get their names by a hard link, which never replaces (link(2))."""

    def __init__(self, target: DirectoryTarget) -> None:
        self._target = target
        self._folder = target._path / target._machine / OWNER

    @property
    def where(self) -> str:
        return str(self._folder)

    def names(self) -> Collection[str]:
        with self._target._present("list the owner records of"):
            return [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else ()

    def content(self, name: str) -> bytes | None:
        with self._target._present("read an owner record from"), suppress(FileNotFoundError):
            file = _open_regular(self._folder / name)
            with FileIO(file) as record:
                return record.read(chain.MOST_BYTES + 1)
        return None

    def create(self, name: str, content: bytes) -> None:
        unfinished = self._folder / partial_record(name, secrets.token_hex(8))
        with self._target._present("write an owner record to"):
            self._target._make_folders(self._folder)
            try:
                with FileIO(
                    os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w"
                ) as file:
                    file.write(content)
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    _name_once(unfinished, self._folder / name)
            finally:
                unfinished.unlink(missing_ok=True)
            _sync_folder(self._folder)

    def remove(self, name: str) -> None:
        with self._target._present("remove an owner record from"):
            (self._folder / name).unlink(missing_ok=True)
            _sync_folder(self._folder)


def _name_once(unfinished: Path, final: Path) -> None:
    """The file has its name as well; FileExistsError where another one has it.

    Where the file system knows no hard links (exFAT, SMB), the name itself is created: a crash before its content is
    written leaves an empty record, which says so when it is read.
    """
    try:
        final.hardlink_to(unfinished)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with ExitStack() as owed, final.open("xb") as file:
            owed.callback(_remove_quietly, final)
            file.write(unfinished.read_bytes())
            file.flush()
            os.fsync(file.fileno())
            owed.pop_all()


def _open_past_cache(path: Path) -> tuple[int, bool]:
    """A descriptor, and whether its reads go to the storage itself."""
    try:
        file = _open_regular(path, os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    else:
        return file, True
    file = _open_regular(path)
    os.fsync(file)  # dirty pages cannot be dropped
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return file, False


def _open_regular(path: Path, flags: int = 0) -> int:
    """A descriptor of a file. Whoever owns the storage may have put a pipe there, which would wait for its writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENOTSUP, f"{path.name} is not a regular file", str(path))
    return descriptor


def _folders(path: Path) -> list[Path]:
    """Those in it that can be a job's or a backup's; none where it has vanished meanwhile."""
    found = []
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        found = [Path(entry) for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    return found


def _found(folder: Path) -> StoredBackup | None:
    """None where it was removed meanwhile. What is in it may be renamed and removed while it is looked at."""
    written = {}
    try:
        itself = folder.stat().st_mtime
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    written[entry.name] = entry.stat().st_mtime
    except FileNotFoundError:
        return None
    newest = written.get(MANIFEST, max(written.values(), default=itself))
    return StoredBackup(folder.parent.name, folder.name, MANIFEST in written, datetime.fromtimestamp(newest, UTC))


def _size(entry: "os.DirEntry[str]") -> tuple[str, int] | None:
    """What is told of an entry; None where it was removed meanwhile. A link that leads nowhere is as long as itself."""
    if entry.is_dir():
        return f"{entry.name}/", 0
    for follow in (True, False):
        with suppress(OSError):
            return entry.name, entry.stat(follow_symlinks=follow).st_size
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
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _close_quietly(file: FileIO) -> None:
    """On the way out of a failure, which is told already; a failure of the good end's own close is not muted."""
    with suppress(OSError):
        file.close()


def _remove_quietly(path: Path) -> None:
    """On the way out of a failure, which is told already; `remove` tries again and tells."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _remove_itself(path: Path, itself: os.stat_result) -> None:
    """The same, of this very file: another one of the name is somebody else's."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), itself):
            path.unlink()


def _hint(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "backupd must own the folder or be root; NFS servers squash root by default"
    return "check the kernel log on this host and, for NFS, on the server"
