"""A run's phases as bars: in their order, at their place, the lock in sight however short it was."""

import pytest

from backupd.report.phase_bars import phase_bars
from backupd.vocabulary.records import Phase

RUN = {
    **{Phase.PREFLIGHT: 2.0, Phase.BASELINE: 10.0, Phase.LOCK_WAIT: 0.2, Phase.LOCK_HOLD: 0.03},
    **{Phase.SNAPSHOT: 0.02, Phase.SETTLE: 60.0, Phase.COPY: 900.0, Phase.VERIFY: 90.0, Phase.RELEASE: 2.0},
}


def test_phases_come_in_the_order_in_which_they_happened_with_their_durations() -> None:
    lines = phase_bars(RUN).splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [
        "preflight", "baseline", "lock_wait", "lock_hold", "snapshot", "settle", "copy", "release", "verify",
    ]  # fmt: skip
    assert lines[6].split("  ")[-1].strip("█ ") == ""
    assert "15 min 00 s" in lines[6]


def test_the_lock_has_a_mark_of_its_own_even_where_it_took_a_thousandth_of_a_pixel() -> None:
    lines = phase_bars(RUN).splitlines()
    assert [line for line in lines if "◆" in line] == [lines[3], lines[-1]]
    assert lines[3].split() == ["lock_hold", "30", "ms", "◆"]
    assert lines[-1] == "◆ the server was locked"


def test_a_bar_begins_where_the_one_before_it_ended() -> None:
    text = phase_bars({Phase.PREFLIGHT: 10.0, Phase.BASELINE: 10.0, Phase.COPY: 20.0}, width=60)
    bars = [line[line.index("█") :].rstrip() for line in text.splitlines()]
    begins = [line.index("█") for line in text.splitlines()]
    assert begins[1] == begins[0] + len(bars[0])
    assert begins[2] == begins[1] + len(bars[1])
    assert len(bars[2]) == pytest.approx(2 * len(bars[0]), abs=1)


@pytest.mark.parametrize("width", [0, 20, 40, 72, 200])
def test_no_line_is_wider_than_told_unless_there_is_no_room_for_a_bar(width: int) -> None:
    assert all(len(line) <= max(width, 34) for line in phase_bars(RUN, width=width).splitlines())


def test_only_ascii_where_nothing_else_can_be_shown() -> None:
    text = phase_bars(RUN, ascii_only=True)
    assert text.isascii()
    assert "* the server was locked" in text


@pytest.mark.parametrize("phases", [{}, {Phase.PREFLIGHT: 0.0}, {Phase.LOCK_HOLD: 0.0, Phase.SNAPSHOT: 0.0}])
def test_no_time_at_all_divides_nothing(phases: dict[Phase, float]) -> None:
    assert len(phase_bars(phases).splitlines()) == len(phases) + (Phase.LOCK_HOLD in phases)


def test_a_run_without_a_lock_has_no_legend_of_one() -> None:
    assert "locked" not in phase_bars({Phase.PREFLIGHT: 1.0, Phase.COPY: 2.0})
