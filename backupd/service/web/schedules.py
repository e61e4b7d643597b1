"""What is due when, line by line: for the schedule's page and for `/api/schedule`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from backupd.service.job_status import job_statuses
from backupd.service.machine_view import Live
from backupd.service.site import Site
from backupd.service.slot_errors import error_of_slot
from backupd.service.timetables import zone_of
from backupd.vocabulary.schedule import Activity, Pause, Slot


@dataclass(frozen=True)
class ScheduleLine:
    """One activity of one job."""

    job: str
    activity: Activity
    cron: str
    zone: str
    start_within_seconds: float
    next_at: datetime | None  # null: the expression has no more; also told while the job is paused
    pause: Pause | None
    last: Slot | None  # the newest slot
    error: str = ""  # what its run says of its failure; empty where there is none

    @property
    def next_there(self) -> datetime | None:
        """By the zone's own clock."""
        return None if self.next_at is None else self.next_at.astimezone(ZoneInfo(self.zone))


def schedule_lines(site: Site, live: Live) -> Sequence[ScheduleLine]:
    """By job, then in the order of activities."""
    return [
        ScheduleLine(
            job=status.job,
            activity=activity,
            cron=schedule.cron,
            zone=zone_of(site.configuration, schedule),
            start_within_seconds=schedule.start_within_seconds,
            next_at=status.next_due.get(activity),
            pause=status.pause,
            last=(last := status.last_slots.get(activity)),
            error=error_of_slot(site.catalogue, last),
        )
        for status in job_statuses(site, live)
        for activity, schedule in status.config.schedules.items()
    ]
