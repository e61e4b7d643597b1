"""`backupd version`."""

from typing import Annotated

import typer

from backupd import __version__
from backupd.cli.output import print_document, say


def version(*, json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Print the version of backupd, like `backupd --version`."""
    if json:
        print_document({"version": __version__})
    else:
        say(f"backupd {__version__}")
