"""What fio 3.33 printed of a loop device, and what backupd reads in it."""

import json
import os
from pathlib import Path

import pytest

from backupd.load.fio import FIO, FioLoads, failure, parse_job, prepare_argv, window_argv
from backupd.vocabulary.benches import Cell
from backupd.vocabulary.errors import CommandError, UnexpectedOutput
from backupd.vocabulary.scratch_layouts import KIB, MIB, Medium, Operation

RECORDED = Path(__file__).parents[1] / "data" / "fio"
DEVICE = Path("/dev/labvg/backupd-bench-1")
RANDOM_READ, WRITE = "random-read-16k-3-threads", "write-1m-2-threads"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def figure(name: str, direction: str, *keys: str) -> float:
    """A figure of a recorded report, looked up without the parser that is being tested."""
    found = json.loads(recorded(f"{name}.json"))["jobs"][0][direction]
    for key in keys:
        found = found[key]
    return float(found)


@pytest.mark.parametrize(("name", "direction", "record"), [(RANDOM_READ, "read", 16 * KIB), (WRITE, "write", MIB)])
def test_requests_are_counted_by_the_totals(name: str, direction: str, record: int) -> None:
    window = parse_job(recorded(f"{name}.json"))
    assert window.seconds == figure(name, direction, "runtime") / 1000
    assert window.iops == pytest.approx(figure(name, direction, "iops"), rel=0.001)
    assert window.bytes_read + window.bytes_written == round(window.iops * window.seconds) * record
    assert (window.bytes_read > 0, window.bytes_written > 0) == (direction == "read", direction == "write")
    assert window.latency_avg_ms == figure(name, direction, "lat_ns", "mean") / 1e6
    assert window.latency_p95_ms == figure(name, direction, "lat_ns", "percentile", "95.000000") / 1e6


def test_three_threads_that_wait_have_three_requests_under_way_at_most() -> None:
    window = parse_job(recorded(f"{RANDOM_READ}.json"))
    assert window.iops * window.latency_avg_ms / 1000 <= 3


def test_what_fio_complains_of_before_its_report_does_not_hide_it() -> None:
    assert parse_job("fio: something is odd\n" + recorded(f"{WRITE}.json")) == parse_job(recorded(f"{WRITE}.json"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"jobs": []}',
        '{"jobs": [{}]}',
        '{"jobs": [{"read": {"io_bytes": 0}, "write": {"io_bytes": null}}]}',
        '{"jobs": [{"read": {"io_bytes": 1, "total_ios": 1, "runtime": 0, "lat_ns": {"mean": 1}}, "write": 0}]}',
        '{"fio version": "fio-3.33"}',
    ],
)
def test_a_report_that_says_less_is_shown(text: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        parse_job(text)
    assert text in caught.value.message


@pytest.mark.parametrize("key", ["total_ios", "runtime", "lat_ns", "io_bytes"])
def test_a_report_that_lacks_one_figure_is_refused(key: str) -> None:
    report = json.loads(recorded(f"{WRITE}.json"))
    del report["jobs"][0]["write"][key]
    with pytest.raises(UnexpectedOutput):
        parse_job(json.dumps(report))


def test_two_groups_of_jobs_are_none_of_ours() -> None:
    report = json.loads(recorded(f"{WRITE}.json"))
    report["jobs"] *= 2
    with pytest.raises(UnexpectedOutput):
        parse_job(json.dumps(report))


def says(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on `fio` prints this and ends well."""
    (folder / "printed").write_text(text)
    program = folder / "fio"
    program.write_text(f"#!/bin/sh\ncat '{folder}/printed'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A file is never in use, as far as the kernel is concerned."""
    path = tmp_path / "device"
    path.touch()
    return path


def test_a_device_that_is_too_small_is_told_although_fio_ends_well(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(recorded("prepare-smaller-device.json"), tmp_path, monkeypatch)
    with pytest.raises(CommandError, match=f"fio wrote {8 * MIB} of {16 * MIB} bytes to {device}") as caught:
        FioLoads().prepare(device, 16 * MIB)
    assert f"lsblk {device}" in caught.value.hint


def test_a_load_that_made_no_request_is_told_although_fio_ends_well(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(recorded("write-mounted.json"), tmp_path, monkeypatch)
    with pytest.raises(CommandError, match="fio made no request") as caught:
        FioLoads().window(device, Cell(Operation.WRITE, MIB, 1, Medium.RAW), size=MIB, seconds=1.0)
    assert f"lsblk {device}" in caught.value.hint


def test_a_device_that_is_gone_is_told_before_fio_is_asked(tmp_path: Path) -> None:
    for attempt in (
        lambda: FioLoads().prepare(tmp_path / "gone", MIB),
        lambda: FioLoads().window(tmp_path / "gone", Cell(Operation.READ, MIB, 1, Medium.RAW), size=MIB, seconds=1.0),
    ):
        with pytest.raises(CommandError, match=r"cannot open .*gone: No such file"):
            attempt()


def test_a_failure_is_told_in_fios_words_with_a_hint() -> None:
    error = failure(1, recorded("write-1k-sectors-of-4k.txt"))
    assert error.message == (
        "fio ended with status 1: io_u error on file /dev/loop0: Invalid argument: write offset=0, buflen=1024"
    )
    broken = failure(1, recorded("write-1k-sectors-of-4k.txt").replace("err=22", "err=5"))
    assert "check the kernel log (dmesg): the disk or the volume is failing" in broken.hint


def test_a_failure_without_words_shows_everything() -> None:
    assert "it printed nothing" in failure(1, "").message
    assert "something odd" in failure(1, "something odd\n").message


def test_threads_that_take_turns_are_requests_under_way_in_one_sequence() -> None:
    for operation in (Operation.WRITE, Operation.READ):
        argv = window_argv(DEVICE, Cell(operation, 16 * KIB, 4, Medium.RAW), 4 * MIB, 1.0)
        assert {"--ioengine=libaio", "--iodepth=4", f"--rw={operation}", "--bs=16384"} <= set(argv)
        assert not [each for each in argv if "numjobs" in each]


def test_threads_that_go_anywhere_are_jobs() -> None:
    argv = window_argv(DEVICE, Cell(Operation.RANDOM_WRITE, 16 * KIB, 4, Medium.RAW), 4 * MIB, 1.5)
    assert {"--ioengine=psync", "--numjobs=4", "--rw=randwrite", "--norandommap", "--runtime=1500ms"} <= set(argv)


def test_no_load_of_fio_goes_through_the_page_cache_or_makes_a_file_in_dev() -> None:
    for argv in (
        prepare_argv(DEVICE, 4 * MIB),
        window_argv(DEVICE, Cell(Operation.READ, MIB, 1, Medium.RAW), 4 * MIB, 1.0),
    ):
        assert {"--direct=1", "--allow_file_create=0", f"--filename={DEVICE}", f"--size={4 * MIB}"} <= set(argv)


@pytest.mark.parametrize(("text", "version"), [("fio-3.33\n", "3.33"), ("fio-3.40-12-gabc\n", "3.40-12-gabc")])
def test_a_version_is_read(text: str, version: str) -> None:
    assert FIO.parse_version(text) == version


def test_a_fio_before_3_is_too_old() -> None:
    with pytest.raises(CommandError, match=r"fio 2\.21 is too old"):
        FIO.parse_version("fio-2.21\n")


def test_a_version_that_is_none_is_shown() -> None:
    with pytest.raises(UnexpectedOutput, match="what is fio"):
        FIO.parse_version("what is fio")
