"""How a machine's jobs and targets stand at one instant, and everything that is an alarm then.

The one projection that pages, metrics, notifications, the digest and `backupd status` show. Knows: whose an alarm is,
in which order alarms are told, and what to type first. What deserves one, `job_status` and `storage` say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from backupd.service.job_status import JobStatus, job_statuses
from backupd.service.machine_view import Live
from backupd.service.remedies import remedy
from backupd.service.site import Site
from backupd.service.storage import StorageStatus, storage_statuses
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.alarms import Alarm, Severity, gravest


@dataclass(frozen=True, slots=True)
class SiteAlarm:
    """An alarm, and whose it is: either `job` or `target` is set."""

    alarm: Alarm
    job: str = ""
    target: str = ""
    writers: tuple[str, ...] = ()  # jobs that write to the target

    @property
    def name(self) -> str:
        """The job's; of a target with that word before it."""
        return self.job or f"target {self.target}"

    @property
    def command(self) -> str:
        """What to type first."""
        alarm = self.alarm
        return remedy(alarm.kind, job=self.job, run_id=alarm.run_id, about=alarm.about, jobs=self.writers)


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """All jobs and targets at one instant."""

    now: datetime
    jobs: tuple[JobStatus, ...] = ()  # by name
    storage: tuple[StorageStatus, ...] = ()  # by name

    @property
    def alarms(self) -> tuple[SiteAlarm, ...]:
        """The gravest first, and those of jobs before those of targets."""
        of_jobs = [SiteAlarm(alarm, job=one.job) for one in self.jobs for alarm in one.alarms]
        of_targets = [
            SiteAlarm(alarm, target=one.config.name, writers=one.jobs) for one in self.storage for alarm in one.alarms
        ]
        return tuple(sorted((*of_jobs, *of_targets), key=lambda one: one.alarm.severity is not Severity.CRITICAL))

    @property
    def severity(self) -> Severity:
        """Of the gravest alarm."""
        return gravest(one.alarm.severity for one in self.alarms)

    def of_job(self, job: str) -> "SiteStatus":
        """Only this job, and the targets that it writes to."""
        jobs = tuple(one for one in self.jobs if one.job == job)
        return replace(self, jobs=jobs, storage=tuple(one for one in self.storage if job in one.jobs))


def site_status(site: Site, live: Live, seen: Mapping[str, SeenTarget]) -> SiteStatus:
    """Every configured job and target; `seen` is what looks at folders have found.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    return SiteStatus(site.now(), job_statuses(site, live), storage_statuses(site, seen))
