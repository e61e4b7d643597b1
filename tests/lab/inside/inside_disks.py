"""The disks of model `hdd` take large requests, and take time for what these move.

Ratios alone: how long a sleep of some milliseconds is depends on what else the host does.
"""

import os
from pathlib import Path

import pytest

from backupd.lab.sizes import KIB, MIB
from tests.bench.bench_disks import AT_ONCE, queue_limits, request_ms, several_ms
from tests.lab.inside.host import SITE

DISK = Path(os.environ["BACKUPD_LAB_SPARE_DISKS"].split()[0])


@pytest.fixture(scope="module", params=[False, True], ids=["read", "write"])
def took(request: pytest.FixtureRequest) -> dict[int, float]:
    """Milliseconds of requests one after the other, by their size."""
    return {size: request_ms(DISK, size, write=request.param) for size in (16 * KIB, 128 * KIB, MIB)}


def test_large_requests_move_more_than_small_ones(took: dict[int, float]) -> None:
    assert MIB / took[MIB] >= 2 * 128 * KIB / took[128 * KIB]


def test_a_large_request_costs_what_it_moves(took: dict[int, float]) -> None:
    assert took[MIB] >= 1.5 * took[16 * KIB]


def test_the_kernel_sees_a_disk_that_turns_and_takes_large_requests_and_so_does_who_asks_for_the_volume() -> None:
    for device in (DISK, SITE.volume_path):
        assert queue_limits(device) == {"rotational": 1, "max_sectors_kb": 1280}


def test_requests_that_come_at_once_wait_for_each_other() -> None:
    assert several_ms(DISK, write=True) >= 0.7 * AT_ONCE * request_ms(DISK, 16 * KIB, write=True)
