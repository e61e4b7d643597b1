"""Which machines a host has been, by the fleet's records, and since when.

Knows: that one odd answer, as of an address that leads elsewhere for a minute, must not take from a host that it was a
machine first; nor must an answer that comes late, nor a record of which this backupd cannot read the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from backupd.vocabulary.fleet import SeenHost

_MOST: Final = 8  # machines of a host, the first ones: whoever tells a new one each time fills no database


@dataclass(frozen=True, slots=True)
class ToldMachines:
    """The part of a stored `HostDescription` that tells of its host's machines."""

    machine: str
    machine_since: datetime | None = None
    machine_before: str = ""
    machines: Mapping[str, datetime] = field(default_factory=dict)


def is_older(seen: SeenHost, before: SeenHost, now: datetime) -> bool:
    """The answer is older than the one that is known; of one that is yet to come, a wrong clock told the time."""
    if seen.described is None or seen.answered_at is None or before.described is None or before.answered_at is None:
        return False
    return seen.answered_at < before.answered_at <= now


def with_machines(seen: SeenHost, earlier: ToldMachines | None, answered_at: datetime | None) -> SeenHost:
    """The same, with what the records know of its machines: by what they have of its last answer, and its instant."""
    if seen.described is None or seen.answered_at is None:
        return seen
    machine, since, was = seen.described.machine, seen.answered_at, ""
    machines: dict[str, datetime] = {}
    if earlier is not None:
        stayed = earlier.machine_since or answered_at or since
        machines = {earlier.machine: stayed, **earlier.machines}
        same = earlier.machine == machine
        since, was = (stayed, earlier.machine_before) if same else (since, earlier.machine)
    oldest = sorted({machine: since, **machines}.items(), key=lambda one: one[1])[:_MOST]
    told = replace(seen.described, machine_since=since, machine_before=was, machines=dict(oldest))
    return replace(seen, described=told)
