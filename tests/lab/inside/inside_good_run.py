"""A good run on this machine's layout, what it stored, and its proof: one run, looked at from every side."""

import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backupd.lab.servers import SOFTWARE
from backupd.vocabulary.servers import Flavour
from tests.lab.inside.host import SERVER, SITE, Changes, Ended, Host, tool

LAYOUT, FILESYSTEM, THIN = os.environ["LAB_LAYOUT"], os.environ["LAB_FILESYSTEM"], os.environ["LAB_THIN"] == "1"
FLAVOUR = SOFTWARE[SERVER].flavour
MIB = 1 << 20
OBJECTS = ("data-1.tar.zst", "binlog.tar.zst", "index.jsonl.zst")
MEMORY_LIMIT = 150 * MIB

# The gate as it is, but in seconds: six windows under a steady load are its plateau.
QUICK_GATE: Changes = {
    "jobs.nightly.settle.probe": True,
    "jobs.nightly.settle.duty": 0.5,
    "jobs.nightly.settle.baseline_windows": 2,
}
PARTICULAR = {  # files and folders that the other flavour does not have, or calls otherwise
    Flavour.MARIADB: {"ib_logfile0", "aria_log_control", "parts#P#p0.ibd"},
    Flavour.MYSQL: {"#innodb_redo", "mysql.ibd", "undo_001", "parts#p#p0.ibd"},
}
PHASES = ["preflight", "baseline", "lock_wait", "lock_hold", "snapshot", "settle", "copy", "verify", "release"]


@dataclass(frozen=True)
class Good:
    """A run that was good, and the most memory that it took."""

    ended: Ended
    memory: int  # bytes, PSS of the whole process tree

    @property
    def document(self) -> dict[str, Any]:
        return self.ended.document

    @property
    def folder(self) -> Path:
        return Path(self.document["backup"]["location"])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    host = Host(tmp_path_factory.mktemp("good"))
    # A partitioned table has a # in its files' names; and the binlog that the run will name is not the first.
    host.sql("CREATE TABLE sbtest.parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2; FLUSH BINARY LOGS")
    with host.running(QUICK_GATE) as run, memory_of(run.process.pid) as memory:
        ended = run.ended(expect=0)
    host.nothing_left()
    return Good(ended, max(memory))


@contextmanager
def memory_of(pid: int) -> Iterator[list[int]]:
    """Sampled several times a second while the block lasts: the sum of a process tree's proportional set sizes."""
    samples = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            samples.append(sum(proportional_set_size(one) for one in tree(pid) if one == pid or not is_copy(one, pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield samples
    finally:
        done.set()
        watcher.join()


def tree(root: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield root
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == root:
            yield from tree(int(process.name))


def is_copy(pid: int, parent: int) -> bool:
    """About to become another program: until then it has its parent's memory, which is counted there."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes() == Path(f"/proc/{parent}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def proportional_set_size(pid: int) -> int:
    """Bytes; 0 for one that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def names_in(stored: Path) -> list[str]:
    """What zstd and tar alone see in an object."""
    unpacked = subprocess.run(["zstd", "-dcq", str(stored)], capture_output=True, check=True).stdout
    listed = subprocess.run(["tar", "-t"], input=unpacked, capture_output=True, check=True).stdout
    return [name.removeprefix("./") for name in listed.decode().splitlines()]


def test_check_finds_everything_in_order(host: Host) -> None:
    findings = host.backupd("check", "nightly", "--json").document["findings"]
    assert {finding["level"] for finding in findings} == {"ok"}
    told = {finding["name"]: finding["detail"] for finding in findings}
    assert f"is {LAYOUT}" in told["layout"]
    assert set(told) >= {
        "server",
        "grants",
        "one volume",
        "snapshot room",
        "other snapshots",
        "target store",
        "sysbench",
    }


def test_document_says_what_ran_and_how_long_each_phase_took(good: Good) -> None:
    document = good.document
    assert (document["schema"], document["job"], document["status"]) == (1, "nightly", "success")
    assert document["error"] is None
    assert document["verdict"]["outcome"] == "start"
    assert document["verdict"]["reason"] in ("settled", "plateau")
    assert set(document["phases"]) >= set(PHASES)
    assert all(document["phases"][phase] > 0 for phase in PHASES)


def test_lock_is_short_and_the_snapshot_was_taken_under_it(good: Good) -> None:
    phases = good.document["phases"]
    assert phases["lock_wait"] < 2
    assert phases["snapshot"] < phases["lock_hold"] < 3


def test_document_describes_the_origin_and_its_snapshot(good: Good) -> None:
    snapshot = good.document["snapshot"]
    striped = LAYOUT == "striped"
    assert (snapshot["layout"], snapshot["stripes"]) == (LAYOUT, 3 if striped else 1)
    assert snapshot["stripe_size"] == (65536 if striped else None)
    assert snapshot["chunk_size"] == 65536
    assert snapshot["chunk_reason"].startswith("those of thin pool" if THIN else "the disks are")
    origin = int(tool("lvs", "--noheadings", "--nosuffix", "--units", "b", "-o", "lv_size", f"{SITE.volume_path}"))
    room = origin if THIN else origin * 0.2  # the lab's pool is as large as its volume
    assert snapshot["cow_size"] == pytest.approx(room, abs=4 * MIB)
    assert 0 < snapshot["cow_used_peak"] < snapshot["cow_size"]


def test_penalty_was_measured_before_and_after_the_snapshot(good: Good) -> None:
    penalty = good.document["penalty"]
    assert {sample["stage"] for sample in penalty["samples"]} >= {"baseline", "settle"}
    assert penalty["baseline_iops"] > 0
    assert penalty["initial_ratio"] == pytest.approx(penalty["baseline_iops"] / penalty["initial_iops"])
    assert penalty["settled_ratio"] == pytest.approx(penalty["baseline_iops"] / penalty["settled_iops"])


def test_memory_of_the_whole_process_tree_stays_small(good: Good) -> None:
    assert 20 * MIB < good.memory < MEMORY_LIMIT


def test_objects_open_with_zstd_and_tar(good: Good) -> None:
    datadir = SITE.datadir.name
    names = names_in(good.folder / "data-1.tar.zst")
    files = {part for name in names for part in name.split("/")}
    assert {"ibdata1", "sbtest1.ibd", "myisam_log.MYD", *PARTICULAR[FLAVOUR]} <= files
    assert not [name for name in names if ".backupd-" in name], "the probe's folder is not in it"
    assert not [name for name in names if name.startswith("/") or ".." in name]
    assert not [name for name in files if name.startswith("mysql-bin.0")], f"no binlog of {datadir} is in it"
    binlogs = {name.rpartition("/")[2] for name in names_in(good.folder / "binlog.tar.zst")} - {""}
    assert binlogs - {"mysql-bin.index"} == {good.document["position"]["binlog_file"]} != {"mysql-bin.000001"}


def test_document_describes_the_stored_files(good: Good) -> None:
    backup = good.document["backup"]
    stored = [good.folder / name for name in OBJECTS]
    assert backup["bytes_stored"] == sum(path.stat().st_size for path in stored)
    assert backup["bytes_read"] > backup["bytes_stored"]
    assert backup["sha256"] == hashlib.sha256(stored[0].read_bytes()).hexdigest()
    assert backup["files"] > 100


def test_of_mariadb_s_redo_log_only_what_recovery_needs_is_stored(good: Good) -> None:
    snapshot = json.loads((good.folder / "manifest.json").read_text())["run"]["snapshot"]
    assert (snapshot["redo_left_out"] > 0) == (FLAVOUR is Flavour.MARIADB), snapshot


def test_manifest_is_readable_and_names_every_object(good: Good) -> None:
    manifest = json.loads((good.folder / "manifest.json").read_text())
    assert manifest["run_id"] == good.document["run_id"]
    assert {path.name for path in good.folder.iterdir()} == {"manifest.json", *OBJECTS}
    assert [stored["name"] for stored in manifest["objects"]] == list(OBJECTS)
    for stored in manifest["objects"]:
        digest = hashlib.sha256((good.folder / stored["name"]).read_bytes()).hexdigest()
        assert stored["stored_sha256"] == digest


def test_run_is_in_the_history_and_can_be_shown(host: Host, good: Good) -> None:
    run_id = good.document["run_id"]
    assert run_id in [run["run_id"] for run in host.backupd("history", "--json").document["runs"]]
    assert host.backupd("show", run_id, "--json").document["backup"] == good.document["backup"]


def test_restored_files_are_the_stored_ones(host: Host, good: Good) -> None:
    to = SITE.state / "restored"
    host.backupd("restore", good.document["run_id"], "--to", str(to))
    try:
        for stored in good.folder.glob("*.tar.zst"):
            unpacked = subprocess.run(["zstd", "-dcq", str(stored)], capture_output=True, check=True).stdout
            compared = subprocess.run(["tar", "-d", "-C", str(to)], input=unpacked, capture_output=True, check=False)
            assert compared.returncode == 0, compared.stdout.decode() + compared.stderr.decode()
        binlog = next(to.rglob(good.document["position"]["binlog_file"]))
        assert binlog.stat().st_size == good.document["position"]["binlog_offset"]
        assert not list(to.glob(".backupd-incomplete"))
    finally:
        subprocess.run(["rm", "-r", str(to)], check=True)


def test_drill_starts_a_server_on_it_and_finds_the_recorded_position(host: Host, good: Good) -> None:
    document = host.backupd("drill", good.document["run_id"], "--json").document
    position = good.document["position"]
    assert document["run_id"] == good.document["run_id"]
    assert document["status"] == "proven"
    assert document["seconds"] > 0
    checks = {check["name"]: check for check in document["checks"]}
    assert {"restore", "binlog position", "gtid", "canary", "tables", "clean shutdown"} <= set(checks)
    assert all(check["ok"] for check in checks.values())
    assert checks["binlog position"]["found"] == f"{position['binlog_file']}:{position['binlog_offset']}"
    assert checks["gtid"]["found"] == position["gtid"]
    shown = host.backupd("show", good.document["run_id"], "--json").document
    assert [drill["status"] for drill in shown["drills"]] == ["proven"]


def test_changed_byte_is_found_and_nothing_of_it_is_restored(host: Host, good: Good) -> None:
    stored, to = good.folder / "data-1.tar.zst", SITE.state / "restored"
    with stored.open("r+b") as file:
        middle = stored.stat().st_size // 2
        file.seek(middle)
        byte = file.read(1)
        file.seek(middle)
        file.write(bytes([byte[0] ^ 1]))
    refused = host.backupd("restore", good.document["run_id"], "--to", str(to), expect=9)
    assert "hint: " in refused.stderr
    assert not to.exists()
