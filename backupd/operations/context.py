"""What every command opens first: the configuration, and the record of all runs.

Apart from `wiring`, because what acts on a host takes a quarter of a second to load, and a look at the history does
without.
"""

import os
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.config import DEFAULT_PATH, Configuration, JobConfig, load, locate
from backupd.host import machine_ids
from backupd.host.filesystem import is_absent
from backupd.vocabulary.errors import UsageError


def configuration(explicit: Path | None) -> Configuration:
    """The configuration that the command line, the environment or the default path names.

    Raises:
        ConfigurationError: listing every fault.
    """
    return load(locate(explicit, os.environ))


def configuration_or_defaults(explicit: Path | None) -> Configuration:
    """The same for commands that need no job: a host that has no configuration yet has the default places.

    Raises:
        ConfigurationError: listing every fault; also where a file is named that is not there.
    """
    path = locate(explicit, os.environ)
    return Configuration() if path == DEFAULT_PATH and is_absent(path) else load(path)


def job(configuration: Configuration, name: str) -> JobConfig:
    """The job of this name.

    Raises:
        UsageError: there is none; the hint lists those there are.
    """
    try:
        return configuration.jobs[name]
    except KeyError:
        raise UsageError(f"no job {name!r}", hint=f"configured jobs: {', '.join(configuration.jobs)}") from None


def require_known_job(configuration: Configuration, catalogue: Catalogue, name: str | None) -> None:
    """The job, where one is named, is configured, or has runs from when it was.

    Raises:
        UsageError: neither; the hint lists those that are configured.
    """
    if name is not None and name not in configuration.jobs and not catalogue.has_runs_of(name):
        job(configuration, name)


def catalogue(configuration: Configuration) -> Catalogue:
    """The catalogue, made or upgraded if need be; a context manager.

    Raises:
        CatalogueError: it cannot be opened or written.
    """
    return Catalogue.open(configuration.catalogue.path, machine=machine_ids.this_machine)


def own_catalogue(configuration: Configuration) -> Catalogue:
    """The same for whoever changes something.

    Raises:
        Refused: it is another machine's: it was copied here, or this machine was cloned with it.
        CatalogueError: it cannot be opened or written.
    """
    opened = catalogue(configuration)
    try:
        opened.identity().require_of(machine_ids.this_machine())
    except BaseException:
        opened.close()
        raise
    return opened
