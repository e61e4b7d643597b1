"""Which of a job's targets could take a copy now.

Knows: that a run goes on while one target is left, so that an unusable one of several is a warning. Refuses to write
anything but what a target's own `require_usable` does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backupd.operations.hanging_targets import answer_of
from backupd.operations.ownership import require_apart
from backupd.targets import Target
from backupd.vocabulary.errors import TargetAway, TargetError
from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.units import compared_sizes, rounded_size

_SOON = timedelta(days=14)  # before that, whoever makes new credentials has time

TARGET = "target "  # a finding's name begins with it where it is a target's


@dataclass(frozen=True, slots=True)
class Destinations:
    """What is known of a job's targets before a run."""

    findings: tuple[Finding, ...]
    usable: tuple[Target, ...]  # in the job's order
    unusable: Mapping[str, str]  # by name: why
    all_away: bool = False  # none is usable, and each may come back by itself


def examine(
    targets: Sequence[Target],
    require_ours: Callable[[Target], bool],
    *,
    last_stored_bytes: int | None,
    used_bytes: int | None,
) -> Destinations:
    """Ask each target whether it can be written, has room, and has nobody else's writing in this machine's folder.

    Of two that are one storage only the first is usable.
    """
    away: set[str] = set()
    found: list[tuple[Target, Finding]] = []
    usable: list[Target] = []
    for target in targets:
        finding = _finding(
            target, usable, require_ours, away, last_stored_bytes=last_stored_bytes, used_bytes=used_bytes
        )
        found.append((target, finding))
        if finding.level is not Level.REFUSED:
            usable.append(target)
    unusable = {target.name: finding.detail for target, finding in found if finding.level is Level.REFUSED}
    told = tuple(_told(finding, others=bool(usable)) for _, finding in found)
    return Destinations(told, tuple(usable), unusable, all_away=len(away) == len(targets))


def _told(finding: Finding, *, others: bool) -> Finding:
    """Only where no target is left the run is refused."""
    if finding.level is not Level.REFUSED or not others:
        return finding
    told = f"{finding.detail}; the run would continue without it and end with attention (exit status 3)"
    return Finding(finding.name, Level.WARNING, told, finding.hint, attention=True)


def _finding(
    target: Target,
    others: Sequence[Target],
    require_ours: Callable[[Target], bool],
    away: set[str],
    *,
    last_stored_bytes: int | None,
    used_bytes: int | None,
) -> Finding:
    """A target that is away has its name in `away` from now on; `others` are those that are usable."""
    name = f"{TARGET}{target.name}"
    try:
        free, was_emptied = answer_of(target, lambda: (target.require_usable(), require_ours(target)))
        require_apart(target, others)
    except TargetError as error:
        if isinstance(error, TargetAway):
            away.add(target.name)
        return Finding(name, Level.REFUSED, error.message, error.hint)
    room = _room(name, target, free, last_stored_bytes=last_stored_bytes, used_bytes=used_bytes)
    if was_emptied and room.level is not Level.REFUSED:
        hint = "is its file system mounted, and are its path or bucket unchanged? a new disk needs nothing more"
        return Finding(name, Level.WARNING, "writable, but the backups that this machine wrote there are gone", hint)
    return _with_end(room, target, datetime.now(UTC))


def _with_end(room: Finding, target: Target, now: datetime) -> Finding:
    """The same; where what lets us in ends soon, it needs attention."""
    ends = target.access_ends
    if ends is None or room.level is Level.REFUSED or ends - now > _SOON:
        return room
    days = max(0, (ends - now).days)
    when = f"in {days} day{'' if days == 1 else 's'}" if days else "today"
    told = f"{room.detail}; its credentials expire {when}, on {to_the_minute(ends)}"
    new = f"create new ones for target {target.name}: after that it accepts no copy"
    hint = "; ".join(filter(None, [room.hint, new]))
    return Finding(room.name, Level.WARNING, told, hint, attention=True)


def _room(
    name: str, target: Target, free: int | None, *, last_stored_bytes: int | None, used_bytes: int | None
) -> Finding:
    """Whether `free` bytes are enough, by the last backup or by what the volume holds."""
    if free is None:
        return Finding(name, Level.OK, "writable; free space unknown")
    hint = f"free some space on target {target.name}, or choose another"
    if last_stored_bytes is not None and free < last_stored_bytes * 1.1:
        left, taken = compared_sizes(free, last_stored_bytes)
        return Finding(name, Level.REFUSED, f"{left} free, the last backup took {taken}", hint)
    if last_stored_bytes is None and used_bytes is not None and free < used_bytes:
        left, used = compared_sizes(free, used_bytes)
        if free < used_bytes // 10:
            return Finding(name, Level.REFUSED, f"{left} free for a volume with {used} in use", hint)
        return Finding(name, Level.WARNING, f"{left} free, and the backup is {used} before compression", hint)
    return Finding(name, Level.OK, f"writable, {rounded_size(free)} free")
