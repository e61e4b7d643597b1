"""Whether a scheduled backup is left to the fleet, or starts by the host's own schedule: its control host is away.

Knows: that a control host which makes this job's backups and has asked this host not long ago is believed to start what
is due. An instant that lies
ahead was written while the machine's clock was: it counts as long as one that lies back.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.units import format_duration


@dataclass(frozen=True, slots=True)
class FallbackRule:
    """For how long a control host may be away before a job's own schedule counts, and when it was there last."""

    after_seconds: float
    asked_at: datetime | None  # for this job; None: no control host that makes its backups has ever asked

    def leaves_to_fleet(self, now: datetime) -> bool:
        """Whether a backup that is due now is not started here."""
        return self.asked_at is not None and abs(now - self.asked_at) <= timedelta(seconds=self.after_seconds)

    def words(self, now: datetime) -> str:
        """Who starts backups now, and why, in a sentence without its end."""
        if self.asked_at is None:
            return "this host starts backups itself: no control host has ever contacted this host about this job"
        last, after = to_the_minute(self.asked_at), format_duration(self.after_seconds)
        if self.leaves_to_fleet(now):
            return f"left to the fleet, whose control host last asked this host for this job at {last}"
        return (
            f"this host starts backups itself: the fleet's control host last asked it for this job at {last}, over"
            f" {after} ago"
        )
