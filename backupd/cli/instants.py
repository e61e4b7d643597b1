"""The options `--since` and `--until`: a span of time, as people write its ends.

Knows: the sentences when nothing can lie between them. How one time is written is `vocabulary.instants`'.
"""

from datetime import datetime
from typing import Annotated

import typer

from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.instants import to_the_minute

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help=("Started at this time or later: 2026-11-20, or 7d for that long ago.")
    ),
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Started before this time.")]


def span(since: str | None, until: str | None, *, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Both ends, in UTC; None where none is named.

    Raises:
        UsageError: one of them is not a time, the first is in the future, or nothing lies between them.
    """
    begin = None if since is None else instant("--since", since, now=now)
    end = None if until is None else instant("--until", until, now=now)
    if begin is not None and begin > now:
        raise UsageError(f"--since {since} is in the future", hint=f"it is {to_the_minute(now)}")
    if begin is not None and end is not None and end <= begin:
        raise UsageError(f"--since {since} is not before --until {until}", hint="--since must be the earlier one")
    return begin, end


def instant(option: str, text: str, *, now: datetime) -> datetime:
    """In UTC.

    Raises:
        UsageError: it is not a time, or one that no calendar has.
    """
    from backupd.vocabulary.faults import BadValue  # the configuration takes long to load: not for every `--help`
    from backupd.vocabulary.instants import parse_instant

    try:
        return parse_instant(text, now=now)
    except BadValue as bad:
        raise UsageError(f"{option}: {bad.fact}", hint=bad.hint) from bad
