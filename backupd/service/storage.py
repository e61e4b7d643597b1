"""How each target stands: whether it is there, when it will be full, and what of that is an alarm.

Knows: what deserves an alarm. Only folders are looked at: of another target the check of a job that writes there finds
that it is away (`[jobs.NAME.schedules.check]`). One that was not looked at yet is neither away nor well: what was an
alarm before stands until a look says otherwise. Who shows alarms asks `site_status`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from backupd.config import DirectoryConfig, TargetConfig
from backupd.policy.filling import full_in_seconds
from backupd.report.words import age, size
from backupd.service.site import Site
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.alarms import OF_TARGETS, Alarm, AlarmKind, OpenAlarm, Severity, gravest

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
    def severity(self) -> Severity:
        """Of its gravest alarm."""
        return gravest(alarm.severity for alarm in self.alarms)

    @property
    def known(self) -> Mapping[AlarmKind, bool]:
        """Of which alarms it is known whether they stand, and whether they do."""
        stand = {alarm.kind for alarm in self.alarms}
        return {kind: kind in stand for kind in sorted(_judged(self.seen) | stand)}


def storage_statuses(site: Site, seen: Mapping[str, SeenTarget]) -> tuple[StorageStatus, ...]:
    """Every configured target, by name; `seen` is what looks have found.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    configuration, catalogue = site.configuration, site.catalogue
    past = catalogue.room_points(until=site.now())
    standing = [one for one in catalogue.open_alarms() if one.kind in OF_TARGETS]
    found = []
    for name, config in sorted(configuration.targets.items()):
        looked = seen.get(name)
        free = None if looked is None else looked.free
        full = None if free is None else full_in_seconds(past.get(name, ()), now_free=free)
        before = [one for one in standing if one.about == name] if isinstance(config, DirectoryConfig) else []
        fills = any(one.kind is AlarmKind.STORAGE_FILLS for one in before)
        limit = configuration.service.storage_full_within_seconds * (_STILL if fills else 1.0)
        jobs = tuple(job for job, one in sorted(configuration.jobs.items()) if name in one.targets)
        alarms = (*_alarms(config, looked, full, limit), *_still(before, looked))
        found.append(StorageStatus(config, jobs, looked, full, alarms))
    return tuple(found)


def _judged(seen: SeenTarget | None) -> frozenset[AlarmKind]:
    """What a look tells of: one that found no folder says nothing of its room."""
    if seen is None:
        return frozenset()
    fills = (AlarmKind.STORAGE_FILLS,) if seen.up and seen.free is not None else ()
    return frozenset({AlarmKind.STORAGE_UNREACHABLE, *fills})


def _alarms(config: TargetConfig, seen: SeenTarget | None, full: float | None, limit: float) -> Iterator[Alarm]:
    if seen is None or not isinstance(config, DirectoryConfig):
        return
    if not seen.up:
        text = f"{config.path} is missing, not mounted or read-only, or does not answer"
        yield Alarm(AlarmKind.STORAGE_UNREACHABLE, text, about=config.name)
    elif full is not None and full <= limit:
        text = f"it will be full in about {age(full)}: {size(seen.free)} of {size(seen.size)} are free"
        yield Alarm(AlarmKind.STORAGE_FILLS, text, about=config.name)


def _still(before: Iterable[OpenAlarm], seen: SeenTarget | None) -> Iterator[Alarm]:
    """Earlier ones that this look says nothing of."""
    return (Alarm(one.kind, one.text, about=one.about) for one in before if one.kind not in _judged(seen))
