"""What becomes of something that was due: it starts, it waits, or it is missed.

Knows: how late is too late, and that of several slots that have passed only the newest may still start.

Every slot ends in one of two ways, started or missed, and no slot is left out: of those that passed while nobody looked
(a restart, a suspended machine, a clock that was put forward) the newest is judged by itself and the older ones are
missed. Two backups that follow each other at once would cost the server twice and be worth one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backupd.policy.blackouts import next_start
from backupd.policy.timetable import Timetable
from backupd.vocabulary.schedule import Blackout
from backupd.vocabulary.units import format_duration

SUPERSEDED = "a later one was due before it could start"

_LISTED = 1000  # of the older ones: a machine that slept for a year had half a million minutes


@dataclass(frozen=True, slots=True)
class Start:
    """It may start now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It may not start before this instant, and may then."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Missed:
    """It must not start any more, or cannot in time."""

    reason: str


@dataclass(frozen=True, slots=True)
class Due:
    """The slots that passed in a stretch of time."""

    newest: datetime | None = None
    older: tuple[datetime, ...] = ()  # in order; at most the last 1000
    unlisted: int = 0  # how many there were before those


def lateness(
    due_at: datetime, now: datetime, *, start_within_seconds: float, blackouts: Sequence[Blackout], zone: str
) -> Start | Wait | Missed:
    """Whether a slot may start now. It may up to and at `start_within` after it was due, outside of every blackout.

    A slot whose blackout ends too late is missed at once: nothing will change that. One that is not due yet waits.
    """
    deadline = due_at + timedelta(seconds=start_within_seconds)
    within = format_duration(start_within_seconds)
    if now > deadline:
        return Missed(f"it could not start within {within}")
    start = next_start(max(now, due_at), blackouts, zone)
    if start is None or start > deadline:
        return Missed(f"a blackout lasts longer than the {within} within which it may start")
    return Start() if start <= now else Wait(start)


def due_slots(timetable: Timetable, *, since: datetime, now: datetime) -> Due:
    """The slots after `since` and up to now. None where now is before: a clock that was restored owes nothing."""
    passed: deque[datetime] = deque(maxlen=_LISTED + 1)
    count = 0
    for due_at in timetable.following(since):
        if due_at > now:
            break
        passed.append(due_at)
        count += 1
    if not passed:
        return Due()
    newest = passed.pop()
    return Due(newest, tuple(passed), count - 1 - len(passed))
