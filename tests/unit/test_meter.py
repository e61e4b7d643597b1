"""When a run looks at its server's counters, and what of it comes on the bill."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.catalogue.record import RunRecord
from backupd.catalogue.store import Catalogue
from backupd.operations.backup.meter import CostMeter
from backupd.policy.bill import Count
from backupd.vocabulary.errors import CatalogueError, CommandError, ServerError
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.penalty import Bill, Losses, Sample
from backupd.vocabulary.volumes import Volume
from tests.fakes.lvm_host import LvmHost

BEFORE, MEANWHILE, AFTER = 100, 70, 95  # transactions a second


class Server:
    """Does so many transactions a second as it is told to; a clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now, self.done, self.rate = 0.0, 0.0, BEFORE
        self.looks: list[float] = []
        self.is_away = False
        self.tries: list[float] = []
        self.trouble: Exception = ServerError("it is away")
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()

    def look(self) -> Count:
        self.tries.append(self.now)
        self.asked.set()
        assert self.answers.wait(60)
        if self.is_away:
            raise self.trouble
        self.looks.append(self.now)
        return Count(self.now, 600 + int(self.now), round(self.done), 0, 0)

    def close(self) -> None:
        pass

    def clock(self) -> float:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now, self.done = self.now + seconds, self.done + seconds * self.rate

    def disk(self, path: Path) -> DiskCounters:
        return DiskCounters(busy_seconds=self.now / 2, read_seconds=self.now / 4)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunRecord]:
    with (
        Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue,
        catalogue.open_run("nightly", "db1", run_id="r1") as run,
    ):
        yield run
        run.complete(())


@pytest.fixture
def cost_meter(server: Server, run: RunRecord) -> CostMeter:
    return CostMeter(
        run,
        server,
        read_disk=server.disk,
        undisturbed_seconds=5.0,
        clock=server.clock,
        pause=server.pass_seconds,
    )


@pytest.fixture
def volume() -> Volume:
    return LvmHost().volume


def watch(cost_meter: CostMeter, server: Server, seconds: int) -> None:
    """As the thread does, which none of these tests has."""
    for _ in range(seconds):
        server.pass_seconds(1.0)
        cost_meter.look()


@contextmanager
def locked(cost_meter: CostMeter, server: Server) -> Iterator[None]:
    """For half a second the server does nothing."""
    server.rate = 0
    with cost_meter.silent():
        yield
        server.pass_seconds(0.5)
    server.rate = MEANWHILE


def back_up(cost_meter: CostMeter, server: Server, volume: Volume) -> None:
    watch(cost_meter, server, 5)
    cost_meter.wait_undisturbed()
    server.rate = BEFORE // 2  # the probe's own windows
    watch(cost_meter, server, 3)
    with cost_meter.settled(volume):
        with locked(cost_meter, server):
            pass
        watch(cost_meter, server, 20)
        server.rate = AFTER


def losses(run: RunRecord) -> Losses:
    found = run.so_far().losses
    assert found is not None
    return found


def test_lost_is_reckoned_from_the_lock_to_the_release_by_the_rate_before_the_probe(
    cost_meter: CostMeter, server: Server, run: RunRecord, volume: Volume
) -> None:
    back_up(cost_meter, server, volume)
    found = losses(run)
    assert (found.rate_before, found.seconds, found.done) == (BEFORE, 20.5, 20 * MEANWHILE)
    assert found.lost == 20.5 * BEFORE - 20 * MEANWHILE
    assert found.rate_after is None


def test_how_it_went_on_is_told_when_the_run_is_over(
    cost_meter: CostMeter, server: Server, run: RunRecord, volume: Volume
) -> None:
    back_up(cost_meter, server, volume)
    watch(cost_meter, server, 8)
    server.rate = 1
    watch(cost_meter, server, 30)
    cost_meter.told_after()
    assert losses(run).rate_after == pytest.approx(AFTER, abs=20)


def test_the_baseline_waits_until_the_server_was_watched_for_long_enough(cost_meter: CostMeter, server: Server) -> None:
    watch(cost_meter, server, 2)
    cost_meter.wait_undisturbed()
    assert server.now == 5
    cost_meter.wait_undisturbed()
    assert server.now == 5


def test_a_server_that_was_away_for_a_while_leaves_a_gap(
    cost_meter: CostMeter, server: Server, run: RunRecord, volume: Volume
) -> None:
    watch(cost_meter, server, 5)
    cost_meter.wait_undisturbed()
    with cost_meter.settled(volume):
        with locked(cost_meter, server):
            pass
        server.is_away = True
        watch(cost_meter, server, 10)
        server.is_away = False
        watch(cost_meter, server, 10)
    assert (losses(run).seconds, losses(run).done) == (20.5, 20 * MEANWHILE)


@pytest.mark.parametrize("trouble", [ServerError("it is away"), OSError(2, "no such file"), ValueError("no number")])
def test_whatever_a_look_fails_with_is_a_gap_and_the_server_is_asked_less_and_less(
    cost_meter: CostMeter, server: Server, trouble: Exception
) -> None:
    server.is_away, server.trouble = True, trouble
    watch(cost_meter, server, 200)
    assert server.tries == [1, 2, 4, 8, 16, 32, 64, 124, 184]
    server.is_away = False
    watch(cost_meter, server, 50)
    assert server.looks == list(range(244, 251))


def test_a_look_that_is_not_answered_does_not_hold_up_the_lock_nor_does_anybody_look_under_it(
    cost_meter: CostMeter, server: Server
) -> None:
    server.answers.clear()
    with ThreadPoolExecutor(1) as beside:
        hanging = beside.submit(cost_meter.look)
        assert server.asked.wait(60)
        began = time.monotonic()
        with cost_meter.silent():
            assert time.monotonic() - began < 30  # of 60
            server.answers.set()
            hanging.result()
            cost_meter.look()
    assert len(server.tries) == 1


def test_a_bill_that_cannot_be_recorded_does_not_hide_why_the_run_failed(
    cost_meter: CostMeter, server: Server, run: RunRecord, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_bill: Bill) -> None:
        raise CatalogueError("the disk is full")

    monkeypatch.setattr(run, "bill", full)
    with pytest.raises(ZeroDivisionError) as failed, cost_meter.settled(volume), locked(cost_meter, server):
        raise ZeroDivisionError
    assert failed.value.__notes__ == ["the bill could not be recorded: the disk is full"]


def test_the_bill_has_the_disks_time_from_the_lock_on_and_what_the_samples_say(
    cost_meter: CostMeter, server: Server, run: RunRecord, volume: Volume
) -> None:
    cost_meter.sampled([Sample(-1.0, "baseline", iops=100.0)])
    cost_meter.sampled([Sample(1.0, "settle", ratio=2.0, cow_used=4096), Sample(2.0, "copy", cow_used=8192)])
    back_up(cost_meter, server, volume)
    bill = run.so_far().bill
    assert bill is not None
    assert (bill.seconds, bill.penalty_seconds, bill.copied_on_write) == (20.5, 10.25, 8192)
    disks = len(volume.devices)
    assert (bill.disks, bill.disk_seconds, bill.disk_read_seconds) == (disks, disks * 20.5 / 2, disks * 20.5 / 4)


def test_a_run_that_fails_after_its_lock_is_billed_too(
    cost_meter: CostMeter, server: Server, run: RunRecord, volume: Volume
) -> None:
    with pytest.raises(ZeroDivisionError), cost_meter.settled(volume):
        watch(cost_meter, server, 5)
        cost_meter.wait_undisturbed()
        with locked(cost_meter, server):
            raise ZeroDivisionError
    assert run.so_far().bill is not None


def test_a_run_that_never_asked_for_its_lock_has_no_bill(
    cost_meter: CostMeter, run: RunRecord, volume: Volume, server: Server
) -> None:
    with pytest.raises(ZeroDivisionError), cost_meter.settled(volume):
        watch(cost_meter, server, 5)
        raise ZeroDivisionError
    assert (run.so_far().bill, run.so_far().losses) == (None, None)


def test_disks_that_cannot_be_asked_are_missing_on_the_bill(server: Server, run: RunRecord, volume: Volume) -> None:
    def gone(path: Path) -> DiskCounters:
        raise CommandError(f"no {path}")

    cost_meter = CostMeter(run, server, read_disk=gone, undisturbed_seconds=0, clock=server.clock)
    back_up(cost_meter, server, volume)
    bill = run.so_far().bill
    assert bill is not None
    assert (bill.disk_seconds, bill.seconds) == (None, 20.5)
