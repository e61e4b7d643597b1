"""Words for a fleet's backups that several faces share: their cost, their states, what is next."""

from collections.abc import Iterable
from datetime import datetime

from backupd.policy.cluster_status import ClusterStatus
from backupd.report.words import age, count, duration, instant, size
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry
from backupd.vocabulary.records import GOOD, lasted

SIGNS = {  # in a calendar: colour is never all that tells one from another
    FleetState.DONE: "·",
    FleetState.RUNNING: "R",
    FleetState.WAITING: "W",
    FleetState.CANCELLED: "C",
    FleetState.MISSED: "M",
    FleetState.FAILED: "F",
}
_GRAVITY = list(SIGNS)


def worst(states: Iterable[FleetState]) -> FleetState | None:
    """What a day is known by; None where nothing was owed."""
    return max(states, key=_GRAVITY.index, default=None)


def good_try(backup: FleetBackup | None) -> FleetTry | None:
    """The try that became the backup."""
    tries = () if backup is None else backup.tries
    return next((one for one in reversed(tries) if one.status in GOOD), None)


def took_seconds(backup: FleetBackup | None) -> float | None:
    """How long the try took that became the backup; None where there is none."""
    tried = good_try(backup)
    return None if tried is None else lasted(tried.began_at, tried.ended_at)


def cost_words(backup: FleetBackup | None) -> str:
    """What a good backup cost: time, bytes stored, transactions that its server lost by the run's own estimate."""
    if backup is None:
        return "-"
    parts = [duration(took_seconds(backup)), size(backup.stored_bytes)]
    if backup.lost_transactions:
        parts.append(f"{count(backup.lost_transactions)} transactions lost")
    return ", ".join(part for part in parts if part != "-") or "-"


def next_words(status: ClusterStatus, *, now: datetime) -> str:
    """What goes on, or when the next backup is owed."""
    going = status.going
    if going is not None and going.state is FleetState.RUNNING:
        return f"running{f', {going.phase}' if going.phase else ''}"
    if going is not None:
        begins = going.owed.not_before
        waits = going.said or "waits"
        return f"{waits}; from {instant(begins)}" if begins > now else waits
    if status.due_at is None or status.due_at <= now:
        return "due"
    return f"due in {age((status.due_at - now).total_seconds())}"


def ago(at: datetime | None, now: datetime) -> str:
    """`3 h ago`; `never` where there is no instant."""
    return "never" if at is None else f"{age(max(0.0, (now - at).total_seconds()))} ago"
