"""Months of backups in figures: what is usual, what has grown, which night stood out."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from backupd.catalogue.costs import Beside, RunCost
from backupd.report.costs import cost_document, csv_text, hold_seconds, penalties
from backupd.report.impact import Impact, Summary, impacts
from backupd.report.impact_charts import gathered, summary_svg
from backupd.report.impact_html import impact_page
from backupd.report.impact_text import impact_document, impact_text
from backupd.vocabulary.penalty import Reason, Sample
from backupd.vocabulary.records import RunStatus

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
GOOD = RunCost(
    "r", "nightly", "db1", "db1-0a1b2c3d", RunStatus.SUCCESS, NOW,
    lock_strategy="backup-stage", lock_wait_seconds=0.2, lock_hold_seconds=0.03, gate=Reason.SETTLED,
    settle_seconds=60.0, copy_seconds=100.0, bytes_read=1 << 30, bytes_stored=1 << 29, copies=1,
    cow_size=8 << 30, cow_used_peak=1 << 28,
    windows=(
        Sample(-5.0, "baseline", iops=400.0), Sample(1.0, "settle", iops=100.0), Sample(6.0, "settle", iops=200.0),
    ),
)  # fmt: skip


def nights(holds: Sequence[float], *, job: str = "nightly") -> list[RunCost]:
    """One run a night, the last of them last night, with these seconds of lock."""
    first = NOW - timedelta(days=len(holds))
    return [
        replace(GOOD, run_id=f"r{i}", job=job, started_at=first + timedelta(days=i), lock_hold_seconds=hold)
        for i, hold in enumerate(holds)
    ]


def impact(costs: Sequence[RunCost], **beside: Beside) -> Impact:
    (found,) = impacts(costs, beside, since=None, now=NOW)
    return found


def locks(costs: Sequence[RunCost]) -> Summary:
    return next(summary for summary in impact(costs).summaries if summary.measure.key == "lock_hold_seconds")


# --- one run ---------------------------------------------------------------------------------------------------------


def test_a_penalty_is_that_of_the_windows_before_the_copy() -> None:
    assert penalties(GOOD) == (4.0, 400 / 150)
    assert penalties(replace(GOOD, windows=())) == (None, None)


def test_a_run_without_a_lock_has_no_time_of_one() -> None:
    assert hold_seconds(replace(GOOD, lock_strategy="none", lock_hold_seconds=0.0)) is None


def test_csv_has_a_header_with_units_and_nothing_where_nothing_is_known() -> None:
    failed = RunCost("r1", "nightly", "db1", "db1-0a1b2c3d", RunStatus.FAILED, NOW, error="lock-not-granted")
    head, good, bad = csv_text([GOOD, failed], {GOOD.run_id: NOW}).splitlines()
    names = head.split(",")
    assert names == [*cost_document(GOOD), "rolls_to"]
    for unit in ("lock_hold_seconds", "stored_bytes", "copy_bytes_per_second", "penalty_initial_ratio"):
        assert unit in names
    assert dict(zip(names, good.split(","), strict=True))["lock_hold_seconds"] == "0.03"
    assert good.endswith(f",{NOW.isoformat()}")
    assert dict(zip(names, bad.split(","), strict=True)) == {
        **dict.fromkeys(names, ""), "run_id": "r1", "job": "nightly", "host": "db1", "machine": "db1-0a1b2c3d",
        "status": "failed", "started_at": NOW.isoformat(), "error": "lock-not-granted", "copies": "0",
    }  # fmt: skip
    assert csv_text([], {}) == head + "\n"


# --- many ------------------------------------------------------------------------------------------------------------


def test_no_run_is_no_job() -> None:
    assert impacts([], {}, since=None, now=NOW) == ()
    ET.fromstring(impact_page([], now=NOW))


@pytest.mark.parametrize("costs", [nights([0.03]), nights([0.0] * 8), [replace(GOOD, copy_seconds=0.0, bytes_read=0)]])
def test_few_runs_and_zeros_divide_nothing(costs: list[RunCost]) -> None:
    found = impact(costs)
    assert found.outliers == ()
    assert impact_text(found)
    ET.fromstring(impact_page([found], now=NOW))


def test_figures_that_are_no_numbers_are_left_out() -> None:
    assert locks(nights([0.03, nan, inf, 0.05])).points[-1][1] == 0.05
    assert len(locks(nights([0.03, nan, inf, 0.05])).points) == 2


def test_a_job_with_failed_runs_only_has_outcomes_and_no_figures() -> None:
    found = impact([RunCost("r1", "nightly", "db1", "db1-0a1b2c3d", RunStatus.FAILED, NOW, error="lock-not-granted")])
    assert (found.outcomes, found.failures, found.summaries) == ({RunStatus.FAILED: 1}, {"lock-not-granted": 1}, ())
    assert "0 good, 1 failed; last good: -" in impact_text(found)


def test_a_job_that_only_missed_its_slots_is_told() -> None:
    found = impact([], nightly=Beside(missed=3, drills=2, drills_failed=1))
    said = impact_text(found)
    assert "nightly: no run" in said
    assert "3 slots of the schedule missed" in said
    assert "2 drills, 1 of them FAILED" in said


def test_jobs_are_kept_apart() -> None:
    both = impacts([*nights([0.03] * 6), *nights([3.0] * 6, job="weekly")], {}, since=None, now=NOW)
    assert [(found.job, found.runs, found.outliers) for found in both] == [("nightly", 6, ()), ("weekly", 6, ())]


def test_median_p95_and_worst_are_those_of_good_runs() -> None:
    failed = replace(GOOD, status=RunStatus.FAILED, lock_hold_seconds=99.0)
    found = locks([*nights([float(i) for i in range(1, 101)]), failed])
    assert (found.median, found.p95, found.worst) == (50.5, 95.0, 100.0)


def test_of_a_rate_the_least_is_the_worst() -> None:
    costs = [replace(GOOD, run_id=f"r{i}", copy_seconds=float(i)) for i in range(1, 21)]
    rate = next(one for one in impact(costs).summaries if one.measure.key == "copy_bytes_per_second")
    assert (rate.p95, rate.worst) == ((1 << 30) / 19, (1 << 30) / 20)


# --- what stood out --------------------------------------------------------------------------------------------------


def test_a_lock_of_six_times_the_median_stands_out_with_its_run_and_day() -> None:
    (found,) = impact(nights([0.03] * 10 + [0.18] + [0.03] * 10)).outliers
    assert (found.run_id, found.at, found.words) == ("r10", NOW - timedelta(days=11), "lock held 180 ms, 6x the median")


@pytest.mark.parametrize(
    "holds", [[0.03] * 10 + [0.08], [0.001] * 10 + [0.04], [0.03] * 3 + [0.9]], ids=["less", "harmless", "too few"]
)
def test_what_is_near_the_median_or_harmless_or_of_few_does_not(holds: list[float]) -> None:
    assert impact(nights(holds)).outliers == ()


def test_a_copy_of_a_fourth_of_the_usual_rate_stands_out() -> None:
    costs = [replace(GOOD, run_id=f"r{i}", copy_seconds=400.0 if i == 4 else 100.0) for i in range(10)]
    words = [outlier.words for outlier in impact(costs).outliers]
    assert words == ["copied in 6 min 40 s, 4x the median", "copy rate 2.6 MiB/s, 1/4 of the median"]


def test_the_worst_of_many_are_listed_and_the_others_counted() -> None:
    found = impact(nights([0.03] * 40 + [0.3 + i / 100 for i in range(15)]))
    assert len(found.outliers) == 15
    assert found.outliers[0].run_id == "r54"
    said = impact_text(found)
    assert "and 5 more" in said
    assert "r40" not in said


# --- trends ----------------------------------------------------------------------------------------------------------


def test_what_has_doubled_in_the_last_thirty_days_has_grown() -> None:
    trend = locks(nights([0.03] * 60 + [0.06] * 30)).trend
    assert trend is not None
    assert trend.direction == "grown"
    assert trend.factor == pytest.approx(2.0)
    assert "grown 2.0x since 2026-10-21: worse" in impact_text(impact(nights([0.03] * 60 + [0.06] * 30)))


def test_one_bad_night_is_no_trend() -> None:
    trend = locks(nights([0.03] * 60 + [0.03] * 29 + [30.0])).trend
    assert trend is not None
    assert trend.direction == "steady"


def test_what_has_halved_is_better_except_that_of_a_rate_less_is_worse() -> None:
    held = [replace(cost, copy_seconds=2 * 100.0 if i >= 60 else 100.0) for i, cost in enumerate(nights([0.03] * 90))]
    said = impact_text(impact(held))
    assert "copy rate" in said
    assert "shrunk 2.0x since 2026-10-21: worse" in said
    assert "shrunk 2.0x since 2026-10-21: better" in impact_text(impact(nights([0.06] * 60 + [0.03] * 30)))


def test_a_short_time_is_compared_by_its_last_third_and_too_few_are_not() -> None:
    assert locks(nights([0.03] * 10 + [0.09] * 6)).trend is not None
    assert locks(nights([0.03] * 6)).trend is None
    assert "too few runs" in impact_text(impact(nights([0.03] * 6)))


def test_a_trend_from_nothing_has_no_factor() -> None:
    costs = [replace(cost, cow_used_peak=0 if i < 60 else 1 << 30) for i, cost in enumerate(nights([0.03] * 90))]
    found = next(one for one in impact(costs).summaries if one.measure.key == "cow_used_peak_bytes")
    assert found.trend is not None
    assert (found.trend.direction, found.trend.factor) == ("grown", None)
    assert "grown" in impact_text(impact(costs))


# --- as a page and as a document -------------------------------------------------------------------------------------


def test_the_document_has_the_same_figures() -> None:
    document = impact_document(impact(nights([0.03] * 10 + [0.18]), nightly=Beside(missed=1)))
    assert document["outcomes"] == {"success": 11}
    assert document["missed"] == 1
    held = document["figures"]["lock_hold_seconds"]
    assert (held["count"], held["median"], held["worst"]) == (11, 0.03, 0.18)
    (outlier,) = document["outliers"]
    assert (outlier["run_id"], outlier["figure"]) == ("r10", "lock_hold_seconds")


def test_the_page_is_whole_and_needs_nothing_but_itself() -> None:
    found = impact([replace(cost, job="a<b") for cost in nights([0.03] * 30 + [0.3])])
    page = impact_page([found], now=NOW)
    root = ET.fromstring(page)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}svg")) == len(found.summaries)
    assert "a&lt;b" in page
    assert "lock held 300 ms, 10x the median" in page
    assert "<script" not in page
    assert [link for link in ("src=", "href=", "url(", "@import") if link in page] == []


def test_ten_thousand_runs_make_no_larger_picture_than_a_few_hundred() -> None:
    points = [(NOW + timedelta(hours=i), float(i % 7)) for i in range(10_000)]
    places = gathered(points)
    assert len(places) <= 250
    assert (min(place[2] for place in places), max(place[3] for place in places)) == (0.0, 6.0)
    assert [place[1:] for place in gathered(points[:3])] == [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (2.0, 2.0, 2.0)]
    summary = replace(locks(nights([0.03] * 5)), points=tuple(points))
    assert len(summary_svg(summary)) < 80_000
