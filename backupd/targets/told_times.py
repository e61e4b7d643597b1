"""When a file or an object was written, as its storage tells it.

Knows: that a storage may tell what no calendar has, or no clock shows: a time that cannot be reckoned with.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from backupd.targets.names import MANIFEST
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.instants import is_reckonable
from backupd.vocabulary.storage import StoredBackup


def seen_backup(job: str, run: str, written: Mapping[str, float], itself: float, *, where: str) -> StoredBackup:
    """The backup in a folder: what is in it with the time of each, and the folder's own, in seconds since 1970.

    It is of when its manifest was written, or before that of the newest thing in it.

    Raises:
        TargetError: there is no such time.
    """
    newest = MANIFEST if MANIFEST in written else max(written, key=written.__getitem__, default="")
    at = told_time(written.get(newest, itself), where=f"{where}/{newest}")
    return StoredBackup(job, run, MANIFEST in written, at)


def told_time(at: float | datetime, *, where: str) -> datetime:
    """The instant, of which a file system tells the seconds since 1970; `where` is what was written then.

    Raises:
        TargetError: there is none.
    """
    try:
        found = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        found = None
    if found is None or not is_reckonable(found):
        said = at.isoformat() if isinstance(at, datetime) else f"{at:.0f} seconds after 1970"
        raise TargetError(
            f"the storage says {where} was written at an impossible time: {said}",
            hint="is the storage damaged, or has somebody changed that time? correct it, or move the backup elsewhere",
        )
    return found
