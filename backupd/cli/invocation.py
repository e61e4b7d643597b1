"""What commands share: what was told before their names (which configuration, how loud), and common options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

# Of every command that opens a backup. The secret itself never stands on a command line or in the environment.
IdentityOption = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        metavar="FILE",
        envvar="BACKUPD_IDENTITY",
        help="File with the age identity (secret key) that opens an encrypted backup.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@dataclass(frozen=True, slots=True)
class Invocation:
    """The options of `backupd` itself; a command finds them in its context's `obj`."""

    config: Path | None = None
    quiet: bool = False
