"""Two targets are read back side by side: on disks that keep every read waiting, that takes as long as one of them.

The machine has one processor; so it is the disks that set the pace here, as storage elsewhere does.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.inside.host import GATE_OFF, Host, tool

SPARE = os.environ["BACKUPD_LAB_SPARE_DISKS"].split()
NAMES = ("one", "other")
READ_DELAY_MILLISECONDS = 100
NOISE_KIB = 64 << 10  # what does not compress, so that each target has so much to give back
LEAST_SECONDS = 3.0
MOST = 1.5  # times the slower one; one after the other they take twice as long


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A folder on a disk of its own for each target."""
    folders = {name: tmp_path / name for name in NAMES}
    with ExitStack() as owed:
        tool("modprobe", "dm-delay")
        for disk, (name, folder) in zip(SPARE, folders.items(), strict=True):
            owed.callback(tool, "wipefs", "--quiet", "--all", disk)
            sectors = int(tool("blockdev", "--getsz", disk))
            table = f"0 {sectors} delay {disk} 0 {READ_DELAY_MILLISECONDS} {disk} 0 0"
            tool("dmsetup", "create", f"slow-{name}", "--table", table)
            owed.callback(tool, "dmsetup", "remove", "--retry", f"slow-{name}")
            tool("mkfs.ext4", "-q", "-E", "nodiscard", f"/dev/mapper/slow-{name}")
            folder.mkdir()
            tool("mount", f"/dev/mapper/slow-{name}", str(folder))
            owed.callback(tool, "umount", str(folder))
        yield folders


@pytest.fixture
def noise(host: Host) -> Iterator[None]:
    """A table of random bytes."""
    host.sql("CREATE TABLE sbtest.noise (n INT PRIMARY KEY, random VARBINARY(1024))")
    try:
        host.sql(f"USE sbtest; INSERT INTO noise SELECT seq, RANDOM_BYTES(1024) FROM seq_1_to_{NOISE_KIB}")
        yield
    finally:
        host.sql("DROP TABLE sbtest.noise")


def test_two_targets_take_as_long_as_the_slower_one(host: Host, slow: dict[str, Path], noise: None) -> None:
    def seconds_of(*names: str) -> float:
        changes = {
            **GATE_OFF,
            **{f"targets.{name}.type": "directory" for name in names},
            **{f"targets.{name}.path": str(slow[name]) for name in names},
            "jobs.nightly.targets": list(names),
            "jobs.nightly.copy.level": 1,
        }
        return float(host.backupd("run", "nightly", "--json", changes=changes).document["phases"]["verify"])

    slower = max(seconds_of(name) for name in NAMES)
    together = seconds_of(*NAMES)
    figures = f"side by side {together:.2f} s, the slower one alone {slower:.2f} s"
    assert slower > LEAST_SECONDS, f"too little to compare: {figures}"
    assert together <= MOST * slower, figures
