"""From the configuration to tools: the only module that knows which implementation serves which contract."""

import os
from collections.abc import Mapping
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.claims import Claims
from backupd.command import ChildLedger, end_stray, found
from backupd.config import Configuration, HostConfig, JobConfig, TargetConfig, load, locate
from backupd.config.secrets import credentials
from backupd.errors import SnapshotError, TargetError, UsageError
from backupd.filesystem import sync_filesystem, used_bytes
from backupd.holding import Releases
from backupd.model import Holding, HoldingKind
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.locks import ServerLock
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Login
from backupd.probe.sysbench import SysbenchProbe
from backupd.snapshots.lvm import LvmSnapshots
from backupd.snapshots.mounting import LinuxMounts, mount_of
from backupd.targets import Target
from backupd.targets.directory import DirectoryTarget
from backupd.tools import HostFiles, HostTools, Places, Tools


def configuration(explicit: Path | None) -> Configuration:
    """The configuration that the command line, the environment or the default path names.

    Raises:
        ConfigurationError: listing every fault.
    """
    return load(locate(explicit, os.environ))


def job(configuration: Configuration, name: str) -> JobConfig:
    """The job of this name.

    Raises:
        UsageError: there is none; the hint lists those there are.
    """
    try:
        return configuration.jobs[name]
    except KeyError:
        raise UsageError(f"no job {name!r}", hint=f"the configuration has: {', '.join(configuration.jobs)}") from None


def catalogue(configuration: Configuration) -> Catalogue:
    """The catalogue, made or upgraded if need be; a context manager.

    Raises:
        CatalogueError: it cannot be opened or written.
    """
    return Catalogue.open(configuration.catalogue.path)


def target(configuration: Configuration, name: str) -> Target:
    """The target of this name.

    Raises:
        UsageError: the configuration has none of this name (any more).
    """
    try:
        found_target = configuration.targets[name]
    except KeyError:
        raise UsageError(
            f"no target {name!r}", hint=f"the configuration has: {', '.join(configuration.targets)}"
        ) from None
    return _target(found_target)


def host_tools(configuration: Configuration, ledger: ChildLedger | None = None) -> HostTools:
    """What acts on the host whatever the job."""
    snapshots = LvmSnapshots(ledger=ledger)
    mounts = LinuxMounts()
    places = Places(
        run=configuration.paths.run, staging=configuration.paths.staging, catalogue=configuration.catalogue.path
    )
    return HostTools(
        snapshots=snapshots,
        mounts=mounts,
        files=HostFiles(mount_of=mount_of, sync=sync_filesystem, used_bytes=used_bytes),
        places=places,
        claims=Claims(configuration.paths.run),
        releases=_releases(configuration, snapshots, mounts),
    )
