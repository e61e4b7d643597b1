"""A fleet's nights for a terminal, a spreadsheet and programs: the history, one night, the nights of a month."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from backupd.report.fleet_night import MonthReport, NightReport
from backupd.report.fleet_words import cost_words, took_seconds
from backupd.report.json_document import iso
from backupd.report.words import columns, count, csv_text, duration, instant, many, share, size
from backupd.vocabulary.fleet import FleetBackup, FleetState

_HISTORY: Final = ("BACKUP", "CLUSTER", "OUTCOME", "HOST", "TRIES", "BEGAN (UTC)", "COST", "WHY")
_CSV: Final = (
    *("id", "night", "cluster", "job", "state", "host", "tries", "began_at", "ended_at", "seconds", "stored_bytes"),
    *("lost_transactions", "said"),
)


def history_text(backups: Iterable[FleetBackup]) -> str:
    """A line for each, as they come."""
    return columns([_HISTORY, *map(_history_row, backups)], right=(4,))


def _history_row(one: FleetBackup) -> tuple[str, ...]:
    began = f"{one.tries[0].began_at:%Y-%m-%d %H:%M}" if one.tries else "-"
    host = one.tries[-1].host if one.tries else "-"
    cost = cost_words(one if one.state is FleetState.DONE else None)
    return one.owed.id, one.owed.cluster, one.state.value, host, str(len(one.tries)), began, cost, one.said


def history_csv(backups: Iterable[FleetBackup]) -> str:
    """The same for a spreadsheet; sizes are bytes, instants UTC."""
    return csv_text(_CSV, ({name: row[name] for name in _CSV} for row in map(backup_document, backups)))


def backup_document(one: FleetBackup) -> dict[str, Any]:
    """A backup that was owed, as documents have it."""
    ended = one.tries[-1].ended_at if one.tries else None
    return {
        "id": one.owed.id,
        "night": one.owed.night.isoformat(),
        "cluster": one.owed.cluster,
        "job": one.owed.job,
        "state": one.state,
        "host": one.tries[-1].host if one.tries else None,
        "tries": len(one.tries),
        "began_at": iso(one.tries[0].began_at) if one.tries else None,
        "ended_at": iso(ended),
        "seconds": took_seconds(one),
        "targets": list(one.owed.targets),
        "stored_bytes": one.stored_bytes,
        "lost_transactions": one.lost_transactions,
        "said": one.said,
    }


def counts_words(counts: Mapping[FleetState, int]) -> str:
    """`129 done, 3 failed`."""
    return ", ".join(f"{counts[state]} {state}" for state in FleetState if counts.get(state)) or "nothing due"


def night_text(report: NightReport) -> str:
    """What became of it, targets, and what became no backup."""
    lines = [
        f"night of {report.night}: {counts_words(report.counts)}",
        f"took {duration(report.seconds)}, from {instant(report.began_at)} to {instant(report.ended_at)}",
        f"stored {size(report.stored_bytes)}; {count(report.lost_transactions)} transactions lost, by the runs' own"
        f" estimates; {many(report.tried_again, 'backup')} took more than one try",
    ]
    head = ("TARGET", "SLOTS", "MOST TAKEN", "SLOT TIME", "STORED")
    rows = [
        (
            one.target,
            "-" if one.slots is None else str(one.slots),
            str(one.most),
            duration(one.busy_seconds),
            size(one.stored_bytes),
        )
        for one in report.targets
    ]
    parts = ["\n".join(lines), *([columns([head, *rows], right=(1, 2, 3, 4))] if rows else [])]
    if report.amiss:
        parts.append("became no backup:\n" + history_text(report.amiss))
    return "\n\n".join(parts)


def night_document(report: NightReport) -> dict[str, Any]:
    """What `fleet report --night --json` prints."""
    return {
        "night": report.night.isoformat(),
        "counts": _counts(report.counts),
        "began_at": iso(report.began_at),
        "ended_at": iso(report.ended_at),
        "stored_bytes": report.stored_bytes,
        "lost_transactions": report.lost_transactions,
        "tried_again": report.tried_again,
        "targets": [
            {
                "target": one.target,
                "slots": one.slots,
                "most": one.most,
                "busy_seconds": one.busy_seconds,
                "stored_bytes": one.stored_bytes,
            }
            for one in report.targets
        ],
        "backups": [backup_document(one) for one in report.backups],
    }


def month_rows(report: MonthReport) -> list[tuple[str, ...]]:
    """A heading, and a row for each cluster, the worst first."""
    head = ("CLUSTER", "OWED", "GOOD", "FAILED", "MISSED", "CANCELLED", "WORST GAP", "TAKES", "STORED")
    rows = [
        (
            one.cluster,
            str(one.owed),
            share(one.good_share),
            *(str(one.counts.get(state, 0)) for state in (FleetState.FAILED, FleetState.MISSED, FleetState.CANCELLED)),
            many(one.longest_gap_nights, "night"),
            duration(one.median_seconds),
            size(one.stored_bytes),
        )
        for one in report.clusters
    ]
    return [head, *rows]


def month_text(report: MonthReport) -> str:
    """The sum, then a line for each cluster."""
    lines = [
        f"nights from {report.first} to {report.last}: {counts_words(report.counts)}",
        f"stored {size(report.stored_bytes)}; {count(report.lost_transactions)} transactions lost, by the runs' own"
        " estimates",
    ]
    table = [columns(month_rows(report), right=range(1, 9))] if report.clusters else []
    return "\n\n".join(["\n".join(lines), *table])


def month_document(report: MonthReport) -> dict[str, Any]:
    """What `fleet report --month --json` prints."""
    return {
        "first": report.first.isoformat(),
        "last": report.last.isoformat(),
        "counts": _counts(report.counts),
        "stored_bytes": report.stored_bytes,
        "lost_transactions": report.lost_transactions,
        "clusters": [
            {
                "cluster": one.cluster,
                "counts": _counts(one.counts),
                "stored_bytes": one.stored_bytes,
                "lost_transactions": one.lost_transactions,
                "median_seconds": one.median_seconds,
                "longest_gap_nights": one.longest_gap_nights,
            }
            for one in report.clusters
        ],
    }


def history_document(backups: Sequence[FleetBackup]) -> dict[str, Any]:
    """What `fleet history --json` prints."""
    return {"backups": [backup_document(one) for one in backups]}


def as_of(now: datetime) -> str:
    """When a report was made."""
    return f"As of {instant(now)}"


def _counts(counts: Mapping[FleetState, int]) -> dict[str, int]:
    return {state.value: counts.get(state, 0) for state in FleetState}
