"""The pictures of a bench: what is where, and that odd figures leave them pictures."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from backupd.report.bench_charts import chart_svg
from backupd.report.bench_course import bands, course_svg
from backupd.report.svg import NAMESPACE
from backupd.vocabulary.benches import DiskSample, LayoutBench, PublishedTable
from backupd.vocabulary.scratch_layouts import MIB
from tests.fakes.benched import PVS, a_bench

SVG = f"{{{NAMESPACE}}}"
HOSTILE = "<script>alert('x')</script>&\"\x1b[31m\x00"


def sample(at: float, *, layout: str = "linear", written: float = 40.0) -> DiskSample:
    """One disk at work; MiB/s."""
    return DiskSample(at, layout, "writing", {PVS[0]: 0.0}, {PVS[0]: written * MIB}, 0.1, 0.5)


def points(root: ET.Element, tag: str, cls: str) -> list[list[tuple[float, float]]]:
    """The corners of each shape of a class."""
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in shape.get("points", "").split())]
        for shape in root.iter(f"{SVG}{tag}")
        if shape.get("class") == cls
    ]


def words(root: ET.Element) -> list[str]:
    """Everything that is written in a picture."""
    return [text.text or "" for text in root.iter(f"{SVG}text")]


# --- over time -------------------------------------------------------------------------------------------------------


def test_a_disk_that_lies_idle_has_an_empty_lane() -> None:
    linear_only = [one for one in a_bench().samples if one.layout == "linear"]
    root = ET.fromstring(course_svg(linear_only))
    assert [name for name in words(root) if name.endswith(", MiB/s")] == [
        f"{pv.removeprefix('/dev/')}, MiB/s" for pv in PVS
    ]
    assert len(points(root, "polygon", "fill-s0")) == 1


def test_the_height_of_a_lane_is_the_rate() -> None:
    root = ET.fromstring(course_svg([sample(1.0, written=40.0), sample(2.0, written=20.0)]))
    ((left, high), (right, same), (next_left, low), *_) = points(root, "polygon", "fill-s0")[0]
    bottom = max(y for _, y in points(root, "polygon", "fill-s0")[0])
    assert high == same
    assert right == next_left > left
    assert bottom - high == pytest.approx(2 * (bottom - low), rel=0.01)


def test_each_layout_is_a_band_with_its_name_and_how_long_it_took() -> None:
    found = bands([sample(1.0), sample(2.0), sample(3.0, layout="striped-3x64k")])
    assert [(band.layout, len(band.steps)) for band in found] == [("linear", 2), ("striped-3x64k", 1)]
    written = words(ET.fromstring(course_svg(a_bench().samples)))
    assert {"linear", "striped-2x64k", "striped-3x64k"} <= set(written)
    assert written.count("10.0 s") == 3


def test_time_of_which_nothing_is_known_is_left_open() -> None:
    apart = [sample(1.0), sample(2.0), sample(3.0), sample(30.0), sample(31.0)]
    drawn = points(ET.fromstring(course_svg(apart)), "polygon", "fill-s0")
    assert len(drawn) == 2
    assert max(x for x, _ in drawn[0]) < min(x for x, _ in drawn[1])


def test_hours_of_seconds_are_as_many_steps_as_can_be_seen_and_keep_their_mean() -> None:
    found = bands([sample(float(second), written=float(second % 2 * 80)) for second in range(1, 7201)])
    assert len(found[0].steps) <= 680
    assert found[0].steps[0].began == 0.0
    assert found[0].steps[-1].ended == 7200.0
    assert len(course_svg([one for step in found[0].steps for one in step.samples])) < 100_000


def test_samples_that_came_out_of_order_are_drawn_in_order() -> None:
    ordered = [sample(1.0), sample(2.0), sample(3.0, layout="striped-2x64k")]
    assert bands(ordered[::-1]) == bands(ordered)


def test_a_picture_of_nothing_is_none() -> None:
    assert course_svg([]) == ""
    assert course_svg([replace(sample(1.0), at_seconds=math.nan)]) == ""
    ET.fromstring(course_svg([replace(sample(1.0), read={}, written={})]))


def test_the_course_has_words_for_those_who_cannot_see_it() -> None:
    root = ET.fromstring(course_svg(a_bench().samples))
    assert root.get("role") == "img"
    said = root.findtext(f"{SVG}desc") or ""
    assert "linear, 10.0 s: nbd0 38.0 MiB/s, nbd1 0.0 MiB/s" in said


# --- tables ----------------------------------------------------------------------------------------------------------


def test_three_stripes_stand_three_times_as_high_as_one() -> None:
    root = ET.fromstring(chart_svg(a_bench(), PublishedTable.E3))
    ((_, one), (_, two), (_, three)) = points(root, "polyline", "line-s0")[0]
    assert one - three == pytest.approx(2 * (one - two), abs=0.2)
    assert "ideal: one times per stripe" in words(root)


def test_raw_figures_are_a_line_of_their_own_that_says_so() -> None:
    written = words(ET.fromstring(chart_svg(a_bench(raw=True), PublishedTable.E3)))
    assert any("raw, by fio" in text for text in written)
    assert not any("raw" in text for text in words(ET.fromstring(chart_svg(a_bench(), PublishedTable.E3))))


def test_each_layout_is_a_line_over_the_writers() -> None:
    root = ET.fromstring(chart_svg(a_bench(), PublishedTable.E4))
    assert {"1", "2", "6", "linear", "striped-2x64k", "striped-3x64k"} <= set(words(root))
    assert all(len(points(root, "polyline", f"line-s{number}")) == 2 for number in range(3))


def test_stripes_and_an_array_are_lines_over_the_record_sizes() -> None:
    root = ET.fromstring(chart_svg(a_bench(arrays=True), PublishedTable.E5))
    assert {"striped-2x64k", "raid0-2x64k"} <= set(words(root))
    assert [len(line) for line in points(root, "polyline", "line-s1")] == [10, 10, 10, 10]


@pytest.mark.parametrize("table", list(PublishedTable))
def test_what_was_not_measured_has_no_picture(table: PublishedTable) -> None:
    bench = a_bench()
    assert chart_svg(replace(bench, cells=()), table) == ""
    assert chart_svg(replace(bench, settings=replace(bench.settings, tables=())), table) == ""
    assert chart_svg(replace(bench, layouts=()), table) == ""


def test_a_load_that_was_left_out_breaks_no_line() -> None:
    bench = a_bench()
    without = replace(bench, cells=tuple(one for one in bench.cells if (one.layout, one.threads) != ("linear", 2)))
    lines = points(ET.fromstring(chart_svg(without, PublishedTable.E4)), "polyline", "line-s0")
    assert [len(line) for line in lines] == [2, 2]


def odd(value: float) -> LayoutBench:
    """Every figure of it is this one."""
    bench = a_bench()
    return replace(
        bench,
        cells=tuple(replace(one, bytes_per_second=value, iops=value, spread=value) for one in bench.cells),
        samples=tuple(
            replace(one, written=dict.fromkeys(PVS, value), read=dict.fromkeys(PVS, value), system=value, iowait=value)
            for one in bench.samples
        ),
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 1e308, -1.0])
def test_odd_figures_leave_pictures_well_formed(value: float) -> None:
    bench = odd(value)
    for picture in (course_svg(bench.samples), *(chart_svg(bench, table) for table in PublishedTable)):
        if picture:
            ET.fromstring(picture)
        assert not re.search(r'="(nan|-?inf)|[ ,]nan|[ ,]-?inf', picture)


def test_names_from_a_host_stay_words() -> None:
    hostile = replace(sample(1.0, layout=HOSTILE), written={HOSTILE: MIB}, read={HOSTILE: 0.0})
    picture = course_svg([hostile])
    assert not list(ET.fromstring(picture).iter(f"{SVG}script"))
    assert "\x1b" not in picture
