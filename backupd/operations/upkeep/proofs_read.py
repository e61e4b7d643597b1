"""What proof hosts have found out about a job's backups, as this machine learns it from its targets.

Knows: that a failure is told as that of a drill here is. Removes nothing, whatever a proof says.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from backupd.catalogue.store import Catalogue
from backupd.notifications import Notifier
from backupd.operations.restore.proofs import take_in_proofs
from backupd.operations.upkeep import notices
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.report.words import too_long
from backupd.targets import BackupSource, Target
from backupd.vocabulary.errors import TargetError, VerificationError
from backupd.vocabulary.records import Drill, RunDetails

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProofsRead:
    """What became of it."""

    taken: int  # results that are new
    errors: tuple[TargetError, ...] = ()  # why a target was left to the next time


def read_proofs(
    job: str,
    targets: Sequence[Target],
    catalogue: Catalogue,
    keys: frozenset[str],
    notifier: Notifier,
    *,
    answers: FailureAnswers,
    within_seconds: float | None = None,
    now: datetime | None = None,
) -> ProofsRead:
    """Every proof on these targets that one of the keys has signed is in the catalogue; new failures are told, and
    drills that took longer than `within_seconds`.

    A target that cannot be read is left to the next time: whoever works with it tells of that. Nothing is read where
    no proof host is trusted.

    Raises:
        CatalogueError: it cannot be read or written.
    """
    taken, errors = 0, []
    for target in targets if keys else ():
        try:
            for run in catalogue.on_target(job, target.name).values():
                trust = catalogue.trust(run.machine, run.backup_on(target.name))
                source = BackupSource(target, job, run.run_id, trust)
                for drill in take_in_proofs(source, run, catalogue, keys, now=now or datetime.now(UTC)):
                    taken += 1
                    if drill.ok and (long := too_long(drill.seconds, within_seconds)):
                        catalogue.attention(run.run_id, f"a proof host's drill took {long}")
                        notifier.tell(notices.drill_took_long(run.job, run.run_id, long))
                    _tell(run, target, drill, catalogue, notifier, answers)
        except TargetError as error:
            log.warning("the proofs on target %s were not read: %s", target.name, error.message)
            errors.append(error)
    return ProofsRead(taken, tuple(errors))


def _tell(
    run: RunDetails, target: Target, drill: Drill, catalogue: Catalogue, notifier: Notifier, answers: FailureAnswers
) -> None:
    if not drill.failed:
        return
    names = ", ".join(check.name for check in drill.checks if not check.ok)
    text = f"a proof host's drill of the copy on target {target.name} failed: {names}"
    catalogue.attention(run.run_id, text)
    what = "take a new backup"
    if drill.only_own_checks_failed:
        what = "the backup restores, but its data is not what the proof host's own checks expect: look at the data"
    error = VerificationError(f"run {run.run_id}: {text}", hint=f"see `backupd show {run.run_id}`; {what}")
    found = partial(answers.of_drill, run.job, run.run_id, catalogue=catalogue)
    if (notice := notices.failed(run.job, run.run_id, error, answers=found, what="drill")) is not None:
        notifier.tell(notice)
