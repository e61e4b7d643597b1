"""A control host of a fleet as its configuration says: what each night owes, by which terms, and who is told.

Knows: that a night is planned by what its hosts tell when it begins, and that a configuration which has changed by then
takes a new process.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import date
from time import monotonic
from typing import Final

from backupd.config.fleet import DEFAULT_POLICY, FleetConfiguration, PolicyConfig
from backupd.config.fleet_reading import FleetFile
from backupd.fleet import Agents, Engine
from backupd.fleet.records import Records
from backupd.operations.fleet.choosing import Chooser, NightPatience, NightTerms
from backupd.operations.fleet.contact import HostContact, seen_to
from backupd.operations.fleet.control import ControlHost, Nights
from backupd.operations.fleet.fleet_notices import (
    Tell,
    tell_end,
    tell_gone,
    tell_moved,
    tell_one_machine,
    tell_own_clock,
    tell_problems,
    tell_unplanned,
)
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.stories import NightStories
from backupd.operations.fleet.terms import cluster_terms, member_rule, night_clock, shared_targets, tonight
from backupd.policy.fleet_plan import NightPlan, plan_night
from backupd.policy.fleet_tries import TryRule
from backupd.policy.one_machine import counted_as, set_apart
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.fleet import SeenHost

log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class FleetSurroundings:
    """What a control host has of the world."""

    configuration: FleetConfiguration
    load: Callable[[], FleetFile]  # as it is now; raises ConfigurationError
    records: Records
    agents: Agents
    engine: Engine
    tell: Tell
    say: Callable[[str], None]
    begin_anew: Callable[[str], None]  # this process, for this reason
    problems: tuple[str, ...] = ()  # with its inventory
    loaded_at: float = field(default_factory=monotonic)


def control_host(given: FleetSurroundings) -> ControlHost:
    """The one that serves this fleet."""
    configuration = given.configuration
    control = configuration.control
    wishes = Wishes(given.records)
    planned_now = threading.Event()
    apart: set[str] = set()  # hosts that are another's machine, as all told last
    claims = seen_to(configuration, wishes, planned_now.is_set, apart)
    counted = counted_as(cluster_terms(configuration))

    def heard(seen: Collection[SeenHost]) -> None:
        tell_own_clock(given.records, seen)
        tell_moved(given.records)
        found = tell_one_machine(given.records, counted)
        apart.intersection_update(found)
        apart.update(found)

    chooser = Chooser(
        *(given.records, given.agents, wishes, night_terms(configuration)),
        NightPatience(control.poll_seconds),
        seen_to=claims,
        counted=counted,
    )
    contact = HostContact(
        *(configuration, given.records, given.agents, claims, planned_now.is_set),
        heard=heard,
    )
    stories = NightStories(chooser, tell_end=lambda backup: tell_end(given.records, backup))
    nights = Nights(
        now=lambda instant: tonight(configuration, instant),
        plan=lambda night: _planned(given, contact, night),
        tell_unplanned=lambda night, error: tell_unplanned(given.records, night, error),
        is_planned=planned_now,
        keep_contact=contact.keep,
    )
    return ControlHost(given.engine, stories, nights, given.say, tell=given.tell)


def night_terms(configuration: FleetConfiguration) -> Callable[[str], NightTerms]:
    """What each cluster's policy says; one that the configuration has lost goes by defaults, to its end."""
    shared = frozenset(configuration.targets)
    known = {
        cluster.name: replace(_terms(configuration.policies[cluster.policy]), members=cluster.members, targets=shared)
        for cluster in configuration.clusters.values()
    }
    lost = _terms(PolicyConfig(name=DEFAULT_POLICY))
    return lambda cluster: known.get(cluster, lost)


def _terms(policy: PolicyConfig) -> NightTerms:
    return NightTerms(member_rule(policy), TryRule(policy.retries, policy.retry_after_seconds))


def planned(configuration: FleetConfiguration, records: Records, contact: HostContact, night: date) -> NightPlan:
    """What this night owes, by what all hosts tell now; of one that does not answer, by what it told last."""
    contact.ask()
    seen = {one.host: one for one in records.seen()}
    clusters, targets = cluster_terms(configuration), shared_targets(configuration)
    apart = set_apart(seen, counted_as(clusters))
    return plan_night(night, clusters, apart, targets, night_clock(configuration))


def reload(load: Callable[[], FleetFile], say: Callable[[str], None], begin_anew: Callable[[str], None]) -> None:
    """A person wants the file as it is now to count; one with faults does not: what is at work stays."""
    try:
        load()
    except ConfigurationError as error:
        log.error("the configuration was not reloaded: %s; hint: %s", error.message, error.hint)
        say(f"the configuration was not reloaded, the previous one stays in force: {error.message}")
        return
    begin_anew("SIGHUP")


def _planned(given: FleetSurroundings, contact: HostContact, night: date) -> NightPlan:
    fresh = monotonic() - given.loaded_at <= _FRESH_SECONDS
    problems = given.problems if fresh else _reloaded(given, night)
    made = planned(given.configuration, given.records, contact, night)
    tell_problems(given.records, night, problems)
    tell_gone(given.records, given.configuration.hosts)
    return made


def _reloaded(given: FleetSurroundings, night: date) -> tuple[str, ...]:
    """What is wrong with the file's inventory, or with the file; where it has changed, this process restarts.

    An inventory may list the same in another order each time: what was just read is taken as it is.
    """
    try:
        file = given.load()
    except ConfigurationError as error:
        log.error("the night of %s uses the previous configuration: %s; hint: %s", night, error.message, error.hint)
        return (f"tonight uses the previous configuration: {error.message}",)
    if file.configuration != given.configuration:
        given.begin_anew("the fleet's configuration has changed")
    return file.problems
