"""What sysbench 1.0.20 printed, and what backupd reads in it. `slow-disk` had each write delayed by 400 ms."""

import re
from pathlib import Path

import pytest

from backupd.errors import UnexpectedOutput
from backupd.probe.sysbench import FileioLoad, failure, parse_fileio, parse_prepared, prepare_argv, window_argv

RECORDED = Path(__file__).parents[1] / "data" / "sysbench"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def printed(name: str, label: str) -> float:
    """A figure of a recorded output, looked up without the parser that is being tested."""
    line = next(line for line in recorded(name).splitlines() if label in line)
    return float(line.rpartition(":")[2].strip().removesuffix("s"))


@pytest.mark.parametrize(
    ("name", "block_size"),
    [("direct-16k-1-thread", 16384), ("direct-4k-4-threads", 4096), ("slow-disk", 16384)],
)
def test_writes_are_counted_by_the_totals(name: str, block_size: int) -> None:
    window = parse_fileio(recorded(name))
    events, seconds = printed(name, "total number of events"), printed(name, "total time")
    assert window.seconds == seconds
    assert window.iops == pytest.approx(events / seconds)
    assert window.bytes_written == events * block_size
    assert window.latency_avg_ms == printed(name, "avg:")
    assert window.latency_p95_ms == printed(name, "95th percentile")


def test_a_disk_that_takes_400_ms_a_write_has_two_and_a_half_iops() -> None:
    assert parse_fileio(recorded("slow-disk")).iops == pytest.approx(2.5, rel=0.01)


def test_an_fsync_is_no_request() -> None:
    window = parse_fileio(recorded("fsync-every-write"))
    assert window.iops == pytest.approx(printed("fsync-every-write", "writes/s"), rel=0.01)
    assert window.iops < printed("fsync-every-write", "total number of events") * 0.51


def test_reads_are_requests_but_write_no_bytes() -> None:
    window = parse_fileio(recorded("mixed-4k-4-threads"))
    reads, writes = printed("mixed-4k-4-threads", "reads/s"), printed("mixed-4k-4-threads", "writes/s")
    assert window.iops == pytest.approx(reads + writes, rel=0.01)
    assert window.bytes_written == pytest.approx(writes * 4096, rel=0.01)


def test_a_window_in_which_not_one_write_ended_has_no_iops() -> None:
    text = re.sub(r"(events:\s+)\d+", r"\g<1>0", recorded("slow-disk"))
    text = re.sub(r"(writes/s:\s+)[\d.]+", r"\g<1>0.00", text)
    window = parse_fileio(text)
    assert (window.iops, window.bytes_written) == (0.0, 0)


@pytest.mark.parametrize("name", ["run-terminated", "run-io-error", "run-not-prepared", "prepare"])
def test_an_output_without_totals_is_shown(name: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        parse_fileio(recorded(name))
    assert recorded(name) in caught.value.message


@pytest.mark.parametrize(
    "line", ["total time", "total number of events", "writes/s", "fsyncs/s", "avg:", "95th percentile", "Block size"]
)
def test_an_output_that_lacks_one_figure_is_refused(line: str) -> None:
    lines = recorded("direct-16k-1-thread").splitlines()
    with pytest.raises(UnexpectedOutput):
        parse_fileio("\n".join(each for each in lines if line not in each))


def test_a_run_that_took_no_time_is_refused() -> None:
    with pytest.raises(UnexpectedOutput):
        parse_fileio(re.sub(r"(total time:\s+)[\d.]+", r"\g<1>0.0000", recorded("direct-16k-1-thread")))


def test_prepare_says_what_it_wrote() -> None:
    assert parse_prepared(recorded("prepare")) == 8 << 20
    assert parse_prepared(recorded("prepare-again")) == 0
    with pytest.raises(UnexpectedOutput):
        parse_prepared(recorded("prepare-disk-full"))


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("prepare-no-direct-io", "Invalid argument", "direct I/O"),
        ("run-no-direct-io", "Invalid argument", "direct I/O"),
        ("prepare-disk-full", "No space left on device", "free some room"),
        ("run-io-error", "Input/output error", "kernel's log"),
        ("run-not-prepared", "No such file", ""),
    ],
)
def test_a_failure_is_told_in_sysbenchs_words_with_a_hint(name: str, said: str, hint: str) -> None:
    error = failure(1, recorded(name))
    assert said in error.message
    assert "\n" not in error.message
    assert hint in error.hint
    assert bool(hint) == bool(error.hint)


def test_a_failure_without_a_fatal_line_shows_everything() -> None:
    assert "cannot change directory" in failure(125, "env: cannot change directory to 'x'\n").message


@pytest.mark.parametrize(("seconds", "option"), [(1.0, "--time=1"), (2.5, "--time=3"), (0.2, "--time=1")])
def test_a_window_is_whole_seconds_and_never_endless(seconds: float, option: str) -> None:
    assert option in window_argv(FileioLoad(), Path("/data/.backupd-1"), seconds)


def test_the_file_is_written_and_rewritten_past_the_page_cache() -> None:
    folder = Path("/data/.backupd-1")
    for argv in (prepare_argv(FileioLoad(), folder), window_argv(FileioLoad(), folder, 1.0)):
        assert "--file-extra-flags=direct" in argv
        assert f"--file-total-size={8 << 20}" in argv
