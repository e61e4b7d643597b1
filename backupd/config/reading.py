"""From the configuration's texts to frozen values, or to one error that lists every fault.

No secret is read or needed here.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from backupd.config import drop_ins
from backupd.config.documents import documents_at, parsed
from backupd.config.rules import broken
from backupd.config.schema import Configuration
from backupd.config.wording import fault
from backupd.vocabulary.faults import Fault, as_error


def load(path: Path, *, instead: Mapping[Path, str] = MappingProxyType({})) -> Configuration:
    """The configuration in this file and its drop-ins, whole and checked; `instead` are texts in the place of files'.

    Raises:
        ConfigurationError: no such file, not readable, not TOML (with line and column), or any number of faults, each
            with its path and hint.
    """
    return whole(documents_at(path, instead=instead), path)


def file_of_job(path: Path, job: str) -> Path:
    """Which file has the table of this job: the configuration itself, or one of its drop-ins.

    Raises:
        ConfigurationError: one of them cannot be read, or is not TOML.
    """
    return drop_ins.file_of_job(documents_at(path), job) or path


def understood(text: str, path: Path) -> Configuration:
    """The configuration that this text is, of this file.

    Raises:
        ConfigurationError: as `load`, but for the reading.
    """
    return checked(parsed(text, path), path)


def checked(document: Mapping[str, Any], path: Path) -> Configuration:
    """The configuration that these TOML tables, read from this file, are.

    Raises:
        ConfigurationError: they have faults; all of them are told.
    """
    return whole({path: document}, path)


def whole(documents: drop_ins.Documents, path: Path) -> Configuration:
    """The configuration that the tables of this file and its drop-ins are.

    Raises:
        ConfigurationError: they have faults; all of them are told.
    """
    document = drop_ins.merged(documents)
    faults: list[Fault] = []
    try:
        configuration = TypeAdapter(Configuration).validate_python(document, by_alias=True, by_name=False)
    except ValidationError as invalid:
        faults += [fault(finding) for finding in invalid.errors(include_url=False)]
    faults += broken(document)
    faults = [*drop_ins.repeated(documents, path), *drop_ins.told_where(faults, documents, path)]
    if faults:
        raise as_error(path, faults)
    return configuration
