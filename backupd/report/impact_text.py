"""The impact of months of backups for a terminal, and as a plain document for machines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backupd.report.impact import Impact, Outlier, Summary, Trend
from backupd.report.json_document import iso
from backupd.report.words import columns, instant, many
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.records import GOOD, RunStatus

SHOWN = 10  # outliers that are listed; of the others the number is told


def impact_text(impact: Impact) -> str:
    """One job: what became of its runs, its figures, their trends, and what stood out."""
    said = (f"{impact.job}: {period(impact)}", *(f"  {line}" for line in outcome_lines(impact)))
    parts = list(map(on_one_line, said))
    if impact.summaries:
        head = ("  OF GOOD RUNS", "MEDIAN", "P95", "WORST", "TREND")
        rows = [
            (
                f"  {summary.measure.name}",
                *(summary.measure.say(value) for value in (summary.median, summary.p95, summary.worst)),
                trend_words(summary),
            )
            for summary in impact.summaries
        ]
        parts += ["", columns([head, *rows], right=(1, 2, 3))]
    outliers = impact.outliers
    if outliers:
        rows = [(f"  {outlier.run_id}", instant(outlier.at), outlier.words) for outlier in outliers[:SHOWN]]
        more = [f"  and {len(outliers) - SHOWN} more"] if len(outliers) > SHOWN else []
        parts += ["", "  outliers:", columns(rows), *more]
    return "\n".join(parts)


def period(impact: Impact) -> str:
    """How many runs, and from when to when."""
    if impact.first_at is None or impact.last_at is None:
        since = "" if impact.since is None else f" since {impact.since:%Y-%m-%d}"
        return f"no run{since}"
    return f"{many(impact.runs, 'run')} from {impact.first_at:%Y-%m-%d} to {impact.last_at:%Y-%m-%d}"


def outcome_lines(impact: Impact) -> Iterator[str]:
    """What became of the runs, and what happened beside them."""
    if impact.runs:
        good = sum(impact.outcomes.get(status, 0) for status in GOOD)
        others = ", ".join(f"{count} {status}" for status, count in impact.outcomes.items() if status not in GOOD)
        attention = impact.outcomes.get(RunStatus.ATTENTION, 0)
        wanted = f" ({attention} with attention)" if attention else ""
        yield f"{good} good{wanted}{', ' if others else ''}{others}; last good: {instant(impact.last_good_at)}"
    if impact.failures:
        yield f"errors: {counted(impact.failures)}"
    if impact.gates:
        yield f"the copy started because of: {counted(impact.gates)}"
    if impact.missed:
        yield f"{many(impact.missed, 'slot')} of the schedule missed"
    failed = f", {impact.drills_failed} of them FAILED" if impact.drills_failed else ""
    yield f"{many(impact.drills, 'drill')}{failed}" if impact.drills else "no drill"


def counted(of: Mapping[str, int]) -> str:
    """What there was most of first."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(of.items(), key=lambda pair: (-pair[1], pair[0])))


def trend_words(summary: Summary) -> str:
    """`grown 1.4x since 2026-10-21`, or `steady`."""
    trend = summary.trend
    if trend is None:
        return "too few runs"
    if trend.direction == "steady" or trend.factor is None:
        return trend.direction
    factor = trend.factor if trend.direction == "grown" else 1 / trend.factor
    words = f"{trend.direction} {factor:.1f}x since {trend.since:%Y-%m-%d}"
    worse = (trend.direction == "grown") == summary.measure.more_is_worse
    return f"{words}: {'worse' if worse else 'better'}" if summary.measure.key != "stored_bytes" else words


def impact_document(impact: Impact) -> dict[str, Any]:
    """One job: sizes in bytes, times in seconds, penalties as baseline ÷ window."""
    return {
        "job": impact.job,
        "since": iso(impact.since),
        "until": impact.until.isoformat(),
        "runs": impact.runs,
        "outcomes": {status.value: count for status, count in impact.outcomes.items()},
        "errors": dict(impact.failures),
        "gates": dict(impact.gates),
        "missed": impact.missed,
        "drills": {"count": impact.drills, "failed": impact.drills_failed},
        "last_good_at": iso(impact.last_good_at),
        "figures": {summary.measure.key: _figure(summary) for summary in impact.summaries},
        "outliers": [_outlier(outlier) for outlier in impact.outliers],
    }


def impacts_document(found: Sequence[Impact]) -> dict[str, Any]:
    """What `report --json` prints."""
    return {"jobs": [impact_document(impact) for impact in found]}


def _figure(summary: Summary) -> dict[str, Any]:
    return {
        "count": len(summary.points),
        "median": summary.median,
        "p95": summary.p95,
        "worst": summary.worst,
        "trend": None if summary.trend is None else _trend(summary.trend),
    }


def _trend(trend: Trend) -> dict[str, Any]:
    return {
        "direction": trend.direction,
        "factor": trend.factor,
        "before": trend.before,
        "recent": trend.recent,
        "since": trend.since.isoformat(),
    }


def _outlier(outlier: Outlier) -> dict[str, Any]:
    return {
        "run_id": outlier.run_id,
        "at": outlier.at.isoformat(),
        "figure": outlier.measure.key,
        "value": outlier.value,
        "times": outlier.times,
    }
