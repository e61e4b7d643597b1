"""Which backups stay: a pure decision over all that lie on one target, with a reason for each.

Knows: what a policy keeps, what is never given up, and what a wrong clock must not do. Refuses to know where backups
lie and how they are removed.

A policy keeps the last so many, and of the last so many days, weeks (ISO 8601), months and years that have a backup the
last one each, by the calendar of a time zone. Whatever it says, the last good backup stays, and the last that a drill
has proven (where a later drill of that one failed, also the last whose proof stands), and every pinned one. A broken
backup counts for nothing of this; it stays only until there is a newer good one. Where a run's other copies were found
broken or have been lost, its only whole one stays for as long as one of them is there, or would be had none been lost.
A backup whose time has not come yet stays as well, and counts for nothing either: where a clock was wrong, it must not
push out others; nor must one of which nobody can tell whether it is whole.

Two clocks tell how old a backup is: the storage's, and that of the host that made it. Either may have been wrong, and
a storage that was copied has the time of copying. Where both are one, and that was set back for a while, the order in
which runs were recorded tells that a backup is no older than those before it. What is given up is given up by all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Protocol

from backupd.vocabulary.storage import RetentionDecision

_CLOCKS_DIFFER = timedelta(hours=1)  # between this host and the storage, without one of them being wrong
_BY_EACH_CLOCK = ("", " (by the time of its run)", " (by the order of the runs)")


class Policy(Protocol):
    """How many backups are kept, and of which kind: a job's `[jobs.NAME.retention]`."""

    @property
    def keep_last(self) -> int:
        """Whatever their age."""

    @property
    def daily(self) -> int:
        """Days of which one is kept."""

    @property
    def weekly(self) -> int:
        """Weeks of which one is kept."""

    @property
    def monthly(self) -> int:
        """Months of which one is kept."""

    @property
    def yearly(self) -> int:
        """Years of which one is kept."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What holds on one target: a `Policy`."""

    keep_last: int
    daily: int
    weekly: int
    monthly: int
    yearly: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One finished backup on one target."""

    backup_id: str
    at: datetime  # by the storage's clock
    at_by_host: datetime | None = None  # where the clock of the host that made it tells another time
    at_in_order: datetime | None = None  # after all recorded before it, where the host's clock was set back
    broken: str = ""  # what was found wrong with it; empty: nothing
    only_whole: str = ""  # what became of those on other targets, which lie there or would be kept there if whole
    uncertain: str = ""  # why nobody can tell now whether it is whole; empty: what is known of it counts
    proven: bool = False  # by a drill
    doubted: bool = False  # by the last drill, which failed
    pin: str | None = None  # its note


def good_ones(backups: Sequence[Candidate], now: datetime) -> list[Candidate]:
    """Those that count for something, newest first: whole by all that is known of them, and of a time that has come."""
    good = (one for one in backups if not (one.broken or one.uncertain) and one.at <= now + _CLOCKS_DIFFER)
    return sorted(good, key=_age, reverse=True)


def by_each_clock(backups: Sequence[Candidate]) -> tuple[Sequence[Candidate], ...]:
    """The backups as old as the storage says, as their hosts said, and as the order of their runs tells."""
    return (
        backups,
        [replace(one, at=one.at_by_host or one.at) for one in backups],
        [replace(one, at=one.at_in_order or one.at) for one in backups],
    )


def decide(
    backups: Sequence[Candidate], policy: Policy, now: datetime, *, zone: tzinfo | None = None
) -> tuple[RetentionDecision, ...]:
    """A decision for every backup, newest first; the order in which they are told means nothing.

    Without a zone, days are those of the host's own calendar. Decided again on what is kept, all of that is kept, and a
    policy that asks for more keeps all that one keeps that asks for less.
    """
    told = [_reasons(clock, policy, now, zone) for clock in by_each_clock(backups)]
    return tuple(
        _decision(backup, [reasons[backup.backup_id] for reasons in told], policy)
        for backup in sorted(backups, key=_age, reverse=True)
    )


def stays(
    backup_id: str, backups: Sequence[Candidate], policy: Policy, now: datetime, *, zone: tzinfo | None = None
) -> bool:
    """Whether this one of them is kept."""
    return any(one.keep for one in decide(backups, policy, now, zone=zone) if one.backup_id == backup_id)


def kept_if_whole(
    lost: Sequence[Candidate],
    backups: Sequence[Candidate],
    policy: Policy,
    now: datetime,
    *,
    zone: tzinfo | None = None,
) -> set[str]:
    """Those of the lost that would be kept if nothing were wrong with any; they may be among the backups, or not."""
    ids = {one.backup_id for one in lost}
    others = [one for one in backups if one.backup_id not in ids]
    whole = [replace(one, broken="", uncertain="") for one in lost]
    return ids & {one.backup_id for one in decide([*others, *whole], policy, now, zone=zone) if one.keep}


def _decision(backup: Candidate, told: Sequence[Sequence[str]], policy: Policy) -> RetentionDecision:
    """It stays where any clock has a reason."""
    for reasons, by in zip(told, _BY_EACH_CLOCK, strict=True):
        if reasons:
            return RetentionDecision(backup.backup_id, keep=True, reason=", ".join(reasons) + by)
    return RetentionDecision(backup.backup_id, keep=False, reason=_expired(backup, policy))


def _reasons(backups: Sequence[Candidate], policy: Policy, now: datetime, zone: tzinfo | None) -> dict[str, list[str]]:
    """Why each is kept; nothing for one that is not."""
    reasons: dict[str, list[str]] = {backup.backup_id: [] for backup in backups}
    good = good_ones(backups, now)
    for backup in backups:
        if backup.pin is not None:
            reasons[backup.backup_id].append(f"pinned: {backup.pin}" if backup.pin else "pinned")
        if backup.at > now + _CLOCKS_DIFFER:
            reasons[backup.backup_id].append("dated in the future: a clock is or was wrong")
        if backup.uncertain:
            reasons[backup.backup_id].append(backup.uncertain)
        if backup.only_whole and not backup.broken:
            reasons[backup.backup_id].append(f"only complete copy: {backup.only_whole}")
        if backup.broken and not (good and good[0].at >= backup.at):
            reasons[backup.backup_id].append("broken, but there is no newer good one")
    for backup in good[:1]:
        reasons[backup.backup_id].append("last good one")
    for backup in _proven(good):
        doubt = ", though a later drill of it failed" if backup.doubted else ""
        reasons[backup.backup_id].append(f"last proven one{doubt}")
    for number, backup in enumerate(good[: policy.keep_last], 1):
        reasons[backup.backup_id].append(f"last {number} of {policy.keep_last}")
    for name, count, words in _periods(policy):
        for period, backup in _last_of_each(good, words, zone)[:count]:
            reasons[backup.backup_id].append(f"{name} {period}")
    return reasons


def _age(backup: Candidate) -> tuple[datetime, str]:
    return backup.at, backup.backup_id


def _proven(good: Sequence[Candidate]) -> Sequence[Candidate]:
    """The last that a drill has proven and, where another drill has failed on it since, the last whose proof stands."""
    proven = [backup for backup in good if backup.proven]
    return tuple(dict.fromkeys((*proven[:1], *[backup for backup in proven if not backup.doubted][:1])))


def _periods(policy: Policy) -> tuple[tuple[str, int, str], ...]:
    """Each kind of period: its name, how many are kept, and how one is written."""
    return (
        ("daily", policy.daily, "%Y-%m-%d"),
        ("weekly", policy.weekly, "%G-W%V"),
        ("monthly", policy.monthly, "%Y-%m"),
        ("yearly", policy.yearly, "%Y"),
    )


def _last_of_each(newest_first: Sequence[Candidate], words: str, zone: tzinfo | None) -> list[tuple[str, Candidate]]:
    """The periods that have a backup, newest first, each with its last one."""
    last: dict[str, Candidate] = {}
    for backup in newest_first:
        last.setdefault(backup.at.astimezone(zone).strftime(words), backup)
    return list(last.items())


def _expired(backup: Candidate, policy: Policy) -> str:
    if backup.broken:
        return f"expired: broken ({backup.broken}), and there is a newer good one"
    asked = [f"the last {policy.keep_last}", *(f"{count} {name}" for name, count, _ in _periods(policy) if count)]
    return f"expired: not among {', '.join(asked)}"
