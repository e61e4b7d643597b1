"""`backupd bench` that is refused, stopped or killed, on real LVM and real disks: nothing is touched, or nothing left.

That nothing is left is asked by the fixture `host`, after every test.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.inside.host import GATE_OFF, SITE, Host, catalogue_rows, require_told, tool, until
from tests.lab.inside.moments import snapshotted
from tests.lab.inside.places import volume

VG = SITE.volume_group
SPARE = os.environ["BACKUPD_LAB_SPARE_DISKS"].split()
SMALL = ("--size", "64M", "--repeat", "1", "--table", "e3")
BENCH = ("bench", "layouts", "--vg", VG, "--widths", "2", *SMALL, "--yes", "--json")
ARRAYS = ("bench", "layouts", "--md", ",".join(SPARE), "--overwrite-leftovers", *SMALL, "--yes", "--json")


@pytest.fixture(autouse=True)
def disks_as_before(host: Host) -> Iterator[None]:
    """After every test, as before it, nothing is on the spare disks, no array runs, and no group of ours is there."""
    del host
    yield
    assert [disk for disk in SPARE if tool("wipefs", "--noheadings", disk)] == []
    assert arrays() == []
    assert tool("vgs", "--noheadings", "--options", "vg_name").split() == [VG]


@contextmanager
def nothing_at(path: str) -> Iterator[None]:
    """Whatever is there cannot be started."""
    tool("mount", "--bind", "/dev/null", path)
    try:
        yield
    finally:
        tool("umount", path)


def pvs() -> list[str]:
    return tool("pvs", "--noheadings", "--options", "pv_name", "--sort", "pv_name").split()


def arrays() -> list[str]:
    """Every md device there is, running or half-made."""
    return [path.name for path in Path("/sys/block").glob("md*")]


def refused(host: Host, *words: str, says: str, hint: str, status: int = 5) -> None:
    """Sentence, hint and status; and there was no run."""
    before = catalogue_rows("SELECT run_id FROM runs")
    ended = host.backupd(*words, expect=status)
    assert says in ended.stderr
    assert "hint: " in ended.stderr
    assert hint in ended.stderr
    assert catalogue_rows("SELECT run_id FROM runs") == before


# --- refused ---------------------------------------------------------------------------------------------------------


def test_a_group_without_free_extents_is_refused(host: Host) -> None:
    with volume("filler", "--extents", "100%FREE", VG):
        refused(host, *BENCH, says="free extents", hint="vgextend")


def test_one_pv_is_not_enough(host: Host) -> None:
    refused(host, *BENCH, "--pvs", pvs()[3], says="striping needs two", hint="--pvs")


def test_a_pv_that_is_not_in_the_group_is_refused(host: Host) -> None:
    refused(host, *BENCH, "--pvs", f"{pvs()[0]},{SPARE[0]}", says=SPARE[0], hint=pvs()[0])


def test_a_group_that_is_not_there_is_refused(host: Host) -> None:
    refused(host, "bench", "layouts", "--vg", "nosuch", "--yes", says="no volume group nosuch", hint="vgs")


def test_sizes_that_do_not_align_are_refused(host: Host) -> None:
    for option, size in (("--size", "63k"), ("--stripe-sizes", "48k"), ("--stripe-sizes", "1k")):
        refused(host, *BENCH, option, size, says=option, hint="", status=2)


def test_a_disk_of_a_group_is_no_empty_disk(host: Host) -> None:
    words = ("bench", "layouts", "--md", f"{SPARE[0]},{pvs()[0]}", *SMALL, "--yes")
    refused(host, *words, says=pvs()[0], hint="")
    assert pvs()


def test_a_disk_with_something_on_it_is_refused_and_it_stays(host: Host) -> None:
    tool("mkfs.ext4", "-q", "-E", "nodiscard", "-L", "precious", SPARE[1])
    try:
        refused(host, *ARRAYS, says="ext4", hint="wipefs")
        assert "precious" in tool("blkid", "-p", SPARE[1])
    finally:
        tool("wipefs", "--quiet", "--all", SPARE[1])


def test_a_volume_of_somebody_s_that_has_our_name_is_left_alone(host: Host) -> None:
    with volume("backupd-b7-striped-2x64k", "--size", "8m", VG):
        ended = host.backupd(*BENCH, "--run-id", "b7", expect=5)
        require_told(ended, status=5, says="backupd-b7-striped-2x64k")
        assert tool("lvs", "--noheadings", "--options", "lv_size", "--units", "m", f"{VG}/backupd-b7-striped-2x64k")


@pytest.mark.parametrize(
    ("program", "words", "says"),
    [
        ("/usr/sbin/mdadm", ARRAYS, "mdadm"),
        ("/usr/bin/fio", (*BENCH, "--raw"), "fio"),
        ("/usr/bin/sysbench", BENCH, "sysbench"),
    ],
    ids=["mdadm", "fio", "sysbench"],
)
def test_a_program_that_is_missing_is_named_before_anything_is_touched(
    host: Host, program: str, words: tuple[str, ...], says: str
) -> None:
    with nothing_at(str(Path(program).resolve())):
        refused(host, *words, says=says, hint=f"apt-get install {says}")


def test_without_a_yes_nothing_is_touched(host: Host) -> None:
    words = [word for word in BENCH if word != "--yes"]
    refused(host, *words, says="--yes", hint="", status=2)


# --- stopped ---------------------------------------------------------------------------------------------------------


def lays_a_volume(run_id: str) -> bool:
    """Its scratch volume is mounted and its file is being worked on."""
    return any(run_id in path for path in Path("/proc/self/mounts").read_text().split())


def probes(run_id: str) -> bool:
    """It is at the probe of a layout, and that has a snapshot."""
    return snapshotted(f"{run_id}-1")


def has_an_array(run_id: str) -> bool:
    """Its array runs, and a file system is mounted on it."""
    return arrays() != [] and lays_a_volume(run_id)


@pytest.mark.parametrize(
    ("words", "moment", "told", "status"),
    [
        (BENCH, lays_a_volume, signal.SIGINT, 11),
        (BENCH, probes, signal.SIGTERM, 15),
        (ARRAYS, has_an_array, signal.SIGINT, 11),
    ],
    ids=["volume", "probe", "array"],
)
def test_a_bench_that_is_stopped_removes_everything(
    host: Host, words: tuple[str, ...], moment: Callable[[str], bool], told: signal.Signals, status: int
) -> None:
    with host.started(*words) as run:
        run.until(moment)
        run.process.send_signal(told)
        document = require_told(run.ended(expect=status), status=status, says="")
    assert document["cells"] == []


@pytest.mark.parametrize(
    ("words", "moment"),
    [(BENCH, lays_a_volume), (BENCH, probes), (ARRAYS, has_an_array)],
    ids=["volume", "probe", "array"],
)
def test_a_bench_that_is_killed_is_cleared_up_by_recover(
    host: Host, words: tuple[str, ...], moment: Callable[[str], bool]
) -> None:
    with host.started(*words) as run:
        run.until(moment)
        run.process.kill()
        run.process.wait()
        until(lambda: not tool_runs("sysbench fileio"))
    assert host.left()
    host.backupd("recover")
    host.nothing_left()
    [(status,)] = catalogue_rows("SELECT status FROM runs WHERE run_id = ?", run.run_id)
    assert status == "failed"


def test_recover_needs_no_catalogue(host: Host) -> None:
    """What is on the host bears our marks: that is enough, once the machine has its name again."""
    host.backupd("run", "nightly", changes=GATE_OFF)
    name = host.backupd("identity", "show", "--json").document["name"]
    for words, moment in ((BENCH, lays_a_volume), (ARRAYS, has_an_array)):
        with host.started(*words) as run:
            run.until(moment)
            run.process.kill()
            run.process.wait()
            until(lambda: not tool_runs("sysbench fileio"))
        lost = SITE.catalogue.with_name("lost.sqlite")
        SITE.catalogue.rename(lost)
        try:
            host.backupd("recover")
            assert name in tool("lvs", "--noheadings", "--options", "lv_tags") or arrays(), "it may be another host's"
            host.backupd("identity", "adopt", name, "--yes")
            host.backupd("recover")
            assert not [path for path in Path("/run/backupd").rglob("*") if path.is_mount()]
            assert "backupd" not in tool("lvs", "--noheadings", "--options", "lv_tags")
            assert arrays() == []
        finally:
            lost.rename(SITE.catalogue)
        host.backupd("identity", "adopt", "--yes")
        host.backupd("recover")


def tool_runs(words: str) -> bool:
    done = subprocess.run(["pgrep", "-f", words], capture_output=True, text=True, check=False)
    return done.returncode == 0


def test_another_run_in_the_group_is_busy(host: Host) -> None:
    with host.started(*BENCH) as run:
        run.until(lays_a_volume)
        ended = host.backupd("probe", "--volume", f"{VG}/data", "--seconds", "1", "--json", expect=4)
        require_told(ended, status=4, says=run.run_id)
        run.process.send_signal(signal.SIGINT)
        run.ended(expect=11)
