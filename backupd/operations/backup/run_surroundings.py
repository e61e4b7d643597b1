"""A run with all that is around it: its log, who is told, the figures that are left, and retention after it.

Knows: in which order these begin and end.
"""

import logging
import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig
from backupd.host.signals import cancellable
from backupd.notifications import Notifier
from backupd.operations.backup.phases import BackupTelling
from backupd.operations.backup.run import run_backup
from backupd.operations.ownership import ownership_of
from backupd.operations.tools import Tools
from backupd.operations.upkeep import notices
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.operations.upkeep.proofs_read import read_proofs
from backupd.operations.upkeep.prune import after_run
from backupd.vocabulary.errors import BackupdError, Cancelled, UsageError
from backupd.vocabulary.records import GOOD, RunDetails
from backupd.vocabulary.schedule import SlotState

if TYPE_CHECKING:  # what a run that is good does without
    from backupd.policy.retries import RetryPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run has around it. Each is asked for when its turn comes, and once."""

    catalogue: Callable[[], Catalogue]  # opened
    answers: FailureAnswers  # and the logs, of which it shows the end
    figures: Callable[[Catalogue], AbstractContextManager[None]]  # left when the run has ended
    notifier: Notifier
    tools: Callable[[Catalogue], Tools]
    telling: Callable[[], AbstractContextManager[BackupTelling]]
    failed: Callable[[Catalogue], None]  # told while the record of a run that failed can still be read
    configured: Collection[str]  # targets that can be restored from
    plan_retry: Callable[[Catalogue, BaseException], "RetryPlan | None"] = lambda _catalogue, _error: None
    proof_keys: frozenset[str] = frozenset()  # of the proof hosts that are believed


def run_job(job: JobConfig, around: Surroundings, *, run_id: str, max_rate: int | None = None) -> RunDetails:
    """One backup, logged, told of, and followed by the job's retention; the run's record.

    `max_rate` is as `run_backup` has it.

    A stop signal that comes once the backup is complete ends what follows it, and the run is as good as it was.

    Raises:
        BackupdError: why there is none, or why a person should look; it was told.
    """
    unopened = partial(around.answers.of, job.name, run_id, catalogue=None)
    with notices.failure_told(around.notifier, job.name, run_id, answers=unopened):
        opened = around.catalogue()
    with (
        around.answers.logs.kept(run_id),
        opened as catalogue,
        around.figures(catalogue),
        notices.outcome_told(
            *(around.notifier, catalogue, job.name, run_id),
            answers=around.answers,
            plan=lambda error: around.plan_retry(catalogue, error),
        ) as begun,
        cancellable(),
    ):
        _require_awaited(catalogue, run_id, job.name)  # no run of ours yet: one of that id may be an earlier one
        try:
            tools = around.tools(catalogue)
            with around.telling() as telling:
                told = replace(telling, begun=begun)
                run_backup(job, tools, catalogue, run_id=run_id, telling=told, max_rate=max_rate)
            if job.binlog is not None:
                catalogue.archive_awaited(job.name, at=datetime.now(UTC))
            read_proofs(
                *(job.name, tools.targets, catalogue, around.proof_keys, around.notifier),
                answers=around.answers,
                within_seconds=job.restore_within_seconds,
            )
            after_run(
                *(job, run_id, tools.targets, catalogue),
                ownership=ownership_of(catalogue, tools),
                configured=around.configured,
            )
        except Cancelled as late:
            if not _is_good(catalogue, run_id):
                around.failed(catalogue)
                raise
            log.warning("%s once the backup was complete; what follows a backup is left to the next run", late.message)
        except BackupdError:
            around.failed(catalogue)
            raise
        return catalogue.run(run_id)


def _require_awaited(catalogue: Catalogue, run_id: str, job: str) -> None:
    """Whoever asked for this run still waits for it: its unit may have waited for others, or for systemd, for hours.

    Raises:
        Cancelled: a control host has cancelled it, or was told that it could not be started; or so was the daemon.
    """
    slot = catalogue.slot_of(run_id, job)
    if slot is not None and slot.state is not SlotState.STARTED:
        raise Cancelled(
            f"run {run_id} does not begin: the slot that it was started in has ended",
            hint=f"nothing was touched; `backupd run {job}` makes a backup now",
        )
    start = catalogue.agent_start(run_id)
    if start is not None and (start.cancelled_at is not None or start.error is not None):
        why = "cancelled it" if start.error is None else "was told that it could not be started"
        raise Cancelled(
            f"run {run_id} does not begin: the control host {why}", hint="nothing was touched; ask for another run"
        )


def _is_good(catalogue: Catalogue, run_id: str) -> bool:
    with suppress(UsageError):  # it was ended before it had a row
        run = catalogue.run(run_id)
        return run.pid == os.getpid() and run.status in GOOD  # another may have that id
    return False
