"""What follows from the tries of a backup that a fleet owes: it is done, tried again, or given up; and why.

Knows: which ends are worth another try, and how long is waited for it. It judges what tries came to; it makes none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from backupd.policy.night_times import earliest_beginning
from backupd.vocabulary.fleet import FleetState, FleetTry, OwedBackup
from backupd.vocabulary.records import GOOD, RunStatus

_LONGEST_WAIT: Final = timedelta(hours=6)
_SILENCE_SECONDS: Final = 6 * 3600.0  # that a host which stopped answering within a run is waited for at least
_SILENCE_SHARES: Final = 4.0  # of what its backup was expected to take
_LONGEST_SILENCE: Final = 14 * 86400.0  # whatever was expected: its host told that


@dataclass(frozen=True, slots=True)
class TryRule:
    """What a policy says of tries."""

    retries: int
    retry_after_seconds: float  # doubled with each further try


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Another try is made, not before this instant."""

    at: datetime
    said: str


@dataclass(frozen=True, slots=True)
class TriesOver:
    """It has ended so."""

    state: FleetState
    said: str = ""


def judged(
    owed: OwedBackup, tries: Sequence[FleetTry], rule: TryRule, now: datetime, *, cancel_wanted: bool = False
) -> TryAgain | TriesOver:
    """What follows from these tries, of which the last has ended.

    A run that was cancelled counts as what people wanted only where they wanted it of the fleet: a host that is
    rebooted ends its runs in the same way. Where the host does not answer, whoever cancels has decided that it is over.
    """
    last = tries[-1]
    if last.status in GOOD:
        return TriesOver(FleetState.DONE)
    if cancel_wanted and last.status in (RunStatus.CANCELLED, None):
        return TriesOver(FleetState.CANCELLED, last.said)
    if last.status is None:
        return TriesOver(FleetState.FAILED, last.said)  # whatever runs there may run still: no other member may begin
    if len(tries) > rule.retries:
        return TriesOver(FleetState.FAILED, last.said)
    wait = min(timedelta(seconds=rule.retry_after_seconds) * 2 ** (len(tries) - 1), _LONGEST_WAIT)
    begin = earliest_beginning(owed, now + wait)
    if begin is None:
        return TriesOver(FleetState.FAILED, f"{last.said}; its window closes before another try")
    return TryAgain(begin, last.said)


def silent_until(owed: OwedBackup, began_at: datetime) -> datetime:
    """When a run whose host says nothing any more is given up: until then it may still be at work."""
    share = min(_SILENCE_SHARES * owed.expected_seconds, _LONGEST_SILENCE)
    return began_at + timedelta(seconds=max(share, _SILENCE_SECONDS))
