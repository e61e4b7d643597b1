"""How each target stands: whether it is there, when it will be full, and what of that is an alarm.

The one place that metrics, notifications and the digest ask. Knows: what deserves an alarm. Only folders are looked at:
of another target the check of a job that writes there finds that it is away (`[jobs.NAME.schedules.check]`). One that
was not looked at yet is neither away nor well.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backupd.config import DirectoryConfig, TargetConfig
from backupd.policy.filling import full_in_seconds
from backupd.report.words import age, size
from backupd.service.site import Site
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.alarms import Alarm, AlarmKind

_STILL = 1.25  # times the limit: an alarm that stands is over only beyond, so that it does not come and go


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """One target at one instant."""

    config: TargetConfig
    jobs: tuple[str, ...] = ()  # that write there
    seen: SeenTarget | None = None  # None: not a folder, or not looked at yet
    full_in_seconds: float | None = None  # None: it does not fill, or nobody can tell
    alarms: tuple[Alarm, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Only these are looked at."""
        return isinstance(self.config, DirectoryConfig)

    @property
    def judged(self) -> frozenset[AlarmKind]:
        """The alarms of which it is known whether they stand."""
        if self.seen is None:
            return frozenset()
        fills = (AlarmKind.STORAGE_FILLS,) if self.seen.free is not None else ()
        return frozenset({AlarmKind.STORAGE_UNREACHABLE, *fills})


def storage_statuses(site: Site, seen: Mapping[str, SeenTarget]) -> tuple[StorageStatus, ...]:
    """Every configured target, by name; `seen` is what looks have found.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    configuration, catalogue = site.configuration, site.catalogue
    past = catalogue.room_points(until=site.now())
    filling = {one.about for one in catalogue.standing_alarms() if one.kind is AlarmKind.STORAGE_FILLS}
    found = []
    for name, config in sorted(configuration.targets.items()):
        looked = seen.get(name)
        free = None if looked is None else looked.free
        full = None if free is None else full_in_seconds(past.get(name, ()), now_free=free)
        limit = configuration.service.storage_full_within_seconds * (_STILL if name in filling else 1.0)
        jobs = tuple(job for job, one in sorted(configuration.jobs.items()) if name in one.targets)
        found.append(StorageStatus(config, jobs, looked, full, tuple(_alarms(config, looked, full, limit))))
    return tuple(found)


def _alarms(config: TargetConfig, seen: SeenTarget | None, full: float | None, limit: float) -> list[Alarm]:
    if seen is None or not isinstance(config, DirectoryConfig):
        return []
    if not seen.up:
        text = f"{config.path} is missing, not mounted or read-only, or does not answer"
        return [Alarm(AlarmKind.STORAGE_UNREACHABLE, text, about=config.name)]
    if full is None or full > limit:
        return []
    text = f"it will be full in about {age(full)}: {size(seen.free)} of {size(seen.size)} are free"
    return [Alarm(AlarmKind.STORAGE_FILLS, text, about=config.name)]
