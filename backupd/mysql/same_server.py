"""Whether the server that answers is the one that was changed, by what was written down of that before.

Knows: what tells one server from another. By the time a dead run is cleaned up after, an address may lead to another: a
failover, a server that was rebuilt.
"""

import time
from collections.abc import Mapping

from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError

DATADIR, HOSTNAME, PORT = "datadir", "hostname", "port"
SERVER_UUID, SERVER_ID = "server_uuid", "server_id"
UPTIME, AT = "uptime", "at"  # the last: when they were read, by the host's clock

_IDS = (SERVER_UUID, SERVER_ID)  # the first that a server has: MariaDB has no uuid
_PLACE = (DATADIR, HOSTNAME, PORT)  # where MariaDB runs; its id is 1 by default, and may be one of a whole cluster
_START_SECONDS = 60.0  # by which uptime and clock may differ
_ASKED_SECONDS = 5.0  # what is told in whole seconds, one after the other
_DAY = 86400.0  # seven of them: a failover for good, say, to a server that was up before


def identity(session: Session, variables: Mapping[str, str]) -> Mapping[str, str]:
    """What is to be written down of the server that this session is with, before it is changed.

    Raises:
        ServerError: the session is over.
    """
    own_id = next(name for name in _IDS if name in variables)
    told = {name: variables[name] for name in (*_PLACE, own_id) if name in variables}
    return {**told, UPTIME: session.status("Uptime") or "0", AT: f"{time.time():.0f}"}


def has_identity(saved: Mapping[str, str]) -> bool:
    """What older versions wrote down of appliers has none."""
    return DATADIR in saved


def is_same(saved: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """It is the server of which this was saved. An older version saved less of it."""
    return _difference(saved, now) is None


def on_another(saved: Mapping[str, str], now: Mapping[str, str], *, changed: str, remedy: str) -> str:
    """A sentence where another server answers, which is let be; empty: it is the one that was changed.

    It is only said, and there is nothing to come back to, where that other one was started since, so that the one that
    was changed may be gone for good; and where that one has not answered for a week, or was changed by a clock that was
    more than a day ahead.

    Raises:
        ServerError: it is another one, and may have been one all the time.
    """
    name = _difference(saved, now)
    if name is None:
        return ""
    fact = f"another server answers: its {name} is {now.get(name)}, and {changed} on the one of {saved[name]}"
    if _was_started_since(saved, now) or not -_DAY <= float(now[AT]) - float(saved[AT]) <= 7 * _DAY:
        return f"{fact}; if that server is still running: {remedy}"
    raise ServerError(fact, hint=f"{remedy}, or point the host at it again; then `backupd recover`")


def restarted(saved: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """The same server was started since."""
    return int(now[UPTIME]) < int(saved[UPTIME]) + max(0.0, _elapsed(saved, now) - _START_SECONDS)


def _was_started_since(saved: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Another server: how long the one that was changed had been up then says nothing of it."""
    return int(now[UPTIME]) + _ASKED_SECONDS < _elapsed(saved, now)


def _elapsed(saved: Mapping[str, str], now: Mapping[str, str]) -> float:
    return max(0.0, float(now[AT]) - float(saved[AT]))


def _difference(saved: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The first that tells them apart. A MySQL server has its uuid wherever it runs."""
    names = (SERVER_UUID,) if SERVER_UUID in saved else (*_PLACE, SERVER_ID)
    name = next((name for name in names if name in saved and saved[name] != now.get(name)), None)
    return None if name == SERVER_ID and _is_same_start(saved, now) else name


def _is_same_start(saved: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """In the same place, which is known, at the same time: only its id was changed as it ran."""
    began, begins = (float(one[AT]) - int(one[UPTIME]) for one in (saved, now))
    return all(name in saved for name in _PLACE) and abs(begins - began) <= _START_SECONDS
