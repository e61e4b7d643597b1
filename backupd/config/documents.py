"""Which file is the configuration, and from it and its drop-ins to TOML's tables.

Refuses to know what may be in them: the schema takes longer to load than all of this to read.
"""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from backupd.config import drop_ins
from backupd.config.own_files import read_closed
from backupd.vocabulary.errors import ConfigurationError

DEFAULT_PATH = Path("/etc/backupd/backupd.toml")
VARIABLE = "BACKUPD_CONFIG"

_MISSING_HINT = f"backupd config init --path {{}} writes a commented one; use --config or {VARIABLE} for another file"
_AT_END = "(at end of document)"


def locate(explicit: Path | None, environment: Mapping[str, str]) -> Path:
    """The file to read: `--config`, else `BACKUPD_CONFIG`, else `/etc/backupd/backupd.toml`. It need not exist."""
    if explicit is not None:
        return explicit
    return Path(environment.get(VARIABLE) or DEFAULT_PATH)


def documents_at(path: Path, *, instead: Mapping[Path, str] = MappingProxyType({})) -> dict[Path, dict[str, Any]]:
    """Every file's tables, the configuration's own first; `instead` are texts in the place of files'.

    Raises:
        ConfigurationError: no such file, not readable, or not TOML (with line and column).
    """
    own = instead[path] if path in instead else text_of(path, missing_hint=_MISSING_HINT.format(path))
    more = {
        file: instead[file] if file in instead else text_of(file, missing_hint=_MISSING_HINT.format(file))
        for file in drop_ins.beside(path)
    }
    return {file: parsed(text, file) for file, text in ({path: own} | more).items()}


def text_of(path: Path, *, missing_hint: str) -> str:
    """A configuration file's text; `missing_hint` is what a person can do where there is no such file.

    Raises:
        ConfigurationError: it is not there, cannot be read, is no text, or anybody can change it.
    """
    try:
        return read_closed(path).decode()
    except FileNotFoundError as error:
        raise ConfigurationError(f"no configuration at {path}", hint=missing_hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(
            f"cannot read {path}: {reason}", hint=("backupd must be able to read it: run it as root")
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"{path} is not UTF-8 text (at line {line})", hint="save it as UTF-8") from error


def parsed(text: str, path: Path) -> dict[str, Any]:
    """The tables of this file's text.

    Raises:
        ConfigurationError: it is not TOML, the message has line and column; or it is more than Python can read.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error).replace(_AT_END, f"(at {_end(text)})")
        raise ConfigurationError(
            f"{path} is not TOML: {message[:1].lower()}{message[1:]}",
            hint='write texts, sizes and durations in quotes, and flags as true or false: key = "value"',
        ) from error
    except ValueError as error:  # Python's own limit, which tomllib does not know
        raise ConfigurationError(
            f"{path} has a number of more than {sys.get_int_max_str_digits()} digits", hint="write a smaller one"
        ) from error
    except RecursionError as error:
        raise ConfigurationError(f"{path} has lists or tables nested too deeply", hint="remove them") from error


def _end(text: str) -> str:
    lines = text.split("\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}"
