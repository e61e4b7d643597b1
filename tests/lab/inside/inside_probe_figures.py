"""Whether a probe's figures are right: beside fio, by hand, on the same volume in the same boot; and in time.

On disks that queue, with an idle server, so that two tools see the same disks. Both go through their rounds in turn.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.lab.inside.host import SITE, Host, tool

VG = SITE.volume_group
CHUNKS = {"4k": 4 << 10, "512k": 512 << 10}
DEFAULT = CHUNKS["4k"]  # LVM's
ROUNDS = 3
SECONDS = 5
FILE = SITE.mount_point / "fio.dat"
FILE_SIZE = "128M"
PROBE = ("probe", "--volume", f"{VG}/data", "--modes", "direct", "--file-size", FILE_SIZE, "--seconds", str(SECONDS))


@dataclass
class Figures:
    """IOPS of one tool, by what was measured: None is without a snapshot, else the chunk size in bytes."""

    rounds: dict[int | None, list[float]] = field(default_factory=dict)

    def add(self, chunk_size: int | None, iops: float) -> None:
        self.rounds.setdefault(chunk_size, []).append(iops)

    def iops(self, chunk_size: int | None) -> float:
        return median(self.rounds[chunk_size])

    def penalty(self, chunk_size: int) -> float:
        return self.iops(None) / self.iops(chunk_size)


def fio(*words: str) -> dict[str, Any]:
    """fio by hand on one file: its job's report."""
    argv = ["fio", "--name=x", f"--filename={FILE}", f"--size={FILE_SIZE}", "--output-format=json", *words]
    job: dict[str, Any] = json.loads(tool(*argv))["jobs"][0]
    return job


def fio_window() -> float:
    """Random direct writes of 16 KiB by one thread for a window's length: IOPS."""
    job = fio(
        *("--rw=randwrite", "--bs=16k", "--direct=1", "--ioengine=psync", "--norandommap", "--randrepeat=0"),
        *("--time_based", f"--runtime={SECONDS}"),
    )
    return float(job["write"]["iops"])


def with_snapshot(chunk: str, measure: Callable[[], float], *, pv: str) -> float:
    """What is measured while there is a snapshot by LVM's own command, with its COW area on that PV."""
    settings = ("--config", "activation/monitoring=0")
    tool("lvcreate", "-y", *settings, "-s", "-c", chunk, "-L", "800m", "-n", "byhand", f"{VG}/data", pv)
    try:
        return measure()
    finally:
        tool("lvremove", "-y", *settings, f"{VG}/byhand")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Figures, Figures]:
    """The probe's and fio's, a round of each in turn."""
    host = Host(tmp_path_factory.mktemp("host"))
    fourth = tool("pvs", "--noheadings", "--options", "pv_name", "--sort", "pv_name").split()[3]
    job = {"jobs.nightly.snapshot.pvs": [fourth]}
    probed, by_hand = Figures(), Figures()
    for _ in range(ROUNDS):
        asked = ("probe", "nightly", *PROBE[3:], "--chunk-sizes", ",".join(CHUNKS), "--repeat", "1", "--json")
        for row in host.backupd(*asked, changes=job).document["rows"]:
            probed.add(row["chunk_size"], row["iops"])
        fio("--rw=write", "--bs=1M", "--end_fsync=1")
        by_hand.add(None, fio_window())
        for chunk, size in CHUNKS.items():
            by_hand.add(size, with_snapshot(chunk, fio_window, pv=fourth))
        FILE.unlink()
    host.nothing_left()
    return probed, by_hand


def test_writes_without_a_snapshot_are_as_fast_as_fio_says(figures: tuple[Figures, Figures]) -> None:
    probed, by_hand = figures
    assert probed.iops(None) == pytest.approx(by_hand.iops(None), rel=0.10)


def test_writes_with_a_snapshot_are_as_fast_as_fio_says(figures: tuple[Figures, Figures]) -> None:
    probed, by_hand = figures
    assert probed.iops(DEFAULT) == pytest.approx(by_hand.iops(DEFAULT), rel=0.10)
    assert probed.penalty(DEFAULT) == pytest.approx(by_hand.penalty(DEFAULT), rel=0.10)


@pytest.mark.parametrize("chunk_size", CHUNKS.values())
def test_the_penalty_of_each_chunk_size_is_the_one_that_fio_finds(
    figures: tuple[Figures, Figures], chunk_size: int
) -> None:
    probed, by_hand = figures
    assert probed.penalty(chunk_size) == pytest.approx(by_hand.penalty(chunk_size), rel=0.15)


def test_chunk_sizes_come_out_in_fios_order(figures: tuple[Figures, Figures]) -> None:
    probed, by_hand = figures
    small, large = CHUNKS.values()
    assert (probed.penalty(small) < probed.penalty(large)) == (by_hand.penalty(small) < by_hand.penalty(large))


def test_a_default_probe_ends_in_under_four_minutes(host: Host) -> None:
    began = time.monotonic()
    document = host.backupd("probe", "--volume", f"{VG}/data", "--seconds", "5", "--json").document
    assert time.monotonic() - began < 240
    assert [(row["mode"], row["phase"], row["repeats"]) for row in document["rows"]][:4] == [
        ("direct", "baseline", 3),
        ("direct", "first", 3),
        ("rewrite", "baseline", 3),
        ("rewrite", "first", 3),
    ]
    [baseline, first] = [row for row in document["rows"] if row["mode"] == "direct"]
    assert first["penalty"] > 1.5
    assert baseline["spread"] < 0.5
    assert document["settings"]["chunk_size"] == 4096
    assert Path(document["settings"]["cow_pvs"][0]).exists()
