"""Dirty pages, written before the lock instead of under it: the settings that do it, and how they are restored.

Knows: the two settings by which InnoDB writes whatever is dirty, how long that is worth waiting for, and which of
them is still as we left it.

Seen on MariaDB 10.11.19: with `innodb_max_dirty_pages_pct = 0` the page cleaner writes, no faster than
`innodb_io_capacity` lets it, until next to nothing is dirty. `innodb_max_dirty_pages_pct_lwm` cannot be above it: it is
lowered along, and cannot be raised before it, which gives the order in both directions. By MySQL's manual the second is
always to be below the first, and 0 turns off what it does, which leaves the first to decide (Configuring Buffer Pool
Flushing). The number of dirty pages is counted anew once a second.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backupd.mysql.same_server import identity, on_another, restarted
from backupd.mysql.session import Connect, Session
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Preflush, PreflushEnd

log = logging.getLogger(__name__)

MAX_DIRTY, LOW_WATER_MARK = "innodb_max_dirty_pages_pct", "innodb_max_dirty_pages_pct_lwm"

LOOK_SECONDS = 1.0
FEW_PAGES = 100  # 1.6 MiB: scripts of others wait for that
_FEW_SHARE = 0.01  # of those at the beginning
_STEADY_LOOKS = 5
_STEADY_PAGES = (
    20  # that fall by no more in that many looks: with `innodb_io_capacity` at its least of 100 they could by 500
)

_DIRTY = "Innodb_buffer_pool_pages_dirty"
_OFF = "set lock.preflush = false for this job"


@dataclass(frozen=True, slots=True)
class Restoration:
    """What is to be set, in this order, and what is left as somebody else has set it."""

    values: tuple[tuple[str, float], ...] = ()
    left: tuple[str, ...] = ()


def restoration(saved: Mapping[str, str], now: Mapping[str, str]) -> Restoration:
    """What puts the settings back to what was saved; both are of the shape that `settings` tells.

    A setting that is 0 is as we left it. One that is neither that nor what was saved was changed by somebody who knew
    why. A server that was restarted has its own settings back; but an uptime goes by the clock, which may be set back,
    so that it counts only where the first setting is not 0 any more. Another one is never touched; if it was started
    since, the one that was changed may be gone for good. After a week that one is given up, and what is left says so.

    Raises:
        ServerError: this is another server, and may have been one all the time.
    """
    remedy = f"SET GLOBAL {MAX_DIRTY} = {float(saved[MAX_DIRTY]):g} there"
    if words := on_another(saved, now, changed=f"{MAX_DIRTY} was changed", remedy=remedy):
        return Restoration(left=(words,))
    if restarted(saved, now) and float(now[MAX_DIRTY]) != 0:
        return Restoration()
    values, left = [], []
    most = float(saved[MAX_DIRTY] if float(now[MAX_DIRTY]) == 0 else now[MAX_DIRTY])  # that the second may be
    for name in (MAX_DIRTY, LOW_WATER_MARK):
        was, found = float(saved[name]), float(now[name])
        if found == was:
            continue
        if found == 0:
            values.append((name, min(was, most)))
        else:
            left.append(
                f"{name} was changed to {found:g} by somebody else and is left as it is; before the lock it was {was:g}"
            )
    return Restoration(tuple(values), tuple(left))


def preflush_end(pages: Sequence[int], *, seconds: float, limit_seconds: float) -> PreflushEnd | None:
    """Why it is waited for no longer, by the dirty pages at each look so far; None: it is."""
    if pages[-1] <= max(FEW_PAGES, pages[0] * _FEW_SHARE):
        return PreflushEnd.FEW
    if seconds >= limit_seconds:
        return PreflushEnd.LIMIT
    earlier, latest = pages[:-_STEADY_LOOKS], pages[-_STEADY_LOOKS:]
    if earlier and min(earlier) - min(latest) <= _STEADY_PAGES:
        return PreflushEnd.STEADY
    return None


class PageFlusher:
    """The contract's `Flusher` on a real server; each verb in a session of its own."""

    def __init__(
        self,
        connect: Connect,
        *,
        wait_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect, self._wait_seconds = connect, wait_seconds
        self._clock, self._pause = clock, pause

    def settings(self) -> Mapping[str, str]:
        """What is to be restored, and what tells this server from another.

        Raises:
            ServerError: it cannot be asked, or has no such settings.
        """
        with self._connect() as session:
            return _settings(session)

    def flush(self) -> Preflush:
        """Whatever is dirty is being written, and most of it is by now.

        Raises:
            ServerError: the server refused or failed; the settings may be changed then.
        """
        with self._connect() as session:
            began, pages = self._clock(), [_dirty(session)]
            for name in (LOW_WATER_MARK, MAX_DIRTY):
                session.execute(f"SET GLOBAL {name} = 0")
            while (end := preflush_end(pages, seconds=self._clock() - began, limit_seconds=self._wait_seconds)) is None:
                self._pause(LOOK_SECONDS)
                pages.append(_dirty(session))
        return Preflush(pages[0], pages[-1], self._clock() - began, end)

    def put_back(self, saved: Mapping[str, str]) -> None:
        """The settings are what they were before `flush`, but where somebody has changed them since.

        Raises:
            ServerError: it failed, or another server answers.
        """
        with self._connect() as session:
            found = restoration(saved, _settings(session))
            for name, value in found.values:
                session.execute(f"SET GLOBAL {name} = %s", value)
        for words in found.left:
            log.warning("%s", words)


def _settings(session: Session) -> Mapping[str, str]:
    variables = session.variables()
    lacking = [name for name in (MAX_DIRTY, LOW_WATER_MARK) if name not in variables]
    if lacking:
        raise ServerError(f"the server does not report {' and '.join(lacking)}", hint=f"is InnoDB disabled? {_OFF}")
    return {**{name: variables[name] for name in (MAX_DIRTY, LOW_WATER_MARK)}, **identity(session, variables)}


def _dirty(session: Session) -> int:
    pages = session.status(_DIRTY)
    if pages is None:
        raise ServerError(f"the server does not report {_DIRTY}", hint=f"is InnoDB disabled? {_OFF}")
    return int(pages)
