"""Whether the server that answers is the one that was changed, by what was written down of that before.

Knows: what tells one server from another. By the time a dead run is cleaned up after, an address may lead to another: a
failover, a server that was rebuilt.
"""

import time
from collections.abc import Mapping

from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError

DATADIR, SERVER_UUID, SERVER_ID = "datadir", "server_uuid", "server_id"
UPTIME, AT = "uptime", "at"  # the last: when they were read, by the host's clock

_IDS = (SERVER_UUID, SERVER_ID)  # the first that a server has: MariaDB has no uuid, and its id may be changed
_RESTART_SECONDS = 60.0  # by which uptime and clock may differ


def identity(session: Session, variables: Mapping[str, str]) -> Mapping[str, str]:
    """What is to be written down of the server that this session is with, before it is changed.

    Raises:
        ServerError: the session is over.
    """
    own_id = next(name for name in _IDS if name in variables)
    told = {name: variables[name] for name in (DATADIR, own_id)}
    return {**told, UPTIME: session.status("Uptime") or "0", AT: f"{time.time():.0f}"}


def has_identity(saved: Mapping[str, str]) -> bool:
    """What older versions wrote down of appliers has none."""
    return DATADIR in saved


def is_same(saved: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """It is the server of which this was saved. An older version saved less of it."""
    return _difference(saved, now) is None


def on_another(saved: Mapping[str, str], now: Mapping[str, str], *, changed: str, remedy: str) -> str:
    """A sentence where another server answers, which is let be; empty: it is the one that was changed.

    Raises:
        ServerError: it is another one, and may have been one all the time. Where it was started since, the one that was
            changed may be gone for good.
    """
    name = _difference(saved, now)
    if name is None:
        return ""
    fact = f"another server answers: its {name} is {now.get(name)}, and {changed} on the one of {saved[name]}"
    if restarted(saved, now):
        return f"{fact}; if that server is still running: {remedy}"
    raise ServerError(fact, hint=f"{remedy}, or point the host at it again; then `backupd recover`")


def restarted(saved: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """The server that answers was started since."""
    elapsed = max(0.0, float(now[AT]) - float(saved[AT]))
    return int(now[UPTIME]) < int(saved[UPTIME]) + max(0.0, elapsed - _RESTART_SECONDS)


def _difference(saved: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    return next((name for name in (DATADIR, *_IDS) if name in saved and saved[name] != now.get(name)), None)
