"""A moment that nobody names: drawn among those that can be reached with the keys that are here."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backupd.cli.output import tell

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from backupd.archive.encryption import Identities
    from backupd.catalogue.archive_search import ArchiveSearch
    from backupd.policy.binlog_chain import PlacedBackup
    from backupd.policy.moments import Moment
    from backupd.vocabulary.records import RunDetails

_DRAWS = 20


@dataclass(frozen=True, slots=True)
class Drawn:
    """A moment that is drawn from the archive, once that is known."""

    seed: int

    @classmethod
    def anew(cls) -> "Drawn":
        """By a seed of its own."""
        return cls(secrets.randbelow(1 << 32))


def readable(
    runs: "Sequence[RunDetails]", targets: "Collection[str] | None", identities: "Identities | None"
) -> "list[RunDetails]":
    """Those of which a copy can be opened, and is not being removed: of a key that is gone no moment is drawn.

    Raises:
        NoKey: there are backups, and none can be opened.
    """
    from backupd.archive.encryption import opening, opens

    whole = [
        (run, backup.recipients)
        for run in runs
        for backup in run.backups
        if backup.is_there and not backup.is_being_removed and (targets is None or backup.target in targets)
    ]
    found = {run.run_id: run for run, recipients in whole if opens(identities, recipients)}
    if whole and not found:
        newest, recipients = whole[0]
        opening(identities, recipients, what=f"run {newest.run_id} (the newest backup of job {newest.job})")
    return list(found.values())


def drawn_moment(
    seed: int, backups: "Sequence[PlacedBackup]", archive: "ArchiveSearch", identities: "Identities | None"
) -> "Moment":
    """A moment to which all that leads can be opened; it is told. Segments for a former key may follow a backup for the
    new one, until the archive was started anew.

    Raises:
        UsageError: no moment can be restored.
        NoKey: of none that was drawn all can be opened.
    """
    from backupd.archive.encryption import opening, opens
    from backupd.policy.random_moment import drawn
    from backupd.policy.reach import reach
    from backupd.policy.roll_forward import plan

    within = reach(backups, archive.rows)
    for one in range(seed, seed + _DRAWS):
        moment = drawn(within, one)
        segments = plan(backups, archive, moment, now=datetime.now(UTC)).segments
        closed = [segment for segment in segments if not opens(identities, segment.recipients)]
        if not closed:
            break
    for segment in closed:
        opening(identities, segment.recipients, what=f"segment {segment.name} (by which the drawn moment is reached)")
    tell(f"drawn with seed {one}: {moment}")
    return moment
