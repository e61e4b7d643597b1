"""One live run's pen: what it tells is in the file when the verb returns.

Knows: which row each verb writes, how writes are held back in a quiet time, what a run's end means for its row.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, Executable, Table, func, insert, select, update
from sqlalchemy.dialects import sqlite

from backupd.catalogue import audit, tables
from backupd.catalogue.audit import Event, Step, audit_step, carry_out
from backupd.catalogue.columns import to_row
from backupd.catalogue.database import explained, reading
from backupd.catalogue.details import details
from backupd.catalogue.endings import as_told, attention, ending, holding_row, release, status_of, strike_manifest
from backupd.catalogue.file import uninterrupted
from backupd.host.holdings import child_holding
from backupd.host.process import start_time
from backupd.vocabulary.errors import CatalogueError, UsageError
from backupd.vocabulary.penalty import Bill, Losses, PaceChange, Sample, Throughput, Verdict
from backupd.vocabulary.records import Holding, HoldingKind, Phase, RunDetails, RunKind, RunStatus, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt, Position, Preflush
from backupd.vocabulary.storage import Backup

if TYPE_CHECKING:
    from backupd.vocabulary.benches import LayoutBench
    from backupd.vocabulary.probes import Measurement

log = logging.getLogger(__name__)


class RunRecord:
    """The `RunJournal` of one run over one catalogue file."""

    def __init__(self, engine: Engine, path: Path, *, run_id: str, kind: RunKind, boot_id: str) -> None:
        self.run_id = run_id
        self._boot_id = boot_id
        self.kind = kind
        self.has_begun = False
        self.has_backup = False
        self.is_complete = False
        self._leaves_copies = False
        self._engine = engine
        self._path = path
        self._lock = threading.RLock()
        self._quiet = 0
        self._pending: list[Step] = []

    # --- what a run tells --------------------------------------------------------------------------------------------

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Measure the block and record its seconds when it ends, well or not; seconds of one phase add up."""
        began = time.monotonic()

        def record() -> None:
            seconds = time.monotonic() - began
            log.info("%s: finished after %.1f s", phase, seconds)
            self._write(self._seconds(phase, seconds, add=True))

        log.info("%s: started", phase)
        with _afterwards(record):
            yield

    def took(self, phase: Phase, seconds: float) -> None:
        """Record a phase that was measured elsewhere, in place of what was recorded for it."""
        self._write(self._seconds(phase, seconds, add=False))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within the block nothing is written; what any thread tells meanwhile is written when the block ends.

        Where that writing fails too, it is tried again with the next verb.
        """
        with self._lock:  # waits for a write of another thread
            self._quiet += 1
        with _afterwards(self._break_silence):
            yield

    def hold(self, holding: Holding) -> None:
        """The holding's row is durable: now it may be made."""
        self._write(holding_row(self.run_id, holding))

    def released(self, holding: Holding) -> None:
        """The holding has been released; nothing happens when that was known."""
        self._write(release(self.run_id, holding))

    def started(self, pid: int, start_time: int, program: str, *, must_finish: bool) -> None:
        """A child runs: a holding, so that a later process can end it, or wait for its end."""
        self.hold(child_holding(pid, start_time, program, must_finish=must_finish))

    def ended(self, pid: int, start_time: int) -> None:  # noqa: ARG002  # a pid has one living owner
        """The child is gone."""
        self.released(Holding(HoldingKind.CHILD, str(pid)))

    def verdict(self, verdict: Verdict) -> None:
        """What the settle gate decided; the last one stays."""
        self._keep(tables.verdicts, to_row(verdict))

    def samples(self, samples: Sequence[Sample]) -> None:
        """Append samples, in one transaction."""
        if samples:
            rows = [{**to_row(sample), "run_id": self.run_id} for sample in samples]
            self._write((insert(tables.samples), rows))

    def position(self, position: Position) -> None:
        """Where the server stood while it was locked."""
        self._keep(tables.positions, to_row(position))

    def preflush(self, preflush: Preflush) -> None:
        """What it brought to have the dirty pages written before the lock."""
        self._keep(tables.preflushes, to_row(preflush))

    def lock(self, receipt: LockReceipt) -> None:
        """What the lock cost."""
        self._keep(tables.locks, to_row(receipt))

    def snapshot(self, facts: SnapshotFacts) -> None:
        """The snapshot that was taken."""
        self._keep(tables.snapshots, to_row(facts))

    def cow_extended(self, added: int) -> None:
        """Bytes that the COW area was given while the snapshot was used. Comes after `snapshot`, once."""
        table = tables.snapshots
        larger = {"cow_size": table.c.cow_size + added, "cow_extended": added}
        self._write(update(table).where(table.c.run_id == self.run_id).values(larger))

    def redo_left_out(self, left_out: int) -> None:
        """Bytes of the redo log that are a hole in the backup. Comes after `snapshot`."""
        table = tables.snapshots
        self._write(update(table).where(table.c.run_id == self.run_id).values({"redo_left_out": left_out}))

    def cow_peak(self, used: int) -> None:
        """Bytes of the COW area that were seen in use; the most stays. Comes after `snapshot`."""
        table = tables.snapshots
        most = func.max(func.coalesce(table.c.cow_used_peak, 0), used)
        self._write(update(table).where(table.c.run_id == self.run_id).values(cow_used_peak=most))

    def bill(self, bill: Bill) -> None:
        """What the snapshot cost from the lock to its release: also of a run that failed."""
        self._keep(tables.bills, to_row(bill))

    def losses(self, losses: Losses) -> None:
        """What the server did meanwhile, and would have done; the last word stays."""
        self._keep(tables.losses, to_row(losses))

    def attention(self, text: str) -> None:
        """A person should look at this although the backup is good; also after `complete`."""
        self._write(*attention(self.run_id, text))

    def copied(self, bytes_read: int, *, of_bytes: int, used_bytes: int) -> None:
        """How far the copy came, and what the volume's file system held: also of a copy that failed."""
        self._keep(tables.copies, {"bytes_read": bytes_read, "of_bytes": of_bytes, "used_bytes": used_bytes})

    def throughput(self, stages: Sequence[Throughput]) -> None:
        """What each of these stages worked, in their order, after those that were told before."""
        table = tables.throughput
        told = select(func.count()).select_from(table).where(table.c.run_id == self.run_id).scalar_subquery()
        self._write(*(self._row(table, {**to_row(stage), "ordinal": told}) for stage in stages))

    def paced(self, changes: Sequence[PaceChange]) -> None:
        """How fast the snapshot was read: each change of it, in one transaction."""
        if changes:
            rows = [{**to_row(change), "run_id": self.run_id} for change in changes]
            self._write((insert(tables.pace_changes), rows))

    def finished_manifest(self, text: str) -> None:
        """All copies are written: from now on `recover` can finish what this process does not; until the run ends."""
        self._keep(tables.pending_manifests, {"text": text})

    def leave_copies(self) -> None:
        """The run is about to fail, and its copies stay for `recover`: its end keeps the finished manifest for them."""
        self._leaves_copies = True

    def published(self, backup: Backup, holding: Holding, *, ordinal: int) -> None:
        """This backup is there, whatever becomes of the run; what it was held by is struck. Both or neither."""
        row = self._row(tables.backups, {**to_row(backup), "ordinal": ordinal})
        self._write(row, release(self.run_id, holding))
        self.has_backup = True

    def complete(self, backups: Sequence[Backup]) -> None:
        """The backups are verified: the run's row says so, durably, as `success` or, where asked for, `attention`.

        One that was `published` keeps its row, with what others have found of it meanwhile.
        """
        add = sqlite.insert(tables.backups).on_conflict_do_nothing()
        rows = [{**to_row(one), "run_id": self.run_id, "ordinal": ordinal} for ordinal, one in enumerate(backups)]
        self._succeed(*(add.values(row) for row in rows))

    def measured(self, measurement: "Measurement") -> None:
        """All that a probe measured is kept, durably, and the run's row says so: all in one transaction, or nothing.

        Figures that are no numbers (NaN) are refused with a CatalogueError where a row must have one.
        """
        from backupd.catalogue import probes  # here and below: a backup does without

        self._succeed(*probes.writes(self.run_id, measurement))

    def benched(self, bench: "LayoutBench") -> None:
        """All that a bench found is kept, durably, and the run's row says so: all in one transaction, or nothing.

        Figures that are no numbers are refused as in `measured`.
        """
        from backupd.catalogue import benches

        self._succeed(*benches.writes(self.run_id, bench))

    # --- what is known by now ----------------------------------------------------------------------------------------

    def so_far(self) -> RunDetails:
        """All that the run has told by now, without its samples."""
        chosen = select(tables.runs.c.run_id).where(tables.runs.c.run_id == self.run_id)
        with explained(self._path), reading(self._engine).begin() as connection:
            return details(connection, chosen, samples=False)[0]

    def audit_head(self) -> str:
        """The digest of the newest row of the audit chain."""
        with explained(self._path), reading(self._engine).begin() as connection:
            return audit.head(connection)

    # --- how a run begins and ends: for `Catalogue.open_run` ---------------------------------------------------------

    def begin(
        self, job: str, host: str, machine: str, *, max_rate: int | None = None, behind_segment: str = ""
    ) -> None:
        """The run's row exists, with this process as the one that it lives in.

        `behind_segment` is the last of its job's binlog archive; empty: there is none.

        Raises:
            UsageError: there is a run of that id already; nothing is written.
        """
        row = {
            "run_id": self.run_id,
            "kind": self.kind,
            "job": job,
            "host": host,
            "machine": machine,
            "status": RunStatus.RUNNING,
            "pid": os.getpid(),
            "process_start": start_time(os.getpid()),
            "boot_id": self._boot_id,
            "started_at": datetime.now(UTC),
            "max_rate": max_rate,
            "behind_segment": behind_segment,
        }
        with explained(self._path), self._engine.begin() as connection:
            known = select(tables.runs.c.run_id).where(tables.runs.c.run_id == self.run_id)
            if connection.execute(known).first():
                hint = "omit --run-id, and each run gets its own"
                raise UsageError(f"there is a run {self.run_id} already", hint=hint)
            started = audit_step(Event.RUN_STARTED, self.run_id, kind=self.kind.value, job=job, host=host)
            carry_out(connection, [insert(tables.runs).values(row), started])
        self.has_begun = True

    def end(self) -> None:
        """The run is over, and `complete`, `measured` or `benched` has said how; only the instant is new."""
        if not self.is_complete:
            raise RuntimeError(f"run {self.run_id} ended without a result and without an error")
        ours = update(tables.runs).where(tables.runs.c.run_id == self.run_id)
        self._write(ours.values(ended_at=datetime.now(UTC)))

    def fail(self, error: BaseException) -> None:
        """The row says how the run failed. What was complete or published stays so: that run needs attention.

        Where the row cannot be written either, that is a note on the error. A run that never began has no row.
        """
        if not self.has_begun:
            return
        cause = as_told(error)
        try:
            if self.is_complete:
                self._write(*attention(self.run_id, f"after the {self.kind} was complete: {cause.message}"))
            elif self.has_backup:
                cut_short = f"the run was interrupted after it had published a backup: {cause.message}"
                self._succeed(*attention(self.run_id, cut_short))
            else:
                kept = self._row(tables.errors, to_row(cause))
                ended = ending(self.run_id, status_of(cause))
                self._write(kept, ended, *self._nothing_to_finish(), audit.run_ended(self.run_id))
        except CatalogueError as second:
            error.add_note(f"and the run could not be recorded as finished: {second.message}")

    # --- statements and writing --------------------------------------------------------------------------------------

    def _succeed(self, *result: Step) -> None:
        """The result is kept, and the run has ended well or needs attention: in one transaction."""
        wants_attention = select(tables.attentions.c.id).where(tables.attentions.c.run_id == self.run_id)
        heed = update(tables.runs).where(tables.runs.c.run_id == self.run_id, wants_attention.exists())
        with self._lock:
            self._write(
                *result,
                ending(self.run_id, RunStatus.SUCCESS),
                heed.values(status=RunStatus.ATTENTION),
                *self._nothing_to_finish(),
                audit.run_ended(self.run_id),
            )
            self.is_complete = True

    def _nothing_to_finish(self) -> list[Step]:
        return [] if self._leaves_copies else [strike_manifest(self.run_id)]

    def _seconds(self, phase: Phase, seconds: float, *, add: bool) -> Executable:
        table = tables.phases
        statement = sqlite.insert(table).values(run_id=self.run_id, phase=phase, seconds=seconds)
        new = table.c.seconds + seconds if add else seconds
        return statement.on_conflict_do_update(index_elements=["run_id", "phase"], set_={"seconds": new})

    def _row(self, table: Table, row: Mapping[str, Any]) -> Executable:
        return insert(table).prefix_with("OR REPLACE").values({**row, "run_id": self.run_id})

    def _keep(self, table: Table, row: Mapping[str, Any]) -> None:
        self._write(self._row(table, row))

    def _write(self, *steps: Step) -> None:
        """All in one transaction, after what a quiet time held back; or held back, in a quiet time."""
        with uninterrupted(), self._lock:
            if self._quiet:
                self._pending += steps
                return
            with explained(self._path), self._engine.begin() as connection:
                carry_out(connection, [*self._pending, *steps])
            self._pending.clear()

    def _break_silence(self) -> None:
        with self._lock:
            self._quiet -= 1
            if self._pending:
                self._write()


@contextmanager
def _afterwards(step: Callable[[], None]) -> Iterator[None]:
    """Take the step when the block ends. Where both fail, the block's error goes on, with the step's as a note."""
    try:
        yield
    except BaseException as error:
        with uninterrupted():
            try:
                step()
            except CatalogueError as second:
                error.add_note(second.message)
            raise
    step()
