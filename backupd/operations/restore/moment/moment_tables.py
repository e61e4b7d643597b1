"""Whether tables can be there at a moment, before a whole copy is rolled forward to it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from backupd.mysql.tablefiles import Table
from backupd.operations.restore.next_copy import AgreedCopies
from backupd.operations.restore.wanted_objects import index_of, table_files
from backupd.policy.roll_forward import RestorePlan
from backupd.targets import BackupSource
from backupd.vocabulary.binlogs import ChangeKind
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


def require_tables(
    tables: Collection[Table],
    manifest: Manifest,
    sources: Sequence[BackupSource],
    plan: RestorePlan,
    identities: "Identities | None",
) -> None:
    """Each is in the backup, or the log behind it may have made it: a name that was mistyped is told at once.

    Raises:
        UsageError: there is no such table; or the backup has no index.
        VerificationError, TargetError: the index cannot be read.
    """
    if not tables:
        return
    files = table_files(index_of(AgreedCopies(sources, manifest, identities)), manifest)
    for table in tables:
        try:
            files.require([table])
        except UsageError:
            if not _may_be_made(table, plan):
                raise


def _may_be_made(table: Table, plan: RestorePlan) -> bool:
    """By a segment's own words, which leave out some where there were too many."""
    for segment in plan.segments:
        if not segment.all_changes or any(
            (change.schema.lower(), change.table.lower()) == (table.schema.lower(), table.name.lower())
            or change.kind is ChangeKind.OTHER
            for change in segment.changes
        ):
            return True
    return False
