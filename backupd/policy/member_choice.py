"""Which member of a cluster makes its backup, or why none can, in sentences.

Knows: what makes a member fit, and which fit one is the best. It judges by what hosts have told last; it asks nobody.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from backupd.vocabulary.escaping import some
from backupd.vocabulary.fleet import PROTOCOLS, DescribedJob, FleetTry, HostDescription, Role, SeenHost
from backupd.vocabulary.units import format_duration

_WITNESSES: Final = 2  # against a control host's clock, at least
MOST_CLOCK_SECONDS: Final = 60.0  # that a host's clock may be off: run ids, windows and ages depend on it
_SHOWN: Final = 5  # targets
NEVER_ASKED: Final = "it has not been asked yet"


@dataclass(frozen=True, slots=True)
class MemberRule:
    """What a policy says of members."""

    max_lag_seconds: float
    names: tuple[str, ...] = ()  # only these, the preferred first; empty: by lag
    allow_source: bool = False  # where no replica is fit
    retry_by_another: bool = True


@dataclass(frozen=True, slots=True)
class MemberVerdict:
    """What is to be said of one member: it is fit, or why it is not."""

    host: str
    fit: bool
    said: str  # of a fit one: what speaks for it
    lag_seconds: float = 0.0
    source: bool = False


@dataclass(frozen=True, slots=True)
class MemberChosen:
    """The members that are fit, the best first, and all the others with their reasons."""

    fit: tuple[MemberVerdict, ...]
    unfit: tuple[MemberVerdict, ...]

    @property
    def host(self) -> str | None:
        """Who makes the backup."""
        return self.fit[0].host if self.fit else None

    @property
    def said(self) -> str:
        """Why this one, or why none."""
        if self.fit:
            return f"{self.fit[0].host}: {self.fit[0].said}"
        return "; ".join(f"{one.host}: {one.said}" for one in self.unfit) or "the cluster has no member"


def owing(members: tuple[str, ...], *, every_member: bool) -> tuple[str, ...]:
    """Whose backups a cluster owes of each job: each member's own, or "": of whichever makes them."""
    return members if every_member else ("",)


def choose_member(
    members: Sequence[str],
    job: str,
    seen: Mapping[str, SeenHost],
    rule: MemberRule,
    *,
    tries: Sequence[FleetTry] = (),
    of_its_own: str = "",
) -> MemberChosen:
    """The members that may back up this job now, in the order in which they should be tried.

    `of_its_own` is the run that the backup has already started, which keeps no member from going on with it. Where the
    policy names members only these are asked for; a source among them may be used, for a person has named it.
    """
    wanted = [name for name in rule.names if name in members] if rule.names else list(members)
    alone = len(members) == 1 or bool(rule.names)
    verdicts = [_verdict(host, job, seen.get(host), rule, alone=alone, of_its_own=of_its_own) for host in wanted]
    if not alone and any(one.fit and not one.source for one in verdicts):
        verdicts = [_spared(one) if one.fit and one.source else one for one in verdicts]
    fit = [one for one in verdicts if one.fit]
    if not rule.names:
        fit.sort(key=lambda one: one.lag_seconds)
    if rule.retry_by_another:
        tried = Counter(one.host for one in tries)
        fit.sort(key=lambda one: tried[one.host])
    elif tries:
        fit.sort(key=lambda one: one.host != tries[-1].host)
    return MemberChosen(tuple(fit), tuple(one for one in verdicts if not one.fit))


def within_targets(
    chosen: MemberChosen, job: str, seen: Mapping[str, SeenHost], *, planned: Sequence[str], shared: Collection[str]
) -> MemberChosen:
    """Without those whose job goes to a shared target that was not planned: no slot of it is held, and no rate kept."""
    beyond: dict[str, list[str]] = {}
    for one in chosen.fit:
        told = described_job(seen.get(one.host), job)
        beyond[one.host] = sorted((set(told.targets) & set(shared)) - set(planned)) if told is not None else []
    unfit = tuple(
        MemberVerdict(
            host, False, f"its job also stores on {some(names, _SHOWN)}, where this backup has no slot planned"
        )
        for host, names in beyond.items()
        if names
    )
    return MemberChosen(tuple(one for one in chosen.fit if not beyond[one.host]), (*chosen.unfit, *unfit))


def described_job(seen: SeenHost | None, job: str) -> DescribedJob | None:
    """What a host told of this job last; None where it has told nothing, or has none."""
    if seen is None or seen.described is None:
        return None
    return next((one for one in seen.described.jobs if one.job == job), None)


def host_faults(described: HostDescription) -> Iterator[str]:
    """What keeps a host as a whole from being used."""
    oldest, newest = described.protocols
    if newest < PROTOCOLS.start:
        yield f"its backupd {described.version} is too old for this control host: upgrade it"
    elif oldest >= PROTOCOLS.stop:
        yield f"its backupd {described.version} is too new for this control host: upgrade the control host"
    ahead = described.clock_ahead_seconds
    if ahead is not None and abs(ahead) > MOST_CLOCK_SECONDS:
        yield f"its clock is {roughly(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"


def own_clock_fault(seen: Iterable[SeenHost]) -> str | None:
    """What is wrong with the clock of whoever asked these hosts: most of those that answered disagree with it in one
    direction. None where that is not so; of a single host nobody can tell which of the two is wrong.
    """
    clocks = [one.described.clock_ahead_seconds for one in seen if one.described is not None]
    known = [ahead for ahead in clocks if ahead is not None]
    behind = [ahead for ahead in known if ahead > MOST_CLOCK_SECONDS]
    ahead = [-ahead for ahead in known if ahead < -MOST_CLOCK_SECONDS]
    off, how = (behind, "behind") if len(behind) > len(ahead) else (ahead, "ahead")
    if len(off) < _WITNESSES or 2 * len(off) <= len(known):
        return None
    apart = f"{roughly(median(off))} {how}"
    return f"{apart}: {len(off)} of {len(known)} hosts disagree with it, so none of them is used"


def roughly(seconds: float) -> str:
    """So long, in the unit that says enough."""
    unit = next((unit for unit in (86400, 3600, 60) if seconds >= 2 * unit), 1)
    return format_duration(float(round(seconds / unit) * unit))


def _verdict(
    host: str, job: str, seen: SeenHost | None, rule: MemberRule, *, alone: bool, of_its_own: str
) -> MemberVerdict:
    if seen is None:
        return MemberVerdict(host, False, NEVER_ASKED)
    if seen.problem or seen.described is None:
        return MemberVerdict(host, False, seen.problem or NEVER_ASKED)
    if fault := next(host_faults(seen.described), None):
        return MemberVerdict(host, False, fault)
    found = described_job(seen, job)
    if found is None:
        return MemberVerdict(host, False, f"it has no job {job}")
    return _verdict_of_job(host, found, rule, alone=alone, of_its_own=of_its_own)


def _verdict_of_job(host: str, job: DescribedJob, rule: MemberRule, *, alone: bool, of_its_own: str) -> MemberVerdict:
    lag = job.lag_seconds
    reasons = {
        "a person has paused the job there": job.paused,
        f"run {job.running} is in progress there": bool(job.running) and job.running != of_its_own,
        f"its server cannot be asked: {job.problem}": job.role is Role.UNKNOWN,
        "it is the source, which the policy does not allow": job.role is Role.SOURCE
        and not (alone or rule.allow_source),
        "it does not know how far behind its source it is": job.role is Role.REPLICA and lag is None,
    }
    if lag is not None and lag > rule.max_lag_seconds:
        behind, limit = roughly(lag), format_duration(rule.max_lag_seconds)
        reasons[f"it is {behind} behind its source, and {limit} is allowed"] = True
    if reason := next((said for said, holds in reasons.items() if holds), None):
        return MemberVerdict(host, False, reason)
    if job.role is Role.SOURCE:
        return MemberVerdict(
            host,
            True,
            "the source, which may be used" if not alone else "named in the policy, or the only member",
            source=True,
        )
    return MemberVerdict(host, True, f"a replica, {roughly(lag or 0.0)} behind", lag_seconds=lag or 0.0)


def _spared(one: MemberVerdict) -> MemberVerdict:
    return MemberVerdict(one.host, False, "it is the source, and a replica is available")
