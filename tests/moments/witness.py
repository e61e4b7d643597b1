"""What a server's tables contained behind each transaction of its log, computed of what clients noted.

Knows: that each acknowledged commit is in the log once, with the rows of its client, and within the time that the
client waited for it. The contents are played from the clients' own changes in the order of commits; no server is asked.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.moments.clients import Attempt
from tests.moments.server_log import Logged
from tests.moments.tables import DATABASE, Sums, Tables, sums_of

Contents = Mapping[str, Sums]

_OURS = re.compile(rf"\b{DATABASE}`?\.")


@dataclass(frozen=True)
class Record:
    """A log and, for each number of its first transactions, what the tables contain behind them."""

    log: Sequence[Logged]
    contents: Sequence[Contents]

    def up_to(self, file: str, offset: int) -> int:
        """How many transactions end at this place or before it."""
        return bisect_right([(one.file, one.end) for one in self.log], (file, offset))

    def before(self, at: datetime, *, behind: int) -> int:
        """How many there are before the first of this time or later, behind those that are in a backup."""
        return next(number for number in range(behind, len(self.log)) if self.log[number].at >= at)


def recorded(log: Sequence[Logged], attempts: Sequence[Attempt]) -> Record:
    """The record of a log that nobody wrote to but the clients, and whoever leaves their database alone."""
    by_token = {attempt.token: attempt for attempt in attempts}
    acknowledged = {attempt.gtid: attempt for attempt in attempts if attempt.gtid}
    doubled = [gtid for gtid, times in Counter(one.gtid for one in log).items() if times > 1]
    assert not doubled, f"more than once in the log: {doubled}"
    missing = acknowledged.keys() - {one.gtid for one in log}
    assert not missing, f"acknowledged, and not in the log: {missing}"
    tables: Tables = {}
    contents: list[Contents] = [{}]
    for one in log:
        attempt = acknowledged.get(one.gtid) or by_token.get(one.token or 0)
        if attempt is None:
            assert not any(_OURS.search(told) for told in one.statements), (one, one.statements)
        else:
            _require_agreed(one, attempt)
            for change in attempt.changes:
                change.play(tables)
        contents.append(sums_of(tables))
    return Record(log, contents)


def _require_agreed(one: Logged, attempt: Attempt) -> None:
    noted = (attempt.token, attempt.gtid, attempt.begun, attempt.acknowledged)
    assert one.token in (None, attempt.token), (one, noted)
    assert attempt.gtid in ("", one.gtid), (one, noted)
    begun = attempt.begun if one.exact else attempt.begun.replace(microsecond=0)
    assert begun <= one.at, (one, noted)
    assert attempt.acknowledged is None or one.at <= attempt.acknowledged + timedelta(milliseconds=1), (one, noted)
