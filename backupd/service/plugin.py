"""How jobs stand, as a plugin of Nagios, Icinga, Naemon or Checkmk tells it: one line, and an exit status of theirs.

Knows: the plugins' convention (Monitoring Plugins Development Guidelines): `SERVICE STATE - text|performance data`, of
which the text has no `|`; and 0 to 3. What is an alarm, and how grave, is `job_status`'s to say.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum

from backupd.report.words import age, many
from backupd.service.job_report import JobReport
from backupd.service.job_status import JobStatus
from backupd.vocabulary.alarms import Severity
from backupd.vocabulary.escaping import on_one_line

_PLACE = {Severity.OK: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


class PluginStatus(IntEnum):
    """What a plugin ends with."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


def plugin_answer(found: Sequence[JobReport]) -> tuple[PluginStatus, str]:
    """The status and the line of these jobs, of which there is one at least."""
    gravest = max(_PLACE[one.status.severity] for one in found)
    text = "; ".join(_troubles(found) if gravest else _all_well(found))
    paused = [one.status.job for one in found if one.status.pause is not None]
    text += f"; paused: {', '.join(paused)}" if paused else ""
    status, figures = PluginStatus(gravest), " ".join(_figures(found))
    return status, f"BACKUPD {status.name} - {_without_bars(text)}{'|' if figures else ''}{figures}"


def unknown(why: str) -> str:
    """The line where nothing is known."""
    return f"BACKUPD {PluginStatus.UNKNOWN.name} - {_without_bars(why)}"


def _troubles(found: Sequence[JobReport]) -> list[str]:
    """Every alarm, the gravest first."""
    told = [(alarm, one.status.job) for one in found for alarm in one.status.alarms]
    return [f"{job}: {alarm.text}" for alarm, job in sorted(told, key=lambda pair: -_PLACE[pair[0].severity])]


def _all_well(found: Sequence[JobReport]) -> Iterator[str]:
    statuses = [one.status for one in found]
    oldest = max(statuses, key=lambda status: _age(status) or 0.0)
    if len(statuses) == 1:
        yield f"{oldest.job}: the last good backup is {age(_age(oldest))} old"
    else:
        yield f"{many(len(statuses), 'job')}, the oldest last good backup is {age(_age(oldest))} old ({oldest.job})"


def _figures(found: Sequence[JobReport]) -> Iterator[str]:
    """`label=value;warning;critical;least`: each limit is where the age raises an alarm.

    A job's name has no character that a label would have to be quoted for.
    """
    for one in found:
        status = one.status
        if (seconds := _age(status)) is not None:
            yield f"{status.job}_age={seconds:.0f}s;;{status.allowed_seconds or 0:.0f};0"
        if status.proven_at is not None:
            within = status.config.drill_within_seconds
            warning = "" if within is None else f"{within:.0f}"
            yield f"{status.job}_proof_age={(status.now - status.proven_at).total_seconds():.0f}s;{warning};;0"
        if one.stored:
            yield f"{status.job}_stored={sum(target.bytes_stored for target in one.stored)}B;;;0"
            yield f"{status.job}_not_verified={sum(target.unread for target in one.stored)};;;0"


def _age(status: JobStatus) -> float | None:
    return None if status.last_good is None else (status.now - status.last_good.started_at).total_seconds()


def _without_bars(text: str) -> str:
    return on_one_line("; ".join(filter(None, map(str.strip, text.splitlines())))).replace("|", "/")
