"""What other processes say of a run that cannot say it itself: it has died, or has ended.

Knows: what a dead run leaves in its record, and what becomes of it there. Refuses to know which runs are dead:
`operations.upkeep` tries their locks.
"""

from sqlalchemy import delete, func, insert, select, update

from backupd.catalogue import audit, tables
from backupd.catalogue.audit import Step, carry_out
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.details import newest_first
from backupd.catalogue.endings import attention, ending, holding_row, release, strike_manifest
from backupd.catalogue.file import CatalogueFile
from backupd.vocabulary.records import Holding, RunError, RunStatus
from backupd.vocabulary.storage import Backup


class DeadRuns(CatalogueFile):
    """Runs that have no process any more, and what they held."""

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

    def boot_of(self, run_id: str) -> str:
        """The id of the boot in which the run began; empty where that is not known."""
        for row in self._read(select(tables.runs.c.boot_id).where(tables.runs.c.run_id == run_id)):
            return str(row["boot_id"] or "")
        return ""

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
        with self._writing() as connection:
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

    def pending_manifests(self) -> list[str]:
        """Ids of the runs that have one, live ones among them."""
        return [row["run_id"] for row in self._read(select(tables.pending_manifests.c.run_id))]

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
