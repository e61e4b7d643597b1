"""How much of an agent's sound answer a control host believes.

Knows: that what has not been yet cannot be told: a good backup of the year 2999 would keep its cluster from being
backed up until then. And that a stranger's words are a sentence in ours: one line, and not a long one.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.fleet import DescribedJob, HostDescription, RunState
from backupd.vocabulary.records import RunDetails, RunError

_AHEAD: Final = timedelta(seconds=60)  # that a clock may be, and its host still counts as sound
_LONGEST: Final = 500  # characters of a sentence


def believed_description(told: HostDescription, now: datetime) -> HostDescription:
    """Without good backups and proofs that are yet to come, and what only the fleet's records know."""
    jobs = tuple(_job(one, now) for one in told.jobs)
    return replace(told, jobs=jobs, machine_since=None, machine_before="", machines={})


def believed_state(told: RunState, now: datetime) -> RunState:
    """It began and ended by now."""
    return replace(
        told,
        started_at=_by(now, told.started_at),
        ended_at=_by(now, told.ended_at),
        error=_error(told.error),
    )


def believed_details(told: RunDetails, now: datetime) -> RunDetails:
    """It began and ended by now."""
    return replace(
        told,
        started_at=_by(now, told.started_at) or now,
        ended_at=_by(now, told.ended_at),
        error=_error(told.error),
    )


def _job(told: DescribedJob, now: datetime) -> DescribedJob:
    good, proven = told.last_good_at, told.last_proven_at
    return replace(
        told,
        follows=_said(told.follows),
        problem=_said(told.problem),
        last_good_at=None if good is None or good > now + _AHEAD else good,
        last_proven_at=None if proven is None or proven > now + _AHEAD else proven,
    )


def _by(now: datetime, instant: datetime | None) -> datetime | None:
    return now if instant is not None and instant > now + _AHEAD else instant


def _error(told: RunError | None) -> RunError | None:
    return None if told is None else replace(told, message=_said(told.message), hint=_said(told.hint))


def _said(text: str) -> str:
    return on_one_line(text[:_LONGEST])[:_LONGEST]
