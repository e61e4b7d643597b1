"""Pictures and the page: well-formed, complete, harmless, and enough by themselves."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from backupd.report.probe_charts import curve_svg, penalty_svg, shares_svg
from backupd.report.probe_html import html_page
from backupd.report.svg import NAMESPACE
from backupd.vocabulary.gauges import CurvePoint, Mode
from backupd.vocabulary.probes import Measurement, PhysicalCost
from backupd.vocabulary.records import RunError, RunStatus
from tests.fakes.measured import COPYING, SETTINGS, VOLUME, WINDOWS, curve, measurement, record, rows
from tests.unit.page_reader import Reader

SVG = f"{{{NAMESPACE}}}"
HOSTILE = "<script>alert('x')</script>&\"\x1b[31m\x00"
EVIL = measurement()
EVIL = Measurement(
    replace(VOLUME, name=HOSTILE, filesystem=HOSTILE, kernel=HOSTILE, lvm=HOSTILE, pvs=(HOSTILE,), sysbench=HOSTILE),
    replace(SETTINGS, cow_pvs=(HOSTILE,)),
    tuple(
        replace(row, cow_pvs=(HOSTILE, str(i)), physical=replace(COPYING, shares={HOSTILE: 0.5, "b": 0.5}))
        for i, row in enumerate(EVIL.rows)
    ),
    tuple(replace(one, cow_pvs=(HOSTILE, str(i))) for i, one in enumerate(EVIL.curves)),
    (HOSTILE,),
)


def pictures(found: Measurement, *, alone: bool = True) -> list[str]:
    """Every picture of a measurement."""
    return [
        curve_svg(found.curves, threshold=1.25, alone=alone),
        penalty_svg(found.rows, alone=alone),
        shares_svg(found.rows, alone=alone),
    ]


def test_every_repeat_is_a_line_with_a_point_for_each_window() -> None:
    root = ET.fromstring(curve_svg(measurement().curves, threshold=1.25))
    lines = [line.get("points", "").split() for line in root.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [WINDOWS, WINDOWS]
    assert len(list(root.iter(f"{SVG}circle"))) == 2 * WINDOWS


def test_a_decay_falls_from_left_to_right_within_the_picture() -> None:
    root = ET.fromstring(curve_svg([curve(Mode.REWRITE)]))
    (line,) = root.iter(f"{SVG}polyline")
    places = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    assert places == sorted(places)
    assert [y for _, y in places] == sorted(y for _, y in places)  # downwards is more
    _, _, width, height = map(float, root.get("viewBox", "").split())
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


def test_the_threshold_is_drawn_at_its_height() -> None:
    flat = replace(curve(Mode.REWRITE), points=(CurvePoint(5.0, 320.0, 1.25), CurvePoint(10.0, 320.0, 1.25)))
    root = ET.fromstring(curve_svg([flat], threshold=1.25))
    (level,) = [line for line in root.iter(f"{SVG}line") if line.get("class") == "line-level"]
    (line,) = root.iter(f"{SVG}polyline")
    assert {pair.split(",")[1] for pair in line.get("points", "").split()} == {level.get("y1")}
    assert "line-level" not in "".join(
        line.get("class", "") for line in ET.fromstring(curve_svg([flat])).iter(f"{SVG}line")
    )


def test_pictures_have_words_for_those_who_cannot_see_them() -> None:
    for picture in pictures(measurement()):
        root = ET.fromstring(picture)
        assert root.get("role") == "img"
        assert root.findtext(f"{SVG}title")
        assert re.search(r"4\.00x|3\.15x|50%", root.findtext(f"{SVG}desc") or "")


def test_a_bar_s_length_is_its_penalty() -> None:
    bars = [
        float(bar.get("width", ""))
        for bar in ET.fromstring(penalty_svg(rows(Mode.DIRECT))).iter(f"{SVG}rect")
        if bar.get("class") == "fill-s0"
    ]
    assert bars[0] / bars[1] == pytest.approx(4.0 / 1.25, rel=0.01)


def test_shares_fill_their_bar_whatever_they_sum_up_to() -> None:
    twice = replace(rows(Mode.DIRECT)[1], physical=PhysicalCost(None, None, None, {"a": 1.5, "b": 0.5}))
    parts = [
        float(part.get("width", "")) + 1
        for part in ET.fromstring(shares_svg([twice])).iter(f"{SVG}rect")
        if part.get("height") == "20"
    ]
    assert parts[0] == pytest.approx(3 * parts[1], rel=0.01)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 1e308, -1.0])
def test_odd_figures_leave_pictures_well_formed(value: float) -> None:
    cost = PhysicalCost(value, value, value, {"/dev/sdb": value})
    row = replace(rows(Mode.DIRECT)[1], iops=value, penalty=value, physical=cost)
    found = Measurement(
        VOLUME, SETTINGS, (row,), (replace(curve(Mode.DIRECT), points=(CurvePoint(5.0, value, value),)),)
    )
    for picture in pictures(found):
        ET.fromstring(picture)
        assert not re.search(r'="(nan|-?inf)|[ ,]nan', picture)
    Reader(html_page(record(found=found)))


def test_pictures_of_nothing_are_pictures() -> None:
    for picture in pictures(Measurement(VOLUME, SETTINGS, ())):
        ET.fromstring(picture)
    assert "no curve was measured" in curve_svg([])


@pytest.mark.parametrize("found", [measurement(), EVIL])
def test_a_page_needs_nothing_but_itself(found: Measurement) -> None:
    page = html_page(record(found=found))
    assert "http" not in page.replace(NAMESPACE, "")
    reader = Reader(page)
    assert not {"script", "link", "img", "iframe", "image", "use"} & set(reader.tags)
    assert not {"src", "href", "style", "onload"} & {name for name, _ in reader.attributes}
    assert "url(" not in page
    assert "@import" not in page


def test_a_page_is_well_formed_and_has_every_part() -> None:
    reader = Reader(html_page(record()))
    assert reader.open == []
    assert reader.tags.count("svg") == 3
    assert reader.tags.count("tr") == 1 + len(measurement().rows)
    for words in (
        "vg0/mysql",
        "striped, 3 stripes",
        "xfs",
        "6.1.0-26-amd64",
        "2.03.16",
        "64.0 KiB",
        "2026-03-01 12:00",
    ):
        assert words in reader.words
    assert "the server wrote meanwhile" in reader.words
    assert "4.00x" in reader.words


def test_names_from_a_host_stay_words() -> None:
    page = html_page(record(HOSTILE, EVIL))
    reader = Reader(page)
    assert "script" not in reader.tags
    assert "<script>alert('x')</script>" in reader.words
    assert "\x1b" not in page
    assert "\x00" not in page
    for picture in pictures(EVIL):
        assert not list(ET.fromstring(picture).iter(f"{SVG}script"))


def test_a_probe_that_failed_has_a_page_with_its_error() -> None:
    error = RunError("no-room", f"no room {HOSTILE}", "extend it", 4)
    reader = Reader(html_page(replace(record(), status=RunStatus.FAILED, measurement=None, error=error)))
    assert "no room <script>" in reader.words
    assert "extend it" in reader.words
    assert "script" not in reader.tags


def test_colours_follow_the_reader_s_choice_in_page_and_file() -> None:
    for text in (html_page(record()), *pictures(measurement())):
        assert text.count("prefers-color-scheme: dark") >= 1
    assert "<style>" not in pictures(measurement(), alone=False)[0]


def contrast(one: str, other: str) -> float:
    """As WCAG 2.1 has it, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_words_and_lines_stand_out_from_the_paper_in_light_and_in_dark() -> None:
    light, dark = curve_svg([]).split("prefers-color-scheme: dark")
    for css in (light, dark):
        colours = dict(re.findall(r"\.fill-(\w+) \{ fill: (#\w{6})", css))
        assert {"paper", "ink", "soft", "level", "s0", "s5"} <= set(colours)
        for name in set(colours) - {"paper", "grid"}:
            assert contrast(colours[name], colours["paper"]) >= 4.5, name
