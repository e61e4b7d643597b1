"""Which stored copy a proof host drills next. Pure: what lies on the targets and what was tried tells the order.

Knows: a copy that was never tried goes before all that were, and of those the newest of each job first; then the one
whose last try is longest ago. Among equals the job that has waited longest is first, so that a host with room for one
drill a night comes to every job.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ProvableCopy:
    """A finished backup on a target, of whatever machine."""

    target: str
    machine: str
    job: str
    run_id: str
    at: datetime  # when it was stored, by the storage's clock
    tried_at: datetime | None = None  # the newest believed result of a drill of it, whatever that found


def in_order(copies: Iterable[ProvableCopy]) -> list[ProvableCopy]:
    """The copies in the order in which to drill them."""
    found = list(copies)
    runs_of_job: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)  # the newest first
    last_of_job: dict[tuple[str, ...], datetime] = defaultdict(lambda: _NEVER)  # the newest try of any of its copies
    last_of_place: dict[tuple[str, ...], datetime] = defaultdict(lambda: _NEVER)
    for copy in found:
        job, place, tried = (copy.machine, copy.job), (copy.machine, copy.job, copy.target), copy.tried_at or _NEVER
        last_of_job[job] = max(last_of_job[job], tried)
        last_of_place[place] = max(last_of_place[place], tried)

    for copy in sorted(found, key=lambda copy: (copy.at, copy.run_id), reverse=True):
        runs_of_job[copy.machine, copy.job].setdefault(copy.run_id)
    newer = {(*job, run): number for job, runs in runs_of_job.items() for number, run in enumerate(runs)}

    def key(copy: ProvableCopy) -> tuple[object, ...]:
        return (
            copy.tried_at is not None,
            newer[copy.machine, copy.job, copy.run_id] if copy.tried_at is None else 0,
            copy.tried_at or _NEVER,
            last_of_job[copy.machine, copy.job],
            last_of_place[copy.machine, copy.job, copy.target],
            -copy.at.timestamp(),
            (copy.machine, copy.job, copy.run_id, copy.target),
        )

    return sorted(found, key=key)
