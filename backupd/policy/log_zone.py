"""The time zone in which a binlog's statements are applied, and what speaks against it.

Knows: that a server whose `time_zone` is SYSTEM logs that word, and so its statements mean the zone of whoever applies
them; that DDL is a statement in every format. What segments tell is newer than what their backup does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, TableChange
from backupd.vocabulary.servers import ServerFacts

SYSTEM_ZONE = "system_zone"  # a recorded setting: IANA's name of what SYSTEM means; empty: it is not known

_SYSTEM = "SYSTEM"
_WITHOUT_TIMES = (ChangeKind.DROP, ChangeKind.TRUNCATE, ChangeKind.RENAME)


@dataclass(frozen=True, slots=True)
class LogZone:
    """Which zone it is."""

    name: str  # IANA's; empty: the one of the process that applies it
    doubt: str = ""  # why rows may get other times than the source has; empty: they cannot


def log_zone(facts: ServerFacts, segments: Sequence[BinlogSegment], *, named: bool) -> LogZone:
    """The zone for these segments, applied to a backup of a server with these facts.

    `named` where somebody says by TZ in our environment which one it is: that counts where nothing is recorded.
    """
    zones = list(dict.fromkeys(segment.origin.zone for segment in segments if segment.origin.zone))
    if len(zones) > 1:
        told = f"the log was written in several time zones ({', '.join(zones)}), and is applied in {zones[-1]}"
        return LogZone(zones[-1], _doubt(told, segments))
    name = zones[0] if zones else facts.settings.get(SYSTEM_ZONE, "")
    if name or named or facts.settings.get("time_zone", _SYSTEM) != _SYSTEM:
        return LogZone(name)
    told = "the time zone of the server that wrote the log is not known, and it is applied in this host's"
    return LogZone("", _doubt(told, segments))


def _doubt(told: str, segments: Iterable[BinlogSegment]) -> str:
    if all(segment.all_changes and not any(map(_may_mean_times, segment.changes)) for segment in segments):
        return ""
    return f"{told}: its statements, such as ALTER TABLE of a TIMESTAMP, may give other times"


def _may_mean_times(change: TableChange) -> bool:
    return not change.rows and change.kind not in _WITHOUT_TIMES
