"""What somebody asks who is woken by a failure: is there another copy, what is tried next, what to type now.

Knows: where each answer is found. None is ever the reason of another failure: what cannot be found out is said to be
unknown.
"""

import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.host.run_log import RunLogs
from backupd.report.words import age, instant
from backupd.vocabulary.errors import BackupdError, ExitStatus
from backupd.vocabulary.records import GOOD, RunError
from backupd.vocabulary.schedule import Activity, Slot
from backupd.vocabulary.storage import Backup

if TYPE_CHECKING:  # what a run that is good does without
    from backupd.policy.retries import RetryPlan

LOG_LINES = 20
LONGEST_LINE = 400  # characters: a program may have said any number
_LOOK_BACK = 100  # good runs, to find one whose copy is still there


@dataclass(frozen=True, slots=True)
class FailureAnswers:
    """Where the answers are found, on one machine.

    Each method gives them by question. Without a catalogue, what it would tell is unknown. Words of strangers are not
    escaped here.
    """

    logs: RunLogs
    pages: str  # the address at which people see this machine's pages; empty: nobody has said
    next_due: Callable[[str, Activity], datetime | None]  # by a job's schedule; may raise ConfigurationError
    targets: Collection[str] | None = None  # that can be read; None: any may be

    def of(
        self, job: str, run_id: str, error: RunError, *, catalogue: Catalogue | None, plan: "RetryPlan | None" = None
    ) -> dict[str, str]:
        """Of a backup."""
        left = error.exit_status == ExitStatus.CLEANUP or "clean-up incomplete" in error.message
        planned = plan is not None and plan.next_at is not None
        commands = [
            *(["backupd recover  # clean up what the run left on this host"] if left else []),
            *_commands_of_backup(job, run_id, again=not planned),
        ]
        return self._answers(job, Activity.BACKUP, commands, catalogue, run_id=run_id, log_of=run_id, plan=plan)

    def of_drill(self, job: str, run_id: str, error: RunError, *, catalogue: Catalogue | None) -> dict[str, str]:
        """Of a drill of this run's backup, by whichever host."""
        commands = [f"backupd show {run_id}  # what was found, and what was expected"]
        if error.exit_status == ExitStatus.UNDECIDED:
            commands.append(f"backupd drill {run_id}  # once it has more time, memory or room: prove it again")
        else:
            commands.append(f"backupd verify {run_id}  # whether each copy is still what was stored")
            commands.append(f"backupd run {shlex.quote(job)}  # take another backup now")
        return self._answers(job, Activity.DRILL, commands, catalogue, run_id=run_id)

    def of_check(self, job: str, *, catalogue: Catalogue | None) -> dict[str, str]:
        """Of a check of what the next backup needs."""
        commands = [f"backupd check {shlex.quote(job)}  # once it is put right: look again"]
        return self._answers(job, Activity.BACKUP, commands, catalogue)

    def of_slot(self, slot: Slot, *, catalogue: Catalogue | None) -> dict[str, str]:
        """Of what was due by schedule, was missed or failed, and has told nobody itself."""
        named, run_id = shlex.quote(slot.job), _recorded(catalogue, slot.run_id)
        if slot.activity is Activity.BACKUP:
            commands = _commands_of_backup(slot.job, run_id)
        else:
            job = named if slot.activity in (Activity.PROBE, Activity.PRUNE, Activity.CHECK) else f"--job {named}"
            commands = [
                "backupd schedule list  # what was due, and what became of it",
                f"backupd {slot.activity} {job}  # do it now, and see what it says",
            ]
        return self._answers(slot.job, slot.activity, commands, catalogue, run_id=run_id, log_of=run_id)

    def _answers(
        self,
        job: str,
        activity: Activity,
        commands: Sequence[str],
        catalogue: Catalogue | None,
        *,
        run_id: str = "",
        log_of: str = "",
        plan: "RetryPlan | None" = None,
    ) -> dict[str, str]:
        now = datetime.now(UTC)
        lines = [line[:LONGEST_LINE] for line in self.logs.tail(log_of, lines=LOG_LINES)] if log_of else []
        page = f"{self.pages}/runs/{run_id}" if run_id else f"{self.pages}/schedule"
        return {
            "another good copy": _found_out(lambda: self._newest_copy(_read(catalogue), job, now, but=run_id)),
            "next try": _found_out(lambda: self._next_try(_read(catalogue), job, activity, plan)),
            "type now": "\n".join(commands),
            **({"page": page} if self.pages else {}),
            **({f"the last {len(lines)} lines of its log": "\n".join(lines)} if lines else {}),
        }

    def _newest_copy(self, catalogue: Catalogue, job: str, now: datetime, *, but: str) -> str:
        """By the catalogue; no target is asked. `but` is the run that it is about."""
        runs = catalogue.runs(job=job, until=now, statuses=GOOD, ours=True, limit=_LOOK_BACK)
        others = [run for run in runs if run.run_id != but]
        for run in others:
            if there := [_copy(backup, now) for backup in run.backups if backup.is_there and self._is_read(backup)]:
                old = age((now - run.started_at).total_seconds())
                return f"yes, {old} old: run {run.run_id} on {', '.join(there)}"
        if len(runs) == _LOOK_BACK:
            return f"NO: none of {len(runs)} runs"
        return f"NO: no {'good' if len(others) == len(runs) else 'other good'} backup of this job is left"

    def _is_read(self, backup: Backup) -> bool:
        return self.targets is None or backup.target in self.targets

    def _next_try(self, catalogue: Catalogue, job: str, activity: Activity, plan: "RetryPlan | None") -> str:
        if plan is not None and plan.next_at is not None:
            return f"{instant(plan.next_at)} (try {plan.number + 1} of {plan.tries})"
        if job in catalogue.pauses():
            return f"none: the job is paused; backupd schedule resume {shlex.quote(job)}"
        due = self.next_due(job, activity)
        if due is None:
            what = "" if activity is Activity.BACKUP else f" for a {activity}"
            return f"none: backupd has no schedule for this job{what}"
        return f"the {activity} of {instant(due)}"


def answers_of_proving(machine: str, job: str) -> dict[str, str]:
    """Of a proof host's work; `machine` and `job` are whose copy it is about, where it is about one.

    A proof host keeps no record of backups: what else there is, the database host knows.
    """
    where = f"machine {machine} knows" if machine else "the database hosts know"
    commands = [
        "journalctl --unit backupd-prove.service --lines 50  # what became of each copy",
        "backupd prove  # once the cause is gone: drill the copy that needs it most",
    ]
    return {
        "another good copy": f"{where}: `backupd status{f' {shlex.quote(job)}' if job else ''}` there",
        "next try": "with the next `backupd prove`: systemctl list-timers backupd-prove.timer, or cron",
        "type now": "\n".join(commands),
    }


def _read(catalogue: Catalogue | None) -> Catalogue:
    if catalogue is None:
        raise BackupdError("the catalogue cannot be used")
    return catalogue


def _recorded(catalogue: Catalogue | None, run_id: str) -> str:
    """The id of a run that there is; empty where it never began."""
    with suppress(BackupdError):
        if run_id and _read(catalogue).run(run_id).run_id == run_id:
            return run_id
    return ""


def _found_out(find: Callable[[], str]) -> str:
    try:
        return find()
    except BackupdError as error:
        return f"unknown: {error.message}"


def _copy(backup: Backup, now: datetime) -> str:
    if backup.verified_at is None:
        return f"{backup.target} (never read back)"
    return f"{backup.target} (read back {age((now - backup.verified_at).total_seconds())} ago)"


def _commands_of_backup(job: str, run_id: str, *, again: bool = True) -> list[str]:
    """What to type, in this order; nothing that would run beside a try that is planned."""
    named = shlex.quote(job)
    return [
        *([f"backupd log {run_id}  # the run's full log"] if run_id else []),
        f"backupd check {named}  # what would stop the next one, each with a hint",
        *([f"backupd run {named}  # once the cause is gone: take the backup now"] if again else []),
    ]
