"""What this host's agent was told to start, and when a control host asked it last.

Knows: that a start has its row once, whoever asks for it and however many at one instant. Refuses to know whether what
was started goes on: `operations.agent` looks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Column, ColumnElement, Integer, Table, Text, insert, select, update

from backupd.catalogue.columns import InstantColumn, JsonColumn, from_row, to_row
from backupd.catalogue.file import CatalogueFile
from backupd.catalogue.metadata import metadata
from backupd.vocabulary.records import RunError

APART = timedelta(minutes=1)  # a run is asked after every few seconds, and each write of the catalogue is made durable

starts = Table(  # an `AgentStart` each
    "agent_starts",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("max_rate", Integer),
    Column("asked_at", InstantColumn, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_start", Integer, nullable=False),
    Column("cancelled_at", InstantColumn),
    Column("error", JsonColumn(RunError)),
)

contacts = Table(  # one row of each job that a control host sees to
    "control_contacts",
    metadata,
    Column("job", Text, primary_key=True),
    Column("at", InstantColumn, nullable=False),
    Column("backupd", Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class AgentStart:
    """A run that a control host has asked for. Its row comes first, and the run after it."""

    run_id: str
    job: str
    max_rate: int | None  # bytes a second
    asked_at: datetime
    pid: int  # of the agent's process that starts it: while that is there, it may still do so
    process_start: int  # clock ticks since boot
    cancelled_at: datetime | None = None
    error: RunError | None = None  # why it could not be started


class AgentRecords(CatalogueFile):
    """Starts by the agent, and the control host's last contact."""

    def take_start(self, start: AgentStart) -> bool:
        """The start has its row, and this process is the one that starts the run; False where it had one before."""
        added = insert(starts).prefix_with("OR IGNORE").values(to_row(start))
        with self._writing() as connection:
            return bool(connection.execute(added).rowcount)

    def agent_start(self, run_id: str) -> AgentStart | None:
        """What was recorded of the start of this run; None where no control host has asked for it."""
        return next((from_row(AgentStart, row) for row in self._read(select(starts).where(_is(run_id)))), None)

    def start_failed(self, run_id: str, error: RunError) -> None:
        """The run could not be started."""
        self._write(update(starts).where(_is(run_id)).values(error=error))

    def start_cancelled(self, run_id: str) -> None:
        """A control host has asked for its end; the first time counts."""
        never = starts.c.cancelled_at.is_(None)
        self._write(update(starts).where(_is(run_id), never).values(cancelled_at=datetime.now(UTC)))

    def control_host_asked(self, jobs: Iterable[str], *, at: datetime, backupd: str) -> None:
        """A control host of this version, which makes these jobs' backups, has asked. Once a minute it is written down.

        What is dated later than this was written by a clock that was ahead, and counts no more.
        """
        known = {row["job"]: row["at"] for row in self._read(select(contacts.c.job, contacts.c.at))}
        due = [job for job in jobs if job not in known or not timedelta() <= at - known[job] < APART]
        if due:
            rows = [{"job": job, "at": at, "backupd": backupd} for job in due]
            with self._writing() as connection:
                connection.execute(insert(contacts).prefix_with("OR REPLACE"), rows)

    def control_host_asked_at(self, job: str) -> datetime | None:
        """When a control host that makes this job's backups asked last, to the minute; None where none ever has."""
        query = select(contacts.c.at).where(contacts.c.job == job)
        return next((row["at"] for row in self._read(query)), None)


def _is(run_id: str) -> ColumnElement[bool]:
    return starts.c.run_id == run_id
