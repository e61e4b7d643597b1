"""From the fleet's configuration to the values that plans and choices are made of."""

from datetime import date, datetime

from backupd.config.fleet import FleetConfiguration, MemberChoice, PolicyConfig, RetryBy
from backupd.policy.fleet_plan import ClusterTerms, NightClock, SharedTarget
from backupd.policy.member_choice import MemberRule
from backupd.policy.night_times import night_of


def night_clock(configuration: FleetConfiguration) -> NightClock:
    """When its nights are."""
    return NightClock(configuration.control.zone, configuration.control.night_begins)


def tonight(configuration: FleetConfiguration, instant: datetime) -> date:
    """The night in which this instant is."""
    return night_of(instant, begins=configuration.control.night_begins, zone=configuration.control.zone)


def member_rule(policy: PolicyConfig) -> MemberRule:
    """Which member this policy takes."""
    return MemberRule(
        names=policy.member if isinstance(policy.member, tuple) else (),
        max_lag_seconds=policy.max_lag_seconds,
        allow_source=policy.allow_source,
        retry_by_another=policy.retry_by is RetryBy.ANOTHER,
    )


def cluster_terms(configuration: FleetConfiguration) -> tuple[ClusterTerms, ...]:
    """What the policy of each cluster says of it."""
    rules = {name: member_rule(policy) for name, policy in configuration.policies.items()}
    found = []
    for cluster in configuration.clusters.values():
        policy = configuration.policies[cluster.policy]
        found.append(
            ClusterTerms(
                cluster=cluster.name,
                jobs=cluster.jobs,
                members=cluster.members,
                windows=policy.windows,
                rule=rules[cluster.policy],
                every_member=policy.member is MemberChoice.ALL,
                every_seconds=policy.every_seconds,
                blackout=policy.blackout,
                start_within_seconds=policy.start_within_seconds,
                spread_seconds=policy.spread_seconds,
            )
        )
    return tuple(found)


def shared_targets(configuration: FleetConfiguration) -> dict[str, SharedTarget]:
    """How much each target takes."""
    return {name: SharedTarget(name, target.slots, target.max_rate) for name, target in configuration.targets.items()}
