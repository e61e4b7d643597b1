"""Plots for a terminal: right, and never wider than they were told."""

import math
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.report.plot import PlotFrame, draws_dots, plot
from backupd.report.probe_combinations import Series
from backupd.report.scale import scale
from tests.share import examples

DECAY = [(5.0 * i, 1 + 5 * math.exp(-i / 4)) for i in range(1, 20)]
BRAILLE = re.compile("[\u2801-\u28ff]")
ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)


def one_line(points: Sequence[tuple[float, float]], frame: PlotFrame) -> str:
    return plot([Series("", (tuple(points),))], frame)


def drawn_rows(text: str) -> list[str]:
    """What lies right of the upright axis."""
    return [re.split("[│┤|+]", line, maxsplit=1)[1] for line in text.splitlines() if re.match(r" *\S* [│┤|+]", line)]


@settings(max_examples=examples(150), deadline=None)
@given(
    points=st.lists(st.tuples(ANY_FLOAT, ANY_FLOAT), max_size=30),
    width=st.integers(0, 130),
    height=st.integers(0, 30),
    threshold=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    ascii_only=st.booleans(),
)
def test_any_points_can_be_drawn_in_any_room(
    points: list[tuple[float, float]], width: int, height: int, threshold: float | None, ascii_only: bool
) -> None:
    frame = PlotFrame("penalty (÷)", width=width, height=height, threshold=threshold, ascii_only=ascii_only)
    text = one_line(points, frame)
    assert all(len(line) <= width for line in text.splitlines())
    assert "nan" not in text
    assert "inf" not in text
    assert text.isascii() or not ascii_only


@settings(max_examples=examples(100), deadline=None)
@given(values=st.lists(ANY_FLOAT, max_size=20), count=st.integers(1, 12), tight=st.booleans())
def test_a_scale_holds_every_value_between_its_ends(values: list[float], count: int, tight: bool) -> None:
    axis = scale(values, count=count, tight=tight)
    assert axis.low < axis.high
    assert all(0 <= axis.place(value) <= 1 for value in values if math.isfinite(value))
    assert len(axis.ticks) == len(axis.labels()) <= 2 * count + 3


def test_ticks_are_round_and_can_be_told_apart() -> None:
    assert scale([0.0, 6.4], count=6).ticks == (0.0, 2.0, 4.0, 6.0, 8.0)
    assert scale([1000.1, 1000.4], count=3).labels() == ("1000.1", "1000.2", "1000.3", "1000.4")
    assert scale([0.0, 2e6], count=2).labels() == ("0", "1M", "2M")


def test_a_decay_starts_at_the_top_left_and_ends_at_the_bottom_right() -> None:
    rows = drawn_rows(one_line(DECAY, PlotFrame("penalty")))
    inked = [(column, row) for row, text in enumerate(rows) for column, _ in enumerate(text) if BRAILLE.match(_)]
    first, last = min(inked), max(inked)
    assert first[1] < 6 < last[1]
    assert first[0] == 0
    assert last[0] == max(map(len, rows)) - 1


def test_nothing_to_draw_is_said() -> None:
    assert one_line([], PlotFrame("penalty")) == "penalty: nothing to draw"
    assert one_line([(0.0, math.nan)], PlotFrame("penalty")) == "penalty: nothing to draw"


def test_one_window_is_seen() -> None:
    assert "●" in one_line([(5.0, 2.0)], PlotFrame("penalty"))
    assert sum(row.count("*") for row in drawn_rows(one_line([(5.0, 2.0)], PlotFrame("", ascii_only=True)))) == 1


def test_a_constant_is_a_level_line() -> None:
    inked = [row for row in drawn_rows(one_line([(0.0, 2.0), (9.0, 2.0)], PlotFrame("penalty"))) if BRAILLE.search(row)]
    assert len(inked) == 1
    assert len(BRAILLE.findall(inked[0])) == len(inked[0])


def test_each_of_several_series_has_its_own_marker_and_name() -> None:
    series = [Series(name, (((0.0, high), (9.0, 1.0)),)) for name, high in (("4.0 KiB", 5.0), ("64.0 KiB", 3.0))]
    for ascii_only, markers in ((False, "●▲"), (True, "*x")):
        text = plot(series, PlotFrame("penalty", ascii_only=ascii_only))
        body, _, legend = text.rpartition("snapshot\n")
        assert all(marker in body and marker in legend for marker in markers)
        assert legend.strip() == f"{markers[0]} 4.0 KiB   {markers[1]} 64.0 KiB"


def test_threshold_and_mark_are_drawn_and_explained() -> None:
    text = plot([Series("", (tuple(DECAY),))], PlotFrame(threshold=1.25, mark_at=50.0, mark="the copy started"))
    assert text.endswith("┈┈ threshold 1.25   ╎ the copy started")
    rows = drawn_rows(text)
    column = {row.index("╎") for row in rows if "╎" in row}
    assert len(column) == 1
    assert any("┈┈┈" in row for row in rows)


@pytest.mark.parametrize(
    ("encoding", "terminal", "dots"),
    [
        ("utf-8", "xterm", True),
        ("UTF-8", None, True),
        ("utf-8", "linux", False),
        ("ascii", "xterm", False),
        ("iso-8859-1", None, False),
        (None, None, False),
        ("no such encoding", None, False),
    ],
)
def test_dots_are_drawn_only_where_they_can_be_seen(encoding: str | None, terminal: str | None, dots: bool) -> None:
    assert draws_dots(encoding, terminal) is dots
