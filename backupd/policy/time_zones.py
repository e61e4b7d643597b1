"""Which time zone a server's own clock goes by, found by how far it is from UTC at many instants.

Knows: the zones that this host has rules of; when a name may be one at all. A zone is told by what it does, because its
name may be nowhere: `/etc/localtime` may be a copy, and a container or a server on another host has its own. Zones that
nothing since 1970 tells apart mean the same.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from backupd.vocabulary.errors import UsageError

STEP_SECONDS: Final = 10 * 86400  # between two instants
# From 1970 to 2038, where TIMESTAMPs begin and end; servers convert nothing that is not between.
INSTANTS: Final = tuple(range(STEP_SECONDS, (1 << 31) - STEP_SECONDS, STEP_SECONDS))

_WITHOUT_RULES: Final = frozenset({"UTC", "Etc/UTC"})  # the C library knows them by itself

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z][A-Za-z0-9_+-]*){0,2}", re.ASCII)
_LONGEST_NAME = 64
_PREFERRED = re.compile(r"(?!Arctic/|Etc/|US/)[A-Z][A-Za-z]+/.+", re.ASCII)  # before EST5EDT, US/…
_RECENT_SECONDS = 2 * 365 * 86400
_RULES = Path("/usr/share/zoneinfo")  # where the C library of a server looks them up


def is_zone_name(text: str) -> bool:
    """Whether a zone may be called so. It leads to no file but one of zoneinfo's: there is no dot in it."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def zone_by_offsets(offsets: Sequence[int], *, hints: Iterable[str] = (), now: datetime) -> str:
    """The IANA name of the zone that is so many seconds ahead of UTC at each of `INSTANTS`; empty where none is.

    Of several that do the same, one of `hints` is preferred, the first of all. A hint is also believed where it agrees
    only for the two years before and after now: of earlier years the servers' rules may be older than ours.
    """
    hinted = tuple(filter(is_zone_name, hints))
    if (found := next((name for name in hinted if _agrees(name, offsets)), "")) or (found := _like(tuple(offsets))):
        return found
    recent = recent_instants(now)
    return next((name for name in hinted if _agrees(name, offsets, recent)), "")


def recent_instants(now: datetime) -> range:
    """The places in `INSTANTS` of the two years before and after now."""
    at = int(now.timestamp())
    first, last = ((at + sign * _RECENT_SECONDS - INSTANTS[0]) // STEP_SECONDS for sign in (-1, 1))
    return range(max(0, first), min(len(INSTANTS), last))


def is_zone_now(name: str, offsets: Sequence[int], *, now: datetime) -> bool:
    """Whether a clock with these offsets goes by the zone, in the two years before and after now."""
    return _agrees(name, offsets, recent_instants(now))


def require_rules(name: str, *, rules: Path = _RULES) -> None:
    """A server of this host that is started with `TZ=name` goes by that zone, as far as that is known before.

    Raises:
        UsageError: there is no such zone here; a C library would silently take UTC.
    """
    if not has_rules(name, rules=rules):
        raise without_rules(name)


def has_rules(name: str, *, rules: Path = _RULES) -> bool:
    """Whether the C library of this host's servers knows the zone."""
    return name in _WITHOUT_RULES or (is_zone_name(name) and (rules / name).is_file())


def without_rules(name: str) -> UsageError:
    """Why nothing is applied in this zone, to be raised."""
    return UsageError(
        f"the binlog was written in the time zone {name!r:.80}, which servers on this host do not know",
        hint=f"install tzdata (for old names on Debian 13: tzdata-legacy): {_RULES}/ZONE is needed",
    )


def _agrees(name: str, offsets: Sequence[int], places: Iterable[int] | None = None) -> bool:
    if len(offsets) != len(INSTANTS):
        return False
    try:
        zone = ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a folder, an odd name, none: as zoneinfo has them
        return False
    wanted = range(len(INSTANTS)) if places is None else places
    return all(_offset(zone, INSTANTS[at]) == offsets[at] for at in wanted)


def _offset(zone: ZoneInfo, instant: int) -> int:
    ahead = datetime.fromtimestamp(instant, zone).utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds())


@lru_cache(maxsize=16)
def _like(offsets: tuple[int, ...]) -> str:
    return next((name for name in _candidates() if _agrees(name, offsets)), "")


def _candidates() -> Iterator[str]:
    """Every zone's name, those first that people know their zone by."""
    yield "UTC"  # before Africa/Abidjan, which does the same
    named = sorted(filter(is_zone_name, available_timezones()))
    yield from (name for name in named if _PREFERRED.fullmatch(name))
    yield from (name for name in named if not _PREFERRED.fullmatch(name))
