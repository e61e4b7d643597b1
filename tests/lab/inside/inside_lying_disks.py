"""Disks that lie or fail in a run: under the origin, under the COW area, under the target. Success is never false.

The volume's disks are devices of device mapper here (`--disks delay`), so that each can become another one under the
server's feet. Read errors are dm-dust's, lost, torn and refused writes dm-flakey's.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import (
    GATE_OFF,
    LONG_SETTLE,
    SITE,
    SLOW_COPY,
    Changes,
    Ended,
    Host,
    Running,
    stored,
    tool,
    until,
)
from tests.lab.inside.moments import copying, locked, storing_to, unlocked
from tests.lab.inside.places import Disk, disk
from tests.lab.inside.trees import remove

pytestmark = pytest.mark.matrix

SERVER, SNAPSHOT, TARGET, VERIFICATION = 6, 7, 8, 9
FAILED = range(2, 12)
RESTORED = SITE.state / "restored"
COLD = SITE.datadir / "sbtest" / "cold.MYD"
COLD_ROWS = 20_000
BRIEF_COPY: Changes = {**GATE_OFF, "jobs.nightly.copy.max_rate": "12MiB"}
BRIEF_SETTLE: Changes = {**LONG_SETTLE, "jobs.nightly.settle.max_wait": "7s"}
DAY = 86_400.0
_PIECE = 1 << 20  # bytes: what of a disk is bad at once; each is told to dm-dust by a command
_SECTOR = 512


@dataclass(frozen=True)
class Mapped:
    """A disk of the volume group, as it is until it becomes another one."""

    path: str
    table: str

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def sectors(self) -> int:
        return int(self.table.split()[1])

    @property
    def under(self) -> str:
        """The device that it is made of."""
        return self.table.split()[3]

    def become(self, table: str) -> None:
        """From now on it does what this table says."""
        tool("dmsetup", "suspend", "--nolockfs", self.name)
        tool("dmsetup", "load", self.name, "--table", table)
        tool("dmsetup", "resume", self.name)

    def become_dust(self, sectors: range, piece: int) -> None:
        """These will be bad, with all in the same pieces of so many bytes, from when they are enabled."""
        tool("modprobe", "dm-dust")
        self.become(f"0 {self.sectors} dust {self.under} 0 {piece}")
        for number in range(sectors.start * _SECTOR // piece, (sectors.stop - 1) * _SECTOR // piece + 1):
            tool("dmsetup", "message", self.name, "0", "addbadblock", str(number))

    def spoil(self) -> None:
        """From now on they cannot be read, until they are written anew."""
        tool("dmsetup", "message", self.name, "0", "enable")

    def die(self) -> None:
        """Nothing can be read or written any more."""
        self.become(f"0 {self.sectors} error")


@pytest.fixture(scope="module", autouse=True)
def undelayed() -> None:
    """The disks are as fast as what they are made of: here they are only to be exchanged."""
    for path in tool("pvs", "--noheadings", "--options", "pv_name").split():
        one = Mapped(path, tool("dmsetup", "table", Path(path).name).strip())
        one.become(f"0 {one.sectors} linear {one.under} 0")


@contextmanager
def mapped(index: int) -> Iterator[Mapped]:
    """The disk of the volume group with this place in their order; as it was after the block."""
    path = tool("pvs", "--noheadings", "--options", "pv_name", "--sort", "pv_name").split()[index]
    one = Mapped(path, tool("dmsetup", "table", Path(path).name).strip())
    try:
        yield one
    finally:
        one.become(one.table)


@pytest.fixture
def cold(host: Host) -> Iterator[range]:
    """A table that nobody asks for; the sectors of the volume's first disk that it lies on."""
    host.sql("CREATE TABLE sbtest.cold (id INT PRIMARY KEY, v CHAR(200)) ENGINE = MyISAM")
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT"
    for first in range(0, COLD_ROWS, 1000):
        host.sql(f"INSERT INTO sbtest.cold {numbers} i + {first}, REPEAT('x', 200) FROM n")
    host.sql("FLUSH TABLES sbtest.cold")
    tool("sync", "--file-system", str(COLD))
    try:
        yield on_first_disk(COLD)
    finally:
        host.sql("DROP TABLE sbtest.cold")


def on_first_disk(file: Path) -> range:
    """Where the file's first piece lies: in the volume as FIEMAP tells it, behind where the volume begins there."""
    first = extents(file)[0]
    begin, length, kind, _, at = tool("dmsetup", "table", f"{SITE.volume_group}-data").splitlines()[0].split()[:5]
    assert (begin, kind) == ("0", "linear")
    assert first.stop <= int(length)
    return range(first.start + int(at), first.stop + int(at))


def extents(file: Path) -> list[range]:
    """The sectors of its file system that it lies on, in its order."""
    told = tool("filefrag", "-b512", "-e", str(file))
    found = re.findall(r"^\s*\d+:\s*\d+\.\.\s*\d+:\s*(\d+)\.\.\s*(\d+):", told, flags=re.MULTILINE)
    return [range(int(begin), int(end) + 1) for begin, end in found]


def ended_badly(run: Running, *statuses: int) -> dict[str, Any]:
    """A run that has failed with one of these, a sentence and a hint; its document. It has no backup."""
    out, error = run.process.communicate(timeout=240)
    assert run.process.returncode in statuses, error
    assert "error: " in error
    assert "hint: " in error
    document = Ended(run.process.returncode, out, error, 0).document
    assert document["backup"] is None
    assert document["error"]["hint"]
    return document


def test_bad_sectors_under_the_origin_fail_the_backup_and_not_the_server(host: Host, cold: range) -> None:
    with mapped(0) as origin:
        origin.become_dust(cold, 64 << 10)
        with host.running(SLOW_COPY) as run:
            run.until(copying)
            origin.spoil()
            document = ended_badly(run, SNAPSHOT)
    assert "sbtest/cold.MY" in document["error"]["message"]
    assert "Input/output error" in document["error"]["message"]
    assert host.seconds_to_write() < 1


def on_the_fourth(**changes: object) -> Changes:
    """A run whose COW area is on a disk that has nothing else."""
    fourth = tool("pvs", "--noheadings", "--options", "pv_name", "--sort", "pv_name").split()[3]
    return {"jobs.nightly.snapshot.pvs": [fourth], **changes}


def test_bad_sectors_in_the_cow_area_fail_the_backup_and_not_the_server(host: Host, cold: range) -> None:
    changes = on_the_fourth(**BRIEF_SETTLE)
    with mapped(3) as area:
        area.become_dust(range(4 << 11, area.sectors), _PIECE)  # LVM's own metadata is in the first MiB
        with host.running(changes) as run:
            run.until(unlocked)
            host.sql("UPDATE sbtest.cold SET v = REPEAT('y', 200)")
            host.sql("FLUSH TABLES sbtest.cold")
            tool("sync", "--file-system", str(COLD))
            area.spoil()
            ended_badly(run, SNAPSHOT)
    assert host.seconds_to_write() < 1


def test_a_cow_device_that_dies_in_mid_copy_voids_the_backup_and_not_the_server(host: Host) -> None:
    changes = on_the_fourth(**SLOW_COPY)
    with mapped(3) as area, host.running(changes) as run:
        run.until(copying)
        area.die()
        document = ended_badly(run, SNAPSHOT)
        assert host.seconds_to_write() < 1
    assert "intact" in document["error"]["message"]
    host.backupd("recover")


def test_a_target_that_refuses_writes_is_told_and_nothing_is_published(host: Host, tmp_path: Path) -> None:
    with disk(tmp_path) as store:
        changes = {**SLOW_COPY, "targets.store.path": str(store.path)}
        with host.running(changes) as run:
            run.until(storing_to(store.path))
            store.err_writes()
            ended_badly(run, TARGET)
        nothing_published_and_cleaned_later(host, store, changes)


@contextmanager
def stored_and_not_read_back(host: Host, store: Disk, changes: Changes) -> Iterator[tuple[Running, list[range]]]:
    """A run whose data has its final name and is not read back yet, and the sectors where it lies; then it goes on."""
    with host.running(changes) as run:
        data = store.path / "nothing"

        def named(run_id: str) -> bool:
            nonlocal data
            data = stored(store.path, run_id) / "data-1.tar.zst"
            return data.exists()

        run.until(named)
        run.process.send_signal(signal.SIGSTOP)
        try:
            yield run, extents(data)
        finally:
            run.process.send_signal(signal.SIGCONT)
        ended_badly(run, TARGET, VERIFICATION)


@pytest.mark.parametrize("content", [bytes(4096), b"\xa5"], ids=["torn", "changed"])
def test_a_target_whose_disk_has_another_content_is_found_out(host: Host, tmp_path: Path, content: bytes) -> None:
    """Of a torn write the second half was never there."""
    with disk(tmp_path) as store:
        changes = {**BRIEF_COPY, "targets.store.path": str(store.path)}
        with stored_and_not_read_back(host, store, changes) as (_, where):
            middle = where[0][len(where[0]) // 2]
            store.change(middle, content)
        nothing_published_and_cleaned_later(host, store, changes)


def test_bad_sectors_under_the_target_fail_the_read_back(host: Host, tmp_path: Path) -> None:
    with disk(tmp_path) as store:
        changes = {**BRIEF_COPY, "targets.store.path": str(store.path)}
        store.become_dust(_PIECE)
        with stored_and_not_read_back(host, store, changes) as (_, where):
            store.spoil(where[0], _PIECE)
        nothing_published_and_cleaned_later(host, store, changes)


def nothing_published_and_cleaned_later(host: Host, store: Disk, changes: Changes) -> None:
    """No manifest is there, not even once the disk is as good as at first; `recover` leaves nothing."""
    store.mend()
    assert not list(store.path.rglob("manifest.json"))
    host.backupd("recover", changes=changes)
    host.nothing_left()  # while the target is there to be asked


def test_a_tar_that_is_killed_while_it_unpacks_fails_the_restore_and_the_same_command_finishes_it(host: Host) -> None:
    """The one program of a copy or a restore: what reads, compresses and encrypts is backupd itself."""
    run_id = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["run_id"]
    argv = ["backupd", "restore", run_id, "--to", str(RESTORED)]
    try:
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as restore:
            until(lambda: bool(programs_of(restore.pid, "tar")))
            for pid in programs_of(restore.pid, "tar"):
                os.kill(pid, signal.SIGKILL)
            _, error = restore.communicate()
        assert restore.returncode in FAILED
        assert "error: " in error
        assert "hint: " in error
        host.backupd(*argv[1:])
    finally:
        remove(RESTORED)


def programs_of(ancestor: int, name: str) -> list[int]:
    """Processes of that program that descend from this one."""
    parents: dict[int, tuple[str, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words, _, rest = stat.read_text(errors="replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(words.split(" ")[0])] = (words.partition("(")[2], int(rest.split()[1]))

    def descends(pid: int) -> bool:
        while pid in parents and pid != ancestor:
            pid = parents[pid][1]
        return pid == ancestor

    return [pid for pid, (called, _) in parents.items() if called == name and descends(pid)]


@dataclass(frozen=True)
class Restart:
    """When the server is killed and started again, and what becomes of the run."""

    reached: Callable[[str], bool]
    changes: Changes
    statuses: tuple[int, ...]

    def __str__(self) -> str:
        return self.reached.__name__


RESTARTS = [
    Restart(locked, GATE_OFF, (0, 3, SERVER)),  # the snapshot may be there before the lock is lost
    Restart(copying, SLOW_COPY, (0, 3)),
]


@pytest.mark.parametrize("restart", RESTARTS, ids=str)
def test_a_server_that_is_started_again_in_a_phase_makes_no_false_success(host: Host, restart: Restart) -> None:
    """Before the lock and while the copy waits: inside_mishaps.py."""
    with host.running(restart.changes) as run:
        run.until(restart.reached)
        host.kill_server()
        host.start_server()
        out, error = run.process.communicate(timeout=240)
    assert run.process.returncode in restart.statuses, f"{out}\n{error}"
    if run.process.returncode in (0, 3):
        assert host.backupd("drill", run.run_id, "--json").document["status"] == "proven"


@pytest.mark.parametrize("step", [DAY, -DAY], ids=["forward", "back"])
def test_a_clock_that_steps_in_mid_copy_changes_no_duration_and_no_result(host: Host, step: float) -> None:
    began = time.monotonic()
    with host.running(SLOW_COPY) as run:
        run.until(copying)
        with stepped(step):
            document = run.ended(expect=0).document
            took = time.monotonic() - began
            host.backupd("verify", run.run_id)
            host.backupd("prune", "nightly")
    assert document["status"] == "success"
    assert 0 < sum(seconds or 0 for seconds in document["phases"].values()) <= took
    host.backupd("verify", run.run_id)


@contextmanager
def stepped(seconds: float) -> Iterator[None]:
    """The wall clock is so far off for the length of the block."""
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - seconds)


def test_the_server_has_its_disks_back() -> None:
    """After all of this: nothing of it is a device that lies."""
    told = subprocess.run(["dmsetup", "table"], capture_output=True, text=True, check=True).stdout
    assert not re.search(r" (dust|flakey|error) ", told)
