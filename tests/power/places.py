"""What of the lab's machine lies on disks that forget: the volume group, the catalogue, the target.

Knows: the disks, their sizes and devices, how they are taken into use after a boot and left at once. All that a power
cut may take lies on them; the configuration and LVM's own backups of its metadata do not.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backupd.host.process import start_time
from backupd.lab import disks
from backupd.lab.options import ServerKind
from backupd.lab.server import option_file
from backupd.lab.site import guest_site

SITE = guest_site()
OUT = Path("/run/lab/out")  # a folder outside
RUNTIME = Path("/run/power")
CONTROL = RUNTIME / "control"
BOOT_ID = Path("/run/power-boot-id")
TARGET = SITE.backups
MIB = 1 << 20
_QUICK_SECONDS = 120.0
_START_SECONDS = 120.0
_LEVELS = 3  # of devices that lie on one another
# A small redo log is quickly replayed. `sync_binlog`: without it a power cut takes what clients were told was done, and
# a binlog archive has more than its server.
_SERVER_OPTIONS = """innodb_log_file_size = 16M
innodb_buffer_pool_size = 64M
sync_binlog = 1
"""


@dataclass(frozen=True, slots=True)
class ForgetfulDisk:
    """One of them."""

    number: int
    name: str
    size: int  # bytes

    @property
    def device(self) -> Path:
        return Path(f"/dev/nbd{self.number}")

    @property
    def socket(self) -> Path:
        return RUNTIME / f"{self.name}.nbd"


PHYSICAL = (ForgetfulDisk(0, "pv-1", 480 * MIB), ForgetfulDisk(1, "pv-2", 480 * MIB))
STATE = ForgetfulDisk(2, "state", 640 * MIB)  # catalogue, key, spool, staging, what is restored
STORE = ForgetfulDisk(3, "store", 320 * MIB)  # the target
DISKS = (*PHYSICAL, STATE, STORE)
LVMS_OWN = 1 * MIB  # of a physical volume, from its beginning: its label and metadata
VOLUME_MIB = 640  # of both physical volumes, striped; the rest is for snapshots
MOUNTS = ((str(SITE.volume_path), SITE.mount_point), (str(STATE.device), SITE.state), (str(STORE.device), TARGET))


@dataclass(frozen=True, slots=True)
class Said:
    """A command that has ended."""

    status: int
    out: str
    error: str
    seconds: float


def type_in(*argv: str, seconds: float = _QUICK_SECONDS) -> Said:
    """A command, to its end; one that takes longer is killed and has the status 124, as timeout(1) tells."""
    began = time.monotonic()
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            out, error = process.communicate(timeout=seconds)
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = process.communicate()
            status = 124
    return Said(status, out, error, time.monotonic() - began)


def must(*argv: str, seconds: float = _QUICK_SECONDS) -> str:
    """The same, of a command that cannot fail here; what it prints."""
    done = type_in(*argv, seconds=seconds)
    if done.status:
        raise RuntimeError(f"{argv}: status {done.status}: {done.error}")
    return done.out


def ask(what: dict[str, Any]) -> dict[str, Any]:
    """The process that serves the disks answers."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(CONTROL))
        asking.sendall(json.dumps(what).encode() + b"\n")
        with asking.makefile("rb") as answer:
            told: dict[str, Any] = json.loads(answer.readline())
    return told


@contextmanager
def forgetful_disks(recording: Path, *, replay: bool) -> Iterator[None]:
    """The disks are there for the length of the block, empty or, to be replayed, as they are asked to be."""
    RUNTIME.mkdir(exist_ok=True)
    must("modprobe", "nbd")
    for path in RUNTIME.iterdir():
        path.unlink()
    argv = [sys.executable, "-m", "tests.power.forgetful", str(recording), "replay" if replay else "record"]
    with subprocess.Popen(argv) as serving:
        try:
            _until(CONTROL.exists)
            for disk in DISKS:
                must("nbd-client", "-unix", str(disk.socket), str(disk.device), "-b", "512")
            disks.restrict_lvm(SITE, [disk.device for disk in PHYSICAL], with_udev=False)
            yield
        finally:
            for disk in DISKS:
                type_in("nbd-client", "-d", str(disk.device))
            serving.kill()


def leave_the_labs_own() -> None:
    """The lab's server, volume and folders are gone, and their places free."""
    pid = int((SITE.runtime / "mysqld.pid").read_text())
    born = start_time(pid)
    os.kill(pid, signal.SIGKILL)
    _until(lambda: start_time(pid) != born)
    for place in (SITE.mount_point, SITE.state, TARGET):
        must("umount", str(place))
    must("vgchange", "--activate", "n", SITE.volume_group)


def new_boot() -> None:
    """What lies in memory is gone, and the kernel has another boot's id."""
    first = not BOOT_ID.exists()
    BOOT_ID.write_text(f"{uuid.uuid4()}\n")
    if first:
        must("mount", "--bind", str(BOOT_ID), "/proc/sys/kernel/random/boot_id")
    shutil.rmtree("/run/backupd", ignore_errors=True)


def power_on() -> dict[str, Said]:
    """The volume group is active and all is mounted, as far as it can be: what each step said, to the first fault."""
    for disk in DISKS:
        must("blockdev", "--flushbufs", str(disk.device))
    steps = {"activate": type_in("vgchange", "--activate", "y", "--monitor", "n", SITE.volume_group)}
    for device, place in MOUNTS:
        if not steps["activate"].status or place != SITE.mount_point:
            steps[f"mount {place}"] = type_in("mount", device, str(place))
    return steps


def power_off() -> None:
    """Nothing uses the disks any more. What was not written is of no interest: nothing waits for it to be."""
    stop_server()
    for _, place in (*_below("/run/backupd/"), *_below(f"{SITE.state}/"), *MOUNTS):
        while place.is_mount():
            must("umount", str(place))
    type_in("vgchange", "--activate", "n", SITE.volume_group)
    for _ in range(_LEVELS):  # what is used by another one goes after that
        for name in _mapped():
            type_in("dmsetup", "remove", name)
    if left := _mapped():
        raise RuntimeError(f"device mapper keeps {left}")


def write_server_configuration() -> None:
    """What the server is started with."""
    SITE.socket.parent.mkdir(parents=True, exist_ok=True)
    text = option_file(SITE, ServerKind.MARIADB_10) + _SERVER_OPTIONS
    SITE.server_configuration.write_text(text, encoding="utf-8")


def start_server() -> bool:
    """Whether it answers; it recovers before."""
    SITE.socket.unlink(missing_ok=True)
    SITE.server_log.write_text("")
    argv = ["mariadbd", f"--defaults-file={SITE.server_configuration}"]
    process = subprocess.Popen(argv, cwd=SITE.mount_point, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if SITE.socket.exists() and not type_in("mariadb", "-e", "SELECT 1").status:
            _SERVERS.append(process)
            return True
        time.sleep(0.05)
    process.kill()
    process.wait()
    return False


_SERVERS: list[subprocess.Popen[bytes]] = []


def stop_server() -> None:
    """As a power cut does."""
    while _SERVERS:
        server = _SERVERS.pop()
        server.kill()
        server.wait()


def sql(statement: str) -> list[str]:
    """The lines that the server answers root with.

    Raises:
        RuntimeError: it refused.
    """
    return must("mariadb", "--batch", "--skip-column-names", f"--execute={statement}").splitlines()


def _mapped() -> list[str]:
    return [path.name for path in Path("/dev/mapper").glob(f"{SITE.volume_group}-*")]


def _below(folder: str) -> list[tuple[str, Path]]:
    """What is mounted there, the latest first."""
    found = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [("", Path(path)) for path in reversed(found) if path.startswith(folder)]


def _until(holds: Any) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("it never came to be")
        time.sleep(0.01)
