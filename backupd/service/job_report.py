"""How jobs stand, for a person who asks once: what fits on one screen, as text and as a document.

Knows: the lines and the keys. What is an alarm, and how grave, is `job_status`'s to say.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backupd.catalogue.job_status import StoredOnTarget
from backupd.catalogue.moment_proofs import LastMomentDrill
from backupd.policy.fallback import FallbackRule
from backupd.report.json_document import iso
from backupd.report.words import age, columns, instant, many
from backupd.service.alarm_report import alarm_document, alarm_lines
from backupd.service.archive_status import (
    ArchiveStatus,
    archive_document,
    archive_statuses,
    behind_words,
    reach_words,
    receiver_words,
    spool_words,
)
from backupd.service.job_status import JobStatus, Running, remaining_seconds
from backupd.service.site import Site
from backupd.service.site_status import SiteAlarm, SiteStatus
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.schedule import Activity

_LOOKED_AT = 50  # runs that failed or were cancelled


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job's status, and what the pages show elsewhere."""

    status: JobStatus
    alarms: tuple[SiteAlarm, ...] = ()
    last_failure: RunDetails | None = None  # the newest backup that was refused, or that failed or the system ended
    stored: tuple[StoredOnTarget, ...] = ()  # its backups, by target
    archive: ArchiveStatus | None = None  # None: its binlog is not archived


def job_reports(site: Site, found: SiteStatus) -> tuple[JobReport, ...]:
    """Each of these jobs.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    stored = sorted(site.catalogue.stored(at=found.now), key=lambda one: one.target)
    archives = archive_statuses(site, found.jobs)
    bad = (RunStatus.FAILED, RunStatus.REFUSED, RunStatus.CANCELLED)
    return tuple(
        JobReport(
            status,
            tuple(one for one in found.alarms if one.job == status.job),
            next(
                filter(
                    _has_failed,
                    site.catalogue.runs(job=status.job, until=status.now, statuses=bad, ours=True, limit=_LOOKED_AT),
                ),
                None,
            ),
            tuple(one for one in stored if one.job == status.job),
            archives.get(status.job),
        )
        for status in found.jobs
    )


def _has_failed(run: RunDetails) -> bool:
    """What a person has cancelled has not; what the system ended, as a reboot does, has."""
    return run.status is not RunStatus.CANCELLED or (
        run.error is not None and run.error.exit_status == ExitStatus.TERMINATED
    )


# --- as text ---------------------------------------------------------------------------------------------------------


def job_report_text(report: JobReport) -> str:
    """The job and how it stands, then a line for each question."""
    status = report.status
    rows = [("", name, text) for name, text in _lines(report)]
    return f"{status.job}: {status.severity.upper()}\n{columns(rows)}"


def _lines(report: JobReport) -> Iterator[tuple[str, str]]:
    status = report.status
    yield from alarm_lines(report.alarms)
    yield "last good", _last_good(status)
    for target in report.stored:
        yield "stored", _stored(target, status)
    yield from (("running", _running(one, status)) for one in status.running)
    yield "last failure", _last_failure(report)
    yield "proof", _proof(status)
    yield from _archive(report)
    if status.last_moment is not None:
        yield "moment", last_moment_words(status)
    yield "next", _next(status)
    if status.fallback is not None:
        yield "fleet", status.fallback.words(status.now)


def _last_good(status: JobStatus) -> str:
    good = status.last_good
    if good is None:
        return "none"
    return f"{_ago(good.started_at, status)}, may be {age(status.allowed_seconds)} old{_run(good.run_id)}"


def _stored(target: StoredOnTarget, status: JobStatus) -> str:
    doubts = [
        f"{count} {what}" for count, what in ((target.broken, "broken"), (target.unread, "not verified")) if count
    ]
    if not _is_named(target, status):
        doubts.append("not among the job's targets")
    there = f"{many(target.backups, 'backup')} on {target.target}"
    if target.newest_at is not None:
        there += f", the newest {age((status.now - target.newest_at).total_seconds())} old"
    return ", ".join([there, *doubts])


def _is_named(target: StoredOnTarget, status: JobStatus) -> bool:
    """Whether runs of the job still go there; it keeps what it has in any case."""
    return target.target in status.config.targets


def _running(one: Running, status: JobStatus) -> str:
    if not one.alive:
        return f"the process of a {one.run.kind} has died{_run(one.run.run_id)}"
    left = remaining_seconds(one, status.last_good, now=status.now)
    phase = "" if one.progress is None else f", at {one.progress.phase}"
    rest = "" if left is None else f", about {age(left)} left"
    began = age((status.now - one.run.started_at).total_seconds())
    return f"{one.run.kind}, started {began} ago{phase}{rest}{_run(one.run.run_id)}"


def _last_failure(report: JobReport) -> str:
    failure = report.last_failure
    if failure is None:
        return "none"
    told = any(alarm.run_id == failure.run_id for alarm in report.status.alarms)  # a line above has its sentence
    line = "" if failure.error is None else failure.error.first_line
    said = f": {line}" if line and not told else ""
    return f"{_ago(failure.started_at, report.status)}{said}{_run(failure.run_id)}"


def _proof(status: JobStatus) -> str:
    within = status.config.drill_within_seconds
    allowed = "no limit set" if within is None else f"may be {age(within)} old"
    proven = "never" if status.proven_at is None else _ago(status.proven_at, status)
    last = status.last_drill
    failed = "" if last is None or last.ok else f"; the last drill FAILED, {_ago(last.at, status)}{_run(last.run_id)}"
    return f"{proven}, {allowed}{failed}"


def last_moment_words(status: JobStatus) -> str:
    """What the newest drill of a moment of the job's archive found."""
    last = status.last_moment
    if last is None:
        return "none yet"
    return f"{'proven' if last.ok else 'NOT proven'} to {last.moment.name}, {_ago(last.at, status)}"


def _next(status: JobStatus) -> str:
    if status.pause is not None:
        return "paused" + (f": {status.pause.note}" if status.pause.note else "")
    slot, due = status.last_slots.get(Activity.BACKUP), status.next_due.items()
    retry = [f"try {slot.number + 1} of the backup {instant(slot.retry_at)}"] if slot and slot.retry_at else []
    return ", ".join([*retry, *(f"{activity} {instant(at)}" for activity, at in due)]) or "no schedule"


def _archive(report: JobReport) -> Iterator[tuple[str, str]]:
    if report.archive is not None:
        figures = report.archive.figures
        yield "binlog", f"{receiver_words(report.archive)}; behind: {behind_words(figures)}"
        yield "binlog", f"{reach_words(figures)}; spool: {spool_words(figures)}"


def _ago(at: datetime, status: JobStatus) -> str:
    return f"{instant(at)}, {age((status.now - at).total_seconds())} ago"


def _run(run_id: str) -> str:
    return f" (run {run_id})" if run_id else ""


# --- as a document ---------------------------------------------------------------------------------------------------


def job_report_document(report: JobReport) -> dict[str, Any]:
    """One job; the keys that `/api/jobs` has as well have the same names."""
    status = report.status
    good, pause = status.last_good, status.pause
    return {
        "job": status.job,
        "at": status.now.isoformat(),
        "severity": status.severity,
        "alarms": [alarm_document(one) for one in report.alarms],
        "last_good_run": None if good is None else good.run_id,
        "last_good_at": None if good is None else good.started_at.isoformat(),
        "last_good_age_seconds": None if good is None else (status.now - good.started_at).total_seconds(),
        "allowed_age_seconds": status.allowed_seconds,
        "overdue_at": iso(status.overdue_at),
        "stored": [_stored_document(target, status) for target in report.stored],
        "running": [_running_document(one, status) for one in status.running],
        "last_failure": None if report.last_failure is None else _failure(report.last_failure),
        "proven_at": iso(status.proven_at),
        "drill_within_seconds": status.config.drill_within_seconds,
        "archive": None if report.archive is None else archive_document(report.archive.figures),
        "last_moment": _moment_document(status.last_moment),
        "retry_at": _retry_at(status),
        "next_due": {activity.value: at.isoformat() for activity, at in status.next_due.items()},
        "paused": None if pause is None else {"note": pause.note, "at": pause.at.isoformat()},
        "fleet": None if status.fallback is None else _fleet_document(status.fallback, status),
    }


def _fleet_document(rule: FallbackRule, status: JobStatus) -> dict[str, Any]:
    return {
        "left": rule.leaves_to_fleet(status.now),
        "asked_at": iso(rule.asked_at),
        "fallback_after_seconds": rule.after_seconds,
    }


def _retry_at(status: JobStatus) -> str | None:
    slot = status.last_slots.get(Activity.BACKUP)
    return None if slot is None else iso(slot.retry_at)


def _moment_document(last: LastMomentDrill | None) -> dict[str, Any] | None:
    if last is None:
        return None
    told = {"moment": last.moment.name, "moment_at": iso(last.moment.at), "ok": last.ok, "at": iso(last.at)}
    return {**told, "proven_at": iso(last.proven_at)}


def _stored_document(target: StoredOnTarget, status: JobStatus) -> dict[str, Any]:
    return {
        "target": target.target,
        "backups": target.backups,
        "bytes_stored": target.bytes_stored,
        "broken": target.broken,
        "not_verified": target.unread,
        "newest_at": iso(target.newest_at),
        "in_job": _is_named(target, status),
    }


def _running_document(one: Running, status: JobStatus) -> dict[str, Any]:
    return {
        "run_id": one.run.run_id,
        "kind": one.run.kind,
        "started_at": one.run.started_at.isoformat(),
        "alive": one.alive,
        "phase": None if one.progress is None else one.progress.phase,
        "remaining_seconds": remaining_seconds(one, status.last_good, now=status.now),
    }


def _failure(run: RunDetails) -> dict[str, Any]:
    error = run.error
    return {
        "run_id": run.run_id,
        "status": run.status,
        "started_at": run.started_at.isoformat(),
        "message": None if error is None else error.message,
        "hint": None if error is None else error.hint,
        "exit_status": None if error is None else error.exit_status,
    }
