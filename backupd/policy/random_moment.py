"""A moment that nobody has chosen: drawn from all that an archive can reach, by a seed.

Knows: that each second that can be restored is as likely as any other, and that none in a gap is drawn. Pure: the same
seed draws the same moment from the same archive, with every version of Python.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from backupd.policy.moments import ToTime
from backupd.policy.reach import Reach
from backupd.vocabulary.errors import UsageError

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Span = tuple[datetime, datetime]  # after the first of them, and up to the second


def drawn(reach: Reach, seed: int) -> ToTime:
    """One of the whole seconds that can be restored, or the last moment of a stretch.

    Raises:
        UsageError: no moment can be.
    """
    spans = list(_spans(reach))
    counts = [_whole_seconds(span) + 1 for span in spans]  # and its end
    if not spans:
        raise UsageError(
            "there is no moment that a drill could restore: no transaction is archived that follows a good backup",
            hint="`backupd binlog list JOB` shows what can be restored; `backupd drill RUN` proves a backup alone",
        )
    number = int.from_bytes(hashlib.sha256(b"%d" % seed).digest()) % sum(counts)
    for (since, until), count in zip(spans, counts, strict=True):
        if number < count:
            at = _first_whole_second(since) + number * _SECOND
            return ToTime(min(at, until))
        number -= count
    raise AssertionError("the number is one of them")


def _spans(reach: Reach) -> Iterator[_Span]:
    """Without what two stretches have in common. A restore is asked for a time after its backup's own."""
    reached: datetime | None = None
    for stretch in reach.stretches:
        since = stretch.since if reached is None else max(stretch.since, reached)
        if since < stretch.until:
            yield since, stretch.until
        reached = stretch.until if reached is None else max(reached, stretch.until)


def _first_whole_second(since: datetime) -> datetime:
    return _EPOCH + ((since - _EPOCH) // _SECOND + 1) * _SECOND


def _whole_seconds(span: _Span) -> int:
    """Within it, but for its end."""
    since, until = span
    return max(0, -((_first_whole_second(since) - until) // _SECOND))
