"""What a bench says before it begins, and while it goes on."""

from dataclasses import replace

import pytest

from backupd.cli.bench_plan import plan_lines
from backupd.cli.bench_progress import BenchProgress, bench_progress, disk_lines
from backupd.vocabulary.benches import LARGE_RECORD, BenchPlan, Cell, DiskSample, PlannedLayout, PublishedTable
from backupd.vocabulary.scratch_layouts import MIB, LayoutKind, Operation
from tests.fakes.benched import PVS, striped

GIB = 1 << 30
KINDS = ((LayoutKind.STRIPED, 384 * MIB), (LayoutKind.RAID0, 0))
CELLS = (Cell(Operation.WRITE, LARGE_RECORD), Cell(Operation.READ, LARGE_RECORD))
PLAN = BenchPlan(
    vg="labvg",
    disks=PVS,
    volumes=tuple(
        PlannedLayout(striped(width), CELLS, 384 * MIB, seconds)
        for width, seconds in ((1, 100.0), (2, 50.0), (3, 100.0))
    ),
    filesystem="xfs",
    file_size=256 * MIB,
    volume_size=384 * MIB,
    taken=456 * MIB,
    disk_rate=150_000_000,
    written=3 * GIB,
    seconds=250.0,
    snapshots=True,
    notes=("records of 512 bytes are left out",),
)
SAMPLE = DiskSample(
    at_seconds=1.0,
    layout="linear",
    step="write",
    read={"/dev/nbd0": 0.0, "/dev/nbd1": 10.0 * MIB},
    written={"/dev/nbd0": 40.0 * MIB, "/dev/nbd1": 10.0 * MIB},
    system=0.12,
    iowait=0.5,
)


def told(plan: BenchPlan, *, free: int | None = 4 * GIB) -> str:
    return "\n".join(
        plan_lines(plan, tables=(PublishedTable.E2, PublishedTable.E3), repeat=3, free=free, name="backupd-b1")
    )


# --- before ----------------------------------------------------------------------------------------------------------


def test_the_plan_names_each_volume_with_its_size_and_its_disks() -> None:
    assert told(PLAN).splitlines() == [
        "makes 3 scratch volumes in free extents of labvg; no existing volume is touched.",
        "One after the other, called backupd-b1-LAYOUT; each is removed before the next:",
        "  linear         384.0 MiB  2 loads  on nbd0",
        "  striped-2x64k  384.0 MiB  2 loads  on nbd0, nbd1",
        "  striped-3x64k  384.0 MiB  2 loads  on nbd0, nbd1, nbd2",
        "takes at most 456.0 MiB of the free 4.0 GiB at once, snapshot included",
        "measures 6 loads (tables e2, e3) on a file of 256.0 MiB in xfs, each 3 times",
        "takes snapshots of each scratch volume, to see what they cost and how fast they are read",
        "writes at most 3.0 GiB, and takes about 4 min 10 s if each disk writes 150 MB/s;",
        "slower disks take longer; on faster disks more is written",
        "note: records of 512 bytes are left out",
        "Ctrl-C stops and cleans up",
    ]


def test_of_named_disks_it_is_said_that_they_are_taken_whole() -> None:
    by_arrays = tuple(PlannedLayout(striped(2, kind=kind), CELLS, size) for kind, size in KINDS)
    words = told(replace(PLAN, vg="", disks=PVS[:2], volumes=by_arrays, snapshots=False), free=None)
    assert "on the whole of /dev/nbd0, /dev/nbd1, which are empty before and afterwards" in words
    assert "raid0-2x64k    the whole disks" in words
    assert "in a group or as an array called backupd-b1" in words
    assert "snapshots" not in words
    assert "free" not in words


# --- while it goes on ------------------------------------------------------------------------------------------------


def test_a_full_bar_is_the_fastest_rate_that_any_disk_had() -> None:
    assert disk_lines(SAMPLE, fastest=40.0 * MIB) == [
        "  nbd0        ####################     40.0 MiB/s written      0.0 MiB/s read",
        "  nbd1        ##########               10.0 MiB/s written     10.0 MiB/s read",
        "  system 12%  ##########                50% I/O wait",
    ]


@pytest.mark.parametrize("width", [60, 72, 80, 200])
def test_a_disk_has_one_line_on_a_narrow_terminal_too(width: int) -> None:
    course = BenchProgress(PLAN, width=width)
    course.disks(SAMPLE)
    lines = course.lines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= min(width, 80)
    assert "#" in lines[0]


def test_disks_that_lie_idle_have_no_bar() -> None:
    idle = replace(SAMPLE, read=dict.fromkeys(PVS, 0.0), written={}, iowait=0.0)
    assert all("#" not in line for line in disk_lines(idle, fastest=40.0 * MIB))
    assert len(disk_lines(replace(SAMPLE, read={}, written={}), fastest=0.0)) == 1


class Clock:
    """Goes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_display_says_which_volume_it_is_at_and_how_long_it_will_take() -> None:
    clock = Clock()
    course = BenchProgress(PLAN, clock)
    assert course.lines() == ["about 4 min 10 s left"]
    course.step("linear: creating the volume")
    clock.now += 100.0
    course.step("striped-2x64k: creating the volume")
    clock.now += 20.0
    course.step("striped-2x64k: write of 1 MiB, 1 thread, round 2 of 3")
    course.disks(SAMPLE)
    lines = course.lines()
    assert lines[0] == "striped-2x64k: write of 1 MiB, 1 thread, round 2 of 3"
    assert lines[1:-1] == disk_lines(SAMPLE, fastest=40.0 * MIB)
    assert lines[-1] == "scratch volume 2 of 3, about 2 min 10 s left"


def test_the_time_left_is_told_by_what_the_volumes_so_far_took() -> None:
    clock = Clock()
    course = BenchProgress(PLAN, clock)
    course.step("linear: creating the volume")
    clock.now += 120.0  # a fifth more than these disks were thought to take, and not yet done
    assert course.lines()[-1] == "scratch volume 1 of 3, about 3 min 00 s left"
    clock.now += 30.0
    course.step("striped-2x64k: creating the volume")
    assert course.lines()[-1] == "scratch volume 2 of 3, about 3 min 45 s left"
    clock.now += 75.0
    course.step("striped-3x64k: creating the volume")
    assert course.lines()[-1] == "scratch volume 3 of 3, about 2 min 30 s left"
    clock.now += 151.0
    assert course.lines()[-1] == "scratch volume 3 of 3, taking longer than estimated"


def test_time_left_is_never_less_than_nothing() -> None:
    clock = Clock()
    course = BenchProgress(PLAN, clock)
    course.step("striped-3x64k: creating the volume")
    clock.now += 1000.0
    assert course.lines()[-1] == "scratch volume 3 of 3, taking longer than estimated"


def test_a_bar_stays_as_long_for_the_same_rate() -> None:
    course = BenchProgress(PLAN)
    course.disks(SAMPLE)
    slower = replace(SAMPLE, read={}, written={"/dev/nbd0": 20.0 * MIB})
    course.disks(slower)
    assert course.lines()[0] == disk_lines(slower, fastest=40.0 * MIB)[0]


def test_without_a_terminal_each_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bench_progress(PLAN, quiet=False) as telling:
        telling.step("linear: creating the volume")
        telling.disks(SAMPLE)
    assert capsys.readouterr().err == "linear: creating the volume\n"


def test_quietly_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with bench_progress(PLAN, quiet=True) as telling:
        telling.step("linear: creating the volume")
        telling.disks(SAMPLE)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_the_step_the_disks_and_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("rich.live.Live.update", lambda self, text: shown.append(str(text)))
    with bench_progress(PLAN, quiet=False) as telling:
        telling.step("linear: writing the test file")
        telling.disks(SAMPLE)
    assert "linear: writing the test file" in shown[0]
    assert "40.0 MiB/s written" in shown[1]
    assert "I/O wait" in shown[1]
    assert "scratch volume 1 of 3" in shown[1]
