"""Whether a backup that failed is tried again, and when.

Knows: which causes pass by themselves; that a try must be able to start within what its slot allows. A try is a run of
its own: nothing is tried again within one here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backupd.policy.blackouts import next_start
from backupd.vocabulary.errors import (
    Busy,
    GroupBusy,
    HostExhausted,
    LockNotGranted,
    NoTargetAnswers,
    TargetAway,
    Terminated,
)
from backupd.vocabulary.schedule import Blackout
from backupd.vocabulary.units import format_duration

_PASSING = (Busy, GroupBusy, HostExhausted, LockNotGranted, TargetAway, NoTargetAnswers, Terminated)
_PUNCTUAL = timedelta(minutes=1)  # a daemon that looks every half a minute has kept the time


def passes(error: BaseException) -> bool:
    """Whether the same backup may well succeed a little later, although nobody has done anything.

    | exit status | error | passes |
    |---|---|---|
    | 4 | `Busy`: another process holds what this needs, such as the job or the volume group | yes |
    | 5 | `NoTargetAnswers`: every target is away, found before anything was touched | yes |
    | 5 | `Refused`, `NotOurs`: somebody has to change something | no |
    | 6 | `LockNotGranted`: statements of others were in the way | yes |
    | 6 | `ServerError`, `LockLost`: unknown, or wrong for longer | no |
    | 14 | `HostExhausted`: this host had no memory, process or descriptor left | yes |
    | 14 | `KeyUnreadable`, `NeverStarted`, `Undecided`: of a drill or restore, not of a backup | no |
    | 6 | `ScrubFailed`: a person's SQL, and never of a backup | no |
    | 7 | `GroupBusy`: another LVM command had the volume group | yes |
    | 7 | `SnapshotError`, `SnapshotVoid`, `GaveUp`, `AbortedImpact`: it would cost the server the same again | no |
    | 8 | `TargetAway`: no target was left, and the first that was lost did not answer | yes |
    | 8 | `TargetError`, `NoRoom`, `AlreadyThere`, `SpoolError`: it answered, and said no | no |
    | 9 | `VerificationError` and its kinds: damaged data is looked into, not written again | no |
    | 10 | `CleanupIncomplete`: something is left on the host | no |
    | 11 | `Cancelled`: a person wanted that | no |
    | 15 | `Terminated`: the system ended it, as a reboot does | yes |
    | 2 | `OutputError`: of a command that prints, and the backup is good | no |
    | 2 | `NoKey`: of a copy, and a person has to bring the key | no |
    | 2 | `NotUnderstood`: of a request to an agent, and never of a backup | no |
    | 13 | `FleetDatabaseError`, `FleetDatabaseAway`: of a control host, and never of a backup | no |
    | 1, 2, 12, 13 | bugs (`InternalError`), configuration, probes, the catalogue | no |
    """
    return isinstance(error, _PASSING)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """What a schedule says of tries."""

    retries: int  # after the first try
    retry_after_seconds: float  # from the end of one to the start of the next
    start_within_seconds: float
    blackouts: Sequence[Blackout]
    zone: str

    @property
    def tries(self) -> int:
        """In all."""
        return self.retries + 1


@dataclass(frozen=True, slots=True)
class Again:
    """It is tried again."""

    at: datetime


@dataclass(frozen=True, slots=True)
class NotAgain:
    """It is not."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """What a try that failed is told with."""

    number: int  # of this try, from 1
    tries: int
    next_at: datetime | None = None
    reason: str = ""  # why there is no other, where its cause passes
    first_cause: str = ""  # why the first try failed, where this is a later one


def planned(
    rules: RetryRules, due_at: datetime, *, number: int, ended_at: datetime, next_due: datetime | None
) -> Again | NotAgain:
    """When the try after this one (the first is 1), which ended then, is to start."""
    if number >= rules.tries:
        return NotAgain(f"it was the last of {rules.tries} tries")
    at = ended_at + timedelta(seconds=rules.retry_after_seconds)
    return _in_time(rules, due_at, at=at, reached=at, next_due=next_due)


def still_planned(
    rules: RetryRules, due_at: datetime, *, number: int, retry_at: datetime, now: datetime, next_due: datetime | None
) -> Again | NotAgain:
    """The same of a next try that is planned already: time has passed since, and the rules may have changed."""
    if number >= rules.tries:
        return NotAgain(f"the job now has {rules.tries} tries" if rules.retries else "the job no longer has retries")
    at = retry_at if now < retry_at + _PUNCTUAL else now
    return _in_time(rules, due_at, at=at, reached=max(now, retry_at), next_due=next_due)


def _in_time(
    rules: RetryRules, due_at: datetime, *, at: datetime, reached: datetime, next_due: datetime | None
) -> Again | NotAgain:
    if next_due is not None and reached >= next_due:
        return NotAgain("the next backup is due before that")
    if at > due_at + timedelta(seconds=rules.start_within_seconds):
        return NotAgain(f"a backup must start within {format_duration(rules.start_within_seconds)} of when it is due")
    if next_start(at, rules.blackouts, rules.zone) != at:
        return NotAgain("the next try would fall into a blackout")
    return Again(at)
