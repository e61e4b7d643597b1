"""A restore to a moment: the backup, and then what its server logged after it, applied up to exactly there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.mysql.recorded import judged
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.moment.moment_copy import RollForward, copy_at_moment
from backupd.operations.restore.moment.moment_export import export_at_moment
from backupd.operations.restore.restored_copy import hand_over
from backupd.operations.restore.table_export import Exported
from backupd.targets import BackupSource
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class RestoredMoment:
    """Files that are at exactly a moment."""

    datadir: Path
    position: Position  # where the source stood then: a replica goes on from there
    committed_at: datetime | None  # the last transaction of the log that is in it; None where none was applied
    exported: tuple[Exported, ...] = ()


def restore_to_moment(
    forward: RollForward,
    manifest: Manifest,
    sources: Sequence[BackupSource],
    *,
    to: Path,
    keeps: bool = True,
    identities: "Identities | None" = None,
    tables: Sequence[Table] = (),
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> RestoredMoment:
    """The folder has the server's files as they would be at the moment, cleanly shut down, and no binlog; and these
    tables of them for import.

    When it raises, the folder is as `copy_at_moment` leaves it.

    Raises:
        As `copy_at_moment`, and as `export_at_moment`.
    """
    manifest = judged(manifest)
    exported: tuple[Exported, ...] = ()
    with copy_at_moment(
        *(forward, manifest, sources),
        to=to,
        keeps=keeps,
        identities=identities,
        confined=confined,
        telling=telling,
    ) as copy:
        if tables:
            exported = export_at_moment(copy, manifest, tables, confined=confined, telling=telling)
        copy.folder.stays = True  # it is there
        hand_over(copy.relocation, copy.recorded, made=copy.made)
    return RestoredMoment(copy.relocation.datadir, copy.position, copy.committed_at, exported)
