"""What is told of a run, a drill or a dead run, and when it is no news.

Knows: which endings are alarms, what was wrong before, and the sentence for somebody who is woken by it.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from backupd.catalogue.endings import as_told
from backupd.catalogue.store import Catalogue
from backupd.notifications import Notifier
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.policy.failed_slots import is_failed
from backupd.report.words import duration, instant, size
from backupd.vocabulary.errors import BackupdError, Busy, Cancelled, ExitStatus, Terminated, Undecided
from backupd.vocabulary.escaping import some
from backupd.vocabulary.records import DIED, FINISHED_LATER, GOOD, Finding, Level, RunDetails, RunError, RunStatus
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, SlotState

if TYPE_CHECKING:  # what a run that is good does without
    from backupd.policy.retries import RetryPlan

log = logging.getLogger(__name__)

_NO_ANSWER = {RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.BUSY}  # whether backups work is not known from these
_NAMED = 5  # backups, in a sentence
_LOOK_BACK = 20  # runs, to find one that has an answer


def started(job: str, run_id: str) -> Notice:
    """A run has started."""
    return Notice(NoticeKind.STARTED, job, datetime.now(UTC), run_id, f"run {run_id} of job {job} has started")


def ended(catalogue: Catalogue, run: RunDetails) -> Notice:
    """A run has a backup: it is good, needs attention, or is the first good one after something was wrong."""
    at, detail = run.ended_at or datetime.now(UTC), _detail(run)
    stored = ", ".join(f"{size(backup.bytes_stored)} on {backup.target}" for backup in run.backups)
    took = "" if run.seconds is None else f", in {duration(run.seconds)}"
    good = f"job {run.job} has a good backup, run {run.run_id}: {stored}{took}"
    if run.status is RunStatus.ATTENTION:
        text = f"{good}; but it needs attention: {'; '.join(run.attention)}"
        return Notice(NoticeKind.ATTENTION, run.job, at, run.run_id, text, detail, backed_up=True)
    wrong = _wrong_before(catalogue, run)
    if wrong:
        text = f"{good}; before it {wrong}"
        return Notice(NoticeKind.RECOVERED, run.job, at, run.run_id, text, detail, backed_up=True)
    return Notice(NoticeKind.SUCCEEDED, run.job, at, run.run_id, good, detail, backed_up=True)


def retrying(
    job: str, run_id: str, told: RunError, plan: "RetryPlan", at: datetime, *, answers: Mapping[str, str]
) -> Notice:
    """Why there is none yet, and when the next try starts."""
    again = f"next try {at:%H:%M} UTC (try {plan.number + 1} of {plan.tries})"
    text = f"the backup of job {job} failed: {_one_line(told.message)}; {again}; {_standing(told, 'backup')}"
    detail = {**_detail_of_error(run_id, told), **answers}
    return Notice(NoticeKind.RETRYING, job, datetime.now(UTC), run_id, text, detail)


def failed(
    job: str,
    run_id: str,
    error: BaseException,
    *,
    answers: Callable[[RunError], Mapping[str, str]],
    what: str = "backup",
    plan: "RetryPlan | None" = None,
) -> Notice | None:
    """Why there is none, and how things stand now; None where that is no alarm. A drill's subject begins with `drill`.

    `what` is a backup or a drill; of anything else that a schedule starts, the daemon tells. Nobody is woken where a
    person has ended it, nor where it was busy or the system has ended it, unless a slot hangs on it (`plan`): then
    there is no backup of that.
    """
    if type(error) is Cancelled or not isinstance(error, Exception):
        return None
    if isinstance(error, Busy | Terminated) and plan is None:
        return None
    told = as_told(error)
    subject = run_id if what == "backup" else f"{what} {run_id}"
    became = "was undecided" if isinstance(error, Undecided) else "failed"
    text = f"the {what} of job {job} {became}: {_one_line(told.message)}; {_standing(told, what)}{_last_word(plan)}"
    detail = {**_detail_of_error(run_id, told), **answers(told)}
    return Notice(NoticeKind.FAILED, job, datetime.now(UTC), subject, text, detail)


def drill_took_long(job: str, run_id: str, long: str) -> Notice:
    """A backup is proven, and a restore of it takes longer than its job allows."""
    text = f"a drill of job {job} proved run {run_id}, and took {long}"
    detail = {"run": run_id, "more": f"backupd show {run_id}"}
    return Notice(NoticeKind.ATTENTION, job, datetime.now(UTC), f"drill {run_id}", text, detail)


def attend(catalogue: Catalogue, notifier: Notifier, run_id: str, text: str, *, found_by: str) -> None:
    """Keep with a good run that has ended what a person should look at, and tell of it: nothing else will.

    `found_by` is a noun: what was done with the backup.
    """
    catalogue.attention(run_id, text)
    job = catalogue.run(run_id).job
    said = f"run {run_id} of job {job} needs attention after its {found_by}: {_one_line(text)}"
    detail = {"run": run_id, "more": f"backupd show {run_id}"}
    notifier.tell(Notice(NoticeKind.ATTENTION, job, datetime.now(UTC), f"{found_by} {run_id}", said, detail))


def backups_vanished(job: str, vanished: Sequence[tuple[str, str]]) -> Notice:
    """Backups that somebody else has removed, each a target and a run: a pruning has found them missing."""
    at = datetime.now(UTC)
    said = some([f"backup {run_id} is no longer on target {target}" for target, run_id in vanished], _NAMED, "; ")
    text = f"job {job} has lost backups that backupd has not removed: {said}"
    return Notice(NoticeKind.ATTENTION, job, at, f"prune {at.isoformat()}", text, {"more": f"backupd history {job}"})


def check_refused(job: str, findings: Iterable[Finding], *, answers: Mapping[str, str]) -> Notice:
    """What would stop the next backup of the job, found while there is none."""
    at = datetime.now(UTC)
    found = [finding for finding in findings if finding.level is Level.REFUSED]
    said = "; ".join(f"{finding.name}: {_one_line(finding.detail)}" for finding in found)
    text = f"the next backup of job {job} would be refused: {said}"
    detail = {**_detail_of_check(job, found), **answers}
    return Notice(NoticeKind.FAILED, job, at, f"check {at.isoformat()}", text, detail)


def check_warned(job: str, findings: Iterable[Finding]) -> Notice | None:
    """For what the next backup of the job would need attention, found while there is time; None where for nothing."""
    at = datetime.now(UTC)
    found = [finding for finding in findings if finding.attention]
    if not found:
        return None
    said = "; ".join(f"{finding.name}: {_one_line(finding.detail)}" for finding in found)
    text = f"the next backup of job {job} would need attention: {said}"
    return Notice(NoticeKind.ATTENTION, job, at, f"check {at.isoformat()}", text, _detail_of_check(job, found))


def _detail_of_check(job: str, findings: Iterable[Finding]) -> dict[str, str]:
    hints = {f"hint for {finding.name}": finding.hint for finding in findings if finding.hint}
    return {**hints, "more": f"backupd check {job}"}


@contextmanager
def failure_told(
    notifier: Notifier,
    job: str,
    run_id: str,
    *,
    answers: Callable[[RunError], Mapping[str, str]],
    what: str = "backup",
) -> Iterator[None]:
    """An error that ends the block is told, and goes on."""
    try:
        yield
    except BaseException as error:
        if (notice := failed(job, run_id, error, what=what, answers=answers)) is not None:
            notifier.tell(notice)
        raise


@contextmanager
def outcome_told(
    notifier: Notifier,
    catalogue: Catalogue,
    job: str,
    run_id: str,
    *,
    answers: FailureAnswers,
    plan: Callable[[BaseException], "RetryPlan | None"] = lambda _: None,
) -> Iterator[Callable[[Sequence[str]], None]]:
    """What becomes of the run in the block is told, by its row where that is good: an error may come after a backup.

    A failure that is tried again is told as such: `plan` says so once the run has released everything. The block is
    given what to call when the run has started, with the dead runs that were recovered before it.
    """
    dead: list[str] = []

    def begun(recovered: Sequence[str]) -> None:
        dead.extend(recovered)
        notifier.tell(started(job, run_id))

    try:
        yield begun
    except BaseException as error:
        tell_of_the_dead(notifier, catalogue, dead, answers=answers)
        if (notice := _good(catalogue, run_id)) is None:
            planned = plan(error)
            found = partial(answers.of, job, run_id, catalogue=catalogue, plan=planned)
            notice = _bad(job, run_id, error, planned, found)
        if notice is not None:
            notifier.tell(notice)
        raise
    tell_of_the_dead(notifier, catalogue, dead, answers=answers)
    notifier.tell(ended(catalogue, catalogue.run(run_id)))


def _bad(
    job: str,
    run_id: str,
    error: BaseException,
    plan: "RetryPlan | None",
    answers: Callable[[RunError], Mapping[str, str]],
) -> Notice | None:
    if plan is not None and plan.next_at is not None:
        log.warning("next try at %s: try %d of %d", instant(plan.next_at), plan.number + 1, plan.tries)
        told = as_told(error)
        return retrying(job, run_id, told, plan, plan.next_at, answers=answers(told))
    return failed(job, run_id, error, plan=plan, answers=answers)


def _good(catalogue: Catalogue, run_id: str) -> Notice | None:
    """None where this run of ours has no backup; another may have that id, and be why ours was refused."""
    with contextlib.suppress(BackupdError):
        run = catalogue.run(run_id)
        if run.run_id == run_id and run.pid == os.getpid() and run.status in GOOD:
            return ended(catalogue, run)
    return None


def tell_of_the_dead(
    notifier: Notifier, catalogue: Catalogue, run_ids: Iterable[str], *, answers: FailureAnswers
) -> None:
    """Of these runs that were recovered, each whose process died is told of, once whoever looks; others are not. Where
    its copy is a backup all the same, it is told as one that needs attention, also where the run itself had told of its
    failure.

    Nor is what is no job's: a person began that bench, or that probe of a volume, and no backup hangs on it.
    """
    for run_id in run_ids:
        try:
            run = catalogue.run(run_id)
        except BackupdError:  # known by its tag only: whose it was went with its catalogue
            continue
        if run.run_id != run_id or not run.job:
            continue
        if run.error is not None and run.error.code == DIED:
            if catalogue.first_told(NoticeKind.FAILED, run.job, run_id):
                found = answers.of(run.job, run.run_id, run.error, catalogue=catalogue)
                notifier.tell(_death(run, run.error, found))
        elif any(text.startswith(FINISHED_LATER) for text in run.attention) and catalogue.first_told(
            NoticeKind.ATTENTION, run.job, run_id
        ):
            notifier.tell(ended(catalogue, run))


def _death(run: RunDetails, error: RunError, answers: Mapping[str, str]) -> Notice:
    text = f"run {run.run_id} of job {run.job}, started {instant(run.started_at)}: {error.message}; {error.hint}"
    at = run.ended_at or datetime.now(UTC)
    return Notice(NoticeKind.FAILED, run.job, at, run.run_id, text, {**_detail_of_error(run.run_id, error), **answers})


def _wrong_before(catalogue: Catalogue, run: RunDetails) -> str:
    """In words; empty where the last backup before it was good, or there was none, and none was missed since.

    Earlier tries in the same slot do not count: nobody was told that they had failed for good.
    """
    slot = catalogue.slot_of(run.run_id, run.job)
    tried = () if slot is None else slot.tried
    at = run.ended_at or datetime.now(UTC)
    earlier = catalogue.runs(job=run.job, until=run.started_at, ours=True, limit=_LOOK_BACK)
    answered = (other for other in earlier if other.status not in _NO_ANSWER)
    last = next((other for other in answered if other.run_id not in tried), None)
    if last is not None and last.status in {RunStatus.FAILED, RunStatus.REFUSED}:
        return f"run {last.run_id} had none"
    good_at = None if last is None else last.ended_at
    for ended in catalogue.slots(job=run.job, activity=Activity.BACKUP, state=SlotState.ENDED, until=at, limit=1):
        if is_failed(ended, good_at=good_at):
            return f"that of {instant(ended.due_at)} failed"
    missed = catalogue.slots(
        job=run.job,
        activity=Activity.BACKUP,
        state=SlotState.MISSED,
        since=last.started_at if last is not None else None,
        until=run.started_at,
        limit=1,
    )
    return f"that of {instant(missed[0].due_at)} was missed" if missed else ""


def _last_word(plan: "RetryPlan | None") -> str:
    """Why the first try failed, which one this was, and why there is no other, where the job has several."""
    if plan is None or plan.tries == 1:
        return ""
    first = f"; the first try failed: {plan.first_cause}" if plan.first_cause else ""
    why = f"it is not tried again: {plan.reason}" if plan.reason else f"it was try {plan.number} of {plan.tries}"
    return f"{first}; {why}"


def _standing(error: RunError, what: str) -> str:
    """What became of the host."""
    if error.exit_status == ExitStatus.REFUSED:
        return "nothing was touched"
    if error.exit_status == ExitStatus.CLEANUP or "clean-up incomplete" in error.message:
        return "the run left something on the host: `backupd recover` cleans it up"
    return "the backup itself is unchanged" if what != "backup" else "the run left nothing on the host"


def _detail(run: RunDetails) -> dict[str, str]:
    held = {"lock held": duration(run.lock.hold_seconds)} if run.lock is not None else {}
    return {"run": run.run_id, **held, "more": f"backupd show {run.run_id}"}


def _detail_of_error(run_id: str, error: RunError) -> dict[str, str]:
    return {"run": run_id, **error_detail(error), "more": f"backupd show {run_id}"}


def error_detail(error: RunError) -> dict[str, str]:
    """What the detail of any notice says of an error."""
    hint = {"hint": error.hint} if error.hint else {}
    status = f"{error.exit_status} ({ExitStatus(error.exit_status).meaning})"
    return {**hint, "exit status": status, "error": error.code}


def _one_line(text: str) -> str:
    return "; ".join(filter(None, map(str.strip, text.splitlines())))
