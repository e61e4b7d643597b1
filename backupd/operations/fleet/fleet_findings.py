"""What a fleet's file and its hosts' answers say of each other, as findings."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from backupd.config.fleet import FleetConfiguration
from backupd.config.fleet_reading import FleetFile
from backupd.notifications.fanout import Subscriber
from backupd.operations.fleet.host_survey import AskedHost
from backupd.operations.fleet.terms import cluster_terms
from backupd.policy.fleet_check import FleetClaims, check_fleet
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.schedule import Notice, NoticeKind

_HEARD_OF: Final = {NoticeKind.FAILED: "failed", NoticeKind.MISSED: "were missed"}


def fleet_findings(
    file: FleetFile,
    asked: Mapping[str, AskedHost],
    *,
    now: datetime,
    untold: ConfigurationError | None = None,
    told: Iterable[Subscriber] | None = None,
) -> tuple[Finding, ...]:
    """All that is wrong or needs attention, the gravest first; none: every host is what the file says. `untold` is what
    keeps the configuration from being used whose notifications are to be told, `told` are those that it has.
    """
    seen = {host: one.seen for host, one in asked.items()}
    hints = {host: one.hint for host, one in asked.items()}
    of_hosts = check_fleet(_claims(file.configuration), seen, hints, now=now)
    inventory = [Finding("inventory", Level.WARNING, problem) for problem in file.problems]
    of_control = (*_untold(file.configuration, untold), *(unheard(told) if told is not None else ()))
    return (*(one for one in of_hosts if one.level is Level.REFUSED), *of_control, *inventory, *_others(of_hosts))


def _untold(configuration: FleetConfiguration, why: ConfigurationError | None) -> tuple[Finding, ...]:
    if why is not None:
        fact = f"notifications cannot be used, and `backupd fleet serve` would not start: {why.message}"
        return (Finding("control", Level.REFUSED, fact, why.hint),)
    if configuration.control.notifications is not None:
        return ()
    fact = "nobody is notified of backups that failed or were missed: they are in the log, on the pages and in metrics"
    hint = "name a configuration of backupd with [notifications.NAME] as notifications in [control]"
    return (Finding("control", Level.WARNING, fact, hint),)


def unheard(told: Iterable[Subscriber]) -> tuple[Finding, ...]:
    """What none of those that are told of a fleet wants to hear, though somebody should."""
    wanted = {kind for one in told for kind in _HEARD_OF if one.wants(_of_a_cluster(kind))}
    if not (lacking := [what for kind, what in _HEARD_OF.items() if kind not in wanted]):
        return ()
    fact = f"the file that `notifications` names notifies nobody of the fleet's backups that {' or '.join(lacking)}"
    hint = (
        "it needs a [notifications.NAME] without `jobs`, which are this machine's and no cluster's, and with such kinds"
        " in `on`, if that is there"
    )
    return (Finding("control", Level.WARNING, fact, hint),)


def _of_a_cluster(kind: NoticeKind) -> Notice:
    return Notice(kind, "", datetime.now(UTC), "", "", cluster="any")


def _others(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(one for one in findings if one.level is not Level.REFUSED)


def _claims(configuration: FleetConfiguration) -> FleetClaims:
    within = {
        cluster.name: seconds
        for cluster in configuration.clusters.values()
        if (seconds := configuration.policies[cluster.policy].drill_within_seconds) is not None
    }
    return FleetClaims(
        clusters=cluster_terms(configuration),
        addresses={name: host.address or name for name, host in configuration.hosts.items()},
        targets=frozenset(configuration.targets),
        drill_within=within,
    )
