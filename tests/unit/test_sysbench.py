"""What sysbench 1.0.20 printed, and what backupd reads in it. `slow-disk` had each write delayed by 400 ms."""

import re
from pathlib import Path

import pytest

from backupd.load.fileprobe import SysbenchProbe, sysbench_test
from backupd.load.sysbench import (
    SYSBENCH,
    FileTest,
    failure,
    overwrite_argv,
    parse_fileio,
    parse_prepared,
    prepare_argv,
    window_argv,
)
from backupd.vocabulary.errors import CommandError, UnexpectedOutput
from backupd.vocabulary.gauges import FileLoad, Mode

BLOCK, AREA = 16 << 10, 8 << 20
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


@pytest.mark.parametrize("name", ["sync-16k-1-thread", "sync-mixed-16k-1-thread"])
def test_the_fsync_after_each_write_is_a_part_of_it(name: str) -> None:
    window = parse_fileio(recorded(name))
    assert window.iops * window.seconds == pytest.approx(printed(name, "total number of events"))
    assert window.latency_avg_ms == printed(name, "avg:")


def test_the_fsyncs_at_the_end_are_no_events_and_cost_their_time() -> None:
    """By strace: 10 threads, each fsync delayed by 400 ms, 3000 writes, 30 periodic fsyncs, 10 at the end."""
    window = parse_fileio(recorded("fsync-100-slow-disk"))
    assert window.bytes_written == 3000 * 16384
    assert window.iops == pytest.approx(3000 / 1.6584)
    assert window.latency_avg_ms == pytest.approx(printed("fsync-100-slow-disk", "avg:") * 3030 / 3000)


@pytest.mark.parametrize("name", ["fsync-100-16k-1-thread", "fsync-100-16k-10-threads"])
def test_one_fsync_comes_on_a_hundred_requests(name: str) -> None:
    window = parse_fileio(recorded(name))
    assert window.iops * window.seconds == pytest.approx(printed(name, "total number of events") / 1.01, abs=10)


@pytest.mark.parametrize(("name", "block_size"), [("read-16k-1-thread", 16 << 10), ("scan-1m-1-thread", 1 << 20)])
def test_reads_are_counted_by_the_totals(name: str, block_size: int) -> None:
    window = parse_fileio(recorded(name))
    assert window.iops == pytest.approx(printed(name, "total number of events") / printed(name, "total time"))
    assert window.bytes_read == printed(name, "total number of events") * block_size
    assert window.bytes_written == 0


def test_an_overwritten_area_is_all_that_was_written() -> None:
    assert parse_fileio(recorded("overwrite-8m")).bytes_written == 8 << 20


def test_a_share_of_a_fifth_is_written() -> None:
    window = parse_fileio(recorded("mixed-16k-1-thread"))
    assert window.bytes_written / (window.bytes_written + window.bytes_read) == pytest.approx(0.2, abs=0.001)


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
    assert parse_prepared(recorded("prepare-buffered")) == 8 << 20
    assert parse_prepared(recorded("prepare-extended")) == 1 << 20
    assert parse_prepared(recorded("prepare-larger-file")) == 0
    with pytest.raises(UnexpectedOutput):
        parse_prepared(recorded("prepare-disk-full"))


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("prepare-no-direct-io", "Invalid argument", "direct I/O"),
        ("run-no-direct-io", "Invalid argument", "direct I/O"),
        (
            "prepare-disk-full",
            "No space left on device",
            "free some space on the file system, or use a smaller probe file",
        ),
        ("run-io-error", "Input/output error", "check the kernel log (dmesg): the disk or the volume under"),
        ("run-not-prepared", "No such file", ""),
        ("run-file-too-small", "at least 16MiB is expected", ""),
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
    assert option in window_argv(FileTest("rndwr", 8 << 20, 16 << 10), seconds)


@pytest.mark.parametrize(
    ("mode", "test", "direct", "fsyncs"),
    [
        (Mode.DIRECT, "rndwr", True, {"--file-fsync-freq=0", "--file-fsync-end=off"}),
        (Mode.REWRITE, "rndwr", True, {"--file-fsync-freq=0", "--file-fsync-end=off"}),
        (Mode.SYNC, "rndwr", False, {"--file-fsync-all=on", "--file-fsync-freq=0", "--file-fsync-end=off"}),
        (Mode.FSYNC_100, "rndwr", False, {"--file-fsync-freq=100", "--file-fsync-end=on"}),
        (Mode.READ, "rndrd", True, {"--file-fsync-freq=0", "--file-fsync-end=off"}),
        (Mode.SCAN, "seqrd", True, {"--file-fsync-freq=0", "--file-fsync-end=off"}),
    ],
)
def test_a_mode_is_a_test_and_a_way_past_the_page_cache(mode: Mode, test: str, direct: bool, fsyncs: set[str]) -> None:
    argv = window_argv(sysbench_test(FileLoad(mode, 10, BLOCK, AREA)), 1.0)
    assert f"--file-test-mode={test}" in argv
    assert ("--file-extra-flags=direct" in argv) is direct
    assert {each for each in argv if "fsync" in each} == fsyncs
    assert {"--threads=10", "--file-block-size=16384", f"--file-total-size={8 << 20}"} <= set(argv)


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.writes])
def test_a_fifth_of_writes_is_four_reads_to_one(mode: Mode) -> None:
    argv = window_argv(sysbench_test(FileLoad(mode, 1, BLOCK, AREA, write_share=0.2)), 1.0)
    assert {"--file-test-mode=rndrw", "--file-rw-ratio=4"} <= set(argv)


def test_the_file_is_prepared_by_large_writes_through_the_page_cache() -> None:
    argv = prepare_argv(8 << 20)
    assert f"--file-block-size={1 << 20}" in argv
    assert not [each for each in argv if "direct" in each]


@pytest.mark.parametrize(
    ("area", "block", "events"), [(8 << 20, 1 << 20, 8), (48 << 10, 16 << 10, 3), (3 << 19, 1 << 19, 3)]
)
def test_an_area_is_overwritten_in_the_largest_blocks_that_fit(area: int, block: int, events: int) -> None:
    argv = set(overwrite_argv(area))
    assert {f"--file-block-size={block}", f"--events={events}", f"--file-total-size={area}"} <= argv
    assert {"--file-test-mode=seqrewr", "--file-extra-flags=direct", "--threads=1", "--time=0"} <= argv


@pytest.mark.parametrize("mode", [Mode.READ_SNAPSHOT, Mode.SCAN_SNAPSHOT, Mode.PASSIVE])
def test_sysbench_cannot_be_asked_for_what_it_cannot_do(mode: Mode) -> None:
    with pytest.raises(ValueError, match=mode.value):
        SysbenchProbe(FileLoad(mode, 1, BLOCK, AREA))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("sysbench 1.0.20\n", "1.0.20"),
        ("sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n", "1.0.20"),
        ("sysbench 1.1.0-2ca9e3f\n", "1.1.0-2ca9e3f"),
    ],
)
def test_a_version_is_read(text: str, version: str) -> None:
    assert SYSBENCH.parse_version(text) == version


@pytest.mark.parametrize("version", ["0.4.12", "0.5"])
def test_a_sysbench_before_1_0_is_too_old(version: str) -> None:
    with pytest.raises(CommandError, match=f"sysbench {version} is too old") as caught:
        SYSBENCH.parse_version(f"sysbench {version}:  multi-threaded system evaluation benchmark\n")
    assert "1.0 or later" in caught.value.hint


def test_a_version_that_is_none_is_shown() -> None:
    with pytest.raises(UnexpectedOutput, match="command not understood"):
        SYSBENCH.parse_version("command not understood")
