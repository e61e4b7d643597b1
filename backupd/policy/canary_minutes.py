"""Which rows of `backupd_canary.minutes` a server has at a moment, by its log, and whether a restored one has them.

Knows: a row is told by the second in which it was written, by the server's clock: the receiver writes one a minute.
What the log says is replayed; of what the backup had before, only that it is not from after the backup. A minute in
which nobody wrote is in neither. Rows that are older than the server keeps them are not compared. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.records import Check

KEPT_SECONDS = 30 * 86400

_SHOWN = 3  # of the rows that are missing, and of those that are too many


@dataclass(slots=True)
class LoggedMinutes:
    """What the log behind a backup says of the table, in its order. Times are whole seconds since 1970."""

    since: int  # the backup has no row that was written later
    there: Counter[int] = field(default_factory=Counter)  # rows that the moment has
    later: Counter[int] = field(default_factory=Counter)  # rows that were written behind the moment
    compared_from: int = 0  # nothing is known of older rows

    def wrote(self, at: int, rows: int) -> None:
        """So many rows."""
        self.there[at] += rows

    def purged(self, at: int) -> None:
        """Rows that were older than the server keeps them were removed, as the receiver does."""
        self.compared_from = max(self.compared_from, at - KEPT_SECONDS + 1)

    def emptied(self) -> None:
        """The table was dropped, or all of its rows were: what it has now is from then on."""
        self.there.clear()
        self.since = self.compared_from = 0

    def changed(self, at: int) -> None:
        """By somebody, who knows how: nothing is known of what is there by then."""
        self.there.clear()
        self.since, self.compared_from = max(self.since, at), max(self.compared_from, at + 1)

    def wrote_later(self, at: int, rows: int) -> None:
        """So many rows, behind the moment."""
        self.later[at] += rows


def minutes_check(logged: LoggedMinutes, found: Mapping[int, int]) -> Check:
    """The restored server has the rows of its moment, and no other. `found` is how many it has of each second."""
    compared = {at: rows for at, rows in logged.there.items() if at >= logged.compared_from}
    missing = sorted(at for at, rows in compared.items() if found.get(at, 0) < rows)
    surplus = sorted(_surplus(logged, compared, found))
    expected = _words(sum(compared.values()), max(compared, default=None))
    if not missing and not surplus:
        return Check("canary minutes", ok=True, expected=expected, found=expected)
    said = [_listed("without", missing), _listed("with", surplus)]
    return Check("canary minutes", ok=False, expected=expected, found="; ".join(filter(None, said)))


def _surplus(logged: LoggedMinutes, compared: Mapping[int, int], found: Mapping[int, int]) -> Iterator[int]:
    """Seconds with more rows than the log has up to the moment, which cannot be the backup's."""
    for at, rows in found.items():
        after_the_backup = at > logged.since or at in logged.later
        if at >= logged.compared_from and after_the_backup and rows > compared.get(at, 0):
            yield at


def _words(rows: int, last: int | None) -> str:
    if last is None:
        return "no row since the backup"
    return f"{rows} row{'' if rows == 1 else 's'} since the backup, the last of {_instant(last)}"


def _listed(how: str, seconds: list[int]) -> str:
    if not seconds:
        return ""
    shown = ", ".join(_instant(at) for at in seconds[:_SHOWN])
    more = f" and {len(seconds) - _SHOWN} more" if len(seconds) > _SHOWN else ""
    return f"{how} the row of {shown}{more}"


def _instant(at: int) -> str:
    """Of a restored server: it may be any number."""
    try:
        return to_the_second(datetime.fromtimestamp(at, UTC))
    except (OverflowError, ValueError, OSError):
        return f"second {at}"
