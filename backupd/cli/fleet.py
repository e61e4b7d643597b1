"""`backupd fleet …`: many hosts, from one control host.

Each command is in a module of its own, which is imported when it is used. They read `/etc/backupd/fleet.toml`, or the
file that `--config` or `BACKUPD_FLEET_CONFIG` names.
"""

from collections.abc import Mapping
from typing import ClassVar

import typer

from backupd.cli.tree import LazyGroup

_MODULES: Mapping[str, str] = {  # in the order of the help
    "check": "fleet_check",
    "plan": "fleet_plan",
    "serve": "fleet_serve",
    "status": "fleet_status",
    "history": "fleet_history",
    "report": "fleet_report",
    "run": "fleet_run",
    "cancel": "fleet_run",
    "pause": "fleet_pause",
    "resume": "fleet_pause",
    "pages": "fleet_pages",
}


class _FleetCommands(LazyGroup):
    """`backupd fleet` with all its commands."""

    modules: ClassVar[Mapping[str, str]] = _MODULES


app = typer.Typer(
    cls=_FleetCommands, rich_markup_mode=None, no_args_is_help=True, help="Many hosts, from one control host."
)
