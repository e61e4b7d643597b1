"""A thin pool that fills up while a run is under way: the run ends long before it does. And what `check` tells."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.inside.host import GATE_OFF, LONG_SETTLE, SITE, SLOW_COPY, Changes, Host, require_told, tool
from tests.lab.inside.moments import copying, unlocked
from tests.lab.inside.places import mounted, volume
from tests.lab.inside.servers import second_server

REFUSED, SNAPSHOT = 5, 7
POOL = f"{SITE.volume_group}/pool"
CHUNK = 64 << 10
_SLACK = 0.03  # of the lab's pool: what a test fills beyond what is in it anyway
_CROWD = 12  # thin snapshots that share everything, until somebody writes to them
_SHARED_CHUNKS = 3000
_CHUNKS_A_LEAF = 60  # fewer than a leaf of the pool's mapping tree holds (dm-btree: 126 to 252 of them in 4 KiB)


def fill_of(pool: str, part: str) -> float:
    """How full it is by LVM's word, 0.0 to 1.0."""
    return float(tool("lvs", "--noheadings", "--options", f"{part}_percent", pool)) / 100


def write_chunks(device: Path, numbers: range) -> None:
    """The first bytes of each of these chunks are written, and the pool has obeyed."""
    descriptor = os.open(device, os.O_WRONLY)
    try:
        for number in numbers:
            os.pwrite(descriptor, b"theirs", number * CHUNK)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("stage", ["settle", "copy"])
def test_pool_that_others_fill_costs_the_backup_and_not_the_server(host: Host, stage: str) -> None:
    limit = round(fill_of(POOL, "data") + _SLACK, 3)
    changes: Changes = {**(LONG_SETTLE if stage == "settle" else SLOW_COPY), "jobs.nightly.limits.max_cow_fill": limit}
    with volume("theirs", "--virtualsize", "1g", "--thinpool", POOL), host.running(changes) as run:
        run.until(unlocked if stage == "settle" else copying)
        size = int(tool("lvs", "--noheadings", "--nosuffix", "--units", "b", "--options", "lv_size", POOL))
        write_chunks(SITE.volume_path.with_name("theirs"), range(int(size * _SLACK * 1.5) // CHUNK))
        ended = run.ended(expect=SNAPSHOT)
        assert fill_of(POOL, "data") < 0.5, "the pool itself is far from full"
        host.nothing_left()
    document = require_told(ended, status=SNAPSHOT, says=f"thin pool {POOL} is")
    assert f"the limit is {limit:.0%}" in document["error"]["message"]
    assert document["error"]["code"] == "gave-up"
    assert f"lvextend --size +SIZE, or --poolmetadatasize +SIZE, {POOL}" in document["error"]["hint"]
    assert document["snapshot"]["pool"] == POOL
    shown = host.backupd("show", document["run_id"]).stdout
    assert [line for line in shown.splitlines() if line.startswith("thin pool:") and POOL in line]


@dataclass(frozen=True)
class Crowd:
    """Thin snapshots of somebody's in a pool with hardly any metadata: each write to one takes some of it."""

    pool: str
    devices: tuple[Path, ...]

    def fill_metadata(self, to: float) -> None:
        """Up to there, and little beyond."""
        for device in self.devices:
            for chunk in range(0, _SHARED_CHUNKS, 4 * _CHUNKS_A_LEAF):
                if fill_of(self.pool, "metadata") >= to:
                    return
                write_chunks(device, range(chunk, chunk + 4 * _CHUNKS_A_LEAF, _CHUNKS_A_LEAF))
        raise AssertionError(f"the metadata of {self.pool} did not get so full: {fill_of(self.pool, 'metadata'):.0%}")


@contextmanager
def crowded_pool() -> Iterator[Crowd]:
    """A pool of 800 MiB with a volume `own` that nobody uses yet, and others' that share their chunks."""
    group = SITE.volume_group
    pool, folder = f"{group}/small", SITE.volume_path.parent
    unwatched = ("--yes", "--config", "activation/monitoring=0")
    with volume("small", "--type", "thin-pool", "--size", "800m", "--poolmetadatasize", "2m", group):
        for name in ("own", "theirs"):
            tool("lvcreate", *unwatched, "--virtualsize", "400m", "--thinpool", pool, "--name", name)
        write_chunks(folder / "theirs", range(_SHARED_CHUNKS))
        names = [f"theirs{number}" for number in range(_CROWD)]
        for name in names:
            tool("lvcreate", *unwatched, "--snapshot", "-ay", "-K", "--name", name, f"{group}/theirs")
        yield Crowd(pool, tuple(folder / name for name in names))


def test_pool_whose_metadata_runs_out_costs_the_backup_long_before(host: Host, tmp_path: Path) -> None:
    with (
        crowded_pool() as crowd,
        mounted(f"/dev/{SITE.volume_group}/own", tmp_path / "mounted") as at,
        second_server(at) as server,
    ):
        crowd.fill_metadata(to=0.7)
        changes: Changes = {
            **GATE_OFF,
            **server.asked_by("nightly"),
            "jobs.nightly.snapshot.size": "64MiB",
            "jobs.nightly.copy.max_rate": "4MiB",
        }
        with host.running(changes) as run:
            run.until(copying)
            crowd.fill_metadata(to=0.905)
            ended = run.ended(expect=SNAPSHOT)
        require_told(ended, status=SNAPSHOT, says=f"the metadata of thin pool {crowd.pool} is 9")
        server.sql("CREATE DATABASE it_takes_writes")
        assert fill_of(crowd.pool, "metadata") > 0.8
        host.fails(changes, status=REFUSED, says=f"the metadata of thin pool {crowd.pool} is ")


def test_check_tells_of_the_pool_and_warns_of_others_snapshots(host: Host) -> None:
    with volume("theirs", "--snapshot", f"{SITE.volume_group}/data"):
        findings = host.backupd("check", "nightly", "--json").document["findings"]
    told = {finding["name"]: finding for finding in findings}
    assert told["other snapshots"]["level"] == "warning"
    assert "already has: theirs" in told["other snapshots"]["detail"]
    assert "its metadata" in told["snapshot room"]["detail"]
    assert "wait for room, and fail after a minute" in told["snapshot room"]["detail"]
