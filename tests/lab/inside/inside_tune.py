"""`backupd probe --tune` on disks that turn, beside one that is not slowed: it finds that one, and the right chunks."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from backupd.lab import disks
from backupd.lab.guest import SPARE
from tests.lab.inside.host import SITE, Changes, Host, tool

KIB = 1 << 10
VG = SITE.volume_group
FAST = str(SPARE[0])  # past what makes the disks of this machine slow
TUNE = ("--tune", "--file-size", "64M", "--seconds", "3", "--repeat", "4", "--chunk-sizes", "64k,512k")
BY_HAND = SITE.mount_point / "by-hand.dat"
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


def fio(*words: str) -> float:
    """Writes a second by fio: 16 KiB each at random into 32 MiB of a file, as the tuner's own load does."""
    argv = ["fio", "--name=x", f"--filename={BY_HAND}", "--output-format=json", *words]
    return float(json.loads(tool(*argv))["jobs"][0]["write"]["iops"])


def by_fio(cell: dict[str, Any]) -> float:
    """The same with a snapshot by LVM's own command, with such a COW area."""
    settings = ("--config", "activation/monitoring=0")
    size = f"{cell['chunk_size']}b"
    stripes = ("--stripes", str(cell["stripes"]), "--stripesize", size) if cell["stripes"] > 1 else ()
    area = ("-c", size, "-L", "256m", "-n", "byhand", *stripes, f"{VG}/data", *cell["cow_pvs"])
    tool("lvcreate", "-y", *settings, "-s", *area)
    try:
        return fio(
            *("--size=32M", "--rw=randwrite", "--bs=16k", "--direct=1", "--ioengine=psync", "--norandommap"),
            *("--randrepeat=0", "--time_based", "--runtime=3"),
        )
    finally:
        tool("lvremove", "-y", *settings, f"{VG}/byhand")


def grid_by_fio(cells: list[dict[str, Any]]) -> list[float]:
    """How fast each cell is beside the first one: medians of three rounds, as the tuner has them."""
    fio("--size=64M", "--rw=write", "--bs=1M", "--end_fsync=1")
    rounds = [[by_fio(cell) for cell in cells] for _ in range(3)]
    BY_HAND.unlink()
    return [median(one[number] / one[0] for one in rounds) for number in range(len(cells))]


@pytest.mark.timeout(900)  # some eighty snapshots
def test_the_tuner_finds_the_fast_pv_and_the_right_chunk_size(host: Host) -> None:
    with fast_pv() as fast:
        found = host.backupd("probe", "nightly", *TUNE, "--json", changes=OPEN).document["tuning"]
        best, ratios = found["recommended"], {}
        for cell in found["cells"]:
            ratios[cell["chunk_size"], tuple(cell["cow_pvs"]), cell["stripes"]] = cell["ratio"]
        assert (best["cow_pvs"], best["stripes"]) == ([fast], 1), f"{best} of {list(ratios.items())}"
        striped = {place: stripes for _, place, stripes in ratios if stripes > 1}
        assert striped, "the volume lies on more than one PV"
        assert all(len(place) == stripes for place, stripes in striped.items())
        assert best["gain"] > best["noise"], ratios
        assert ratios[best["chunk_size"], (fast,), 1] >= 0.95 * max(ratios.values()), "within 5 % of the best cell"
        at_home = {chunk: ratio for (chunk, place, _), ratio in ratios.items() if not place}
        assert max(at_home, key=at_home.__getitem__) == 512 * KIB, f"large chunks save seeks: {ratios}"

        cells = found["cells"]
        grid = grid_by_fio(cells)
        [chosen] = [
            speed
            for cell, speed in zip(cells, grid, strict=True)
            if all(cell[fact] == best[fact] for fact in ("chunk_size", "cow_pvs", "stripes"))
        ]
        assert chosen >= 0.95 * max(grid), f"within 5 % of the best by fio: {list(zip(cells, grid, strict=True))}"

        told = host.backupd("check", "nightly", changes=BY_PROBE).stdout
        assert f"the best with the COW area on {fast} by the probe of" in told
        assert f"COW area: on {fast}: if that PV is lost" in told
        # A place that the job has not left open is not chosen.
        assert fast not in host.backupd("check", "nightly", changes=OPEN).stdout
    told = host.backupd("check", "nightly", changes=BY_PROBE).stdout  # without the PV it is another layout
    assert f"its recommendation is ignored: {FAST} is missing or was replaced" in told
