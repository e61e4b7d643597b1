"""Which instant a word of the command line means: `2026-11-20`, `2026-11-20T04:00+01:00`, or so long ago, as `7d`.

Knows: how people write times. Refuses to guess a zone: without one it is UTC, as everything that is printed.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from backupd.vocabulary.errors import UsageError

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help=("Started at this time or later: 2026-11-20, or 7d for that long ago.")
    ),
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Started before this time.")]

_HINT = "a date such as 2026-11-20, a time such as 2026-11-20T04:00 (UTC), or how long ago: 12h, 7d"


def span(since: str | None, until: str | None, *, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Both ends, in UTC; None where none is named.

    Raises:
        UsageError: one of them is not a time, the first is in the future, or nothing lies between them.
    """
    begin = None if since is None else instant("--since", since, now=now)
    end = None if until is None else instant("--until", until, now=now)
    if begin is not None and begin > now:
        raise UsageError(f"--since {since} is in the future", hint=f"it is {now:%Y-%m-%d %H:%M} UTC")
    if begin is not None and end is not None and end <= begin:
        raise UsageError(f"--since {since} is not before --until {until}", hint="--since must be the earlier one")
    return begin, end


def instant(option: str, text: str, *, now: datetime) -> datetime:
    """In UTC.

    Raises:
        UsageError: it is not a time, or one that no calendar has.
    """
    word = text.strip()
    try:
        return _written(word) if "-" in word else now - _ago(word)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{option}: {text!r} is not a time", hint=_HINT) from error


def _written(word: str) -> datetime:
    found = datetime.fromisoformat(word)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _ago(word: str) -> timedelta:
    from backupd.vocabulary.units import parse_duration  # the configuration takes long to load: not for every `--help`

    if word.isdecimal():  # a year, or an instant without dashes: nobody means seconds
        raise ValueError(word)
    return timedelta(seconds=parse_duration(word))
