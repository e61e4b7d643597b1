"""Single tables from a target into a folder, recovered there by a server, and exported for import.

Knows: that the folder stays marked for as long as a server works in it. What that server had begun when it was killed,
or failed, is never used: the files are an account's of its own, and nothing tells which are whole. The same restore
fetches them again. Where no server here can do it, the files are for another host's; where one only could not start
now, the same restore goes on with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.mysql.tablefiles import Table
from backupd.operations.restore.into_folder import filled
from backupd.operations.restore.table_export import Exported, export
from backupd.targets import BackupSource
from backupd.vocabulary.errors import KeyUnreadable, NeverStarted, ServerError, Undecided
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class RestoredTables:
    """Tables in a folder, with what a server with them needs."""

    manifest: Manifest
    exported: tuple[Exported, ...]
    not_recovered: ServerError | None = None  # why no server here could do that; none of them is exported then


def restore_tables(
    sources: Sequence[BackupSource],
    *,
    to: Path,
    tables: Sequence[Table],
    identities: "Identities | None" = None,
    copied: Callable[[int, int], None] = lambda _done, _total: None,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> RestoredTables:
    """The folder has the tables, and `tables` in it has them for import, if a server here could recover them.

    When it is interrupted before a server works in it, it is gone on with as `into_folder.restore` says.

    Raises:
        As `into_folder.restore`, and as `table_export.export`; that no server can be started here is no error.
        Undecided: none could be started now, for want of room or the like.
    """
    with filled(*(sources, to, identities), tables=tables, copied=copied, confined=confined, exporting=True) as (
        manifest,
        folder,
    ):
        try:
            with folder.worked_in() as trace:
                exported = export(*(to.absolute(), manifest, tables), confined=confined, telling=telling, trace=trace)
        except ServerError as error:
            passes = isinstance(error, Undecided) and not isinstance(error, KeyUnreadable | NeverStarted)
            if folder.is_spoilt or passes:
                raise
            return RestoredTables(manifest, (), error)
    return RestoredTables(manifest, exported)
