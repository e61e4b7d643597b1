"""Whether this machine has what a lab needs: programs, memory, room; and where a lab's temporary files go.

Knows: packages, free space, mount flags. Decides with values (`choose`), asks the machine at the edge (`places`).
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.host.process import found
from backupd.lab.options import DiskModel, Filesystem, Init, Kernel, LabOptions, ServerKind
from backupd.lab.sizes import MIB, Needs
from backupd.report import words
from backupd.vocabulary.errors import LabError

_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - asked for its room and flags before it is used

# Debian's names; a program that every Debian has is not here.
_PACKAGES = {
    "linux.uml": "user-mode-linux",
    "modprobe": "kmod",
    "ip": "iproute2",
    "lvcreate": "lvm2",
    "dmsetup": "dmsetup",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
    "sysbench": "sysbench",
    "nbdkit": "nbdkit",
    "nbd-client": "nbd-client",
    "mkfs.xfs": "xfsprogs",
    "mkfs.ext4": "e2fsprogs",
    "setpriv": "util-linux",
    "mmdebstrap": "mmdebstrap",
    "patchelf": "patchelf",
    "systemctl": "systemd",
    "udevadm": "udev",
    "dbus-daemon": "dbus",
}


@dataclass(frozen=True, slots=True)
class LabFolder:
    """A folder that could hold a lab's temporary files."""

    folder: Path
    free: int  # bytes
    in_memory: bool
    executable: bool  # files in it may be mapped executable, as the machine's memory must be


@dataclass(frozen=True, slots=True)
class FolderChoice:
    """Where the machine's memory file and its disks go."""

    memory: LabFolder
    disks: LabFolder

    def sentence(self, needs: Needs) -> str:
        """What is about to be taken, for a person."""
        return (
            f"needs {words.size(needs.memory)} of memory in {self.memory.folder} "
            f"and up to {words.size(needs.disks)} of disks in {self.disks.folder}"
        )


def missing_packages(options: LabOptions, is_found: Callable[[str], bool] = found) -> tuple[str, ...]:
    """The Debian packages that these options need and this machine lacks, sorted."""
    unneeded: set[str] = set()
    if options.disks is not DiskModel.HDD or options.kernel is Kernel.HOST:
        unneeded |= {"nbdkit", "nbd-client"} if options.disks is not DiskModel.HDD else set()
    if options.filesystem is not Filesystem.XFS:
        unneeded.add("mkfs.xfs")
    fetched_kernel = options.kernel is Kernel.UML
    if options.kernel is not Kernel.UML_INSTALLED:
        unneeded.add("linux.uml")
    if options.kernel is Kernel.HOST:
        unneeded.add("ip")
    if not fetched_kernel:
        unneeded.add("patchelf")
    if options.init is not Init.SYSTEMD:
        unneeded |= {"systemctl", "udevadm", "dbus-daemon"}
    own_server = options.server is ServerKind.MARIADB_10
    if own_server and not fetched_kernel:
        unneeded.add("mmdebstrap")
    if not own_server:
        unneeded |= {"mariadbd", "mariadb-install-db"}
    return tuple(sorted({_PACKAGES[name] for name in _PACKAGES if name not in unneeded and not is_found(name)}))


def require_packages(options: LabOptions) -> None:
    """Every program that the lab starts is here.

    Raises:
        LabError: names all packages that are missing, in one sentence.
    """
    missing = missing_packages(options)
    if missing:
        names = " ".join(missing)
        raise LabError(f"the lab needs Debian packages that are not here: {names}", hint=f"apt-get install {names}")


def choose(needs: Needs, candidates: Sequence[LabFolder], memory_available: int) -> FolderChoice:
    """The first places with room, memory before disk. What is in memory must fit into free memory together.

    Raises:
        LabError: too little memory or room, or no place from which a file may be mapped executable.
    """
    left = memory_available - needs.memory
    if left < 0:
        raise LabError(
            f"not enough memory: the lab needs {words.size(needs.memory)}, {words.size(memory_available)} are"
            " available",
            hint="end other programs, or use a larger machine",
        )
    memory = next((place for place in candidates if place.executable and place.free >= needs.memory), None)
    if memory is None:
        raise LabError(
            f"no folder with {words.size(needs.memory)} free from which files may be mapped executable: "
            + _described(candidates),
            hint="set TMPDIR to a folder with more space on a file system that is not mounted noexec",
        )
    for place in candidates:
        taken = needs.memory if place.folder == memory.folder else 0
        if place.free - taken >= needs.disks and (not place.in_memory or left >= needs.disks):
            return FolderChoice(memory, place)
    raise LabError(
        f"not enough space for the lab's disks: they need {words.size(needs.disks)}; " + _described(candidates),
        hint="set TMPDIR to a folder with more space, or ask for fewer --rows or a shorter --deadline",
    )


def places() -> list[LabFolder]:
    """The candidates on this machine: the memory file system, then the folder for temporary files."""
    folders = [_MEMORY_FOLDER, Path(tempfile.gettempdir()).resolve()]
    return [_place(folder) for folder in folders if folder.is_dir() and os.access(folder, os.W_OK)]


def memory_available() -> int:
    """Bytes that a new program can have without swapping, as the kernel estimates it (proc(5), MemAvailable)."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise LabError("/proc/meminfo has no MemAvailable", hint="the lab needs Linux 3.14 or later")


def require_cache_room(folder: Path, size: int, *, what: str) -> None:
    """The cache folder's file system has room for one more entry of that many bytes.

    Raises:
        LabError: it has not.
    """
    free = shutil.disk_usage(folder).free
    if free < size + 64 * MIB:
        raise LabError(
            f"not enough space for {what} in {folder}: {words.size(size)} are needed, {words.size(free)} are free",
            hint="backupd lab clean, or set XDG_CACHE_HOME to a folder with more room",
        )


def _place(folder: Path) -> LabFolder:
    facts = os.statvfs(folder)
    return LabFolder(
        folder=folder,
        free=facts.f_bavail * facts.f_frsize,
        in_memory=folder == _MEMORY_FOLDER,
        executable=not facts.f_flag & os.ST_NOEXEC,
    )


def _described(candidates: Sequence[LabFolder]) -> str:
    told = [
        f"{place.folder} has {words.size(place.free)}{'' if place.executable else ' (noexec)'}" for place in candidates
    ]
    return ", ".join(told) or "no folder for temporary files can be written"
