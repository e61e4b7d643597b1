"""How fast a copy may go, on a clock that only waiting and copying move."""

import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.archive.governor import CopyGovernor
from backupd.vocabulary.errors import GaveUp, SnapshotVoid

MIB = 1 << 20


class Clock:
    """Time that passes only when somebody waits, or a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def governor(
    clock: Clock,
    *,
    check: Callable[[], None] = lambda: None,
    max_rate: int | None = None,
    must_finish_by: float | None = None,
    total_bytes: int | None = None,
    later_bytes: int = 0,
    area_seconds: Callable[[], float | None] = lambda: None,
) -> CopyGovernor:
    return CopyGovernor(
        check=check,
        max_rate=max_rate,
        must_finish_by=must_finish_by,
        total_bytes=total_bytes,
        later_bytes=later_bytes,
        area_seconds=area_seconds,
        clock=clock,
        wait=clock.wait,
    )


def copy(pacing: CopyGovernor, size: int, *, block: int = MIB) -> None:
    for start in range(0, size, block):
        pacing.pace(min(block, size - start))


def test_without_limits_nothing_waits() -> None:
    clock = Clock()
    copy(governor(clock), 100 * MIB)
    assert clock.now == 1000.0


@given(size=st.integers(1, 64 * MIB), rate=st.integers(MIB, 64 * MIB), block=st.integers(64 << 10, 16 * MIB))
def test_max_rate_is_never_exceeded_and_nearly_reached(size: int, rate: int, block: int) -> None:
    clock = Clock()
    copy(governor(clock, max_rate=rate), size, block=block)
    assert clock.now - 1000 == pytest.approx(size / rate, rel=0.01)


def test_time_lost_elsewhere_is_not_made_up_in_a_burst() -> None:
    clock = Clock()
    pacing = governor(clock, max_rate=10 * MIB)
    copy(pacing, 10 * MIB)
    clock.now += 60  # storage stood still
    before = clock.now
    copy(pacing, 10 * MIB)
    assert clock.now - before == pytest.approx(1, rel=0.01)


def test_rate_is_raised_to_keep_the_deadline_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    pacing = governor(clock, max_rate=MIB, must_finish_by=1010.0, total_bytes=100 * MIB)
    with caplog.at_level(logging.WARNING):
        copy(pacing, 100 * MIB)
    assert clock.now < 1010
    assert len([record for record in caplog.records if "deadline" in record.message]) == 1


def test_max_rate_holds_while_the_deadline_is_far() -> None:
    clock = Clock()
    copy(governor(clock, max_rate=10 * MIB, must_finish_by=2000.0, total_bytes=100 * MIB), 100 * MIB)
    assert clock.now - 1000 == pytest.approx(10, rel=0.01)


def test_rate_is_raised_to_outrun_the_cow_area_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    pacing = governor(clock, max_rate=MIB, total_bytes=100 * MIB, area_seconds=lambda: 1010.0 - clock.now)
    with caplog.at_level(logging.WARNING):
        copy(pacing, 100 * MIB)
    assert clock.now < 1005.5
    assert pacing.outran_area
    assert len([record for record in caplog.records if "COW area" in record.message]) == 1


def test_max_rate_holds_while_the_cow_area_lasts_and_what_the_spool_sends_later_needs_no_area() -> None:
    clock = Clock()
    lasting = governor(
        clock,
        max_rate=10 * MIB,
        total_bytes=200 * MIB,
        later_bytes=100 * MIB,
        area_seconds=lambda: 1020.0 - clock.now,
    )
    copy(lasting, 100 * MIB)
    assert clock.now - 1000 == pytest.approx(10, rel=0.01)
    assert not lasting.outran_area


def test_a_fill_that_slows_down_gives_max_rate_back() -> None:
    clock = Clock()
    pacing = governor(
        clock, max_rate=MIB, total_bytes=100 * MIB, area_seconds=lambda: 20.0 if clock.now < 1002 else None
    )
    copy(pacing, 50 * MIB)
    assert 30 < clock.now - 1000 < 45


def test_a_low_rate_notices_while_it_waits_that_the_cow_area_has_begun_to_fill() -> None:
    clock = Clock()
    pacing = governor(
        clock, max_rate=1000, total_bytes=4 * MIB, area_seconds=lambda: 10.0 if clock.now >= 1005 else None
    )
    copy(pacing, 4 * MIB, block=4 * MIB)
    assert clock.now - 1000 < 20


def test_copy_that_is_longer_than_estimated_goes_on_at_max_rate() -> None:
    clock = Clock()
    copy(governor(clock, max_rate=10 * MIB, must_finish_by=2000.0, total_bytes=MIB), 100 * MIB)
    assert clock.now - 1000 == pytest.approx(10, rel=0.01)


def test_passed_deadline_gives_up_even_when_nothing_moves() -> None:
    clock = Clock()
    pacing = governor(clock, must_finish_by=1010.0, total_bytes=100 * MIB)
    pacing.pace(MIB)
    clock.now = 1010.0
    with pytest.raises(GaveUp, match=r"deadline: 1\.0 MiB of about 100\.0 MiB copied"):
        pacing.pace(0)


def test_deadline_ends_a_wait_too() -> None:
    clock = Clock()
    with pytest.raises(GaveUp):
        copy(governor(clock, max_rate=1000, must_finish_by=1010.0), MIB)
    assert clock.now <= 1010.5


@pytest.mark.parametrize("rate", [None, 100_000, 50 * MIB])
def test_check_is_called_at_least_every_half_second(rate: int | None) -> None:
    clock = Clock()
    seen: list[float] = []
    pacing = governor(clock, max_rate=rate, check=lambda: seen.append(clock.now))
    while clock.now < 1030:
        pacing.pace(64 << 10)
        clock.now += 0.05  # reading took as long
    gaps = [later - earlier for earlier, later in zip([1000.0, *seen], seen, strict=False)]
    assert len(seen) > 50
    assert max(gaps) <= 0.56


def test_what_check_raises_ends_the_copy() -> None:
    clock = Clock()

    def check() -> None:
        if clock.now > 1005:
            raise SnapshotVoid("the COW area is full")

    with pytest.raises(SnapshotVoid):
        copy(governor(clock, max_rate=MIB, check=check), 100 * MIB)
    assert clock.now < 1006


def test_progress_is_told_in_plain_bytes() -> None:
    told: list[int] = []
    clock = Clock()
    copy(CopyGovernor(on_progress=told.append, clock=clock, wait=clock.wait), 10 * MIB, block=3 * MIB)
    assert told == [3 * MIB, 6 * MIB, 9 * MIB, 10 * MIB]
