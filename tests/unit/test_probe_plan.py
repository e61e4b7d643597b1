"""What a probe will do, before it does it."""

from dataclasses import replace

import pytest

from backupd.policy.probe_plan import bill, read_load, variants, write_loads
from backupd.vocabulary.gauges import FileLoad, Mode
from backupd.vocabulary.probes import ProbeRequest, Variant

K = 1 << 10


def test_every_mode_runs_with_every_number_of_threads_and_a_rewrite_on_its_small_area() -> None:
    request = ProbeRequest(modes=(Mode.DIRECT, Mode.REWRITE), threads=(1, 10), file_size=64 * K, rewrite_size=32 * K)
    assert [(load.mode, load.threads, load.area) for load in write_loads(request)] == [
        (Mode.DIRECT, 1, 64 * K),
        (Mode.DIRECT, 10, 64 * K),
        (Mode.REWRITE, 1, 32 * K),
        (Mode.REWRITE, 10, 32 * K),
    ]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ProbeRequest(), [Variant(64 * K, ("/dev/a",), 1)]),
        (ProbeRequest(chunk_sizes=(4 * K, 16 * K)), [Variant(4 * K, ("/dev/a",)), Variant(16 * K, ("/dev/a",))]),
        (ProbeRequest(cow_on=("/dev/b",)), [Variant(64 * K, ("/dev/a",)), Variant(64 * K, ("/dev/b",))]),
        (ProbeRequest(cow_on=("/dev/a",)), [Variant(64 * K, ("/dev/a",))]),
        (ProbeRequest(snapshots=(1, 3)), [Variant(64 * K, ("/dev/a",), 1), Variant(64 * K, ("/dev/a",), 3)]),
        (ProbeRequest(snapshots=(2,)), [Variant(64 * K, ("/dev/a",), 2)]),
    ],
)
def test_each_option_adds_its_variants(request_: ProbeRequest, expected: list[Variant]) -> None:
    assert list(variants(request_, chunk_size=64 * K, place=(("/dev/a",), 1))) == expected


def test_the_bill_of_a_default_probe() -> None:
    request = ProbeRequest()
    tried = variants(request, chunk_size=4 * K, place=((), 1))
    told = bill(request, tried, cow_size=1 << 30)
    assert told.file_bytes == 256 << 20
    assert told.cow_bytes == 1 << 30
    assert told.snapshots == 6  # three rounds of two loads
    # a round: direct 5 + 5, rewrite 5, and its decay of at most eight windows and the one that ends it
    assert told.seconds == told.writing_seconds == 3 * (10 + 5 + 45)
    assert told.written_bytes(1 << 20) == (256 << 20) + (180 << 20)


def test_a_passive_probe_costs_no_write() -> None:
    told = bill(ProbeRequest(passive=True), (Variant(4 * K),), cow_size=1 << 30)
    assert (told.file_bytes, told.writing_seconds, told.snapshots) == (0, 0, 1)
    assert told.seconds > 0


def test_several_snapshots_at_once_take_room_at_once() -> None:
    request = ProbeRequest(snapshots=(1, 2, 3), modes=(Mode.DIRECT,), repeat=1)
    told = bill(request, variants(request, chunk_size=4 * K, place=((), 1)), cow_size=100)
    assert (told.cow_bytes, told.snapshots) == (300, 6)


def test_a_scan_reads_as_much_at_once_as_a_copy() -> None:
    request = ProbeRequest(file_size=4 << 20)
    assert read_load(request, Mode.SCAN) == FileLoad(Mode.SCAN, 1, 1 << 20, 4 << 20)
    assert read_load(request, Mode.READ).block_size == 16 * K


def test_filling_snapshots_to_read_them_is_on_the_bill() -> None:
    """Per round and kind of snapshot the whole file once, and eight windows of reads beside the two without one."""
    request = ProbeRequest(modes=(Mode.DIRECT,), chunk_sizes=(4 * K, 64 * K), reads=True)
    told = bill(request, variants(request, chunk_size=4 * K, place=((), 1)), cow_size=100)
    assert told.rewrites == 6
    assert told.written_bytes(0.0) == 7 * (256 << 20)
    assert told.seconds == told.writing_seconds + 3 * 5 * (2 + 8 * 2)


def test_scans_alone_cost_no_rewrite_and_few_windows() -> None:
    request = ProbeRequest(modes=(Mode.DIRECT,), reads=True, seconds=1.0, repeat=2)
    filled = bill(request, (Variant(4 * K),), cow_size=100)
    scanned = bill(replace(request, scans_only=True), (Variant(4 * K),), cow_size=100)
    assert (filled.rewrites, scanned.rewrites) == (2, 0)
    assert (filled.seconds, scanned.seconds) == (24, 10)  # a round: 2 windows of writes, 2 + 8 or 1 + 2 of reads
