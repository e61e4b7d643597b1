"""`backupd probe --tune` on disks that turn, beside one that is not slowed: it finds that one, and the right chunks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.lab import disks
from backupd.lab.guest import SPARE
from tests.lab.inside.host import SITE, Changes, Host, tool

KIB = 1 << 10
VG = SITE.volume_group
FAST = str(SPARE[0])  # past what makes the disks of this machine slow
TUNE = ("--tune", "--file-size", "64M", "--seconds", "3", "--repeat", "5", "--chunk-sizes", "64k,512k")
OPEN: Changes = {"jobs.nightly.snapshot.size": "256MiB"}  # fits on the spare disk; the rest is left to backupd
BY_PROBE: Changes = {**OPEN, "jobs.nightly.snapshot.pvs": "auto"}


@contextmanager
def fast_pv() -> Iterator[str]:
    """A PV that is faster than the volume's own, in its group for the length of the block."""
    assert FAST not in os.environ["BACKUPD_LAB_SPARE_DISKS"].split(), "the spare disk is slowed under another name"
    slow = [Path(pv) for pv in tool("pvs", "--noheadings", "--options", "pv_name").split()]
    disks.restrict_lvm(SITE, [*slow, SPARE[0]], with_udev=False)
    tool("vgextend", "--yes", VG, FAST)
    try:
        yield FAST
    finally:
        tool("vgreduce", VG, FAST)
        disks.restrict_lvm(SITE, slow, with_udev=False)


@pytest.mark.timeout(600)  # some forty snapshots
def test_the_tuner_finds_the_fast_pv_and_the_right_chunk_size(host: Host) -> None:
    with fast_pv() as fast:
        found = host.backupd("probe", "nightly", *TUNE, "--json", changes=OPEN).document["tuning"]
        best, ratios = found["recommended"], {}
        for cell in found["cells"]:
            ratios[cell["chunk_size"], tuple(cell["cow_pvs"])] = cell["ratio"]
        assert best["cow_pvs"] == [fast], f"{best} of {list(ratios.items())}"
        assert best["gain"] > best["noise"], ratios
        assert ratios[best["chunk_size"], (fast,)] >= 0.95 * max(ratios.values()), "within 5 % of the best cell"
        at_home = {chunk: ratio for (chunk, place), ratio in ratios.items() if not place}
        assert max(at_home, key=at_home.__getitem__) == 512 * KIB, f"large chunks save seeks: {ratios}"

        told = host.backupd("check", "nightly", changes=BY_PROBE).stdout
        assert f"the best with the COW area on {fast} by the probe of" in told
        assert f"COW area: on {fast}: if that PV is lost" in told
        # A place that the job has not left open is not chosen.
        assert fast not in host.backupd("check", "nightly", changes=OPEN).stdout
    told = host.backupd("check", "nightly", changes=BY_PROBE).stdout  # without the PV it is another layout
    assert f"its recommendation is left aside: {FAST} is gone or another disk" in told
