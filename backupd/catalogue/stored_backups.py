"""What becomes of backups after their run; each change is told in the audit chain as well.

Knows: which rows a later finding changes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, literal_column, select, update

from backupd.catalogue import identities, tables
from backupd.catalogue.audit import Event, audit_step, copies_told
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.details import details, newest_first, our_newest
from backupd.catalogue.endings import attention, release
from backupd.catalogue.file import CatalogueFile
from backupd.catalogue.selection import runs_with_backup, with_backup
from backupd.vocabulary.records import GOOD, Holding, Pin, RunDetails
from backupd.vocabulary.selectors import Selector
from backupd.vocabulary.storage import Backup

_FROM_THE_BEGINNING = {"read_frames": 0, "reading_since": None}


class StoredBackups(CatalogueFile):
    """The backups that runs have left. Nothing happens where the catalogue has no such backup, or a removed one."""

    def verified(self, run_id: str, target: str, at: datetime, *, seen: Backup | None = None) -> bool:
        """All of the backup there was read back since then and found equal; what was wrong before is so no more.

        Whether that is so: not where something else is wrong by now than was `seen` as that reading began.
        """
        values = {"verified_at": at, "broken": "", **_FROM_THE_BEGINNING}
        return self._change(run_id, target, values, audit_step(Event.VERIFIED, run_id, target=target), seen=seen)

    def read_on(self, run_id: str, target: str, *, frames: int, since: datetime, seen: Backup) -> bool:
        """The first frames of the backup there were read back and found equal, by rounds that began then; as above."""
        values = {"read_frames": frames, "reading_since": since}
        return self._change(run_id, target, values, lambda _connection: None, seen=seen)

    def found_broken(self, run_id: str, target: str, reason: str) -> None:
        """The backup there cannot be restored."""
        event = audit_step(Event.FOUND_BROKEN, run_id, target=target, reason=reason)
        self._change(run_id, target, {"broken": reason, **_FROM_THE_BEGINNING}, event)

    def copied(self, run_id: str, backup: Backup, holding: Holding, *, source: str) -> None:
        """The run has this backup too, copied from the target `source`; what it was held by is struck. All or nothing.

        What the run had there before, and was removed, is forgotten but for the audit chain.
        """
        table = tables.backups
        there = table.c.run_id == run_id
        after = select(func.coalesce(func.max(table.c.ordinal), -1) + 1).where(there).scalar_subquery()
        detail = {"source": source, "target": backup.target, **copies_told((backup,))}
        self._write(
            delete(table).where(there, table.c.target == backup.target),
            insert(table).values({**to_row(backup), "run_id": run_id, "ordinal": after}),
            release(run_id, holding),
            audit_step(Event.COPIED, run_id, **detail),
        )

    def removing(self, run_id: str, target: str, *, because: str) -> None:
        """From now on half of the backup may be there: its removal begins. Without a reason: it stays, and is whole."""
        self._change(run_id, target, {"removed_because": because}, lambda _connection: None)

    def removed(self, run_id: str, target: str, *, because: str) -> None:
        """The backup is no longer there; its row stays. One that was removed before keeps what was said then."""
        event = audit_step(Event.REMOVED, run_id, target=target, because=because)
        self._change(run_id, target, {"removed_at": datetime.now(UTC), "removed_because": because}, event)

    def vanished(
        self,
        run_ids: Sequence[str],
        target: str,
        *,
        because: str,
        told_with: str | None,
        targets: Collection[str] | None = None,
    ) -> None:
        """As `removed`, of backups of one job that somebody else has removed, all or none; a person is told of each
        with the run `told_with`, at once.

        Where that is not named, with the newest good one of the job of which a copy is left then on one of these
        targets (that can be read), which tells how the job stands; or with the lost one, where there is none.
        """
        with self._writing() as connection:
            values = {"removed_at": datetime.now(UTC), "removed_because": because}
            lost = [run_id for run_id in run_ids if _changed(connection, run_id, target, values)]
            tell = told_with or (_last_good(connection, lost[0], targets) if lost else None)
            for run_id in lost:
                audit_step(Event.REMOVED, run_id, target=target, because=because)(connection)
                for statement in attention(tell or run_id, f"backup {run_id} is {because} ({target})"):
                    connection.execute(statement)

    def pin(self, run_id: str, note: str) -> None:
        """The run's backups are kept whatever retention says; an earlier pin is replaced."""
        row = {**to_row(Pin(note, datetime.now(UTC))), "run_id": run_id}
        self._write(
            insert(tables.pins).prefix_with("OR REPLACE").values(row), audit_step(Event.PINNED, run_id, note=note)
        )

    def unpin(self, run_id: str) -> None:
        """Retention decides again; nothing happens where there is no pin."""
        with self._writing() as connection:
            if connection.execute(delete(tables.pins).where(tables.pins.c.run_id == run_id)).rowcount:
                audit_step(Event.UNPINNED, run_id)(connection)

    def _change(
        self,
        run_id: str,
        target: str,
        values: dict[str, Any],
        event: Callable[[Connection], None],
        *,
        seen: Backup | None = None,
    ) -> bool:
        with self._writing() as connection:
            changed = _changed(connection, run_id, target, values, seen=seen)
            if changed:
                event(connection)
        return changed

    def backups_of(self, run_id: str) -> tuple[Backup, ...]:
        """What the run of exactly this id has left, removed or not, in its job's order."""
        table = tables.backups
        query = select(table).where(table.c.run_id == run_id).order_by(table.c.ordinal)
        return tuple(from_row(Backup, row) for row in self._read(query))

    def run_with_backup(
        self, selector: Selector, *, target: str | None = None, targets: Collection[str] | None = None
    ) -> RunDetails:
        """This machine's newest run of which a backup is there, without its samples: on that target, else on one of
        those `targets` (that can be read), else on any.

        `latest` is the same as `latest-good` here; `as-of=TIME` looks no further than that time.

        Raises:
            UsageError: there is none; or no job is named, and there are backups of several.
        """
        with self._reading() as connection:
            return with_backup(connection, selector, target=target, targets=targets)

    def runs_with_backup(
        self, job: str | None = None, *, targets: Collection[str] | None = None, broken_too: bool = False
    ) -> list[RunDetails]:
        """This machine's runs of which a backup is there, of one job and on one of these targets where they are named,
        newest first, without their samples; one that was found broken counts only when asked for.

        Nothing is read of runs of which nothing is left.
        """
        with self._reading() as connection:
            return details(connection, runs_with_backup(job, targets, broken_too=broken_too), samples=False)

    def newest_unproven(self, job: str | None = None) -> list[RunDetails]:
        """This machine's runs of which a backup is there, in the order to prove them in, without their samples.

        Those that no drill has proven, newest first; then the others, the oldest proof first.
        """
        found = self.runs_with_backup(job)
        proven = [(run.proven_at, run) for run in found if run.proven_at is not None]
        unproven = [run for run in found if run.proven_at is None]
        return unproven + [run for _, run in sorted(proven, key=itemgetter(0))]

    def on_target(self, job: str, target: str, names: Collection[str] = ()) -> dict[str, RunDetails]:
        """This machine's runs of the job that have a backup there, broken or not, and those that are named; by id.

        Their samples are left out, and so is every run whose backup is gone.
        """
        with self._reading() as connection:
            machine = identities.current(connection).name
            found = details(connection, _stored_or_named(machine, job, target, names), samples=False)
        return {run.run_id: run for run in found}

    def lost_on(self, job: str, target: str, *, gone: str) -> list[str]:
        """This machine's runs of the job whose backup there was removed, and was broken, or removed because it had
        `gone`; newest first.
        """
        table = tables.backups
        lost = (table.c.broken != "") | (table.c.removed_because == gone)
        was_there = select(table.c.run_id).where(table.c.removed_at.is_not(None), table.c.target == target, lost)
        return [row["run_id"] for row in self._read(our_newest(job).where(tables.runs.c.run_id.in_(was_there)))]

    def set_back(self, job: str, *, until: datetime) -> dict[str, datetime]:
        """This machine's runs that began, as the clock said, before one that was recorded earlier; each with a moment
        after the end of that. What a clock that was ahead has dated later than `until` tells nothing.
        """
        table = tables.runs.c
        recorded = our_newest(job).with_only_columns(table.run_id, table.started_at, table.ended_at).order_by(None)
        recorded = recorded.where(table.started_at <= until).order_by(literal_column("runs.rowid"))
        found: dict[str, datetime] = {}
        began = ended = datetime.min.replace(tzinfo=UTC)  # the newest before, as the clock said
        for row in self._read(recorded):
            if row["started_at"] < began:
                ended += timedelta(microseconds=1)
                found[row["run_id"]] = ended
            else:
                began = row["started_at"]
                ended = max(began, min(row["ended_at"] or began, until))
        return found


def _changed(
    connection: Connection, run_id: str, target: str, values: Mapping[str, Any], *, seen: Backup | None = None
) -> bool:
    """Whether the backup there has not been removed, and is as it was `seen`: then it has these values now."""
    table = tables.backups
    ours = (table.c.run_id == run_id) & (table.c.target == target) & table.c.removed_at.is_(None)
    if seen is not None:
        ours &= table.c.broken == seen.broken
    return connection.execute(update(table).where(ours).values(values)).rowcount > 0


def _last_good(connection: Connection, run_id: str, targets: Collection[str] | None) -> str | None:
    """Of this run's job, with a copy on one of these targets."""
    runs = tables.runs.c
    job = connection.execute(select(runs.job).where(runs.run_id == run_id)).scalar_one()
    good = runs_with_backup(job, targets).where(runs.status.in_(GOOD), runs.started_at <= datetime.now(UTC))
    return connection.execute(good.limit(1)).scalar()


def _stored_or_named(machine: str, job: str, target: str, names: Collection[str]) -> Select[str]:
    """A machine's runs of the job that have a backup on the target, broken or not, and those named; newest first."""
    table = tables.backups
    there = select(table.c.run_id).where(table.c.removed_at.is_(None), table.c.target == target)
    meant = tables.runs.c.run_id.in_(there) | tables.runs.c.run_id.in_(names)
    return newest_first(job).where(tables.runs.c.machine == machine, meant)
