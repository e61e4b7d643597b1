"""The checks that a job brings itself: what a restored server is asked, and whether the answer is the expected one.

Knows: a check is one statement that returns one value, in a read-only session of its own, within its time. A value that
is not as expected is a failed check, and so is a statement that fails or takes too long. A server that has no memory or
room left for a statement is no answer, and neither is one that is gone: no other check is asked then.

The statement is the configuration's. The value is a stranger's data: it is compared whole, kept cut, and escaped by
whoever shows it.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pymysql.constants import ER

from backupd.config import DrillCheckConfig
from backupd.mysql.own_limits import ran_out
from backupd.mysql.scratch import RunningServer
from backupd.mysql.session import StatementError
from backupd.mysql.statement_limit import TIMED_OUT, limit_statements
from backupd.mysql.watchdog import Watchdog
from backupd.vocabulary.errors import Undecided
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.units import format_duration

PREFIX = "checks."  # of their names: a job can call one as it likes, and none is taken for a check of every drill

_LONGEST_SQL = 1000  # characters that are kept with the proof
_LONGEST_VALUE = 200
_GRACE_SECONDS = 5.0  # that the server has to end the statement itself, and then to answer a KILL
_AHEAD = timedelta(days=1)  # how far a time may be after that moment: it may be of any zone's clock
_LONGEST_NUMBER = 400  # characters: a double has at most 309 digits before its point

_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*", re.ASCII)
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?", re.ASCII
)
_OWN_LIMITS = (ER.DISK_FULL, ER.OUTOFMEMORY, ER.OUT_OF_SORTMEMORY, ER.OUT_OF_RESOURCES, ER.RECORD_FILE_FULL)

Rows = Sequence[Sequence[str | None]]


def own_checks(
    server: RunningServer, checks: Iterable[DrillCheckConfig], *, flavour: Flavour, taken_at: datetime
) -> Iterator[Check]:
    """Each of them in its turn, whatever came of the others; `taken_at` is the moment that the copy is of.

    Raises:
        Undecided: while iterating: the server had no memory or no room for one.
        ServerError: while iterating: the server is gone, or does not answer any more.
    """
    return (_asked(server, check, flavour, taken_at) for check in checks)


def judged(check: DrillCheckConfig, rows: Rows, *, taken_at: datetime) -> Check:
    """What came of a check whose statement was answered, by the first two rows of the answer."""
    if not rows:
        return _result(check, taken_at, ok=False, found="no row")
    if len(rows) > 1:
        return _result(check, taken_at, ok=False, found="more than one row")
    if len(rows[0]) != 1:
        return _result(check, taken_at, ok=False, found=f"{len(rows[0])} columns instead of one")
    value = rows[0][0]
    if value is None:
        return _result(check, taken_at, ok=False, found="NULL")
    if check.equals is not None:
        return _result(check, taken_at, ok=value == check.equals, found=_shown(value))
    if check.newer_than_seconds is not None:
        return _fresh(check, value, timedelta(seconds=check.newer_than_seconds), taken_at)
    if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
        return _result(check, taken_at, ok=False, found=f"{_shown(value)}, which is not a number")
    number = Decimal(value.strip())
    least, most = check.at_least, check.at_most
    ok = (least is None or number >= Decimal(str(least))) and (most is None or number <= Decimal(str(most)))
    return _result(check, taken_at, ok=ok, found=_shown(value))


def expectation(check: DrillCheckConfig, *, taken_at: datetime) -> str:
    """What a check expects, in words."""
    if check.equals is not None:
        return _shown(check.equals)
    if check.newer_than_seconds is not None:
        age = format_duration(check.newer_than_seconds)
        oldest = to_the_second(_oldest(taken_at, check.newer_than_seconds))
        return f"{oldest} or later: {age} before the moment of the copy"
    if check.at_least is not None and check.at_most is not None:
        return f"{check.at_least} to {check.at_most}"
    return f"at least {check.at_least}" if check.at_least is not None else f"at most {check.at_most}"


def _asked(server: RunningServer, check: DrillCheckConfig, flavour: Flavour, taken_at: datetime) -> Check:
    seconds = check.timeout_seconds
    with (
        server.another_session(answer_seconds=_GRACE_SECONDS) as killer,
        server.another_session(answer_seconds=seconds + 2 * _GRACE_SECONDS, one_statement=True) as session,
        Watchdog(session, killer) as watchdog,
    ):
        session.execute("SET SESSION time_zone = '+00:00'")
        session.execute("SET SESSION TRANSACTION READ ONLY")
        limit_statements(session, flavour, seconds)
        watchdog.allow(seconds + _GRACE_SECONDS)  # not every statement heeds the server's limit
        late = _result(check, taken_at, ok=False, found=f"no answer within {format_duration(seconds)}")
        began = time.monotonic()
        try:
            rows = session.last(check.sql, most=2)
        except StatementError as error:
            if watchdog.fired or error.number in TIMED_OUT:
                return late
            _require_answer(check, error)
            return _result(check, taken_at, ok=False, found=f"an error: {_shown(error.said)}")
    # A function that is cut short may return a value instead: BENCHMARK() does, and MySQL's SLEEP().
    return late if time.monotonic() - began >= seconds else judged(check, rows, taken_at=taken_at)


def _require_answer(check: DrillCheckConfig, error: StatementError) -> None:
    """The error is the statement's: the server is there, and had what it needs.

    An error may quote the statement: words for a limit that stand there are not the server's.
    """
    if error.number in _OWN_LIMITS or (ran_out(error.said) and not ran_out(check.sql)):
        raise Undecided(
            f"the server on the restored files ran out of resources for {PREFIX}{check.name}: {_shown(error.said)}",
            hint="nothing was learned about the backup: drill it again with more memory or disk space",
        ) from error
    if not error.number:
        raise error


def _fresh(check: DrillCheckConfig, value: str, age: timedelta, taken_at: datetime) -> Check:
    at = _time(value)
    if at is None:
        return _result(check, taken_at, ok=False, found=f"{_shown(value)}, which is not a time")
    if at > taken_at + _AHEAD:
        return _result(
            check, taken_at, ok=False, found=f"{to_the_second(at)}, more than a day after the moment of the copy"
        )
    return _result(check, taken_at, ok=at >= _oldest(taken_at, age.total_seconds()), found=to_the_second(at))


def _time(value: str) -> datetime | None:
    """What a DATE, DATETIME or TIMESTAMP is as text, in UTC unless it says otherwise; None where it is none."""
    if not _TIME.fullmatch(value):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):  # 0000-00-00, a 31st of February
        return None


def _oldest(taken_at: datetime, seconds: float) -> datetime:
    return taken_at - timedelta(seconds=seconds)


def _result(check: DrillCheckConfig, taken_at: datetime, *, ok: bool, found: str) -> Check:
    expected = expectation(check, taken_at=taken_at)
    asked = _cut(check.sql.strip(), _LONGEST_SQL)
    return Check(f"{PREFIX}{check.name}", ok=ok, expected=expected, found=found, asked=asked)


def _shown(value: str) -> str:
    return _cut(value, _LONGEST_VALUE) or "an empty text"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
