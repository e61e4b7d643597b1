"""What a mail about a failure answers, by the configuration."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backupd.host.run_log import RunLogs
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.vocabulary.schedule import Activity

if TYPE_CHECKING:
    from backupd.config import Configuration


def failure_answers(configuration: "Configuration") -> FailureAnswers:
    """Nothing is looked up before something has failed."""
    pages = configuration.service.public_url or ""
    return FailureAnswers(
        RunLogs(configuration.paths.log),
        pages,
        lambda job, activity: _next_due(configuration, job, activity),
        configuration.targets,
    )


def _next_due(configuration: "Configuration", job: str, activity: Activity) -> datetime | None:
    """Imported here: a run that is good, or a job without a schedule, needs no timetable."""
    if job not in configuration.jobs or getattr(configuration.jobs[job].schedules, activity.value) is None:
        return None
    from backupd.service.timetables import timetables

    timetable = timetables(configuration).get((job, activity))
    return None if timetable is None else timetable.after(datetime.now(UTC))
