"""The catalogue: every run and all that is known of it, in one SQLite file that many processes may open at once.

Knows: how runs are recorded, found and read back. Refuses to know what a run does, and how its record is shown.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, RowMapping, Select, delete, func, insert, select, update

from backupd.catalogue import agenda, audit, identities, owners, paging, tables, tunings, upkeep
from backupd.catalogue.audit import AuditEntry, Event, Step, Trail, carry_out, told
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.database import BUSY_TIMEOUT_SECONDS, engine_for, engine_for_looking, explained, reading
from backupd.catalogue.details import (
    Filter,
    chosen,
    details,
    newest_first,
    of_kind,
    our_newest,
    require_one_job,
    resolve,
)
from backupd.catalogue.endings import GOOD, attention, ending, holding_row, release, strike_manifest
from backupd.catalogue.record import RunRecord, uninterrupted
from backupd.catalogue.schema import prepare
from backupd.host.machine_ids import this_machine
from backupd.host.signals import shielded
from backupd.policy.signing import KEY_FILE
from backupd.policy.trust import Known, Trust
from backupd.vocabulary.gauges import Tuning
from backupd.vocabulary.identity import Identity, Machine
from backupd.vocabulary.penalty import GateOutcome, Reason, SnapshotLife
from backupd.vocabulary.records import Drill, Holding, Phase, RunDetails, RunError, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity, NoticeKind, Pause, Slot, SlotState
from backupd.vocabulary.storage import Backup, LastCopy

if TYPE_CHECKING:  # what only looks at runs, probes and benches; a backup opens the catalogue without
    from backupd.catalogue.costs import Beside, RunCost
    from backupd.catalogue.job_status import JobRecord, StoredOnTarget
    from backupd.vocabulary.benches import BenchRecord
    from backupd.vocabulary.probes import ProbeRecord

_LIVES = 10  # of a job's past runs that say what the next one fills
_TELLING_SECONDS = 10.0  # after which a copy that failed has shown its rate

__all__ = ["Catalogue", "RunRecord"]


class Catalogue:
    """One open catalogue file. Close it, or use it as a context manager; threads may share it."""

    def __init__(self, engine: Engine, path: Path, machine: Callable[[], Machine] = this_machine) -> None:
        self._engine = engine
        self._reader = reading(engine)
        self._path = path
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

    def close(self) -> None:
        """The file is closed; whoever closes it last leaves no `-wal` file beside it."""
        self._engine.dispose()

    def __enter__(self) -> "Catalogue":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def open_run(self, job: str, host: str, *, run_id: str, kind: RunKind = RunKind.BACKUP) -> Iterator[RunRecord]:
        """A run's record for the length of its run. The row is there before the block begins, with `running`.

        A probe of a volume that was named, rather than a job, has "" as its job and its host; so has a bench.

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
                record.begin(job, host, self.identity().name)
            yield record
            with shielded():
                record.end()
        except BaseException as error:
            with shielded():
                record.fail(error)
                raise  # within the shield: a stop signal that comes now must not take the error's place

    def hold(self, run_id: str, holding: Holding) -> None:
        """The row of a holding that a run's backup needs later than the run itself: now it may be made."""
        self._write(holding_row(run_id, holding))

    def released(self, run_id: str, holding: Holding) -> None:
        """The holding of a run that cannot say so itself has been released; nothing happens when that was known."""
        self._write(release(run_id, holding))

    def end_dead_run(self, run_id: str, error: RunError) -> None:
        """A run that was still `running` is `failed` with this error; one that had ended stays as it is."""
        still_running = select(tables.runs.c.run_id).where(
            tables.runs.c.run_id == run_id, tables.runs.c.status == RunStatus.RUNNING
        )
        row = {**to_row(error), "run_id": run_id}
        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            if connection.execute(still_running).first():
                kept = insert(tables.errors).prefix_with("OR REPLACE").values(row)
                carry_out(connection, [kept, ending(run_id, RunStatus.FAILED), audit.run_ended(run_id)])

    def keep_dead_run(self, run_id: str, text: str, *, to_finish: bool) -> None:
        """A run that has died with a backup published needs attention, and this text says why.

        `to_finish`: others of its copies may be whole, and its manifest stays for them.
        """
        steps: list[Step] = [ending(run_id, RunStatus.ATTENTION), *attention(run_id, text)]
        self._write(*steps, *([] if to_finish else [strike_manifest(run_id)]), audit.run_ended(run_id))

    def pending_manifest(self, run_id: str) -> str | None:
        """The finished manifest of a run that has copies yet to be read back; None where there is nothing to finish."""
        table = tables.pending_manifests
        for row in self._read(select(table.c.text).where(table.c.run_id == run_id)):
            return str(row["text"])
        return None

    def strike_manifest(self, run_id: str) -> None:
        """Nothing of the run's copies is to be finished any more."""
        self._write(strike_manifest(run_id))

    def finish_dead_run(self, run_id: str, backup: Backup, holding: Holding, text: str) -> None:
        """A dead run's copy is a backup after all: the run needs attention, and has failed no longer."""
        backups, errors = tables.backups, tables.errors
        known = select(func.count()).select_from(backups).where(backups.c.run_id == run_id).scalar_subquery()
        self._write(
            insert(backups).prefix_with("OR REPLACE").values({**to_row(backup), "run_id": run_id, "ordinal": known}),
            release(run_id, holding),
            delete(errors).where(errors.c.run_id == run_id),
            ending(run_id, RunStatus.ATTENTION),
            *attention(run_id, text),
            audit.run_ended(run_id),
        )

    def advise(self, run_id: str, hint: str) -> None:
        """What a person is to do about the run's error, as it is known by now; nothing happens where it has none."""
        self._write(update(tables.errors).where(tables.errors.c.run_id == run_id).values(hint=hint))

    def attention(self, run_id: str, text: str) -> None:
        """A person should look at this although the backup is good: what became known after the run had ended."""
        self._write(*attention(run_id, text))

    def record_drill(self, drill: Drill) -> None:
        """Keep a drill's result with its run. A position that a good drill found is the run's from now on."""
        steps: list[Step] = [
            insert(tables.drills).values(to_row(drill)),
            told(Event.DRILLED, drill.run_id, ok=drill.ok, undecided=drill.undecided),
        ]
        if drill.ok and drill.position is not None:
            row = {**to_row(drill.position), "run_id": drill.run_id, "derived": True}
            steps.append(insert(tables.positions).prefix_with("OR REPLACE").values(row))
        self._write(*steps)

    def verified(self, run_id: str, target: str, at: datetime) -> None:
        """All of the backup there was read back since then and found equal; what was wrong before is so no more.

        Here and in the next three verbs, nothing happens where the catalogue has no such backup, or a removed one.
        """
        self._write(upkeep.verified(run_id, target, at))

    def read_on(self, run_id: str, target: str, *, frames: int, since: datetime) -> None:
        """The first frames of the backup there were read back and found equal, by rounds that began then."""
        self._write(upkeep.read_on(run_id, target, frames, since))

    def found_broken(self, run_id: str, target: str, reason: str) -> None:
        """The backup there cannot be restored."""
        self._write(upkeep.found_broken(run_id, target, reason))

    def removed(self, run_id: str, target: str, *, because: str) -> None:
        """The backup is no longer there; its row stays."""
        self._write(upkeep.removed(run_id, target, because))

    def pin(self, run_id: str, note: str) -> None:
        """The run's backups are kept whatever retention says; a pin of before is replaced."""
        self._write(upkeep.pinned(run_id, note))

    def unpin(self, run_id: str) -> None:
        """Retention decides again; nothing happens where there is no pin."""
        self._write(upkeep.unpinned(run_id))

    def import_run(self, run: RunDetails) -> bool:
        """The run of a backup that was found on a target has its row, with all that is told of it; see `imported`.

        False where the catalogue knew it, and then nothing is changed.

        Raises:
            Untrusted: it knows another run of that id.
        """
        from backupd.catalogue.imported import import_run

        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            return import_run(connection, run)

    def take_slot(self, slot: Slot) -> bool:
        """The slot has its row, and nobody else acts for it; False where it had one, and then nothing is changed."""
        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            return agenda.take(connection, slot)

    def miss_slots(self, slots: Sequence[Slot]) -> list[Slot]:
        """The same for slots that nobody started, in one transaction: those that had no row have one now."""
        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            return [slot for slot in slots if agenda.take(connection, slot)]

    def slot_ended(self, slot: Slot, *, exit_status: int | None) -> None:
        """What was started in the slot has ended, with this status where it is known."""
        self._write(agenda.slot_ended(slot.job, slot.activity, slot.due_at, exit_status))

    def go_by(self, timetables: agenda.Timetables, *, since: datetime) -> dict[tuple[str, Activity], datetime]:
        """Since when each of them counts: what was due before is nobody's fault.

        That is the instant at which this timetable was first gone by, however often the daemon was started since; for
        one that is new or has changed it is `since`, and the audit chain tells so.
        """
        with explained(self._path), self._reader.begin() as connection:
            known = agenda.scheduled(connection)
        if {key: timetable for key, (timetable, _) in known.items()} != dict(timetables):
            with uninterrupted(), explained(self._path), self._engine.begin() as connection:
                agenda.rescheduled(connection, timetables, since)
                known = agenda.scheduled(connection)
        return {key: counts_since for key, (_, counts_since) in known.items()}

    def newest_slots(self, *, before: datetime) -> dict[tuple[str, Activity], datetime]:
        """When the newest slot of each job and activity was due, of those that are not in the future."""
        with explained(self._path), self._reader.begin() as connection:
            return agenda.newest_slots(connection, before)

    def pause(self, job: str, note: str) -> None:
        """Nothing of this job is started by schedule; a pause of before is replaced."""
        self._write(agenda.paused(job, note))

    def resume(self, job: str) -> None:
        """It runs on schedule again; nothing happens where it was not paused."""
        self._write(agenda.resumed(job))

    def first_told(self, kind: NoticeKind, job: str, subject: str) -> bool:
        """From now on this counts as told; False where it did before."""
        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            return agenda.first_told(connection, kind, job, subject)

    def _write(self, *steps: Step) -> None:
        """All of them, or none."""
        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            carry_out(connection, steps)

    def take_identity(self, identity: Identity, event: Event) -> None:
        """This is the catalogue's identity from now on."""
        self._write(identities.took(identity, event))

    def owner_pending(self, machine: str, end: owners.ChainEnd) -> None:
        """This owner record may be written into the machine's folder there: now somebody may try."""
        self._write(owners.pending(machine, end))

    def owner_written(self, machine: str, end: owners.ChainEnd) -> None:
        """The chain ends with this record, and no longer with the one before."""
        self._write(owners.written(machine, end))

    def owner_adopted(self, machine: str, end: owners.ChainEnd) -> None:
        """The chain ends with this record; of any other one under the target's name nothing is known any more."""
        self._write(owners.adopted(machine, end))

    def know_key(self, key: str, machine: str, how: Known) -> None:
        """Whoever has this key may sign the machine's backups; nothing happens where that was known."""
        self._write(identities.knew(key, machine, how))

    # --- reading -----------------------------------------------------------------------------------------------------

    def end_of_chain(self, machine: str, record: str) -> owners.ChainEnd | None:
        """The owner chain that ends with this record; None where this machine has not written it."""
        with explained(self._path), self._reader.begin() as connection:
            return owners.end_of_chain(connection, machine, record)

    def unconfirmed_owner(self, machine: str, target: str, *, follows: str, number: int) -> owners.ChainEnd | None:
        """The owner record that a process which did not live to tell may have written there after that one."""
        with explained(self._path), self._reader.begin() as connection:
            return owners.unconfirmed(connection, machine, target, follows=follows, number=number)

    def newest_chain(self, machine: str, target: str) -> owners.ChainEnd | None:
        """The owner chain that was last gone on with under the target's name; None where none was."""
        with explained(self._path), self._reader.begin() as connection:
            return owners.newest_on(connection, machine, target)

    def has_several_chains(self, machine: str, target: str) -> bool:
        """Whether the machine has started another owner chain under the target's name than the newest one."""
        with explained(self._path), self._reader.begin() as connection:
            return owners.are_several_on(connection, machine, target)

    def boot_of(self, run_id: str) -> str:
        """The id of the boot in which the run began; empty where that is not known."""
        for row in self._read(select(tables.runs.c.boot_id).where(tables.runs.c.run_id == run_id)):
            return str(row["boot_id"] or "")
        return ""

    def identity(self) -> Identity:
        """The machine that this catalogue belongs to.

        Raises:
            CatalogueError: somebody has removed it from the file.
        """
        with explained(self._path), self._reader.begin() as connection:
            return identities.current(connection)

    @property
    def key_file(self) -> Path:
        """Where the machine's signing key lies: beside the catalogue, and in no copy of that."""
        return self._path.with_name(KEY_FILE)

    def keys(self, machine: str) -> frozenset[str]:
        """The public keys that may sign this machine's backups."""
        table = tables.keys.c
        return frozenset(row["key"] for row in self._read(select(table.key).where(table.machine == machine)))

    def trust(self, machine: str, recorded: Backup | None = None) -> Trust:
        """Which of the machine's backups are believed; of one of them, what was recorded."""
        return Trust(self.keys(machine), recorded)

    def backups_of(self, run_id: str) -> tuple[Backup, ...]:
        """What the run of exactly this id has left, removed or not, in its job's order."""
        table = tables.backups
        query = select(table).where(table.c.run_id == run_id).order_by(table.c.ordinal)
        return tuple(from_row(Backup, row) for row in self._read(query))

    def run(self, run_id: str) -> RunDetails:
        """Everything of one run: by its id, a beginning that only it has, `latest`, or `latest:JOB`.

        `latest` is this machine's newest backup whatever became of it, of the only job; an id may be another machine's,
        a probe's or a bench's too.

        Raises:
            UsageError: there is none, or more than one; `latest` where there are backups of several jobs.
        """
        with explained(self._path), self._reader.begin() as connection:
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
        with explained(self._path), self._reader.begin() as connection:
            return details(connection, query, samples=False)

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
        with explained(self._path), self._reader.begin() as connection:
            return costs(connection, query)

    def besides(
        self, *, job: str | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> "dict[str, Beside]":
        """What happened beside this machine's runs of each job; nothing of a job where there was nothing."""
        from backupd.catalogue.costs import besides

        with explained(self._path), self._reader.begin() as connection:
            return besides(connection, Filter(job, since, until))

    def newest_with_backup(self, job: str | None = None, *, target: str | None = None) -> RunDetails | None:
        """This machine's newest run of which a backup is there (on that target), without its samples; None if none is.

        Raises:
            UsageError: no job is named, and there are backups of several.
        """
        with explained(self._path), self._reader.begin() as connection:
            if job is None:
                require_one_job(connection)
            found = details(connection, upkeep.with_backup(job, target).limit(1), samples=False)
        return found[0] if found else None

    def costs_page(
        self, wanted: Filter, *, kind: RunKind | None = None, before: str | None = None, limit: int = 50
    ) -> "list[RunCost]":
        """What the newest of the wanted runs cost, or of those that began before the run `before`; newest first.

        Raises:
            UsageError: there is no run `before`.
        """
        from backupd.catalogue.costs import costs

        with explained(self._path), self._reader.begin() as connection:
            return costs(connection, paging.page(connection, wanted, kind=kind, before=before, limit=limit))

    def costs_over_time(self, wanted: Filter, *, points: int = 300) -> "list[RunCost]":
        """What the wanted backups cost, newest first; where they are more than `points`, of some spread over time."""
        from backupd.catalogue.costs import costs

        with explained(self._path), self._reader.begin() as connection:
            return costs(connection, paging.over_time(connection, wanted, points=points))

    def probe(self, wanted: str) -> "ProbeRecord":
        """A probe with all that it measured: by its id, a beginning that only it has, `latest`, or `latest:JOB`.

        Raises:
            UsageError: there is none, or more than one, or it is something else.
        """
        from backupd.catalogue import probes

        with explained(self._path), self._reader.begin() as connection:
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
        with explained(self._path), self._reader.begin() as connection:
            return probes.records(connection, query, curves=False)

    def bench(self, wanted: str) -> "BenchRecord":
        """A bench with all that it found: by its id, a beginning that only it has (and its probes), or `latest`.

        Raises:
            UsageError: there is none, or more than one, or it is something else.
        """
        from backupd.catalogue import benches

        with explained(self._path), self._reader.begin() as connection:
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
        with explained(self._path), self._reader.begin() as connection:
            return benches.records(connection, query, samples=samples)

    def unfinished(self) -> list[str]:
        """Ids of runs of any kind that are said to be running: live ones, and dead ones. Newest first."""
        query = newest_first(kind=None).where(tables.runs.c.status == RunStatus.RUNNING)
        return [row["run_id"] for row in self._read(query)]

    def holdings(self, run_id: str | None = None) -> list[tuple[str, Holding]]:
        """What has not been released, with its run; newest first, which is the order to give it back in."""
        table = tables.holdings
        query = select(table).where(table.c.released_at.is_(None)).order_by(table.c.id.desc())
        if run_id is not None:
            query = query.where(table.c.run_id == run_id)
        return [(row["run_id"], from_row(Holding, row)) for row in self._read(query)]

    def process_of(self, run_id: str) -> tuple[int, int] | None:
        """The pid of the run's process and its start in clock ticks since boot, dead or alive; None when unknown."""
        table = tables.runs
        for row in self._read(select(table.c.pid, table.c.process_start).where(table.c.run_id == run_id)):
            if row["pid"] is not None and row["process_start"] is not None:
                return row["pid"], row["process_start"]
        return None

    def slots(
        self,
        *,
        job: str | None = None,
        activity: Activity | None = None,
        state: SlotState | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 50,
    ) -> list[Slot]:
        """What was due, the newest first; `until` leaves out what a clock that was ahead has left in the future."""
        query = agenda.due_within(agenda.slots(job, activity, state), since, until).limit(limit)
        return [from_row(Slot, row) for row in self._read(query)]

    def pauses(self) -> dict[str, Pause]:
        """The jobs of which nothing is started by schedule."""
        return {row["job"]: from_row(Pause, row) for row in self._read(select(tables.pauses))}

    def records(self, jobs: Sequence[str], *, at: datetime, samples: bool = False) -> "dict[str, JobRecord]":
        """How these jobs stand at this instant, in their order; runs have their samples only where told so.

        What began, was due or was proven later, by a clock that was ahead, counts when its time has come.
        """
        from backupd.catalogue import job_status

        with explained(self._path), self._reader.begin() as connection:
            return job_status.records(connection, jobs, at=at, samples=samples)

    def run_counts(self) -> dict[str, dict[RunStatus, int]]:
        """How many backups this machine tried, by job and by what became of them."""
        from backupd.catalogue import job_status

        with explained(self._path), self._reader.begin() as connection:
            return job_status.run_counts(connection)

    def stored(self) -> "list[StoredOnTarget]":
        """What is on the targets of this machine, by target and job; what was removed does not count."""
        from backupd.catalogue import job_status

        with explained(self._path), self._reader.begin() as connection:
            return job_status.stored(connection)

    def newest_unproven(self, job: str | None = None) -> list[RunDetails]:
        """This machine's runs of which a backup is there, in the order to prove them in, without their samples.

        Those that no drill has proven, newest first; then the others, the oldest proof first.
        """
        with explained(self._path), self._reader.begin() as connection:
            found = details(connection, upkeep.with_backup(job), samples=False)
        proven = [(run.proven_at, run) for run in found if run.proven_at is not None]
        unproven = [run for run in found if run.proven_at is None]
        return unproven + [run for _, run in sorted(proven, key=itemgetter(0))]

    def on_target(self, job: str, target: str, names: Collection[str] = ()) -> dict[str, RunDetails]:
        """This machine's runs of the job that have a backup there, broken or not, and those that are named; by id.

        Their samples are left out, and so is every run whose backup is gone.
        """
        with explained(self._path), self._reader.begin() as connection:
            machine = identities.current(connection).name
            found = details(connection, upkeep.stored_or_named(machine, job, target, names), samples=False)
        return {run.run_id: run for run in found}

    def audit_head(self) -> str:
        """The digest of the newest row of the audit chain; empty where there is none."""
        with explained(self._path), self._reader.begin() as connection:
            return audit.head(connection)

    def audit_entries(self, *, since: datetime | None = None, limit: int | None = 50) -> list[AuditEntry]:
        """What the newest rows of the chain tell, the newest first."""
        return [audit.entry(row) for row in self._read(audit.entries(since, limit))]

    def audit_trail(self) -> Trail:
        """The audit chain, and the rows that it must agree with, at one instant."""
        backups = tables.backups.c
        with explained(self._path), self._reader.begin() as connection:
            return Trail(
                chain=audit.chain(connection),
                runs=frozenset(connection.execute(select(tables.runs.c.run_id)).scalars()),
                backups={
                    (run_id, target): sha256
                    for run_id, target, sha256 in connection.execute(
                        select(backups.run_id, backups.target, backups.sha256)
                    )
                },
                manifests={
                    (run_id, target): digest
                    for run_id, target, digest in connection.execute(
                        select(backups.run_id, backups.target, backups.manifest_digest)
                    )
                },
            )

    def last_copy(self, job: str) -> LastCopy | None:
        """How far the job's newest copy came and in which time, whatever became of its run; None where there is none.

        A failed one counts if it went on for long enough to tell its rate. None too where a run was given up since for
        fear that the COW area would not last: a forecast may cost one backup and never two in a row, for else a copy
        that was once slow would keep every later one from being tried.
        """
        copy, verdict = tables.copies.c, tables.verdicts.c
        forgone = (verdict.outcome == GateOutcome.GIVE_UP) & (verdict.reason == Reason.COW_SHORT)
        telling = tables.runs.c.status.in_(GOOD) | (tables.phases.c.seconds >= _TELLING_SECONDS)
        query = (
            our_newest(job)
            .outerjoin(tables.copies, copy.run_id == tables.runs.c.run_id)
            .outerjoin(tables.verdicts, verdict.run_id == tables.runs.c.run_id)
            .outerjoin(
                tables.phases,
                (tables.phases.c.run_id == tables.runs.c.run_id) & (tables.phases.c.phase == Phase.COPY),
            )
            .where(forgone | (copy.run_id.is_not(None) & tables.phases.c.seconds.is_not(None) & telling))
            .with_only_columns(copy.bytes_read, copy.of_bytes, copy.used_bytes, tables.phases.c.seconds)
            .limit(1)
        )
        for row in self._read(query):
            return None if row["bytes_read"] is None else LastCopy(**row)
        return None

    def snapshot_lives(self, job: str) -> tuple[SnapshotLife, ...]:
        """What the snapshots of the job's newest runs have filled, on the volume that it was last taken of.

        A failed run counts if its snapshot was used for long enough to tell: it may have failed for what it filled.
        """
        table, phases = tables.snapshots.c, tables.phases.c
        query = (
            our_newest(job)
            .join(tables.snapshots, table.run_id == tables.runs.c.run_id)
            .join(tables.phases, phases.run_id == tables.runs.c.run_id)
            .where(table.volume == self.last_volume(job), table.pool.is_(None))
            .where(phases.phase.in_((Phase.SETTLE, Phase.COPY)), table.cow_used_peak.is_not(None))
            .group_by(tables.runs.c.run_id)
            .having(tables.runs.c.status.in_(GOOD) | (func.sum(phases.seconds) >= _TELLING_SECONDS))
            .with_only_columns(table.chunk_size, table.cow_used_peak, func.sum(phases.seconds).label("seconds"))
            .limit(_LIVES)
        )
        return tuple(SnapshotLife(row["chunk_size"], row["cow_used_peak"], row["seconds"]) for row in self._read(query))

    def tunings(self) -> dict[str, Tuning]:
        """What this machine's probes found best for the COW area: the newest of each volume, by the volume's uuid."""
        with explained(self._path), self._reader.begin() as connection:
            return tunings.newest(connection)

    def last_volume_group(self, job: str) -> str | None:
        """In which volume group the job's newest snapshot was; None where there was none yet."""
        volume = self.last_volume(job)
        return volume.partition("/")[0] if volume is not None else None

    def last_volume(self, job: str) -> str | None:
        """Of which volume (`VG/LV`) the job's newest snapshot was; None where there was none yet."""
        table = tables.snapshots
        query = our_newest(job).join(table, table.c.run_id == tables.runs.c.run_id)
        for row in self._read(query.with_only_columns(table.c.volume).limit(1)):
            return str(row["volume"])
        return None

    def last_stored_bytes(self, job: str) -> int | None:
        """The size of the job's newest good backup on its target, in bytes; None where there is none."""
        table = tables.backups
        good = our_newest(job).where(tables.runs.c.status.in_(GOOD)).limit(1).scalar_subquery()
        sizes = [row["bytes_stored"] for row in self._read(select(table.c.bytes_stored).where(table.c.run_id == good))]
        return max(sizes, default=None)

    def _read(self, query: Select[Any]) -> Sequence[RowMapping]:
        with explained(self._path), self._reader.begin() as connection:
            return connection.execute(query).mappings().all()
