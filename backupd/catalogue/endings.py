"""What a run holds, and how both come to an end, as statements.

Knows: what an ending writes, whoever writes it: the run itself, or a later process for a dead one.
"""

from datetime import UTC, datetime

from sqlalchemy import Executable, delete, insert, update

from backupd.catalogue import tables
from backupd.catalogue.columns import to_row
from backupd.vocabulary.errors import BackupdError, ExitStatus
from backupd.vocabulary.records import Holding, RunError, RunStatus

_ENDINGS = {
    ExitStatus.REFUSED: RunStatus.REFUSED,
    ExitStatus.BUSY: RunStatus.BUSY,
    ExitStatus.CANCELLED: RunStatus.CANCELLED,
    ExitStatus.TERMINATED: RunStatus.CANCELLED,
}


def holding_row(run_id: str, holding: Holding) -> Executable:
    """The statement that writes a holding down."""
    row = {**to_row(holding), "run_id": run_id, "held_at": datetime.now(UTC)}
    return insert(tables.holdings).values(row)


def release(run_id: str, holding: Holding) -> Executable:
    """The statement that strikes a holding. Kind and name tell it: `detail` may have been learnt after the row."""
    table = tables.holdings
    return (
        update(table)
        .where(table.c.run_id == run_id, table.c.kind == holding.kind, table.c.name == holding.name)
        .where(table.c.released_at.is_(None))
        .values(released_at=datetime.now(UTC))
    )


def ending(run_id: str, status: RunStatus) -> Executable:
    """The statement that ends a run now, with this status."""
    table = tables.runs
    return update(table).where(table.c.run_id == run_id).values(status=status, ended_at=datetime.now(UTC))


def strike_manifest(run_id: str) -> Executable:
    """The statement that forgets a run's finished manifest: nothing of its copies is to be finished any more."""
    return delete(tables.pending_manifests).where(tables.pending_manifests.c.run_id == run_id)


def attention(run_id: str, text: str) -> list[Executable]:
    """The statements that tell what a person should look at; a run that was good needs attention from now on."""
    good = (tables.runs.c.run_id == run_id) & (tables.runs.c.status == RunStatus.SUCCESS)
    return [
        insert(tables.attentions).values(run_id=run_id, text=text),
        update(tables.runs).where(good).values(status=RunStatus.ATTENTION),
    ]


def status_of(error: RunError) -> RunStatus:
    """What a run is that this error ended."""
    return _ENDINGS.get(ExitStatus(error.exit_status), RunStatus.FAILED)


def as_told(error: BaseException) -> RunError:
    """An error as the catalogue keeps it, its notes included: one thing that failed while cleaning up is a note."""
    notes = getattr(error, "__notes__", ())
    if isinstance(error, BackupdError):
        return RunError(error.code, "\n".join([error.message, *notes]), error.hint, int(error.exit_status))
    said = "\n".join([f"{type(error).__name__}: {error}", *notes])
    return RunError("internal", said, "this is a bug in backupd; please report it with the log", ExitStatus.INTERNAL)
