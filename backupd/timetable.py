"""When something is due: an expression of cron in a time zone, shifted by a fixed offset.

Knows: cron's fields and weekdays, and what becomes of a time that a zone's clock skips or shows twice. Refuses to know
what is due, whether it may start then, and what the time is.

A slot whose time of day the clock skips is due at the instant at which the clock jumps; one that it shows twice is due
the first time. Expressions that name every hour or every minute (`*` or a step) go by the hours that pass instead.
These are the rules of Debian's cron, of which `cronsim` is an implementation.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim


@dataclass(frozen=True, slots=True)
class Timetable:
    """All instants at which something is due."""

    cron: str  # five fields
    zone: str  # IANA's name
    offset_seconds: float = 0.0  # added to each

    def after(self, instant: datetime) -> datetime | None:
        """The first one after this instant, in UTC; None where the expression has no more."""
        offset = timedelta(seconds=self.offset_seconds)
        local = (instant - offset).astimezone(ZoneInfo(self.zone))
        due = next(CronSim(self.cron, local), None)
        return None if due is None else due.astimezone(UTC) + offset


def stable_offset(spread_seconds: float, *names: str) -> float:
    """Whole seconds from 0 up to the spread: always the same for the same names, and evenly spread over others.

    So that many hosts which have the same schedule do not start together.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return int.from_bytes(digest[:8]) % (int(spread_seconds) + 1)
