"""The journal of a run that cannot keep one any more, and what is said of its death.

Knows: what becomes of its row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import ExitStatus, UsageError
from backupd.vocabulary.records import DEATH, DIED, UNRECORDED, Holding, RunDetails, RunError, RunKind, RunStatus

_AGAIN = {
    RunKind.BACKUP: "start the job again when convenient",
    RunKind.PROBE: "none of its figures were kept: probe again when convenient",
    RunKind.BENCH: "none of its figures were kept: run `backupd bench layouts` again when convenient",
}


@dataclass(frozen=True, slots=True)
class DeadRunJournal:
    """The journal of a run that cannot keep one any more."""

    catalogue: Catalogue
    run_id: str

    def hold(self, holding: Holding) -> None:
        """A dead run takes nothing."""
        raise AssertionError(holding)

    def released(self, holding: Holding) -> None:
        """Strike the row."""
        self.catalogue.released(self.run_id, holding)

    def attention(self, text: str) -> None:
        """Said by the log and by `Recovery.left`."""

    def has_backup_on(self, target: str) -> bool:
        """Whether its objects there were verified and recorded: then they are no remains."""
        row = self._row()
        backup = None if row is None else row.backup_on(target)
        return backup is not None and backup.removed_at is None

    def end(self, *, whole: bool, pending: Sequence[Holding]) -> None:
        """A run that was still `running` is `failed` now, or needs attention where it has published a backup.

        `whole`: nothing that it held is left but `pending`, its copies that may be whole.
        """
        row = self._row()
        if row is None or row.status is not RunStatus.RUNNING:
            return
        if row.backups:
            reached = ", ".join(backup.target for backup in row.backups)
            self.catalogue.keep_dead_run(
                self.run_id,
                f"{DEATH} before the run ended; the backup is on {reached}",
                to_finish=bool(pending),
            )
        else:
            self.catalogue.end_dead_run(self.run_id, died(row.kind, whole=whole, pending=pending))

    def _row(self) -> RunDetails | None:
        """None where it is known by its tag only."""
        try:
            row = self.catalogue.run(self.run_id)
        except UsageError:
            return None
        return row if row.run_id == self.run_id else None  # an id may be the beginning of another


def why_unfinished(run: RunDetails) -> str:
    """Why others finish this run, which has ended: its process died, or it told itself what kept it from that."""
    is_dead = run.error is not None and run.error.code == DIED
    return DEATH if is_dead or any(text.startswith(DEATH) for text in run.attention) else UNRECORDED


def died(kind: RunKind, *, whole: bool, pending: Sequence[Holding]) -> RunError:
    """The error of a run that died: what became of what it held, and what a person is to do."""
    held = (
        "everything that it held was released"
        if whole
        else "something that it held is left: `backupd recover` cleans it up"
    )
    if pending:
        where = ", ".join(holding.detail["target"] for holding in pending)
        held += f"; its copy on {where} may be complete: `backupd recover` reads it back and adds it to the catalogue"
    return RunError(
        code=DIED,
        message="the run's process died without reporting an error (killed, or the host went down)",
        hint=f"{held}; {_AGAIN[kind]}",
        exit_status=ExitStatus.INTERNAL,
    )
