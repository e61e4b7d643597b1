"""The catalogue: every run and all that is known of it, in one SQLite file that many processes may open at once."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, select

from backupd.catalogue import audit, drill_steps, identities, paging, tables
from backupd.catalogue.agent_records import AgentRecords
from backupd.catalogue.audit import AuditEntry, Event, Trail, audit_step
from backupd.catalogue.binlog_segments import BinlogSegments
from backupd.catalogue.database import BUSY_TIMEOUT_SECONDS, engine_for, engine_for_looking, explained
from backupd.catalogue.dead_runs import DeadRuns
from backupd.catalogue.details import Filter, chosen, details, newest_first
from backupd.catalogue.identities import MachineIdentities
from backupd.catalogue.owners import OwnerChains
from backupd.catalogue.past_runs import PastRuns
from backupd.catalogue.record import RunRecord
from backupd.catalogue.retention_rules import RetentionRules
from backupd.catalogue.schedule_records import ScheduleRecords
from backupd.catalogue.schema import prepare
from backupd.catalogue.selection import of_kind, resolve
from backupd.catalogue.soundness import Soundness
from backupd.catalogue.stored_backups import StoredBackups
from backupd.catalogue.target_rooms import RoomRecords
from backupd.host.machine_ids import this_machine
from backupd.host.signals import shielded
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import Drill, RunDetails, RunKind, RunStatus

if TYPE_CHECKING:  # what only looks at runs, probes and benches; a backup opens the catalogue without
    from backupd.catalogue.archive_outline import ArchiveOutline
    from backupd.catalogue.archive_search import ArchiveSearch
    from backupd.catalogue.costs import Beside, RunCost
    from backupd.catalogue.job_status import JobRecord, StoredOnTarget
    from backupd.policy.binlog_chain import PlacedBackup
    from backupd.vocabulary.benches import BenchRecord
    from backupd.vocabulary.binlogs import BinlogSegment
    from backupd.vocabulary.probes import ProbeRecord


__all__ = ["Catalogue", "RunRecord"]


class Catalogue(
    AgentRecords,
    BinlogSegments,
    DeadRuns,
    MachineIdentities,
    OwnerChains,
    PastRuns,
    RetentionRules,
    RoomRecords,
    ScheduleRecords,
    Soundness,
    StoredBackups,
):
    """All verbs over one catalogue file. Close it, or use it as a context manager; threads may share it."""

    def __init__(self, engine: Engine, path: Path, machine: Callable[[], Machine] = this_machine) -> None:
        super().__init__(engine, path)
        self._machine = machine

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
        machine: Callable[[], Machine] = this_machine,
    ) -> "Catalogue":
        """The catalogue in this file, which is made or upgraded if need be; see `schema.prepare`.

        `busy_timeout_seconds` is how long a write waits for another process's write; a new catalogue gets an identity
        that is bound to `machine`.

        Raises:
            CatalogueError: the file cannot be made or used, is not ours, is damaged, or has a newer schema.
        """
        prepare(path, busy_timeout_seconds=busy_timeout_seconds, machine=machine)
        return cls(engine_for(path, busy_timeout_seconds=busy_timeout_seconds), path, machine)

    @classmethod
    def look(cls, path: Path, *, connections: int) -> "Catalogue":
        """The catalogue in this file, for so many threads that only read it, and may open no file from now on.

        Raises:
            CatalogueError: the file cannot be read, or no other process has it open.
        """
        with explained(path):
            engine = engine_for_looking(path, connections=connections, busy_timeout_seconds=BUSY_TIMEOUT_SECONDS)
        return cls(engine, path)

    # --- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def open_run(
        self, job: str, host: str, *, run_id: str, kind: RunKind = RunKind.BACKUP, max_rate: int | None = None
    ) -> Iterator[RunRecord]:
        """A run's record for the length of its run. The row is there before the block begins, with `running`.

        A probe of a volume that was named, rather than a job, has "" as its job and its host; so has a bench.
        `max_rate` (bytes a second) is a ceiling that this run alone was given.

        When the block ends after `complete`, `measured` or `benched`, the row is `success` or `attention`, and stays so
        whatever is raised afterwards. Otherwise it keeps the error that ended the block, which goes on; where the row
        cannot be written then, that is a note on the error. A block that ends without any of them is an internal error.

        Raises:
            UsageError: there is a run of that id already.
            CatalogueError: the row could not be written.
        """
        record = RunRecord(self._engine, self._path, run_id=run_id, kind=kind, boot_id=self._machine().boot_id)
        try:
            with shielded():
                last = self.latest_segment(job)
                behind = "" if last is None else last.name
                record.begin(job, host, self.identity().name, max_rate=max_rate, behind_segment=behind)
            yield record
            with shielded():
                record.end()
        except BaseException as error:
            with shielded():
                record.fail(error)
                raise  # within the shield: a stop signal that comes now must not take the error's place

    def note(self, event: Event, subject: str, **detail: Any) -> None:
        """Append to the audit chain what changes nothing else in the catalogue; `detail` is what JSON can hold."""
        self._write(audit_step(event, subject, **detail))

    def record_drill(self, drill: Drill, **told: str | list[str]) -> None:
        """Keep a drill's result with its run. A position that a good drill found is the run's from now on.

        `told` is what else the audit chain says of it.
        """
        self._write(*drill_steps.drilled(drill, told))

    def take_in_drill(self, drill: Drill, **told: str | list[str]) -> bool:
        """As `record_drill`, of a drill that was done elsewhere; False where its result was kept already.

        Of several processes that read it at once, one keeps it.
        """
        with self._writing() as connection:
            if drill_steps.is_kept(connection, drill):
                return False
            audit.carry_out(connection, drill_steps.drilled(drill, told))
        return True

    def import_run(self, run: RunDetails, *, proofs: Mapping[datetime, drill_steps.Told] | None = None) -> bool:
        """The run of a backup that was found on a target has its row, with all that is told of it; see `imported`.

        `proofs` is what else the audit chain says of the drills of these instants.
        False where the catalogue knew it all, and then nothing is changed.

        Raises:
            Untrusted: it knows another run of that id.
        """
        from backupd.catalogue.imported import import_run

        with self._writing() as connection:
            return import_run(connection, run, proofs=proofs or {})

    # --- reading -----------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunDetails:
        """Everything of one run: by its id, a beginning that only it has, or another selector.

        `latest` is this machine's newest backup whatever became of it; `latest-good` and `as-of=TIME` are as of
        `run_with_backup`. An id may be another machine's, a probe's or a bench's too.

        Raises:
            UsageError: there is none, or more than one; no job is named where there are backups of several.
        """
        with self._reading() as connection:
            found = resolve(connection, run_id)
            return details(connection, select(tables.runs.c.run_id).where(tables.runs.c.run_id == found))[0]

    def runs(
        self,
        *,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[RunStatus] = (),
        ours: bool = False,
        limit: int | None = 50,
    ) -> list[RunDetails]:
        """Backups without their samples, newest first; of every job, machine and time where not told otherwise."""
        query = chosen(Filter(job, since, until, statuses, ours)).limit(limit)
        with self._reading() as connection:
            return details(connection, query, samples=False)

    def told_since(self, since: datetime) -> tuple[list[RunDetails], list[AuditEntry], Trail]:
        """Backups of every machine of which anything is told since, and the audit chain, at one instant.

        They began, were drilled, or have an audit row since; newest first, without their samples. Of the chain's rows
        `KeptRows` has those of that time and of these runs, the oldest first. All of it is read, once: what it tells,
        and whether it can be believed, are of the same rows.
        """
        drilled = select(tables.drills.c.run_id).where(tables.drills.c.at >= since)
        told = audit.entries(since, None).with_only_columns(tables.audit.c.subject).order_by(None)
        runs = tables.runs.c
        of_them = (runs.started_at >= since) | runs.run_id.in_(drilled) | runs.run_id.in_(told)
        with self._reading() as connection:
            found = details(connection, newest_first().where(of_them), samples=False)
            rows = audit.KeptRows(since, {run.run_id for run in found})
            trail = audit.trail(connection, each=rows.look_at)
        return found, rows.kept, trail

    def costs(
        self,
        *,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[RunStatus] = (),
        ours: bool = False,
        limit: int | None = None,
    ) -> "list[RunCost]":
        """What each of these backups cost, newest first; of every job, machine and time where not told otherwise."""
        from backupd.catalogue.costs import costs

        query = chosen(Filter(job, since, until, statuses, ours)).limit(limit)
        with self._reading() as connection:
            return costs(connection, query)

    def besides(
        self, *, job: str | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> "dict[str, Beside]":
        """What happened beside this machine's runs of each job; nothing of a job where there was nothing."""
        from backupd.catalogue.costs import besides

        with self._reading() as connection:
            return besides(connection, Filter(job, since, until))

    def costs_page(
        self, wanted: Filter, *, kind: RunKind | None = None, before: str | None = None, limit: int = 50
    ) -> "list[RunCost]":
        """What the newest of the wanted runs cost, or of those that began before the run `before`; newest first.

        Raises:
            UsageError: there is no run `before`.
        """
        from backupd.catalogue.costs import costs

        with self._reading() as connection:
            return costs(connection, paging.page(connection, wanted, kind=kind, before=before, limit=limit))

    def costs_over_time(self, wanted: Filter, *, points: int = 300) -> "list[RunCost]":
        """What the wanted backups cost, newest first; where they are more than `points`, of some spread over time."""
        from backupd.catalogue.costs import costs

        with self._reading() as connection:
            return costs(connection, paging.over_time(connection, wanted, points=points))

    def probe(self, wanted: str) -> "ProbeRecord":
        """A probe with all that it measured: by its id, a beginning that only it has, `latest`, or `latest:JOB`.

        Raises:
            UsageError: there is none, or more than one, or it is something else.
        """
        from backupd.catalogue import probes

        with self._reading() as connection:
            return probes.records(connection, of_kind(connection, wanted, RunKind.PROBE))[0]

    def probes(
        self,
        *,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[RunStatus] = (),
        limit: int | None = 50,
    ) -> "list[ProbeRecord]":
        """Probes without their curves, newest first; of every job and since ever where not told otherwise."""
        from backupd.catalogue import probes

        query = chosen(Filter(job, since, until, statuses), kind=RunKind.PROBE).limit(limit)
        with self._reading() as connection:
            return probes.records(connection, query, curves=False)

    def bench(self, wanted: str) -> "BenchRecord":
        """A bench with all that it found: by its id, a beginning that only it has (and its probes), or `latest`.

        Raises:
            UsageError: there is none, or more than one, or it is something else.
        """
        from backupd.catalogue import benches

        with self._reading() as connection:
            return benches.records(connection, of_kind(connection, wanted, RunKind.BENCH))[0]

    def benches(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[RunStatus] = (),
        limit: int | None = 50,
        samples: bool = False,
    ) -> "list[BenchRecord]":
        """Benches, newest first, since ever where not told otherwise; without what the disks did over time."""
        from backupd.catalogue import benches

        query = chosen(Filter(None, since, until, statuses), kind=RunKind.BENCH).limit(limit)
        with self._reading() as connection:
            return benches.records(connection, query, samples=samples)

    def records(
        self, jobs: Sequence[str], *, at: datetime, samples: bool = False, targets: Collection[str] | None = None
    ) -> "dict[str, JobRecord]":
        """How these jobs stand at this instant, in their order; runs have their samples only where told so.

        What began, was due or was proven later, by a clock that was ahead, counts when its time has come. `targets` are
        those that can be read: a backup that is on none of them is not the last good one.
        """
        from backupd.catalogue import job_status

        with self._reading() as connection:
            return job_status.records(connection, jobs, at=at, samples=samples, targets=targets)

    def archive_outlines(self, jobs: Collection[str]) -> "dict[str, ArchiveOutline]":
        """What can be restored of these jobs in few segments each; nothing of a job whose binlog is not archived."""
        archived = self.archived_jobs(jobs)
        if not archived:
            return {}
        from backupd.catalogue import archive_outline

        with self._reading() as connection:
            return archive_outline.outlines(connection, archived)

    @contextmanager
    def archive_search(
        self, job: str, backups: "Sequence[PlacedBackup]", *, targets: Collection[str] | None = None
    ) -> "Iterator[ArchiveSearch]":
        """The job's binlog archive at one instant, or what of it lies on any of these targets, to find by which
        segments a moment is restored from one of these backups.
        """
        from backupd.catalogue.archive_search import ArchiveSearch

        with self._reading() as connection:
            yield ArchiveSearch(connection, identities.current(connection).name, job, backups, targets)

    def followed_on(self, first: "BinlogSegment", last: "BinlogSegment", target: str) -> datetime | None:
        """Up to which transaction these two segments and those between them lie on the target without a gap there."""
        from backupd.catalogue import archive_outline

        with self._reading() as connection:
            return archive_outline.followed_on(connection, first, last, target)

    def run_counts(self) -> dict[str, dict[RunStatus, int]]:
        """How many backups this machine tried, by job and by what became of them."""
        from backupd.catalogue import job_status

        with self._reading() as connection:
            return job_status.run_counts(connection)

    def stored(self, *, at: datetime | None = None) -> "list[StoredOnTarget]":
        """What is on the targets of this machine, by target and job; what was removed does not count. Of what a clock
        that was ahead has left after `at`, which is now where none is told, nothing is the newest.
        """
        from backupd.catalogue import job_status

        with self._reading() as connection:
            return job_status.stored(connection, at=at or datetime.now(UTC))

    def audit_head(self) -> str:
        """The digest of the newest row of the audit chain; empty where there is none."""
        with self._reading() as connection:
            return audit.head(connection)

    def audit_entries(self, *, since: datetime | None = None, limit: int | None = 50) -> list[AuditEntry]:
        """What the newest rows of the chain tell, the newest first."""
        return [audit.entry(row) for row in self._read(audit.entries(since, limit))]

    def audit_trail(self) -> Trail:
        """The audit chain, and the rows that it must agree with, at one instant."""
        with self._reading() as connection:
            return audit.trail(connection)
