"""What `backupd status` shows: every job, then every target, or one job and the targets that it writes to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backupd.service.job_report import JobReport, job_report_document, job_report_text, job_reports
from backupd.service.machine_view import ONCE_SECONDS, MachineView
from backupd.service.site import Site
from backupd.service.site_status import SiteAlarm, SiteStatus, site_status
from backupd.service.target_report import target_report_document, target_report_text


@dataclass(frozen=True, slots=True)
class StatusReport:
    """All of it, at one instant."""

    status: SiteStatus
    jobs: tuple[JobReport, ...]

    def of_target(self, name: str) -> tuple[SiteAlarm, ...]:
        """The alarms of a target."""
        return tuple(one for one in self.status.alarms if one.target == name)


def status_report(site: Site, seen: MachineView, *, job: str | None = None) -> StatusReport:
    """By a process that asks once; folders have two seconds to answer.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    found = site_status(site, seen.live, seen.rooms.seen(within_seconds=ONCE_SECONDS))
    found = found if job is None else found.of_job(job)
    return StatusReport(found, job_reports(site, found))


def status_text(report: StatusReport) -> str:
    """A paragraph for each."""
    return "\n\n".join(_paragraphs(report))


def _paragraphs(report: StatusReport) -> Iterator[str]:
    yield from map(job_report_text, report.jobs)
    yield from (target_report_text(one, report.of_target(one.config.name)) for one in report.status.storage)


def status_document(report: StatusReport) -> dict[str, Any]:
    """What `status --json` prints."""
    return {
        "jobs": [job_report_document(one) for one in report.jobs],
        "targets": [target_report_document(one, report.of_target(one.config.name)) for one in report.status.storage],
    }
