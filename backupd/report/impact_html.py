"""The impact of months of backups as one HTML file that can be mailed; in the frame and the looks of a probe's page.

Knows: the page.
"""

from collections.abc import Sequence
from datetime import datetime

from backupd.report.impact import Impact, Summary
from backupd.report.impact_charts import summary_svg
from backupd.report.impact_text import SHOWN, outcome_lines, period, trend_words
from backupd.report.page import cell, figure, page, tag, text
from backupd.report.words import instant

_CARDS = ("lock_hold_seconds", "penalty_initial_ratio", "settle_seconds", "copy_bytes_per_second")
_HEAD = ("Of good runs", "median", "p95", "worst", "trend")


def impact_page(found: Sequence[Impact], *, now: datetime) -> str:
    """The whole page: a section for each job, the answer first."""
    title = "What backups cost" if len(found) != 1 else f"What backups of {found[0].job} cost"
    header = tag("header", tag("h1", text(title)) + tag("p", text(f"As of {instant(now)}"), cls="soft"))
    nothing = [] if found else [tag("p", "No runs.")]
    return page(title, [header, *nothing, *(_job(impact) for impact in found)])


def _job(impact: Impact) -> str:
    lines = "".join(tag("li", text(line)) for line in (period(impact), *outcome_lines(impact)))
    parts = [tag("h2", text(impact.job)), tag("ul", lines), _cards(impact), _table(impact), _outliers(impact)]
    drawn = [figure(summary_svg(summary), _caption(summary)) for summary in impact.summaries]
    return tag("section", "\n".join([*(part for part in parts if part), *drawn]))


def _cards(impact: Impact) -> str:
    cards = [
        tag(
            "div",
            tag("p", text(summary.measure.name), cls="soft")
            + tag("p", text(summary.measure.say(summary.median)), cls="large")
            + tag("p", text(f"median; {trend_words(summary)}"), cls="soft"),
            cls="card",
        )
        for summary in impact.summaries
        if summary.measure.key in _CARDS
    ]
    return tag("div", "\n".join(cards), cls="cards") if cards else ""


def _table(impact: Impact) -> str:
    if not impact.summaries:
        return ""
    head = "".join(cell("th", words, figures=0 < i < 4) for i, words in enumerate(_HEAD))
    rows = "\n".join(tag("tr", _row(summary)) for summary in impact.summaries)
    return tag("div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", rows)), cls="scroll")


def _row(summary: Summary) -> str:
    say = summary.measure.say
    figures = "".join(cell("td", say(value), figures=True) for value in (summary.median, summary.p95, summary.worst))
    return cell("td", summary.measure.name, figures=False) + figures + cell("td", trend_words(summary), figures=False)


def _outliers(impact: Impact) -> str:
    outliers = impact.outliers
    if not outliers:
        return ""
    lines = "".join(
        tag("li", text(f"{instant(outlier.at)}, run {outlier.run_id}: {outlier.words}")) for outlier in outliers[:SHOWN]
    )
    more = tag("p", f"And {len(outliers) - SHOWN} more.", cls="soft") if len(outliers) > SHOWN else ""
    return tag("h3", "Outliers") + tag("ul", lines) + more


def _caption(summary: Summary) -> str:
    better = "" if summary.measure.more_is_worse else " More is better."
    return f"Each good run; the dashed line is the median.{better}"
