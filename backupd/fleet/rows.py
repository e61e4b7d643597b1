"""Backups and hosts as rows of the fleet's tables, and back.

Knows: that what a host has told may not be readable, and costs nobody but that host, or that backup: in its place
stands as much as is known without it, and a sentence that says so.
"""

from typing import Any, Final

from sqlalchemy import Row

from backupd.fleet.cluster_summaries import good_at
from backupd.vocabulary.errors import FleetDatabaseError
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry, OwedBackup, SeenHost

_SAID: Final = "what the fleet's database has of {} cannot be read: {}"


def row_of(backup: FleetBackup) -> dict[str, Any]:
    """Its row, with what it is looked for by."""
    owed = backup.owed
    return {
        "id": owed.id,
        "night": owed.night,
        "cluster": owed.cluster,
        "job": owed.job,
        "member": owed.only,
        "state": backup.state,
        "host": backup.tries[-1].host if backup.tries else None,
        "owed": owed,
        "tries": backup.tries,
        "changed_at": backup.changed_at,
        "good_at": good_at(backup) if backup.state is FleetState.DONE else None,
        "phase": backup.phase,
        "copied_bytes": backup.copied_bytes,
        "stored_bytes": backup.stored_bytes,
        "lost_transactions": backup.lost_transactions,
        "said": backup.said,
    }


def backup_of(row: Row[Any]) -> FleetBackup:
    """The backup of this row."""
    tries, said = row.tries, row.said
    if isinstance(tries, FleetDatabaseError):
        said = "; ".join(filter(None, (said, _SAID.format("its tries", tries.message))))
        tries = _unknown_tries(row, said)
    return FleetBackup(
        row.owed,
        row.state,
        tries=tries,
        changed_at=row.changed_at,
        phase=row.phase,
        copied_bytes=row.copied_bytes,
        stored_bytes=row.stored_bytes,
        lost_transactions=row.lost_transactions,
        said=said,
    )


def _unknown_tries(row: Row[Any], said: str) -> tuple[FleetTry, ...]:
    """Where a host has tried it, one try of that host's, of which nobody knows whether its run goes on."""
    owed: OwedBackup = row.owed
    if row.host is None:
        return ()
    return (FleetTry(row.host, owed.id, row.changed_at or owed.not_before, said=said, asked=True),)


def seen_of(row: Row[Any]) -> SeenHost:
    """The host of this row."""
    if isinstance(row.described, FleetDatabaseError):
        said = _SAID.format("it", row.described.message)
        return SeenHost(row.host, row.answered_at, None, "; ".join(filter(None, (row.problem, said))))
    return SeenHost(row.host, row.answered_at, row.described, row.problem)
