"""What every command opens first: the configuration, and the record of all runs.

Apart from `wiring`, because what acts on a host takes a quarter of a second to load, and a look at the history does
without; it does without the configuration's schema too, which is imported where it is needed.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.config.documents import DEFAULT_PATH, documents_at, locate
from backupd.config.unchecked import Unchecked
from backupd.host import machine_ids
from backupd.host.filesystem import is_absent
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backupd.config import Configuration, JobConfig


def configuration(explicit: Path | None) -> "Configuration":
    """The configuration that the command line, the environment or the default path names.

    Raises:
        ConfigurationError: listing every fault.
    """
    from backupd.config import load

    return load(locate(explicit, os.environ))


def configuration_or_defaults(explicit: Path | None) -> "Configuration":
    """The same for commands that need no job: a host that has no configuration yet has the default places.

    Raises:
        ConfigurationError: listing every fault; also where a file is named that is not there.
    """
    return unchecked(explicit).checked()


def unchecked(explicit: Path | None) -> Unchecked:
    """The same for commands that need the catalogue alone: faults elsewhere do not keep anybody from it.

    Raises:
        ConfigurationError: one of the files cannot be read, or is not TOML; or one is named that is not there.
    """
    path = locate(explicit, os.environ)
    return Unchecked({} if path == DEFAULT_PATH and is_absent(path) else documents_at(path), path)


def job(configuration: "Configuration", name: str) -> "JobConfig":
    """The job of this name.

    Raises:
        UsageError: there is none; the hint lists those there are.
    """
    try:
        return configuration.jobs[name]
    except KeyError:
        raise UsageError(f"no job {name!r}", hint=f"configured jobs: {', '.join(configuration.jobs)}") from None


def require_known_job(configuration: "Callable[[], Configuration]", catalogue: Catalogue, name: str | None) -> None:
    """The job, where one is named, is configured, or has runs from when it was: then nobody asks for the configuration.

    Raises:
        UsageError: neither; the hint lists those that are configured.
        ConfigurationError: of `configuration`.
    """
    if name is not None and not catalogue.has_runs_of(name):
        job(configuration(), name)


def catalogue(configuration: "Configuration | Unchecked") -> Catalogue:
    """The catalogue, made or upgraded if need be; a context manager.

    Raises:
        ConfigurationError: it is not known where it is: the table that says so has a fault.
        CatalogueError: it cannot be opened or written.
    """
    return Catalogue.open(configuration.catalogue.path, machine=machine_ids.this_machine)


def own_catalogue(configuration: "Configuration") -> Catalogue:
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
