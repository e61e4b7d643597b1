"""When a file or an object was written, as its storage tells it.

Knows: that a storage may tell what no calendar has, or no clock shows: a time that cannot be reckoned with.
"""

from datetime import UTC, datetime

from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.instants import is_reckonable


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
