"""What is on each target by the catalogue, and where it is by the configuration: no target is asked.

Knows: how a person is told where a target is. Refuses to know its credentials.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.catalogue.job_status import StoredOnTarget
from backupd.config import AzureConfig, DirectoryConfig, SftpConfig, TargetConfig
from backupd.service.machine_view import Rooms
from backupd.service.site import Site
from backupd.service.storage import StorageStatus, storage_statuses

PAGE_SECONDS = 0.05  # that a page waits for a look at folders; a hung one is left out


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target."""

    name: str
    kind: str  # empty where it is no longer configured
    location: str
    jobs: tuple[StoredOnTarget, ...] = ()  # what each job has there
    storage: StorageStatus | None = None  # None: it is no longer configured

    @property
    def backups(self) -> int:
        """That were not removed."""
        return sum(job.backups for job in self.jobs)

    @property
    def bytes_stored(self) -> int:
        """By them."""
        return sum(job.bytes_stored for job in self.jobs)

    @property
    def broken(self) -> int:
        """Of them."""
        return sum(job.broken for job in self.jobs)


def target_statuses(site: Site, rooms: Rooms) -> Sequence[TargetStatus]:
    """The configured targets by name, then those that only old backups are on."""
    stored = site.catalogue.stored(at=site.now())
    configured = storage_statuses(site, rooms.seen(within_seconds=PAGE_SECONDS))
    gone = sorted({one.target for one in stored} - site.configuration.targets.keys())

    def of(name: str, kind: str, location: str, storage: StorageStatus | None = None) -> TargetStatus:
        jobs = tuple(sorted((one for one in stored if one.target == name), key=lambda one: one.job))
        return TargetStatus(name, kind, location, jobs, storage)

    known = [of(one.config.name, one.config.type.value, _location(one.config), one) for one in configured]
    return [*known, *(of(name, "", "no longer in the configuration") for name in gone)]


def _location(config: TargetConfig) -> str:
    if isinstance(config, DirectoryConfig):
        return str(config.path)
    if isinstance(config, SftpConfig):
        return f"{config.user}@{config.address}:{config.path}"
    bucket = f"{config.account}/{config.container}" if isinstance(config, AzureConfig) else config.bucket
    where = f" at {config.endpoint}" if config.endpoint else ""
    return f"{bucket}/{config.prefix}{where}"
