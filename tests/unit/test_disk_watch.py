"""What disks and processors did while a bench loaded them: as samples over time, and as shares of one window."""

import threading
from pathlib import Path

import pytest

from backupd.load.disk_watch import BenchLook, DiskWatch, rates, usage
from backupd.vocabulary.benches import Cell, DiskSample
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import DiskCounters, ProcessorTimes
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, Medium, Operation, ScratchLayout
from backupd.vocabulary.volumes import DeviceNumber
from tests.fakes.bench_loads import DISKS, FakeDisks

PATIENCE = 10.0
NEVER = 3600.0  # seconds: the thread of the watch does not look by itself
STRIPED = ScratchLayout(LayoutKind.STRIPED, DISKS, 64 * KIB)
LINEAR = ScratchLayout(LayoutKind.LINEAR, DISKS[:1])


class Host:
    """Disks on paper, and a clock that moves with their windows."""

    def __init__(self, layout: ScratchLayout = STRIPED) -> None:
        self.now = 100.0
        self.disks = FakeDisks(layout_at=lambda where: layout, during_window=self.work)
        self.interrupted = threading.Event()
        self.told: list[DiskSample] = []
        self.heard = threading.Event()

    def work(self, seconds: float) -> None:
        self.now += seconds

    def tell(self, sample: DiskSample) -> None:
        self.told.append(sample)
        self.heard.set()

    def watch(self, *, tick_seconds: float = NEVER) -> DiskWatch:
        counters = self.disks.counters
        return DiskWatch(
            counters,
            {name: counters.number_of(Path(name)) for name in DISKS},
            interrupt=self.interrupted.set,
            tell=self.tell,
            clock=lambda: self.now,
            tick_seconds=tick_seconds,
        )

    def load(self, where: Path, operation: Operation, seconds: float = 1.0) -> tuple[int, int]:
        """Bytes read and written by one thread with records of 1 MiB."""
        load = self.disks.loads[Medium.FILE]
        window = load.window(where, Cell(operation, MIB), size=4 * MIB, seconds=seconds)
        return window.bytes_read, window.bytes_written

    def lose_a_disk(self) -> None:
        self.disks.names = DISKS[:2]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host()
    made.disks.loads[Medium.FILE].prepare(tmp_path, 4 * MIB)
    return made


def test_each_sample_has_the_rates_and_the_words_of_what_was_done_then(host: Host, tmp_path: Path) -> None:
    with host.watch() as watch:
        watch.label("striped-3x64k", "writing")
        _, written = host.load(tmp_path, Operation.WRITE)
        watch.label("striped-3x64k", "reading")
        read, _ = host.load(tmp_path, Operation.READ, 2.0)
    writing, reading = watch.samples
    assert [writing.step, reading.step] == ["writing", "reading"]
    assert [writing.at_seconds, reading.at_seconds] == pytest.approx([1.0, 3.0])
    assert sum(writing.written.values()) == pytest.approx(written)
    assert sum(writing.read.values()) == 0
    assert sum(reading.read.values()) == pytest.approx(read / 2)
    assert list(reading.read) == list(DISKS)
    assert writing.system == pytest.approx(0.1)
    assert 0 < writing.iowait < 1


def test_each_sample_is_told_as_it_comes(host: Host, tmp_path: Path) -> None:
    with host.watch() as watch:
        host.load(tmp_path, Operation.WRITE)
        assert host.told == []
        watch.label("linear", "next")
        assert len(host.told) == 1
    assert tuple(host.told) == watch.samples


def test_it_looks_by_itself_while_one_thing_takes_long(host: Host) -> None:
    with host.watch(tick_seconds=0.01) as watch:
        host.now += 1.0
        assert host.heard.wait(PATIENCE)
        watch.require_fine()
    assert host.told[0].at_seconds == pytest.approx(1.0)


def test_what_took_next_to_no_time_is_no_sample_of_its_own(host: Host) -> None:
    """A rate over a few milliseconds of processor time that is counted in hundredths of a second says nothing."""
    with host.watch() as watch:
        for number in range(5):
            watch.label("linear", f"step {number}")
        host.now += 1.0
    assert [sample.step for sample in watch.samples] == ["step 4"]


def test_a_look_that_fails_ends_the_window_with_its_own_error(host: Host) -> None:
    watch = host.watch(tick_seconds=0.01)
    with pytest.raises(CommandError, match="no device"), watch:
        host.lose_a_disk()
        host.now += 1.0
        assert host.interrupted.wait(PATIENCE)
        with pytest.raises(CommandError, match="no device"):
            watch.require_fine()


def test_what_the_block_raised_is_not_hidden_by_what_a_look_raised(host: Host) -> None:
    with pytest.raises(CommandError, match="sysbench was interrupted"), host.watch(tick_seconds=0.01):
        host.lose_a_disk()
        host.now += 1.0
        assert host.interrupted.wait(PATIENCE)
        raise CommandError("sysbench was interrupted")


def test_disks_that_cannot_be_looked_at_are_not_watched_at_all(host: Host) -> None:
    host.lose_a_disk()
    watch = DiskWatch(host.disks.counters, {"/dev/sdd": DeviceNumber(8, 48)}, interrupt=host.interrupted.set)
    with pytest.raises(CommandError, match="no device"), watch:
        raise AssertionError("it has begun")
    assert not _watching()


def test_a_watch_that_broke_is_told(host: Host) -> None:
    def broken(sample: DiskSample) -> None:
        raise RuntimeError("a bug")

    host.tell = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a bug"), host.watch(tick_seconds=0.01) as watch:
        host.now += 1.0
        while True:
            watch.require_fine()


def test_the_watching_has_ended_when_the_block_has(host: Host) -> None:
    with pytest.raises(CommandError), host.watch(tick_seconds=0.01):
        assert _watching()
        raise CommandError("something else")
    assert not _watching()


# --- around one window -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", list(Operation))
def test_the_shares_of_the_disks_add_up_to_the_load(host: Host, tmp_path: Path, operation: Operation) -> None:
    watch = host.watch()
    before = watch.look()
    window = host.disks.loads[Medium.FILE].window(tmp_path, Cell(operation, MIB), size=4 * MIB, seconds=1.0)
    found = usage(before, watch.look(), window)
    assert sum(found.shares.values()) == pytest.approx(1.0, abs=0.02)
    assert found.shares == pytest.approx(dict.fromkeys(DISKS, 1 / 3), abs=0.01)
    assert found.system == pytest.approx(0.1)
    assert found.iowait == pytest.approx(0.2)


def test_a_linear_volume_has_all_of_it_on_one_disk(tmp_path: Path) -> None:
    host = Host(LINEAR)
    host.disks.loads[Medium.FILE].prepare(tmp_path, 4 * MIB)
    watch = host.watch()
    before = watch.look()
    window = host.disks.loads[Medium.FILE].window(tmp_path, Cell(Operation.WRITE, MIB), size=4 * MIB, seconds=1.0)
    assert usage(before, watch.look(), window).shares == pytest.approx({DISKS[0]: 1.0, DISKS[1]: 0.0, DISKS[2]: 0.0})


def test_what_others_move_shows_in_the_shares(host: Host, tmp_path: Path) -> None:
    watch = host.watch()
    before = watch.look()
    window = host.disks.loads[Medium.FILE].window(tmp_path, Cell(Operation.WRITE, MIB), size=4 * MIB, seconds=1.0)
    host.disks.move(DISKS[0], read=window.bytes_written)
    assert sum(usage(before, watch.look(), window).shares.values()) == pytest.approx(2.0)


def test_a_load_that_moved_nothing_has_no_shares(host: Host, tmp_path: Path) -> None:
    look = host.watch().look()
    window = host.disks.loads[Medium.FILE].window(tmp_path, Cell(Operation.WRITE, MIB), size=4 * MIB, seconds=1.0)
    nothing = type(window)(1.0, 0.0, 0, 0.0, 0.0)
    assert usage(look, look, nothing).shares == {}
    assert usage(look, look, nothing).system is None


@pytest.mark.parametrize(
    ("spent", "shares"),
    [
        (ProcessorTimes(user=1, system=1, idle=2, iowait=-1), (0.25, 0)),
        (ProcessorTimes(system=1, idle=-3, iowait=3), (0.25, 0.75)),
    ],
)
def test_idle_time_and_io_wait_that_go_back_are_none(spent: ProcessorTimes, shares: tuple[float, float]) -> None:
    """The kernel says so itself: its counts of them may go back. A share is between none and all of the time."""
    disk = {"/dev/sdb": DiskCounters()}
    began = ProcessorTimes(user=10, system=10, idle=10, iowait=10)
    ended = ProcessorTimes(10 + spent.user, 10 + spent.system, 10 + spent.idle, 10 + spent.iowait)
    sample = rates(BenchLook(0, disk, began), BenchLook(1, disk, ended), at_seconds=1, layout="linear", step="writing")
    assert (sample.system, sample.iowait) == shares


def _watching() -> bool:
    return any(thread.name.startswith("disk-watch") for thread in threading.enumerate())
