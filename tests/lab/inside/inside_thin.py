"""A thin pool that fills up while a run is under way: the run ends long before it does. And what `check` tells."""

import os
from pathlib import Path

import pytest

from tests.lab.inside.host import LONG_SETTLE, SITE, SLOW_COPY, Changes, Host, require_told, tool
from tests.lab.inside.moments import copying, unlocked
from tests.lab.inside.places import volume

SNAPSHOT = 7
POOL = f"{SITE.volume_group}/pool"
CHUNK = 64 << 10
_SLACK = 0.03  # of the lab's pool: what a test fills beyond what is in it anyway


def fill() -> float:
    """How full the pool is by the kernel's word, 0.0 to 1.0."""
    used, total = tool("dmsetup", "status", "--noflush", f"{POOL.replace('/', '-')}-tpool").split()[5].split("/")
    return int(used) / int(total)


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
    limit = round(fill() + _SLACK, 3)
    changes: Changes = {**(LONG_SETTLE if stage == "settle" else SLOW_COPY), "jobs.nightly.limits.max_cow_fill": limit}
    with volume("theirs", "--virtualsize", "1g", "--thinpool", POOL), host.running(changes) as run:
        run.until(unlocked if stage == "settle" else copying)
        size = int(tool("lvs", "--noheadings", "--nosuffix", "--units", "b", "--options", "lv_size", POOL))
        write_chunks(SITE.volume_path.with_name("theirs"), range(int(size * _SLACK * 1.5) // CHUNK))
        ended = run.ended(expect=SNAPSHOT)
        assert fill() < 0.5, "the pool itself is far from full"
        assert host.seconds_to_write() < 5
    document = require_told(ended, status=SNAPSHOT, says=f"thin pool {POOL} is")
    assert f"the limit is {limit:.0%}" in document["error"]["message"]
    assert document["error"]["code"] == "gave-up"
    assert f"lvextend --size +SIZE, or --poolmetadatasize +SIZE, {POOL}" in document["error"]["hint"]
    assert document["snapshot"]["pool"] == POOL
    shown = host.backupd("show", document["run_id"]).stdout
    assert [line for line in shown.splitlines() if line.startswith("thin pool:") and POOL in line]


def test_check_tells_of_the_pool_and_warns_of_others_snapshots(host: Host) -> None:
    with volume("theirs", "--snapshot", f"{SITE.volume_group}/data"):
        findings = host.backupd("check", "nightly", "--json").document["findings"]
    told = {finding["name"]: finding for finding in findings}
    assert told["other snapshots"]["level"] == "warning"
    assert "already has: theirs" in told["other snapshots"]["detail"]
    assert "its metadata" in told["snapshot room"]["detail"]
    assert "wait for space, and fail after a minute" in told["snapshot room"]["detail"]
