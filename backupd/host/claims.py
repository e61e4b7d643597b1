"""Who may act now: lock files that a process holds for its life, so that the kernel forgets them when it dies.

Knows: one run per job, one per volume group, one bench per disk, one process per run id, or several that each do
another thing with a run that has ended; one archive of a job's binlog, one daemon, one `prove`; many readers of a
backup, or one that removes it.
A lock file's text says who holds it; the lock itself is flock(2), which is never inherited by children here because
Python's descriptors close on exec. Whoever may read a file may lock it: nobody else can open these.
"""

import fcntl
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from backupd.host.own_files import is_our_process, is_there, run_folder
from backupd.vocabulary.errors import Busy, ConfigurationError

log = logging.getLogger(__name__)

_AWAITED_SECONDS = 60.0  # a store that answers late; its own time-outs end that
_LOCKS = Path("/proc/locks")
_LOOKS = 5  # at it, until nobody is believed to hold a lock
_LASTING = ("job-", "vg-", "disk-", "binlog-", "backup-", "owner-", "segments-", "the-")  # files that stay, held or not
_UNSIGNED_LOOKS, _UNSIGNED_SECONDS = 100, 0.01  # at a lock whose holder has not said yet who it is


class Claims:
    """The lock files below one folder (`paths.run`)."""

    def __init__(self, folder: Path) -> None:
        self._run = folder
        self._folder = folder / "lock"

    @contextmanager
    def job(self, job: str, run_id: str) -> Iterator[None]:
        """No other run of this job while the block lasts.

        Raises:
            Busy: there is one; the message names it.
        """
        with self._held(f"job-{job}", f"run {run_id} of job {job}"):
            yield

    @contextmanager
    def pruning(self, job: str) -> Iterator[None]:
        """No run of this job, and no other pruning of it, while the block lasts.

        Raises:
            Busy: there is one; the message names it.
        """
        with self._held(f"job-{job}", f"`backupd prune` of job {job}"):
            yield

    @contextmanager
    def volume_group(self, vg: str, run_id: str) -> Iterator[None]:
        """No other run of ours in this volume group while the block lasts.

        Raises:
            Busy: there is one; the message names it.
        """
        with self._held(f"vg-{vg}", f"run {run_id}"):
            yield

    @contextmanager
    def volume(self, vg: str, lv: str, run_id: str) -> Iterator[None]:
        """Nobody else of ours writes to this logical volume while the block lasts.

        Raises:
            Busy: somebody does; the message names the run.
        """
        hint = "restore into another volume, or wait for it"
        with self._held(f"volume-{vg}:{lv}", f"the restore of run {run_id} into {vg}/{lv}", remove=True, hint=hint):
            yield

    @contextmanager
    def disks(self, disks: Iterable[str], run_id: str) -> Iterator[None]:
        """No other bench of ours on any of these whole disks while the block lasts.

        Raises:
            Busy: there is one; the message names it.
        """
        with ExitStack() as claimed:
            for disk in sorted({str(Path(disk).resolve()) for disk in disks}):  # by whatever paths they were named
                name = disk.strip("/").replace("/", "-")
                claimed.enter_context(self._held(f"disk-{name}", f"run {run_id}"))
            yield

    @contextmanager
    def run(self, run_id: str) -> Iterator[None]:
        """This process is the one that acts for this run.

        Raises:
            Busy: the run is alive.
        """
        with self._held(f"run-{run_id}", f"run {run_id}", remove=True):
            yield

    @contextmanager
    def beside(self, run_id: str, doing: str) -> Iterator[None]:
        """This process does this with a run that has ended, and nobody recovers what it holds meanwhile; others may do
        something else with it.

        Raises:
            Busy: the run is alive, or is being recovered, or another process does the same with it.
        """
        owner, hint = f"{doing} of run {run_id}", "wait for it, or end that process"
        with (
            self._held(f"{doing}-{run_id}", owner, remove=True, hint=hint),
            self._held(f"run-{run_id}", owner, remove=True, shared=True, hint=hint),
        ):
            yield

    def forget_dead(self) -> None:
        """Lock files that go with their holder are gone where that was killed; one that stays holds nobody up."""
        for path in self._folder.glob("*.lock"):
            if not path.name.startswith(_LASTING):
                with suppress(OSError):  # somebody holds it, or has just removed it
                    _remove_unheld(path)

    @contextmanager
    def reading(self, run_id: str) -> Iterator[None]:
        """Nothing is removed of this run's backups while the block lasts; others may read them too.

        Raises:
            Busy: they are being removed.
        """
        with self._held(f"backup-{run_id}", f"a reader of backup {run_id}", shared=True):
            yield

    @contextmanager
    def removing(self, run_id: str) -> Iterator[None]:
        """Nobody on this host reads this run's backups while the block lasts.

        Raises:
            Busy: somebody does; the message names one.
        """
        with self._held(f"backup-{run_id}", f"`backupd prune` of backup {run_id}", remove=True):
            yield

    @contextmanager
    def archiving(self, job: str) -> Iterator[None]:
        """No other process archives this job's binlog while the block lasts.

        Raises:
            Busy: one does.
        """
        hint = "only one receiver per job is needed; the running one continues"
        with self._held(f"binlog-{job}", f"the archive of the binlog of job {job}", hint=hint):
            yield

    def is_archiving(self, job: str) -> bool:
        """Whether a process archives this job's binlog. Nothing is claimed by asking."""
        return self._signed_by_holder(f"binlog-{job}") is not None

    def archivers(self) -> dict[str, int]:
        """The jobs whose binlog is archived now, each with its process. Nothing is claimed by asking."""
        jobs = [path.stem.removeprefix("binlog-") for path in self._folder.glob("binlog-*.lock")]
        found = {job: self._signed_by_holder(f"binlog-{job}") for job in sorted(jobs)}
        return {job: holder[1] for job, holder in found.items() if holder is not None}

    @contextmanager
    def proving(self) -> Iterator[None]:
        """No other `backupd prove` on this host while the block lasts.

        Raises:
            Busy: there is one.
        """
        hint = "it drills what needs it most; start `backupd prove` again once it has ended"
        with self._held("the-proving", "another `backupd prove`", hint=hint):
            yield

    @contextmanager
    def owning(self, target: str) -> Iterator[None]:
        """No other process of this machine continues with its owner chain on this target while the block lasts.

        That takes moments, so whoever has it is waited for.

        Raises:
            Busy: somebody has it for longer; the message names it.
        """
        with self._awaited(f"owner-{target}", f"the owner record on target {target}"):
            yield

    @contextmanager
    def segments(self, job: str) -> Iterator[None]:
        """Nobody else removes segments of this job's binlog archive, or looks which are lost, while the block lasts.

        Whoever does is waited for.

        Raises:
            Busy: somebody does for longer; the message names it.
        """
        with self._awaited(f"segments-{job}", f"who removes segments of job {job}, or looks which are lost"):
            yield

    @contextmanager
    def _awaited(self, name: str, owner: str) -> Iterator[None]:
        """As `_held`, of what is only held for moments.

        Raises:
            Busy: somebody has it for longer; the message names it.
        """
        deadline = time.monotonic() + _AWAITED_SECONDS
        with ExitStack() as claimed:
            while True:
                try:
                    claimed.enter_context(self._held(name, owner))
                    break
                except Busy:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
            yield

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """No other `backupd serve` runs these scheduled jobs while the block lasts.

        Raises:
            Busy: there is one; the message names it.
        """
        with self._held("the-daemon", "another `backupd serve`", hint="one is enough: systemctl status backupd"):
            yield

    def daemon_pid(self) -> int | None:
        """The process that runs this machine's scheduled jobs; None where none does. Nothing is claimed by asking."""
        found = self._signed_by_holder("the-daemon")
        return None if found is None else found[1]

    def holder_of_job(self, job: str) -> str | None:
        """Who holds the job now, in words; None where nobody does. Nothing is claimed by asking."""
        return self._holder(f"job-{job}")

    def run_of_job(self, job: str) -> str | None:
        """The run that holds the job now; None where none does. Nothing is claimed by asking."""
        found = re.match(r"run (\S+) of job ", self.holder_of_job(job) or "")
        return None if found is None else found[1]

    def holder_of_volume_group(self, vg: str) -> str | None:
        """Who holds the volume group now, in words; None where nobody does. Nothing is claimed by asking."""
        return self._holder(f"vg-{vg}")

    def holder_of_run(self, run_id: str) -> str | None:
        """Who acts for this run now, in words; None where nobody does. Nothing is claimed by asking."""
        return self._holder(f"run-{run_id}")

    def _holder(self, name: str) -> str | None:
        """In words."""
        found = self._signed_by_holder(name)
        return None if found is None else found[0]

    def _signed_by_holder(self, name: str) -> tuple[str, int] | None:
        """What the holder has written, and its pid.

        By /proc/locks (proc(5)), for trying the lock would refuse whoever comes at that moment.

        The device is not compared: btrfs and overlayfs tell another one there than stat(2) does (Linux 6.1). The pid
        in the file tells a lock of the same inode number on another file system apart; that its process is ours tells
        one apart whose pid has come round to somebody else.

        The kernel hands the list out in pieces of a page, and passes over a lock where one before it goes in between:
        of 150 locks beside a process that took and released 20 others, one look in 180 missed one (Linux 6.18).

        Raises:
            ConfigurationError: we may not read who holds it.
        """
        path = self._folder / f"{name}.lock"
        try:
            status, owners = path.lstat(), path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"lock file {path} cannot be read: {(error.strerror or str(error)).lower()}", hint="run it as root"
            ) from error
        for owner in reversed(owners):
            signed = re.search(r"\(process (\d+)\)$", owner)
            if signed is None or not is_our_process(int(signed[1])):
                continue
            if any(_is_listed(status.st_ino, signed[1]) for _ in range(_LOOKS)):
                return owner, int(signed[1])
        return None

    @contextmanager
    def _held(
        self,
        name: str,
        owner: str,
        *,
        remove: bool = False,
        shared: bool = False,
        hint: str = "wait for it; or find it with `backupd history` and stop it with `backupd cancel RUN`",
    ) -> Iterator[None]:
        path = self._folder / f"{name}.lock"
        descriptor = self._locked(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, hint)
        try:
            _sign(path, descriptor, owner, among_others=shared and remove)
            yield
        finally:
            try:
                if remove and (not shared or _is_alone(descriptor)):
                    path.unlink(missing_ok=True)
            except OSError as error:  # it holds nobody up: the next one opens the same file
                log.warning("the lock file %s could not be removed: %s", path, error)
            finally:
                os.close(descriptor)

    def _locked(self, path: Path, how: int, hint: str) -> int:
        """A lock on the file that others find there: the one that was opened is gone where its holder has just ended.

        Raises:
            Busy: somebody else has it.
        """
        looks_left = _UNSIGNED_LOOKS
        while True:
            descriptor = self._open(path)
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError as error:
                signed = os.pread(descriptor, 1 << 16, 0).decode("utf-8", "replace").split("\n")
                holder = next((owner for owner in reversed(signed) if owner), "another process")
                os.close(descriptor)
                if not any(signed) and looks_left > 0:  # it has it for a moment only, or signs it in one
                    looks_left -= 1
                    time.sleep(_UNSIGNED_SECONDS)
                    continue
                raise Busy(f"{path.stem.replace('-', ' ', 1)} is held by {holder}", hint=hint) from error
            if is_there(path, descriptor):
                return descriptor
            os.close(descriptor)

    def _open(self, path: Path) -> int:
        try:
            run_folder(self._run, self._folder.name)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.fchmod(descriptor, 0o600)  # an older version's
        except OSError as error:
            raise ConfigurationError(
                f"lock file {path} cannot be opened: {error.strerror}", hint="run as root, or set paths.run"
            ) from error
        return descriptor


def _remove_unheld(path: Path) -> None:
    """Remove a lock file that nobody holds, as whoever holds it does at the end."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_there(path, descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _is_listed(inode: int, pid: str) -> bool:
    """Whether the kernel's list of locks, read once, has one of this process on a file of this number."""
    for fields in map(str.split, _LOCKS.read_text().splitlines()):
        if fields[1] == "FLOCK" and fields[-3].endswith(f":{inode}") and fields[-4] == pid:
            return True
    return False


def _is_alone(descriptor: int) -> bool:
    """Whether nobody shares this lock; then nobody else can have it any more."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(path: Path, descriptor: int, owner: str, *, among_others: bool) -> None:
    """Who holds it is written in the file, for whoever finds it held; `among_others` behind those who share it."""
    try:
        if among_others:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
        else:
            os.ftruncate(descriptor, 0)
        os.write(descriptor, os.fsencode(f"{owner} (process {os.getpid()})\n"))
    except OSError as error:
        raise ConfigurationError(
            f"lock file {path} cannot be written: {error.strerror}", hint="free space there, or set paths.run"
        ) from error
