"""How `make bench-disks` tells what it measured."""

from backupd.lab.sizes import KIB, MIB
from tests.bench.bench_disks import Took, table


def test_a_row_tells_time_and_throughput_and_the_last_one_that_of_all_at_once() -> None:
    lines = table([Took(16 * KIB, 5.0, 4.0), Took(MIB, 12.5, 10.0)], [20.0, 16.0]).splitlines()
    assert lines[2:] == [
        "| 16 KiB | 5.0 ms | 3 MiB/s | 4.0 ms | 4 MiB/s |",
        "| 1024 KiB | 12.5 ms | 80 MiB/s | 10.0 ms | 100 MiB/s |",
        "| 16 KiB, by 4 at once | 20.0 ms | 3 MiB/s | 16.0 ms | 4 MiB/s |",
    ]
