"""Which instant a person means: `2026-11-20`, `2026-11-20T04:00+01:00`, or so long ago, as `7d`.

Knows: how people write times. Refuses to guess a zone: without one it is UTC, as everything that is printed.
"""

import re
from datetime import UTC, datetime, timedelta

from backupd.vocabulary.faults import BadValue
from backupd.vocabulary.units import parse_duration

_FOUR_PARTS = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}:")

INSTANT_HINT = "a date such as 2026-11-20, a time such as 2026-11-20T04:00 (UTC), or how long ago: 12h, 7d"


def parse_instant(text: str, *, now: datetime) -> datetime:
    """In UTC. A date means its first moment.

    Raises:
        BadValue: it is not a time, or one that no calendar has.
    """
    word = text.strip()
    try:
        return _written(word) if "-" in word else now - _ago(word)
    except (ValueError, OverflowError) as error:
        raise BadValue(f"{text!r} is not a time", INSTANT_HINT) from error


def _written(word: str) -> datetime:
    if _FOUR_PARTS.search(word):  # Python 3.11 reads 12:00:00:30 as 12:00:00.3
        raise ValueError(word)
    found = datetime.fromisoformat(word)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _ago(word: str) -> timedelta:
    if word.isdecimal():  # a year, or an instant without dashes: nobody means seconds
        raise ValueError(word)
    return timedelta(seconds=parse_duration(word))
