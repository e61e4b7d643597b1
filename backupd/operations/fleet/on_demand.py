"""A backup that a person asks for: now, in no window, before all that is planned.

Knows: what is owed then, and that a host whom a person names is taken though the policy would take another. Whoever
serves carries it out.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Final

from backupd.config.fleet import MOST_RETRIES, FleetConfiguration
from backupd.fleet import Agent, Agents, HostAway, HostRefuses
from backupd.fleet.records import Records
from backupd.operations.fleet.host_survey import ask_hosts
from backupd.operations.fleet.terms import cluster_terms, night_clock, shared_targets, tonight
from backupd.policy.agent_protocol import is_run_id
from backupd.policy.fleet_plan import ClusterTerms, plan_night
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.fleet import FleetBackup, FleetState, OwedBackup, try_id
from backupd.vocabulary.schedule import Blackout

_ALWAYS: Final = (Blackout(frozenset(range(7)), time(0), time(0)),)  # a window of all hours
_LASTS: Final = timedelta(hours=12)  # it may begin
_MOST_ASKED: Final = 9  # in a night: what an id must have room for


def by_hand(
    configuration: FleetConfiguration, records: Records, agents: Agents, name: str, job: str | None
) -> tuple[OwedBackup, ...]:
    """What a person owes the fleet who names a cluster, or a host; nothing where it has no such job.

    Raises:
        UsageError: a run of it could have no id.
    """
    now = datetime.now(UTC)
    cluster = name if name in configuration.clusters else (configuration.hosts[name].cluster or name)
    only = "" if name in configuration.clusters else name
    hosts = configuration.clusters[cluster].members
    told = ask_hosts(hosts, agents, at_once=configuration.control.ask_at_once)
    for one in told.values():
        records.saw(one.seen)
    answered = [host for host, one in told.items() if one.seen.described is not None]
    seen = {one.host: one for one in records.seen()}
    terms = next(one for one in cluster_terms(configuration) if one.cluster == cluster)
    night = tonight(configuration, now)
    plan = plan_night(night, [_asked_for(terms, only)], seen, shared_targets(configuration), night_clock(configuration))
    owed = [
        replace(one, not_before=now, not_after=now + _LASTS, closed=(), priority=0, asked_for=1)
        for one in plan.owed
        if job is None or one.job == job
    ]
    for each in owed:
        _require_ids(each)
    return tuple(_unused(each, records, agents, answered) for each in owed)


def owe_by_hand(records: Records, owed: Sequence[OwedBackup]) -> list[OwedBackup]:
    """They are in the records, each under an id that no other has."""
    added = []
    for one in owed:
        while not records.owe_one(FleetBackup(one, FleetState.WAITING, changed_at=datetime.now(UTC))):
            one = replace(one, asked_for=one.asked_for + 1)  # noqa: PLW2901 - the next of this night
        added.append(one)
    return added


def _unused(owed: OwedBackup, records: Records, agents: Agents, hosts: Sequence[str]) -> OwedBackup:
    """Under the first id that neither the records have nor, as far as they tell, one of these hosts: records that were
    restored from a dump have forgotten what hosts have not. A host that claims to have them all is not believed.
    """
    for number in range(1, _MOST_ASKED + 1):
        one = replace(owed, asked_for=number)
        if records.backup(one.id) is None and not any(_has_run(agents.agent(host), one.id) for host in hosts):
            return one
    return owed


def _has_run(agent: Agent, run_id: str) -> bool:
    try:
        return agent.status(run_id).status is not None
    except (HostAway, HostRefuses):
        return False  # where it has, what it tells is seen to be older than the wish


def _asked_for(terms: ClusterTerms, only: str) -> ClusterTerms:
    """At once, however new the last one is; where a host is named, by that one alone."""
    always = replace(terms, windows=_ALWAYS, blackout=(), every_seconds=0.0, spread_seconds=0.0)
    if not only:
        return always
    return replace(always, members=(only,), every_member=True, rule=replace(terms.rule, names=()))


def _require_ids(owed: OwedBackup) -> None:
    """Each of its tries can have one, also if it is asked for again and again."""
    longest = try_id(replace(owed, asked_for=_MOST_ASKED), MOST_RETRIES + 1)
    if is_run_id(longest):
        return
    whose = f"job {owed.job} of cluster {owed.cluster}" + (f" on {owed.only}" if owed.only else "")
    raise UsageError(
        f"the run ids of {whose} would be longer than 61 characters, or contain characters that a run id must not have:"
        f" {longest}",
        hint=f"type `backupd fleet run {owed.cluster}` and let the policy choose the member"
        if owed.only
        else "give the cluster a shorter name in fleet.toml",
    )
