"""The plan of a night in words: who would run where and when, what is missed, what is not owed and why."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from backupd.policy.fleet_plan import NightPlan, SharedTarget
from backupd.policy.fleet_timetable import FleetTimetable, PlannedRun
from backupd.report.fleet_gantt import gantt
from backupd.report.json_document import Document, iso
from backupd.report.words import columns, duration, many, size, speed
from backupd.vocabulary.escaping import some
from backupd.vocabulary.fleet import OwedBackup

_HEAD = ("BEGINS", "ENDS", "CLUSTER", "JOB", "HOST", "TARGETS", "TAKES", "STORES", "AT MOST")
_FIGURES = (6, 7, 8)
_SHOWN = 10


def fleet_plan_text(
    plan: NightPlan,
    table: FleetTimetable,
    targets: Mapping[str, SharedTarget],
    *,
    zone: str,
    width: int,
    ascii_only: bool = False,
) -> str:
    """The night in a table, a chart and sentences; times are the zone's."""
    parts = [_headline(plan, table, zone)]
    if table.runs:
        parts.append(columns((_HEAD, *(_row(run, plan, zone) for run in table.runs)), right=_FIGURES))
        parts.append(gantt(table.runs, targets, zone=zone, width=width, ascii_only=ascii_only))
    parts.append("\n".join(_sentences(plan, table)))
    return "\n\n".join(part for part in parts if part)


def fleet_plan_document(
    plan: NightPlan, table: FleetTimetable, targets: Mapping[str, SharedTarget], *, zone: str, problems: Sequence[str]
) -> Document:
    """What `fleet plan --json` prints. Times are UTC, rates bytes a second."""
    return {
        "night": plan.night.isoformat(),
        "zone": zone,
        "makespan_seconds": table.makespan_seconds,
        "bound_seconds": table.bound_seconds,
        "runs": [
            {
                **_owed(run.owed, plan),
                "begins_at": iso(run.begins_at),
                "ends_at": iso(run.ends_at),
                "slots": dict(zip(run.owed.targets, run.slots, strict=True)),
            }
            for run in table.runs
        ],
        "missed": [_owed(one, plan) for one in table.missed],
        "not_owed": [
            {"cluster": one.cluster, "job": one.job, "host": one.only or None, "reason": one.said}
            for one in plan.not_owed
        ],
        "targets": {
            name: {"slots": target.slots, "max_rate": target.max_rate, "rate_of_one": target.rate_of_one}
            for name, target in targets.items()
        },
        "problems": list(problems),
    }


def _owed(one: OwedBackup, plan: NightPlan) -> Document:
    return {
        "id": one.id,
        "cluster": one.cluster,
        "job": one.job,
        "host": one.members[0] if one.members else None,
        "members": list(one.members),
        "targets": list(one.targets),
        "priority": one.priority,
        "not_before": iso(one.not_before),
        "not_after": iso(one.not_after),
        "expected_seconds": one.expected_seconds,
        "expected_bytes": one.expected_bytes,
        "assumed": one.id in plan.assumed,
        "max_rate": one.max_rate,
    }


def _headline(plan: NightPlan, table: FleetTimetable, zone: str) -> str:
    said = f"night of {plan.night:%a} {plan.night}, times of {zone}: {many(len(table.runs), 'backup')}"
    if not table.runs:
        return said
    return (
        f"{said} of {many(len({run.owed.cluster for run in table.runs}), 'cluster')} in"
        f" {duration(table.makespan_seconds)}; slots and clusters allow {duration(table.bound_seconds)} at best"
    )


def _row(run: PlannedRun, plan: NightPlan, zone: str) -> tuple[str, ...]:
    owed = run.owed
    assumed = "?" if owed.id in plan.assumed else ""
    return (
        _clock(run.begins_at, zone),
        _clock(run.ends_at, zone),
        owed.cluster,
        owed.job,
        owed.members[0] if owed.members else "-",
        ", ".join(owed.targets) or "-",
        duration(owed.expected_seconds) + assumed,
        size(owed.expected_bytes or None),
        speed(owed.max_rate or None),
    )


def _clock(at: datetime, zone: str) -> str:
    return f"{at.astimezone(ZoneInfo(zone)):%a %H:%M}"


def _sentences(plan: NightPlan, table: FleetTimetable) -> Iterator[str]:
    if table.missed:
        named = some([f"{one.cluster} ({one.job})" for one in table.missed], _SHOWN)
        yield f"cannot begin within their windows: {named}"
    if plan.assumed:
        yield (
            f"?: no host has told how long {many(len(plan.assumed), 'backup')} will take; the median of the others is"
            " assumed, or an hour where nobody knows"
        )
    reasons: dict[str, list[str]] = {}
    for one in plan.not_owed:
        reasons.setdefault(one.said.partition(",")[0], []).append(one.cluster)
    for reason, clusters in reasons.items():
        yield f"not due, {reason}: {some(clusters, _SHOWN)}"
