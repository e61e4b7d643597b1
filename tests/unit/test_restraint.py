"""A copy that yields to the server: on a clock that only waiting and reading move, with counters of a volume's."""

from collections.abc import Callable

import pytest

from backupd.archive.governor import CopyGovernor
from backupd.archive.restraint import Restraint, SnapshotOutlook
from backupd.policy.pacing import Budgets, Pace
from backupd.vocabulary.errors import AbortedImpact, CommandError
from backupd.vocabulary.gauges import DiskCounters, InFlight
from backupd.vocabulary.penalty import PaceChange

MIB = 1 << 20
USUAL = 0.005  # seconds of a write, before the snapshot
ROUND_SECONDS = 2**32 / 1000  # after which the kernel's counter of milliseconds is at 0 again


class Volume:
    """Its server writes a hundred times a second; a write takes longer for as long as something reads."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.writes = 100.0  # a second
        self.slower = 4.0  # times as long while something reads
        self.in_flight = InFlight(0, 1)
        self.counted = (0.0, 0.0)
        self.broken: str | None = None

    def passes(self, seconds: float, *, reading: bool = False) -> None:
        self.now += seconds
        writes = seconds * self.writes
        self.counted = (
            self.counted[0] + writes,
            self.counted[1] + writes * USUAL * 1.2 * (self.slower if reading else 1.0),
        )

    def wait(self, seconds: float) -> None:
        self.passes(seconds)

    def counters(self) -> DiskCounters:
        if self.broken is not None:
            raise CommandError(self.broken)
        return DiskCounters(writes=round(self.counted[0]), write_seconds=self.counted[1] % ROUND_SECONDS)


def governor(
    volume: Volume,
    *,
    budgets: Budgets | None = None,
    told: Callable[[PaceChange], None] = lambda _change: None,
    must_finish_by: float | None = None,
    max_rate: int | None = None,
) -> tuple[CopyGovernor, Restraint]:
    def clock() -> float:
        return volume.now

    restraint = Restraint(
        Pace.at_first(USUAL, budgets or Budgets()),
        counters=volume.counters,
        in_flight=lambda: volume.in_flight,
        told=told,
        since_snapshot=lambda: volume.now - 990,
        clock=clock,
        wait=volume.wait,
    )
    pacing = CopyGovernor(
        restraint=restraint,
        must_finish_by=must_finish_by,
        max_rate=max_rate,
        total_bytes=100_000 * MIB,
        clock=clock,
        wait=volume.wait,
    )
    return pacing, restraint


def copy(volume: Volume, pacing: CopyGovernor, *, seconds: float, read: float = 0.04) -> float:
    """Read for so long; returns MiB a second."""
    began, before = volume.now, pacing.paced
    while volume.now < began + seconds:
        pacing.pace(4 * MIB)
        volume.passes(read, reading=True)
    return (pacing.paced - before) / MIB / (volume.now - began)


def test_copy_yields_to_a_budget_and_is_at_full_speed_when_the_server_rests() -> None:
    volume = Volume()
    pacing, _ = governor(volume, budgets=Budgets(max_latency=1.5))
    assert copy(volume, pacing, seconds=20) < 40
    volume.writes, volume.in_flight = 0.0, InFlight()
    copy(volume, pacing, seconds=3)
    assert copy(volume, pacing, seconds=10) > 90  # of 100, and a look without a read every two seconds


def test_read_that_is_held_back_begins_as_soon_as_nothing_is_in_flight() -> None:
    volume = Volume()
    pacing, _ = governor(volume, budgets=Budgets(max_latency=1.5))
    held = copy(volume, pacing, seconds=20)
    volume.in_flight = InFlight()
    assert copy(volume, pacing, seconds=20) > 1.1 * held


@pytest.mark.thorough
def test_each_change_is_told_once_with_its_reason_and_a_long_copy_tells_few() -> None:
    volume, told = Volume(), list[PaceChange]()
    pacing, _ = governor(volume, told=told.append)
    copy(volume, pacing, seconds=600)
    assert told[0].at_seconds > 10
    assert all(change.reason for change in told)
    assert 1 < len(told) < 40


def test_budget_and_deadline_that_cannot_both_hold_end_the_copy_with_a_hint() -> None:
    volume = Volume()
    pacing, _ = governor(volume, budgets=Budgets(max_latency=1.1), must_finish_by=1000 + 1100)
    with pytest.raises(AbortedImpact, match="cannot finish before its deadline") as caught:
        copy(volume, pacing, seconds=100)
    assert caught.value.code == "aborted-impact"
    assert "max_latency" in caught.value.hint
    assert volume.now < 1030


def test_what_max_rate_holds_back_is_not_taken_for_a_slow_disk() -> None:
    """Else the copy would be given up for a deadline that the disks can keep."""
    volume, told = Volume(), list[PaceChange]()
    pacing, _ = governor(volume, budgets=Budgets(max_latency=10.0), told=told.append, max_rate=10 * MIB)
    assert 9 < copy(volume, pacing, seconds=20) <= 10
    fastest = max(change.bytes_per_second / change.share for change in told if change.bytes_per_second)
    assert fastest / MIB == pytest.approx(100, rel=0.1)


def test_counters_that_cannot_be_read_leave_the_copy_at_full_speed_and_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    volume = Volume()
    pacing, restraint = governor(volume, budgets=Budgets(max_latency=1.1))
    copy(volume, pacing, seconds=5)
    volume.broken = "the device is gone"
    assert copy(volume, pacing, seconds=10) > 95
    assert restraint.trouble is not None
    assert len([record for record in caplog.records if "the device is gone" in record.message]) == 1


@pytest.mark.parametrize(
    ("becomes", "said"), [((0.0, 0.0), "backwards"), ((1e3, 1e9), "jumped"), (None, "counted no finished write")]
)
def test_counters_that_jump_or_stand_still_are_not_believed(becomes: tuple[float, float] | None, said: str) -> None:
    volume = Volume()
    pacing, restraint = governor(volume, budgets=Budgets(max_latency=1.1))
    copy(volume, pacing, seconds=5)
    if becomes is None:
        volume.writes, volume.in_flight = 0.0, InFlight(0, 3)
    else:
        volume.counted = becomes
    copy(volume, pacing, seconds=15)
    assert restraint.trouble is not None
    assert said in restraint.trouble
    assert copy(volume, pacing, seconds=10) > 95


def test_counter_that_comes_round_is_believed() -> None:
    """The kernel counts milliseconds in 32 bits: those of a busy volume come round every few days."""
    volume = Volume()
    volume.counted = (0.0, ROUND_SECONDS - 5)
    pacing, restraint = governor(volume, budgets=Budgets(max_latency=1.5))
    assert copy(volume, pacing, seconds=20) < 40
    assert volume.counted[1] > ROUND_SECONDS
    assert restraint.trouble is None


def test_what_a_probe_of_ours_does_to_the_counters_is_not_laid_at_the_servers_door() -> None:
    volume, told = Volume(), list[PaceChange]()
    restraint = Restraint(
        Pace.at_first(USUAL, Budgets(max_penalty_seconds=0.1)),
        counters=volume.counters,
        in_flight=lambda: volume.in_flight,
        outlook=lambda: SnapshotOutlook(disturbed=True),
        told=told.append,
        clock=lambda: volume.now,
        wait=volume.wait,
    )
    copy(volume, CopyGovernor(restraint=restraint, clock=lambda: volume.now, wait=volume.wait), seconds=5)
    assert not told
