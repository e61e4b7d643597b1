"""How a fleet stands, for a person who asks once, for a program, and for Nagios.

Knows: the lines and the keys. What is an alarm, and how grave, is `cluster_status`'s to say.
"""

from collections.abc import Iterator
from typing import Any

from backupd.policy.cluster_status import ClusterStatus
from backupd.policy.fleet_slots import holding
from backupd.report.fleet_words import ago, cost_words, next_words
from backupd.report.json_document import iso
from backupd.report.words import columns, many
from backupd.service.fleet.status import FleetStatus, HostStatus, SlotStatus
from backupd.service.plugin import SEVERITIES, PluginStatus, without_bars
from backupd.vocabulary.alarms import Severity
from backupd.vocabulary.escaping import on_one_line, some
from backupd.vocabulary.fleet import FleetState

_SHOWN = 5  # alarms in Nagios' line


def fleet_status_text(status: FleetStatus) -> str:
    """The night, then a line for each cluster, then hosts with which something is wrong."""
    parts = ["\n".join(map(on_one_line, _head(status))), _clusters(status)]
    wrong = [one for one in status.hosts if one.problems]
    if wrong:
        rows = [("HOST", "STATE", "LAST ANSWER", "PROBLEM"), *(_host_row(one, status) for one in wrong)]
        parts.append(columns(rows))
    return "\n\n".join(parts)


def _head(status: FleetStatus) -> Iterator[str]:
    owed = ", ".join(f"{count} {state}" for state in FleetState if (count := status.counts.get(state, 0)))
    yield f"night of {status.night}: {owed or ('nothing due' if status.planned else 'not planned yet')}"
    yield f"control host: {_control(status)}"
    yield from (
        f"paused: {' '.join(filter(None, (one.scope, one.name)))}{f': {one.note}' if one.note else ''}"
        for one in status.pauses
    )
    if status.slots:
        yield f"slots taken: {', '.join(_taken(one, status) for one in status.slots)}"


def _taken(one: SlotStatus, status: FleetStatus) -> str:
    """Of one that is full also by whom: others may wait for one of them."""
    words = f"{one.target} {one.used} of {'?' if one.limit is None else one.limit}"
    if one.limit is None or one.used < one.limit:
        return words
    by = [f"{held.owed.cluster} on {held.tries[-1].host}" for held in holding(status.going, one.target) if held.tries]
    return f"{words} ({some(by, _SHOWN)})"


def _control(status: FleetStatus) -> str:
    control = status.control
    if control is not None and status.is_looked_after:
        return f"{control.host} is running (process {control.pid})"
    return f"none is running; {_last_seen(status)}"


def _last_seen(status: FleetStatus) -> str:
    control = status.control
    return "none has run yet" if control is None else f"last seen: {control.host}, {ago(control.seen_at, status.now)}"


def _clusters(status: FleetStatus) -> str:
    if not status.clusters:
        return "no cluster is configured"
    head = ("CLUSTER", "STATE", "LAST GOOD", "PROVEN", "NEXT", "LAST GOOD COST", "WHAT IS WRONG")
    return columns([head, *(_cluster_row(one, status) for one in status.clusters)])


def _cluster_row(one: ClusterStatus, status: FleetStatus) -> tuple[str, ...]:
    return (
        one.cluster,
        ",".join(alarm.kind for alarm in one.alarms) or "good",
        ago(one.summary.last_good_at, status.now),
        ago(one.summary.last_proven_at, status.now),
        next_words(one, now=status.now),
        cost_words(one.summary.last_good),
        "; ".join(alarm.text for alarm in one.alarms),
    )


def _host_row(one: HostStatus, status: FleetStatus) -> tuple[str, ...]:
    answered_at = None if one.seen is None else one.seen.answered_at
    return one.host, one.state.value, ago(answered_at, status.now), "; ".join(one.problems)


def fleet_status_document(status: FleetStatus) -> dict[str, Any]:
    """What `fleet status --json` prints."""
    return {
        "now": iso(status.now),
        "night": status.night.isoformat(),
        "planned": status.planned,
        "counts": {state.value: status.counts.get(state, 0) for state in FleetState},
        "severity": status.severity,
        "clusters": [_cluster_document(one) for one in status.clusters],
        "hosts": [_host_document(one) for one in status.hosts],
        "slots": [{"target": one.target, "used": one.used, "limit": one.limit} for one in status.slots],
        "going": [
            {"id": one.owed.id, "cluster": one.owed.cluster, "state": one.state, "phase": one.phase}
            for one in status.going
        ],
        "pauses": [
            {"scope": one.scope, "name": one.name, "note": one.note, "at": iso(one.at)} for one in status.pauses
        ],
        "control": None
        if status.control is None
        else {
            "host": status.control.host,
            "pid": status.control.pid,
            "since": iso(status.control.since),
            "seen_at": iso(status.control.seen_at),
            "at_work": status.is_looked_after,
        },
    }


def _cluster_document(one: ClusterStatus) -> dict[str, Any]:
    newest, good = one.summary.newest, one.summary.last_good
    return {
        "cluster": one.cluster,
        "members": list(one.terms.members),
        "last_good": None if good is None else good.owed.id,
        "last_good_at": iso(one.summary.last_good_at),
        "last_proven_at": iso(one.summary.last_proven_at),
        "overdue_at": iso(one.overdue_at),
        "due_at": iso(one.due_at),
        "newest": None if newest is None else newest.owed.id,
        "newest_state": None if newest is None else newest.state,
        "stored_bytes": None if good is None else good.stored_bytes,
        "alarms": [{"kind": alarm.kind, "severity": alarm.severity, "text": alarm.text} for alarm in one.alarms],
    }


def _host_document(one: HostStatus) -> dict[str, Any]:
    described = None if one.seen is None else one.seen.described
    return {
        "host": one.host,
        "cluster": one.cluster,
        "state": one.state,
        "answered_at": iso(None if one.seen is None else one.seen.answered_at),
        "version": None if described is None else described.version,
        "clock_off_seconds": one.clock_off_seconds,
        "running": list(one.running),
        "problems": list(one.problems),
    }


def fleet_plugin_answer(status: FleetStatus) -> tuple[PluginStatus, str]:
    """The status and the line for Nagios; see `service.plugin`."""
    if not status.clusters:
        return PluginStatus.UNKNOWN, f"BACKUPD FLEET {PluginStatus.UNKNOWN.name} - no cluster is configured"
    told = [f"{one.cluster}: {alarm.text}" for one in status.clusters for alarm in one.alarms]
    if not status.is_looked_after:
        told.insert(0, f"no control host is running ({_last_seen(status)}): start one with `backupd fleet serve`")
    elif status.unasked:
        hosts = many(len(status.unasked), "host")
        told.insert(0, f"no control host has asked {hosts} for over six hours: see the control host's log")
    text = some(told, _SHOWN, "; ") or f"{many(len(status.clusters), 'cluster')}, no alarm"
    grave = sum(any(a.severity is Severity.CRITICAL for a in one.alarms) for one in status.clusters)
    figures = [
        f"clusters={len(status.clusters)};;;0",
        f"alarmed={len(status.alarmed)};1;;0;{len(status.clusters)}",
        f"overdue={grave};;1;0;{len(status.clusters)}",
        f"hosts_away={len(status.away)};;;0;{len(status.hosts)}",
        *(f"{state}={status.counts.get(state, 0)};;;0" for state in FleetState),
    ]
    answer = SEVERITIES[status.severity]
    return answer, f"BACKUPD FLEET {answer.name} - {without_bars(text)}|{' '.join(figures)}"
