"""Who watches over a probe: a window that must not go on is ended, and why is told."""

import threading

import pytest

from backupd.load.guard import ProbeGuard
from backupd.load.tally import CounterLook
from backupd.vocabulary.errors import CommandError, GaveUp, SnapshotVoid
from backupd.vocabulary.gauges import DiskCounters

PATIENCE = 10.0


class Disks:
    """Counters that move on with each look: a write of so many milliseconds, a request on each PV."""

    def __init__(self, *, latency_ms: float = 1.0, error: Exception | None = None) -> None:
        self.latency_ms, self.error = latency_ms, error
        self.looks = 0
        self.interrupted = threading.Event()
        self.told = threading.Event()
        self.rates: dict[str, float] = {}

    def look(self) -> CounterLook:
        self.looks += 1
        if self.error is not None:
            raise self.error
        origin = DiskCounters(writes=self.looks, write_seconds=self.looks * self.latency_ms / 1000)
        return CounterLook(float(self.looks), origin, {"/dev/a": DiskCounters(self.looks, 0, 2 * self.looks)})

    def tell(self, rates: object, latency_ms: float) -> None:
        self.rates = dict(rates) if isinstance(rates, dict) else {}
        self.told.set()

    def guard(self, limit_ms: float | None) -> ProbeGuard:
        return ProbeGuard(
            self.look,
            max_write_latency_ms=limit_ms,
            interrupt=self.interrupted.set,
            tell=self.tell,
            tick_seconds=0.01,
        )


def test_writes_beyond_the_limit_end_the_window() -> None:
    disks = Disks(latency_ms=80.0)
    with disks.guard(50.0) as guard:
        assert disks.interrupted.wait(PATIENCE)
        with pytest.raises(GaveUp, match="took 80 ms on average, the limit is 50 ms"):
            guard.require_fine()


def test_writes_below_the_limit_go_on_and_each_disks_rate_is_told() -> None:
    disks = Disks(latency_ms=20.0)
    with disks.guard(50.0) as guard:
        assert disks.told.wait(PATIENCE)
        guard.require_fine()
    assert disks.rates == {"/dev/a": 3.0}
    assert not disks.interrupted.is_set()


def test_a_look_that_fails_ends_the_window_with_its_own_error() -> None:
    disks = Disks(error=SnapshotVoid("snapshot labvg/x overflowed"))
    with disks.guard(None) as guard:
        assert disks.interrupted.wait(PATIENCE)
        with pytest.raises(SnapshotVoid, match="overflowed"):
            guard.require_fine()


def test_a_guard_that_broke_is_no_guard() -> None:
    disks = Disks(error=RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"), disks.guard(None) as guard:
        while True:
            guard.require_fine()


def test_the_watching_has_ended_when_the_block_has() -> None:
    disks = Disks()
    with pytest.raises(CommandError), disks.guard(None):
        assert disks.told.wait(PATIENCE)
        raise CommandError("something else")
    assert not any(thread.name.startswith("guard") for thread in threading.enumerate())
