"""How jobs and targets stand, as a plugin of Nagios, Icinga, Naemon or Checkmk tells it: a line and an exit status.

Knows: the plugins' convention (Monitoring Plugins Development Guidelines): `SERVICE STATE - text|performance data`, of
which the text has no `|`; and 0 to 3. What is an alarm, and how grave, is `site_status`'s to say.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum

from backupd.report.words import age, many
from backupd.service.archive_alarms import BEHIND_SECONDS, SPOOL_SHARE
from backupd.service.archive_status import ArchiveFigures
from backupd.service.job_report import JobReport
from backupd.service.job_status import JobStatus
from backupd.service.status_report import StatusReport
from backupd.vocabulary.alarms import Severity
from backupd.vocabulary.escaping import on_one_line


class PluginStatus(IntEnum):
    """What a plugin ends with."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


SEVERITIES = {
    Severity.OK: PluginStatus.OK,
    Severity.WARNING: PluginStatus.WARNING,
    Severity.CRITICAL: PluginStatus.CRITICAL,
}


def plugin_answer(found: StatusReport) -> tuple[PluginStatus, str]:
    """The status and the line of these jobs and targets."""
    if not found.jobs and not found.status.storage:
        return PluginStatus.UNKNOWN, unknown("no job and no target is configured")
    alarms = found.status.alarms
    text = "; ".join([f"{one.name}: {one.alarm.text}" for one in alarms] or _all_well(found.status.jobs))
    paused = [one.job for one in found.status.jobs if one.pause is not None]
    text += f"; paused: {', '.join(paused)}" if paused else ""
    status, figures = SEVERITIES[found.status.severity], " ".join(_figures(found))
    return status, f"BACKUPD {status.name} - {without_bars(text)}{'|' if figures else ''}{figures}"


def unknown(why: str) -> str:
    """The line where nothing is known."""
    return f"BACKUPD {PluginStatus.UNKNOWN.name} - {without_bars(why)}"


def _all_well(jobs: Sequence[JobStatus]) -> Iterator[str]:
    if not jobs:
        yield "no job is configured"
        return
    oldest = max(jobs, key=lambda status: _age(status) or 0.0)
    if len(jobs) == 1:
        yield f"{oldest.job}: the last good backup is {age(_age(oldest))} old"
    else:
        yield f"{many(len(jobs), 'job')}, the oldest last good backup is {age(_age(oldest))} old ({oldest.job})"


def _figures(found: StatusReport) -> Iterator[str]:
    """`label=value;warning;critical;least;most`: each limit is where the figure raises an alarm.

    The names of jobs and targets have no character that a label would have to be quoted for.
    """
    for one in found.jobs:
        yield from _figures_of_job(one)
    for target in found.status.storage:
        if target.seen is not None and target.seen.up and target.seen.free is not None:
            yield f"{target.config.name}_free={target.seen.free}B;;;0;{target.seen.size}"
        if target.full_in_seconds is not None:
            yield f"{target.config.name}_full_in={target.full_in_seconds:.0f}s;;;0"


def _figures_of_job(one: JobReport) -> Iterator[str]:
    status = one.status
    if (seconds := _age(status)) is not None:
        yield f"{status.job}_age={seconds:.0f}s;;{status.allowed_seconds or 0:.0f};0"
    if status.proven_at is not None:
        within = status.config.drill_within_seconds
        warning = "" if within is None else f"{within:.0f}"
        yield f"{status.job}_proof_age={(status.now - status.proven_at).total_seconds():.0f}s;{warning};;0"
    if one.archive is not None:
        yield from _figures_of_archive(status.job, one.archive.figures)
    if one.stored:
        yield f"{status.job}_stored={sum(target.bytes_stored for target in one.stored)}B;;;0"
        yield f"{status.job}_not_verified={sum(target.unread for target in one.stored)};;;0"


def _figures_of_archive(job: str, figures: ArchiveFigures) -> Iterator[str]:
    if figures.behind_seconds is not None:
        yield f"{job}_binlog_behind={figures.behind_seconds:.0f}s;{BEHIND_SECONDS:.0f};;0"
    if figures.behind_bytes is not None:
        yield f"{job}_binlog_behind_bytes={figures.behind_bytes}B;;;0"
    warning = figures.spool_limit * SPOOL_SHARE
    yield f"{job}_binlog_spool={figures.waiting_bytes}B;{warning:.0f};;0;{figures.spool_limit}"
    yield f"{job}_binlog_gaps={figures.gaps};;;0"


def _age(status: JobStatus) -> float | None:
    return None if status.last_good is None else (status.now - status.last_good.started_at).total_seconds()


def without_bars(text: str) -> str:
    return on_one_line("; ".join(filter(None, map(str.strip, text.splitlines())))).replace("|", "/")
