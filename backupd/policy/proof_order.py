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
    of_job: dict[tuple[str, ...], list[ProvableCopy]] = defaultdict(list)
    last_of_job: dict[tuple[str, ...], datetime] = defaultdict(lambda: _NEVER)  # the newest try of any of its copies
    last_of_place: dict[tuple[str, ...], datetime] = defaultdict(lambda: _NEVER)
    for copy in found:
        job, place, tried = (copy.machine, copy.job), (copy.machine, copy.job, copy.target), copy.tried_at or _NEVER
        of_job[job].append(copy)
        last_of_job[job] = max(last_of_job[job], tried)
        last_of_place[place] = max(last_of_place[place], tried)

    def key(copy: ProvableCopy) -> tuple[object, ...]:
        others = of_job[copy.machine, copy.job]
        newer = {other.run_id for other in others if (other.at, other.run_id) > (copy.at, copy.run_id)} - {copy.run_id}
        return (
            copy.tried_at is not None,
            len(newer) if copy.tried_at is None else 0,
            copy.tried_at or _NEVER,
            last_of_job[copy.machine, copy.job],
            last_of_place[copy.machine, copy.job, copy.target],
            -copy.at.timestamp(),
            (copy.machine, copy.job, copy.run_id, copy.target),
        )

    return sorted(found, key=key)
