"""What to type first when there is an alarm.

Knows: one command for each kind, as the shipped rules for Prometheus name it. Nothing of a stranger's is in one.
"""

from collections.abc import Sequence

from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.schedule import Activity


def remedy(kind: AlarmKind, *, job: str, run_id: str, about: str, jobs: Sequence[str] = ()) -> str:
    """Of an alarm of this job; where there is none, of a target that these jobs write to."""
    match kind:
        case AlarmKind.DIED:
            return "backupd recover"
        case AlarmKind.BROKEN:
            return f"backupd verify {run_id}"
        case AlarmKind.OVERDUE:
            return f"backupd check {job}"
        case AlarmKind.DRILL_OVERDUE:
            return f"backupd drill --job {job}"
        case AlarmKind.BINLOG_GAP:
            return f"backupd run {job}"
        case AlarmKind.BINLOG_BEHIND | AlarmKind.BINLOG_SPOOL:
            return f"backupd binlog status {job}"
        case AlarmKind.MISSED if about == Activity.BACKUP:
            return f"backupd run {job}"
        case AlarmKind.FAILED | AlarmKind.ATTENTION if about == Activity.CHECK:
            return f"backupd check {job}"
        case AlarmKind.FAILED | AlarmKind.ATTENTION if run_id:
            return f"backupd show {run_id}"
        case AlarmKind.STORAGE_FILLS:
            return "backupd prune --dry-run"
        case AlarmKind.STORAGE_UNREACHABLE if jobs:
            return f"backupd check {jobs[0]}"
        case _:
            return "backupd schedule list" if job else "backupd status"
