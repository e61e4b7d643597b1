"""What goes where: results to stdout, everything else to stderr; one JSON document at the most."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backupd.errors import UsageError

SCHEMA = 1


class _Printed:
    """Whether this process has printed its one document."""

    document = False


def print_document(document: Mapping[str, Any]) -> None:
    """Print the one JSON document of a command; `"schema": 1` comes first in every one."""
    if _Printed.document:
        raise AssertionError("a command prints one document")
    _Printed.document = True
    print(json.dumps({"schema": SCHEMA, **document}, indent=2, allow_nan=False))  # noqa: T201
    sys.stdout.flush()


def document_was_printed() -> bool:
    """True once `print_document` was called: an error is then told on stderr only."""
    return _Printed.document


def draws_dots_here() -> bool:
    """Whether stdout shows more than ASCII."""
    from backupd.report.plot import draws_dots

    return draws_dots(sys.stdout.encoding, os.environ.get("TERM"))


def say(text: str = "") -> None:
    """A line of a result, for people."""
    print(text, flush=True)  # noqa: T201


def tell(text: str) -> None:
    """A line about the work, for people: never part of a result."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def write_report(path: Path, text: str, *, hint: str) -> None:
    """The file has this text, and stderr says so; `hint` tells what is not lost where that fails.

    Raises:
        UsageError: it could not be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} could not be written: {error.strerror}", hint=hint) from error
    tell(f"wrote {path}")
