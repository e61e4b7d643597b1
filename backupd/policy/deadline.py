"""How long a thing that begins now has until its deadline.

Knows: how a time of this machine's clock is in time, where the clock changes before it too.
"""

from datetime import date, datetime, timedelta

from backupd.vocabulary.schedule import Deadline

_DAYS_AHEAD = range(8)  # today, and all of a week: the same day's hour may be over


def seconds_until(deadline: Deadline, begun: datetime) -> float:
    """Seconds from `begun` (aware) on, which is the same however the clock is set later.

    An hour that the clock shows twice is the next of the two; one that it skips is as long after midnight as it would
    have been without the change.
    """
    if deadline.clock is None:
        return deadline.within_seconds
    now = begun.timestamp()
    today = begun.astimezone().date()
    days = [day for ahead in _DAYS_AHEAD if _is_meant(deadline, day := today + timedelta(days=ahead))]
    shown = (datetime.combine(day, deadline.clock).replace(fold=fold).timestamp() for day in days for fold in (0, 1))
    return next(at - now for at in shown if at > now)


def _is_meant(deadline: Deadline, day: date) -> bool:
    return deadline.day is None or deadline.day == day.weekday()
