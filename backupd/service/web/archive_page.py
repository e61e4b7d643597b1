"""The page of a job's binlog archive: what its receiver does, how far it is behind, what can be restored and what not.

Knows: how many gaps are told. It asks neither the server nor a target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from backupd.report.binlog_picture import archive_picture
from backupd.service.archive_status import (
    ArchiveStatus,
    archive_statuses,
    behind_words,
    reach_words,
    receiver_words,
    spool_words,
)
from backupd.service.job_report import last_moment_words
from backupd.service.job_status import JobStatus, job_statuses
from backupd.service.site import Site
from backupd.service.web.api import NAME
from backupd.service.web.asked import AskedLive, AskedSite
from backupd.service.web.refusals import NotFound
from backupd.service.web.rendering import page
from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.binlogs import ArchiveGap

GAPS = 10  # the newest, that are told one by one
_KINDS = (AlarmKind.BINLOG_GAP, AlarmKind.BINLOG_BEHIND, AlarmKind.BINLOG_SPOOL)

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class LackingTarget:
    """A target of the job's, and what waits for it in the spool."""

    name: str
    segments: int
    bytes: int


@router.get("/binlog/{job}")
def archive_page(
    request: Request, site: AskedSite, live: AskedLive, job: Annotated[str, Path(pattern=NAME)]
) -> Response:
    """How the archive stands, its time line, its gaps, its targets."""
    statuses = [one for one in job_statuses(site, live) if one.job == job]
    archive = archive_statuses(site, statuses).get(job)
    if archive is None:
        hint = "a table [jobs.NAME.binlog] in the configuration turns it on"
        raise NotFound(f"no binlog of a job {job} is archived", hint=hint)
    (status,) = statuses
    return page(
        request,
        "archive.html",
        now=status.now,
        job=job,
        alarms=[alarm for alarm in status.alarms if alarm.kind in _KINDS],
        facts=_facts(archive, status),
        picture=archive_picture(archive.reach, archive.backups, at=archive.at),
        stretches=[one for one in archive.reach.stretches if one.chain][-GAPS:][::-1],
        gaps=_newest(archive.record.gaps),
        all_gaps=len(archive.record.gaps),
        targets=_targets(site, status),
    )


def _facts(archive: ArchiveStatus, status: JobStatus) -> list[tuple[str, str]]:
    figures = archive.figures
    return [
        ("Receiver", receiver_words(archive)),
        ("Behind the server", behind_words(figures)),
        ("Can be restored", reach_words(figures)),
        ("Spool", spool_words(figures)),
        ("Last drill of a moment", last_moment_words(status)),
    ]


def _newest(gaps: Sequence[ArchiveGap]) -> Sequence[ArchiveGap]:
    return gaps[-GAPS:][::-1]


def _targets(site: Site, status: JobStatus) -> list[LackingTarget]:
    waiting = status.archive
    if waiting is None:
        return []
    there = site.catalogue.waiting_stored(status.job)
    found = []
    for target in status.config.targets:
        count, size = there.get(target, (0, 0))
        found.append(LackingTarget(target, max(0, waiting.waiting - count), max(0, waiting.waiting_bytes - size)))
    return found
