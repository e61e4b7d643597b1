"""What the kernel counts of block devices, as text and as a folder of sysfs."""

import os
from pathlib import Path

import pytest

from backupd.load.counters import KernelCounters, parse_inflight, parse_processors, parse_stat
from backupd.vocabulary.errors import CommandError, UnexpectedOutput
from backupd.vocabulary.gauges import DiskCounters, InFlight
from backupd.vocabulary.volumes import DeviceNumber

# a virtual disk's, Linux 6.18; and the first eleven fields as a kernel before 4.18 has them
RECENT = (
    "  949860    81511 47364098   409641 13406198   573084 498996568  2001159        0   762280  2503373   654674"
    "      100 165386488    59755   637868    32816\n"
)
ELEVEN = " ".join(RECENT.split()[:11])


@pytest.mark.parametrize("text", [RECENT, ELEVEN])
def test_requests_bytes_and_seconds_are_told_apart(text: str) -> None:
    assert parse_stat(text) == DiskCounters(
        reads=949860,
        read_bytes=47364098 * 512,
        writes=13406198,
        write_bytes=498996568 * 512,
        read_seconds=409.641,
        write_seconds=2001.159,
        busy_seconds=762.28,
    )


@pytest.mark.parametrize("text", ["", "1 2 3", ELEVEN.replace("949860", "-1"), ELEVEN.replace("949860", "many")])
def test_counters_that_are_not_as_we_know_them_are_shown(text: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        parse_stat(text)
    assert repr(text) in caught.value.message


def test_what_is_in_flight_is_told_apart_and_anything_else_is_shown() -> None:
    assert parse_inflight("       3        12\n") == InFlight(reads=3, writes=12)
    with pytest.raises(UnexpectedOutput, match="count of requests in flight: '3'"):
        parse_inflight("3")


def test_a_device_is_found_by_its_number(tmp_path: Path) -> None:
    for number, text in (("254:0", RECENT), ("254:1", "0 " * 17)):
        (tmp_path / number).mkdir()
        (tmp_path / number / "stat").write_text(text)
    counters = KernelCounters(tmp_path)
    assert counters.disk(DeviceNumber(254, 0)).writes == 13406198
    assert counters.disk(DeviceNumber(254, 1)) == DiskCounters()


def test_a_device_that_has_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no block device 254:9") as caught:
        KernelCounters(tmp_path).disk(DeviceNumber(254, 9))
    assert "lsblk" in caught.value.hint


def test_every_device_of_this_kernel_is_understood() -> None:
    for entry in Path("/sys/dev/block").iterdir():
        major, _, minor = entry.name.partition(":")
        assert KernelCounters().disk(DeviceNumber(int(major), int(minor))).writes >= 0


def test_a_path_that_is_no_block_device_has_no_number(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="/dev/null is not a block device"):
        KernelCounters().number_of(Path("/dev/null"))
    with pytest.raises(CommandError, match="No such file"):
        KernelCounters().number_of(tmp_path / "gone")


@pytest.mark.parametrize(
    ("line", "total"), [("cpu  500 20 300 9000 160 5 15 40 7 0", 10040), ("cpu 500 20 300 9000 160 5 15", 10000)]
)
def test_processors_times_are_told_in_seconds(line: str, total: int) -> None:
    """A guest's time (7 ticks here) is counted as a user's already; an old kernel tells of no stolen time."""
    hertz = os.sysconf("SC_CLK_TCK")
    found = parse_processors(f"{line}\ncpu0 1 2 3\n")
    assert (found.system, found.idle, found.iowait) == (320 / hertz, 9000 / hertz, 160 / hertz)
    assert found.total == pytest.approx(total / hertz)


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4 5 6 7\n", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6 many\n"])
def test_processors_times_that_are_not_as_we_know_them_are_shown(text: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        parse_processors(text)
    assert repr(text) in caught.value.message


def test_the_kernel_of_this_machine_tells_of_its_processors() -> None:
    before, after = KernelCounters().processors(), KernelCounters().processors()
    assert after.since(before).total >= 0
    assert before.total > before.system > 0
