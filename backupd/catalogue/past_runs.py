"""What earlier runs say of the next one: how long its copy takes, what its snapshot fills, where it was taken.

Knows: which of a job's runs tell something; one that failed may. One that a clock which was ahead has dated later than
now tells nothing until then: what came after it is newer.
"""

from datetime import UTC, datetime

from sqlalchemy import Select, func, select

from backupd.catalogue import tables, tunings
from backupd.catalogue.details import our_newest
from backupd.catalogue.file import CatalogueFile
from backupd.vocabulary.escaping import encodable
from backupd.vocabulary.gauges import Tuning
from backupd.vocabulary.penalty import GateOutcome, Reason, SnapshotLife
from backupd.vocabulary.records import GOOD, Phase
from backupd.vocabulary.storage import LastCopy

_LIVES = 10  # of a job's past runs that say what the next one fills
_TELLING_SECONDS = 10.0  # after which a copy that failed has shown its rate


class PastRuns(CatalogueFile):
    """This machine's runs of a job, as far as the next one can learn from them."""

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
            _past(job)
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
            _past(job)
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

    def has_runs_of(self, job: str) -> bool:
        """Whether there is any of this job: a backup or a probe, of whichever machine."""
        return bool(self._read(select(tables.runs.c.run_id).where(tables.runs.c.job == encodable(job)).limit(1)))

    def tunings(self) -> dict[str, Tuning]:
        """What this machine's probes found best for the COW area: the newest of each volume, by the volume's uuid."""
        with self._reading() as connection:
            return tunings.newest(connection)

    def last_volume_group(self, job: str) -> str | None:
        """In which volume group the job's newest snapshot was; None where there was none yet."""
        volume = self.last_volume(job)
        return volume.partition("/")[0] if volume is not None else None

    def last_volume(self, job: str) -> str | None:
        """Of which volume (`VG/LV`) the job's newest snapshot was; None where there was none yet."""
        table = tables.snapshots
        query = _past(job).join(table, table.c.run_id == tables.runs.c.run_id)
        for row in self._read(query.with_only_columns(table.c.volume).limit(1)):
            return str(row["volume"])
        return None

    def last_stored_bytes(self, job: str) -> int | None:
        """The size of the job's newest good backup on its target, in bytes; None where there is none."""
        table = tables.backups
        good = _past(job).where(tables.runs.c.status.in_(GOOD)).limit(1).scalar_subquery()
        sizes = [row["bytes_stored"] for row in self._read(select(table.c.bytes_stored).where(table.c.run_id == good))]
        return max(sizes, default=None)


def _past(job: str) -> Select[str]:
    return our_newest(job).where(tables.runs.c.started_at <= datetime.now(UTC))
