"""`backupd fleet pause` and `unpause`: a person's word that nothing of a cluster, a host or the fleet begins."""

from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import say, tell
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.fleet.records import Records
    from backupd.vocabulary.fleet import PauseScope

_Name = Annotated[str | None, typer.Argument(metavar="CLUSTER|HOST", help="A cluster of the fleet, or one host.")]


def pause(
    ctx: typer.Context,
    name: _Name = None,
    *,
    all_of_it: Annotated[bool, typer.Option("--all", help="The whole fleet.")] = False,
    note: Annotated[str, typer.Option(help="Reason, shown with it from now on.")] = "",
) -> None:
    """Begin no backup of a cluster, by a host, or at all until `fleet unpause`. Backups in progress continue.

    What cannot begin before its window closes is missed, and is told as such.
    """
    records, scope, of = _of(ctx, name, all_of_it)
    records.pause(scope, of, note)
    say(f"{_called(scope, of)} is paused" + (f": {note}" if note else ""))
    tell(
        "a host whose whole cluster is paused backs itself up once its fallback_after is over; to keep it from that, on"
        " the host: backupd schedule pause JOB"
    )


def unpause(
    ctx: typer.Context,
    name: _Name = None,
    *,
    all_of_it: Annotated[bool, typer.Option("--all", help="The whole fleet: its clusters' own pauses stay.")] = False,
) -> None:
    """Begin backups again."""
    records, scope, of = _of(ctx, name, all_of_it)
    if not records.unpause(scope, of):
        raise UsageError(f"{_called(scope, of)} is not paused", hint="see `backupd fleet status`")
    say(f"{_called(scope, of)} is paused no more")


def _of(ctx: typer.Context, name: str | None, all_of_it: bool) -> "tuple[Records, PauseScope, str]":
    """Whose pause it is.

    Raises:
        UsageError: nobody of this name is known, or nothing is named.
    """
    from backupd.fleet.records import Records
    from backupd.operations.fleet.opening import database_url, fleet
    from backupd.vocabulary.fleet import PauseScope

    if (name is None) == (not all_of_it):
        raise UsageError("name a cluster or a host, or the whole fleet", hint="backupd fleet pause --all")
    configuration = fleet(ctx.obj.config).configuration
    records = Records.open(database_url(configuration.control))
    if name is None:
        return records, PauseScope.FLEET, ""
    if name in configuration.clusters:
        return records, PauseScope.CLUSTER, name
    if name in configuration.hosts:
        return records, PauseScope.HOST, name
    raise UsageError(f"the fleet has no cluster and no host {name!r}", hint="see `backupd fleet check`")


def _called(scope: "PauseScope", name: str) -> str:
    return f"{scope} {name}" if name else "the fleet"
