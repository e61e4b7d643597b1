"""`conf.d/*.toml` beside the configuration: more tables of the same configuration, each in one file only.

Knows: which files count, whose they may be, and which file a table comes from, so that a fault names it. Refuses to
guess: a table that is in two files is a fault, not a matter of which one is read last.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backupd.config.own_files import require_ours
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.faults import Fault, dotted

FOLDER = "conf.d"
_SUFFIX = ".toml"
_NAMED = ("hosts", "targets", "notifications", "jobs")  # tables of which a file may add one

Documents = Mapping[Path, Mapping[str, Any]]


def beside(path: Path) -> tuple[Path, ...]:
    """The drop-ins of this configuration, by name; hidden files and editors' copies (`x.toml~`) are none.

    Raises:
        ConfigurationError: the folder or one of them cannot be read; or others than root and whoever runs this may
            write it, who could name programs there that backupd runs.
    """
    folder = path.parent / FOLDER
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {folder}: {(error.strerror or str(error)).lower()}", hint="run it as root"
        ) from error
    files = tuple(folder / name for name in names if name.endswith(_SUFFIX) and not name.startswith("."))
    for one in (folder, *files) if files else ():
        require_ours(one)
    return files


def merged(documents: Documents) -> dict[str, Any]:
    """The one document that these files are together; of what is in two of them, the first's."""
    whole: dict[str, Any] = {}
    for document in documents.values():
        for key, value in document.items():
            there = whole.get(key)
            if key in _NAMED and isinstance(there, dict) and isinstance(value, dict):
                whole[key] = {**value, **there}
            else:
                whole.setdefault(key, value)
    return whole


def repeated(documents: Documents, main: Path) -> Iterator[Fault]:
    """A fault for each table that is in two files."""
    origins: dict[tuple[str, ...], Path] = {}
    for file, document in documents.items():
        for location in _locations(document):
            first = origins.setdefault(location, file)
            if first != file:
                fact = f"is in {_short(first, main)} and in {_short(file, main)}"
                yield Fault(dotted(location), fact, "keep it in one of them")


def told_where(faults: Sequence[Fault], documents: Documents, main: Path) -> list[Fault]:
    """The same faults; one in a drop-in's table begins with that file's name."""
    origins = {
        dotted(location): file
        for file, document in reversed([*documents.items()])
        for location in _locations(document)
        if file != main
    }
    return [_told(fault, origins, main) for fault in faults]


def file_of_job(documents: Documents, job: str) -> Path | None:
    """The file that has this job's table."""
    return next((file for file, document in documents.items() if ("jobs", job) in _locations(document)), None)


def _locations(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        if key in _NAMED and isinstance(value, dict):
            yield from ((key, name) for name in value)
        else:
            yield (key,)


def _told(fault: Fault, origins: Mapping[str, Path], main: Path) -> Fault:
    for location, file in origins.items():
        if fault.path == location or fault.path.startswith((f"{location}.", f"{location}[")):
            return replace(fault, path=f"{_short(file, main)}: {fault.path}")
    return fault


def _short(file: Path, main: Path) -> str:
    return file.name if file == main else f"{FOLDER}/{file.name}"
