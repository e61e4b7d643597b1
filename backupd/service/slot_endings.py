"""What the exit status of something that was started in a slot says: in words, and whether it has told people itself.

Knows: the statuses of what was killed. systemd-run ends with 255 for whichever signal killed its unit, and with 1 where
that was for want of memory (252).
"""

from collections.abc import Collection, Mapping

from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.schedule import Activity

_KILLED = range(129, 256)
_BY_SOME_SIGNAL = 255
_BEFORE_IT_HAD_A_BACKUP = (ExitStatus.BUSY, ExitStatus.USAGE, ExitStatus.CATALOGUE)
_SILENT_WITH: Mapping[Activity, Collection[int | None]] = {
    Activity.BACKUP: (),  # where one was killed, `backupd recover` tells
    Activity.DRILL: {None, *_KILLED, ExitStatus.INTERNAL, ExitStatus.TERMINATED, *_BEFORE_IT_HAD_A_BACKUP},
}
_CHECK_TELLS = (ExitStatus.REFUSED, ExitStatus.ATTENTION)


def tells_itself(activity: Activity, status: int | None) -> bool:
    """Whether people have heard of a failure from what ended so; of a backup, where there is a run of it."""
    if activity is Activity.CHECK:
        return status in _CHECK_TELLS
    return activity in _SILENT_WITH and status not in _SILENT_WITH[activity]


def meaning(status: int) -> str:
    """In words."""
    try:
        return ExitStatus(status).meaning
    except ValueError:
        if status == _BY_SOME_SIGNAL:
            return "killed by a signal"
        return f"killed by signal {status - 128}" if status in _KILLED else "unknown"
