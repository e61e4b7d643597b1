"""Whether a backup that is owed may begin now, and which member of its cluster is fit for it.

Knows: whom to ask, when to ask again, and that a cluster in which any run goes on, whoever started
it, or may go on, has no other. Which of those that answered is the best is decided in `policy.member_choice`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backupd.fleet import Agents
from backupd.fleet.records import Records
from backupd.operations.fleet.host_survey import SeenTo, ask_hosts
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.unknown_endings import may_go_on
from backupd.policy.fleet_tries import TryRule
from backupd.policy.member_choice import MemberChosen, MemberRule, MemberVerdict, choose_member, within_targets
from backupd.policy.night_times import earliest_beginning
from backupd.policy.one_machine import CountedAs, taken_for_another
from backupd.vocabulary.fleet import FleetState, FleetTry, OwedBackup, SeenHost

_ASK_AGAIN_SECONDS: Final = (30.0, 60.0, 120.0, 300.0, 600.0)
_SIDE_BY_SIDE: Final = 8  # members of one cluster


@dataclass(frozen=True, slots=True)
class NightTerms:
    """What the policy of a cluster says of its members and their tries."""

    member: MemberRule
    tries: TryRule
    members: tuple[str, ...] = ()  # of the cluster; empty: those that are owed
    targets: frozenset[str] = frozenset()  # that are shared: of each one a slot is needed


@dataclass(frozen=True, slots=True)
class NightPatience:
    """How long this control host waits between two looks, in seconds."""

    poll_seconds: float  # at a run
    ask_again_seconds: Sequence[float] = _ASK_AGAIN_SECONDS  # members none of which was fit; the last one goes on


@dataclass(frozen=True, slots=True)
class Chosen:
    """The host that makes the next try, when to look again, or how the backup has ended."""

    host: str = ""
    again_at: datetime | None = None
    ended: FleetState | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Chooser:
    """Whom it asks, and what it goes by."""

    records: Records
    agents: Agents
    wishes: Wishes
    terms: Callable[[str], NightTerms]  # of a cluster
    patience: NightPatience
    seen_to: SeenTo = lambda _: ()
    counted: CountedAs = field(default_factory=dict)  # of all hosts of the fleet

    def chosen(
        self, owed: OwedBackup, tries: Sequence[FleetTry], not_before: datetime, *, looked: int, said: str
    ) -> Chosen:
        """By one look. It has looked so often in vain since the last try, and what it waits for was said then.

        Raises:
            FleetDatabaseAway: the database does not answer.
        """
        now = datetime.now(UTC)
        if (note := self.wishes.cancelled(owed)) is not None:
            return Chosen(ended=FleetState.CANCELLED, said=note)
        begin = earliest_beginning(owed, max(now, not_before))
        if begin is None:
            return Chosen(ended=FleetState.MISSED, said=said or "its window closed before its turn came")
        if begin > now:
            return Chosen(again_at=begin, said=said)
        why = self.wishes.paused(owed)
        if why is None:
            found = self.fit(owed, tries)
            if found.host is not None:
                return Chosen(found.host, said=found.said)
            why = found.said
        return Chosen(again_at=now + timedelta(seconds=self._until_asked_again(looked)), said=why)

    def fit(self, owed: OwedBackup, tries: Sequence[FleetTry]) -> MemberChosen:
        """Who is, by what the members tell now."""
        terms = self.terms(owed.cluster)
        planned = (owed.only,) if owed.only else owed.members
        members = tuple(host for host in planned if not terms.members or host in terms.members)
        if not members:  # they have other data by now
            return MemberChosen((), tuple(MemberVerdict(host, False, "it has left the cluster") for host in planned))
        everybody = dict.fromkeys((*members, *terms.members))
        paused = self.wishes.paused_hosts(everybody)
        # The paused ones too: a run that goes on there keeps its cluster.
        told = ask_hosts(everybody, self.agents, at_once=_SIDE_BY_SIDE, seen_to=self.seen_to)
        seen = {host: self.records.saw(one.seen) for host, one in told.items()}
        unended = may_go_on(self.records, self.agents, owed.cluster, everybody)
        if at_work := unended | _at_work(seen):
            return MemberChosen((), tuple(MemberVerdict(host, False, said) for host, said in at_work.items()))
        others = self._of_one_machine(seen)
        apart = taken_for_another(others | seen, self.counted)
        seen |= {host: SeenHost(host, None, None, said) for host, said in (apart | paused).items() if host in seen}
        rule = replace(terms.member, names=()) if owed.only else terms.member  # a person may have named that one
        chosen = choose_member(members, owed.job, seen, rule, tries=tries)
        return within_targets(chosen, owed.job, seen, planned=owed.targets, shared=terms.targets)

    def _of_one_machine(self, seen: Mapping[str, SeenHost]) -> dict[str, SeenHost]:
        """The other hosts of the fleet that are the machine of one of these, as they told last; who has got an address
        of its own since then tells so now.
        """
        machines = {one.described.machine for one in seen.values() if one.described is not None}
        last = {one.host: one for one in self.records.seen(machines) if one.host in self.counted}
        others = {host: one for host, one in last.items() if host not in seen}
        told = ask_hosts(others, self.agents, at_once=_SIDE_BY_SIDE, seen_to=self.seen_to)
        now = {host: self.records.saw(one.seen) for host, one in told.items()}
        return {
            host: one if one.described is not None else replace(others[host], problem=one.problem)
            for host, one in now.items()
        }

    def _until_asked_again(self, looked: int) -> float:
        waits = self.patience.ask_again_seconds
        return waits[min(looked, len(waits) - 1)]


def _at_work(seen: Mapping[str, SeenHost]) -> dict[str, str]:
    """The hosts at which a run goes on, whoever started it."""
    return {
        host: f"run {job.running} is in progress there"
        for host, one in seen.items()
        if one.described is not None
        for job in one.described.jobs
        if job.running
    }
