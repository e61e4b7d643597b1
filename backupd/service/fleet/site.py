"""What whoever looks at a fleet is given: its records, what it consists of, and a clock.

Knows: what of `fleet.toml` those need who only look on. Credentials and ways to hosts are not among it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime

from backupd.config.fleet import FleetConfiguration, MemberChoice
from backupd.fleet.records import Records
from backupd.policy.cluster_status import FleetShape, WatchedCluster, is_at_work
from backupd.policy.night_times import night_of
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.fleet import Control


def utc_now() -> datetime:
    """The clock of whoever has no other."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class FleetSite:
    """One fleet, as its control host sees it."""

    records: Records
    shape: FleetShape
    now: Callable[[], datetime] = utc_now
    own_control: tuple[str, int] | None = None  # host and process that serve these pages, where they are a control host

    def tonight(self) -> date:
        """Which night it is now."""
        return night_of(self.now(), begins=self.shape.night_begins, zone=self.shape.zone)

    def leads(self, control: Control | None) -> bool:
        """Whether the control host that serves these pages is the one at work; a standby is not."""
        return (
            control is not None and is_at_work(control, self.now()) and (control.host, control.pid) == self.own_control
        )

    def terms_of(self, cluster: str) -> WatchedCluster:
        """Of this cluster.

        Raises:
            UsageError: the configuration has no such cluster.
        """
        found = next((one for one in self.shape.clusters if one.cluster == cluster), None)
        if found is None:
            raise UsageError(f"there is no cluster {cluster}", hint="see all of them: backupd fleet status")
        return found


def shape_of(configuration: FleetConfiguration) -> FleetShape:
    """What the fleet consists of by its configuration."""
    clusters = []
    for name, cluster in sorted(configuration.clusters.items()):
        policy = configuration.policies[cluster.policy]
        clusters.append(
            WatchedCluster(
                name,
                tuple(cluster.members),
                tuple(cluster.jobs),
                policy.every_seconds,
                policy.drill_within_seconds,
                every_member=policy.member is MemberChoice.ALL,
            )
        )
    return FleetShape(
        clusters=tuple(clusters),
        hosts=tuple(sorted(configuration.hosts)),
        slots={name: target.slots for name, target in sorted(configuration.targets.items())},
        zone=str(configuration.control.zone),
        night_begins=configuration.control.night_begins,
    )
