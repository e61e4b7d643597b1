"""The impact of months of backups as one HTML file that can be mailed; in the frame and the looks of a probe's page.

Knows: what is on the page, and in which words; the template knows where.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backupd.report.impact import Impact, Outlier, Summary
from backupd.report.impact_charts import summary_svg
from backupd.report.impact_text import SHOWN, outcome_lines, period, trend_words
from backupd.report.probe_table import Grid
from backupd.report.templating import report
from backupd.report.words import instant

_CARDS = ("lock_hold_seconds", "penalty_initial_ratio", "settle_seconds", "copy_bytes_per_second")
_HEAD = ("Of good runs", "median", "p95", "worst", "trend")


@dataclass(frozen=True, slots=True)
class _Job:
    """What the template shows of a job."""

    name: str
    lines: Sequence[str]
    cards: Sequence[tuple[str, str, str]]  # a figure's name, its median, its trend
    grid: Grid
    outliers: Sequence[Outlier]
    pictures: Sequence[tuple[str, str]]  # SVG, and the caption


def impact_page(found: Sequence[Impact], *, now: datetime) -> str:
    """The whole page: a section for each job, the answer first."""
    title = "What backups cost" if len(found) != 1 else f"What backups of {found[0].job} cost"
    return report("impact.html", title=title, subtitle=f"As of {instant(now)}", jobs=list(map(_job, found)), most=SHOWN)


def _job(impact: Impact) -> _Job:
    return _Job(
        name=impact.job,
        lines=(period(impact), *outcome_lines(impact)),
        cards=[_card(summary) for summary in impact.summaries if summary.measure.key in _CARDS],
        grid=Grid((), _HEAD, tuple(map(_row, impact.summaries)), right=frozenset({1, 2, 3})),
        outliers=impact.outliers,
        pictures=[(summary_svg(summary), _caption(summary)) for summary in impact.summaries],
    )


def _card(summary: Summary) -> tuple[str, str, str]:
    return summary.measure.name, summary.measure.say(summary.median), f"median; {trend_words(summary)}"


def _row(summary: Summary) -> tuple[str, ...]:
    figures = map(summary.measure.say, (summary.median, summary.p95, summary.worst))
    return summary.measure.name, *figures, trend_words(summary)


def _caption(summary: Summary) -> str:
    better = "" if summary.measure.more_is_worse else " More is better."
    return f"Each good run; the dashed line is the median.{better}"
