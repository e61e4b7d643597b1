"""What nobody is told by a run's own end: that the proof of a job's backups has grown too old.

Knows: whom it concerns, and that once a day is enough.
"""

from collections.abc import Callable

from backupd.service.job_status import AlarmKind, job_statuses
from backupd.service.outlook import Live
from backupd.service.site import Site
from backupd.vocabulary.schedule import Notice, NoticeKind

EVERY_SECONDS = 600.0


def remind(site: Site, live: Live, tell: Callable[[Notice], None]) -> None:
    """Whoever should have drilled was told today.

    Raises:
        CatalogueError: the catalogue cannot be used.
    """
    if not any(job.drill_within_seconds for job in site.configuration.jobs.values()):
        return
    for status in job_statuses(site, live):
        for alarm in status.alarms:
            proven = "never" if status.proven_at is None else status.proven_at.isoformat()
            subject = f"{proven}, on {status.now:%Y-%m-%d}"
            if alarm.kind is AlarmKind.DRILL_OVERDUE and site.catalogue.first_told(
                NoticeKind.DRILL_OVERDUE, status.job, subject
            ):
                text = f"job {status.job}: {alarm.text}"
                tell(Notice(NoticeKind.DRILL_OVERDUE, status.job, status.now, subject, text))
