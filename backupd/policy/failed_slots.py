"""Until when a backup that was due counts as failed. Pure: the slot's row and the newest good backup tell it."""

from datetime import datetime

from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.schedule import Slot, SlotState

_NO_FAILURE = (ExitStatus.OK, ExitStatus.ATTENTION, ExitStatus.CANCELLED)


def is_failed(slot: Slot, *, good_at: datetime | None) -> bool:
    """Whether the slot's last try failed, in whatever way, and no good backup has ended (`good_at`) since it began.

    One that was busy has failed as well: another run was at work, and that need not become a backup of this job.
    """
    failed = slot.state is SlotState.ENDED and slot.exit_status not in _NO_FAILURE
    return failed and (good_at is None or good_at < slot.decided_at)
