"""The time zone that a server's `time_zone = SYSTEM` means, by asking the server.

Knows: the statement, and where on this host a name of it may stand. A name is believed only where the server's own
clock goes by it, so it does not matter whether the process is the right one, or what else stands there.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from backupd.mysql.session import Session
from backupd.policy.time_zones import INSTANTS, STEP_SECONDS, has_rules, is_zone_now, without_rules, zone_by_offsets

_DIGIT = f"(SELECT 0 AS d {' '.join(f'UNION ALL SELECT {digit}' for digit in range(1, 10))})"
_NUMBER = "a.d + 10 * b.d + 100 * c.d + 1000 * e.d"
_FIRST = f"TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {INSTANTS[0]} SECOND"
_OFFSETS = f"""
    SELECT n, TIMESTAMPDIFF(SECOND, at, CONVERT_TZ(at, '+00:00', 'SYSTEM')) AS ahead FROM (
        SELECT {_NUMBER} AS n, {_FIRST} + INTERVAL ({_NUMBER}) * {STEP_SECONDS} SECOND AS at
        FROM {_DIGIT} a, {_DIGIT} b, {_DIGIT} c, {_DIGIT} e WHERE {_NUMBER} < {len(INSTANTS)}
    ) instants ORDER BY n
"""  # noqa: S608 -- nothing but our own numbers
_ZONES = "zoneinfo/"


def system_zone(session: Session) -> str:
    """Its IANA name; empty where no zone that is known here does what the server's clock does.

    Raises:
        ServerError: the session is over.
    """
    return zone_by_offsets(system_offsets(session), hints=_hints(session.peer), now=datetime.now(UTC))


def system_offsets(session: Session) -> tuple[int, ...]:
    """How many seconds the server's clock is ahead of UTC at each of `INSTANTS`.

    CONVERT_TZ knows SYSTEM without the tables of zones (seen on MariaDB 10.11.19 and MySQL 9.7.4), and takes 20 ms for
    all of them.

    Raises:
        ServerError: the session is over.
    """
    return tuple(int(row["ahead"] or 0) for row in session.query(_OFFSETS))


def _hints(process: int | None) -> Iterator[str]:
    """What the server's process was told, what its `/etc/localtime` leads to, and what this host's does."""
    if process is not None:
        yield _told(Path(f"/proc/{process}/environ"))
        yield _linked(Path(f"/proc/{process}/root/etc/localtime"))
    yield _linked(Path("/etc/localtime"))


def _told(environment: Path) -> str:
    """By TZ in it (proc(5)); empty where there is none, or where we may not look."""
    try:
        variables = environment.read_bytes().split(b"\0")
    except OSError:
        return ""
    named = next((each.removeprefix(b"TZ=") for each in variables if each.startswith(b"TZ=")), b"")
    return _name_in(os.fsdecode(named).removeprefix(":"))


def _linked(localtime: Path) -> str:
    try:
        return _name_in(str(localtime.readlink()))
    except OSError:  # it is a file, or not there, or we may not look
        return ""


def _name_in(path: str) -> str:
    _, _, name = path.rpartition(_ZONES)
    return name.removeprefix("posix/").removeprefix("right/")


def environment_of(zone: str) -> dict[str, str]:
    """What makes a server that is started here go by this zone; nothing where it is not known, or has no rules here."""
    return {"TZ": zone} if zone and has_rules(zone) else {}


def require_zone_taken(session: Session, zone: str) -> None:
    """The server goes by the zone that it was told, whatever its C library found.

    Raises:
        UsageError: it does not.
    """
    if not is_zone_now(zone, system_offsets(session), now=datetime.now(UTC)):
        raise without_rules(zone)
