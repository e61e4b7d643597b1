"""`backupd demo`: the whole job on a striped volume under load, in the lab, ending with what it cost."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from backupd.cli.output import say, tell
from backupd.errors import BackupdError

_ROWS = 100_000
_UNDISTURBED_SECONDS = 10.0
_DEADLINE_SECONDS = 330.0
_LAB_FILES = Path("/run/lab")


def register(app: typer.Typer) -> None:
    """Add this command to the tree."""
    app.command()(demo)


def demo(*, inside: Annotated[bool, typer.Option(hidden=True)] = False) -> None:
    """Run the job in the lab: a striped volume, a MariaDB server under load; check, run, history, drill."""
    if inside:
        _inside()
    else:
        _outside()


def _outside() -> None:
    from backupd.lab import options, run

    tell(f"demo: a machine with a striped volume under a loaded MariaDB server of {_ROWS} rows")
    status = run.run_lab(
        options.LabOptions(rows=_ROWS, deadline_seconds=_DEADLINE_SECONDS), [sys.executable, "-m", "backupd", "demo", "--inside"]
    )
    if status:
        raise typer.Exit(status)
