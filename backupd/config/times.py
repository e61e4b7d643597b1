"""The kinds of value that say when: a deadline, a cron expression, a time zone, parts of a day.

Knows: what one value may be, and the sentence when it is not. It does not decide what is due when.
"""

import re
from datetime import time
from typing import Annotated

from pydantic import AfterValidator, PlainValidator

from backupd.config.fields import Text, as_text, in_editors, positive_seconds
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.faults import BadValue, quoted
from backupd.vocabulary.schedule import Blackout, Deadline
from backupd.vocabulary.units import format_duration, parse_duration

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DEADLINE = re.compile(
    r"(?:(?P<day>DAY) )?(?P<clock>(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?)".replace("DAY", "|".join(_DAYS)),
    re.ASCII,
)
_BLACKOUT = re.compile(
    r"(?:(?P<first>DAY)(?:-(?P<last>DAY))? )?(?P<begin>HOUR)-(?P<end>HOUR)".replace("DAY", "|".join(_DAYS)).replace(
        "HOUR", "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
    ),
    re.ASCII,
)
_DEADLINE_HINT = (
    'write a time of this machine\'s clock, "06:00", with its day where it may be days ahead, "Sun 06:00", '
    'or how long a run may take: "30h"'
)


def _deadline(value: object) -> Deadline:
    if isinstance(value, Deadline):
        return value
    if isinstance(value, time) and value.tzinfo is None:
        return Deadline(clock=value.replace(microsecond=0))
    if isinstance(value, str) and (match := _DEADLINE.fullmatch(value)) is not None:
        return Deadline(
            clock=time.fromisoformat(match["clock"]), day=_DAYS.index(match["day"]) if match["day"] else None
        )
    try:
        return Deadline(within_seconds=positive_seconds(parse_duration(value if isinstance(value, str) else "")))
    except BadValue as bad:  # a number alone too: nobody could tell hours from seconds
        raise BadValue(f"{quoted(value)} is neither a time of day nor how long a run may take", _DEADLINE_HINT) from bad


def _deadline_text(deadline: Deadline) -> str:
    if deadline.clock is None:
        return format_duration(deadline.within_seconds)
    clock = deadline.clock.isoformat() if deadline.clock.second else deadline.clock.isoformat("minutes")
    return clock if deadline.day is None else f"{_DAYS[deadline.day]} {clock}"


def _cron(value: str) -> str:
    """Imported here, for most commands read no schedule."""
    from backupd.policy.timetable import require_cron

    try:
        return require_cron(value)
    except UsageError as error:
        raise BadValue(error.message, error.hint) from error


def _zone(value: str) -> str:
    from backupd.policy.timetable import require_zone

    try:
        return require_zone(value)
    except UsageError as error:
        raise BadValue(error.message, error.hint) from error


def _blackout(value: object) -> Blackout:
    if isinstance(value, Blackout):
        return value
    match = _BLACKOUT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = 'write hours and minutes, with weekdays unless it is for all: "08:00-18:00" or "Mon-Fri 22:00-04:00"'
        raise BadValue(f"{quoted(value)} is not a time window", hint)
    first, last = (_DAYS.index(day) for day in (match["first"] or "Mon", match["last"] or match["first"] or "Sun"))
    days = range(first, last + 1) if first <= last else (*range(first, 7), *range(last + 1))
    return Blackout(frozenset(days), time.fromisoformat(match["begin"]), time.fromisoformat(match["end"]))


def hours(value: object) -> tuple[Blackout, ...]:
    """Parts of the day as they are written in a list.

    Raises:
        BadValue: it is none, or something in it is not.
    """
    if not isinstance(value, list | tuple):
        raise BadValue("not a list", 'write it in brackets: ["…"]')
    return tuple(_blackout(one) for one in value)


def _blackouts(value: tuple[Blackout, ...]) -> tuple[Blackout, ...]:
    from backupd.policy.blackouts import never_end

    if value and never_end(value):
        raise BadValue("leave no minute of the week free", "no job could ever start: shorten one of them")
    return value


def _blackout_text(blackout: Blackout) -> str:
    hours = f"{blackout.begin:%H:%M}-{blackout.end:%H:%M}"
    days = sorted(blackout.days)
    if len(days) == len(_DAYS):
        return hours
    first = next(day for day in days if (day - 1) % 7 not in blackout.days)
    last = _DAYS[(first + len(days) - 1) % 7]
    return f"{_DAYS[first]} {hours}" if len(days) == 1 else f"{_DAYS[first]}-{last} {hours}"


_BLACKOUT_IN_EDITORS = in_editors("string", f"^{re.sub(r'[?]P<[a-z]+>', '', _BLACKOUT.pattern)}$")


def _clock_time(value: object) -> time:
    """TOML has a kind of its own for it, which is taken too."""
    if isinstance(value, time) and value.tzinfo is None:
        return value.replace(second=0, microsecond=0)
    if not isinstance(value, str) or not re.fullmatch(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]", value, re.ASCII):
        raise BadValue(f"{quoted(value)} is not a time of day", 'write hours and minutes: "12:00"')
    return time.fromisoformat(value)


def _windows(value: tuple[Blackout, ...]) -> tuple[Blackout, ...]:
    if not value:
        raise BadValue("lists no window", 'no backup could ever begin: write for example ["21:00-06:00"]')
    return value


FinishBy = Annotated[Deadline, PlainValidator(_deadline), as_text(_deadline_text), in_editors("string")]
Cron = Annotated[Text, AfterValidator(_cron)]
Zone = Annotated[Text, AfterValidator(_zone)]
_Hours = Annotated[Blackout, PlainValidator(_blackout), as_text(_blackout_text), _BLACKOUT_IN_EDITORS]
Blackouts = Annotated[tuple[_Hours, ...], AfterValidator(_blackouts)]
Windows = Annotated[tuple[_Hours, ...], AfterValidator(_windows)]
ClockTime = Annotated[
    time,
    PlainValidator(_clock_time),
    as_text(lambda clock: f"{clock:%H:%M}"),
    in_editors("string", "^([01][0-9]|2[0-3]):[0-5][0-9]$"),
]
