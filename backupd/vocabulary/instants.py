"""Instants as people read them, and which one a person means.

That is `2026-11-20`, `2026-11-20T04:00+01:00`, `2026-11-20T04:00 Europe/Berlin`, or `7d` ago.

Knows: how people write times. Refuses to guess a zone: without one it is UTC, as everything that is printed. Refuses to
guess which of two is meant as well, where a zone's clocks showed a time twice.
"""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from backupd.vocabulary.faults import BadValue
from backupd.vocabulary.units import parse_duration

_ZONED = re.compile(r"(?P<local>\S.*?) (?P<zone>[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)", re.ASCII)
_FOUR_PARTS = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}:")

INSTANT_HINT = (
    "a date such as 2026-11-20, a time such as 2026-11-20T04:00 (UTC), or how long ago: 12h, 7d; other times as"
    " 2026-11-20T04:00+01:00 or '2026-11-20 04:00 Europe/Berlin'"
)


def is_reckonable(at: datetime, *, years: range = range(1970, 3000)) -> bool:
    """Whether it has a zone, and is of one of these years: of those with which every sum and each zone is an instant as
    well, from 1 on and before 9999.

    1970 is what a clock shows that nobody has set.
    """
    return at.tzinfo is not None and at.year in years


def to_the_minute(at: datetime) -> str:
    """In UTC, as tables and most sentences have it."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def to_the_second(at: datetime) -> str:
    """In UTC, where minutes are too coarse."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def shown(at: datetime) -> str:
    """In UTC, to the microsecond where it has a part of a second: what is named can be asked for."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')} UTC"


def parse_instant(text: str, *, now: datetime) -> datetime:
    """In UTC. A date means its first moment.

    Raises:
        BadValue: it is not a time, or one that no calendar has, or that a zone's clocks showed twice or never.
    """
    word = text.strip()
    if "-" in word and (zoned := _ZONED.fullmatch(word)) is not None:
        return _shown_once(text, zoned["local"], zoned["zone"])
    try:
        return _written(word) if "-" in word else now - _ago(word)
    except (ValueError, OverflowError) as error:
        raise BadValue(f"{text!r} is not a time", INSTANT_HINT) from error


def _shown_once(text: str, local: str, zone: str) -> datetime:
    """The instant at which that zone's clocks showed so."""
    try:
        clock, read = ZoneInfo(zone), _without_zone(local)
        first, second = (read.replace(tzinfo=clock, fold=fold).astimezone(UTC) for fold in (0, 1))
    except (ValueError, OverflowError, OSError, ZoneInfoNotFoundError) as error:
        raise BadValue(f"{text!r} is not a time", INSTANT_HINT) from error
    if first == second:
        return first
    if first < second:
        offsets = " or ".join(each.astimezone(clock).isoformat() for each in (first, second))
        raise BadValue(f"{text!r} was shown twice, as the clocks were put back", f"write which one is meant: {offsets}")
    raise BadValue(f"{text!r} was never shown: the clocks were put forward", "write it with its offset, or in UTC")


def _without_zone(word: str) -> datetime:
    found = _read(word)
    if found.tzinfo is not None:
        raise ValueError(word)
    return found


def _read(word: str) -> datetime:
    if _FOUR_PARTS.search(word):  # Python 3.11 reads 12:00:00:30 as 12:00:00.3
        raise ValueError(word)
    return datetime.fromisoformat(word)


def _written(word: str) -> datetime:
    found = _read(word)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _ago(word: str) -> timedelta:
    if word.isdecimal():  # a year, or an instant without dashes: nobody means seconds
        raise ValueError(word)
    return timedelta(seconds=parse_duration(word))
