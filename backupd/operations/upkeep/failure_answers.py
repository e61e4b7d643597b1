"""What somebody asks who is woken by a failed backup: is there another copy, what is tried next, what to type now.

Knows: where each answer is found. None is ever the reason of another failure: what cannot be found out is said to be
unknown.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.host.run_log import RunLogs
from backupd.report.words import age, instant
from backupd.vocabulary.errors import BackupdError, ExitStatus
from backupd.vocabulary.records import GOOD, RunError
from backupd.vocabulary.storage import Backup

if TYPE_CHECKING:  # what a run that is good does without
    from backupd.policy.retries import RetryPlan

_LOG_LINES = 20
_LONGEST_LINE = 400  # characters: a program may have said any number
_LOOK_BACK = 100  # good runs, to find one whose copy is still there


@dataclass(frozen=True, slots=True)
class FailureAnswers:
    """Where the answers are found, on one machine."""

    logs: RunLogs
    pages: str  # the address at which people see this machine's pages; empty: nobody has said
    next_due: Callable[[str], datetime | None]  # a job's next scheduled backup; may raise ConfigurationError

    def of(
        self, job: str, run_id: str, error: RunError, *, catalogue: Catalogue | None, plan: "RetryPlan | None" = None
    ) -> dict[str, str]:
        """By question. Without a catalogue, what it would tell is unknown. Words of strangers are not escaped here."""
        now = datetime.now(UTC)
        planned = plan is not None and plan.next_at is not None
        lines = [line[:_LONGEST_LINE] for line in self.logs.tail(run_id, lines=_LOG_LINES)]
        return {
            "another good copy": _found_out(lambda: _newest_copy(_read(catalogue), job, now)),
            "next try": _found_out(lambda: self._next_try(_read(catalogue), job, plan)),
            "type now": "\n".join(_commands(job, run_id, error, planned=planned)),
            **({"page": f"{self.pages}/runs/{run_id}"} if self.pages else {}),
            **({f"the last {len(lines)} lines of its log": "\n".join(lines)} if lines else {}),
        }

    def _next_try(self, catalogue: Catalogue, job: str, plan: "RetryPlan | None") -> str:
        if plan is not None and plan.next_at is not None:
            return f"{instant(plan.next_at)} (try {plan.number + 1} of {plan.tries})"
        if job in catalogue.pauses():
            return f"none: the job is paused; backupd schedule resume {shlex.quote(job)}"
        due = self.next_due(job)
        return "none: the job has no schedule of backupd's" if due is None else f"the backup of {instant(due)}"


def _read(catalogue: Catalogue | None) -> Catalogue:
    if catalogue is None:
        raise BackupdError("the catalogue cannot be used")
    return catalogue


def _found_out(find: Callable[[], str]) -> str:
    try:
        return find()
    except BackupdError as error:
        return f"unknown: {error.message}"


def _newest_copy(catalogue: Catalogue, job: str, now: datetime) -> str:
    """By the catalogue; no target is asked."""
    runs = catalogue.runs(job=job, until=now, statuses=GOOD, ours=True, limit=_LOOK_BACK)
    for run in runs:
        if there := [_copy(backup, now) for backup in run.backups if backup.is_there]:
            old = age((now - run.started_at).total_seconds())
            return f"yes, {old} old: run {run.run_id} on {', '.join(there)}"
    return "NO: no good backup of this job is left" if len(runs) < _LOOK_BACK else f"NO: none of {len(runs)} runs"


def _copy(backup: Backup, now: datetime) -> str:
    if backup.verified_at is None:
        return f"{backup.target} (never read back)"
    return f"{backup.target} (read back {age((now - backup.verified_at).total_seconds())} ago)"


def _commands(job: str, run_id: str, error: RunError, *, planned: bool) -> list[str]:
    """What to type, in this order; nothing that would run beside a try that is planned."""
    named, left = shlex.quote(job), error.exit_status == ExitStatus.CLEANUP or "clean-up incomplete" in error.message
    again = [] if planned else [f"backupd run {named}  # once the cause is gone: take the backup now"]
    return [
        *(["backupd recover  # clean up what the run left on this host"] if left else []),
        f"backupd log {run_id}  # all that the run has said",
        f"backupd check {named}  # what would stop the next one, each with a hint",
        *again,
    ]
