"""`backupd fleet pause` and `resume`: a person's word that nothing of a cluster, a host or the fleet begins."""

from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import say, tell
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.config.fleet import FleetConfiguration
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
    """Begin no backup of a cluster, by a host, or at all until `fleet resume`. Backups in progress continue.

    What cannot begin before its window closes is missed, and is reported as such.
    """
    records, scope, of = _of(ctx, name, all_of_it)
    records.pause(scope, of, note)
    say(f"{_called(scope, of)} is paused" + (f": {note}" if note else ""))
    tell(
        "when a whole cluster is paused, each host backs itself up once fallback_after has passed; to prevent that,"
        " type on the host: backupd schedule pause JOB"
    )


def resume(
    ctx: typer.Context,
    name: _Name = None,
    *,
    all_of_it: Annotated[bool, typer.Option("--all", help="The whole fleet: its clusters' own pauses stay.")] = False,
) -> None:
    """Begin backups again."""
    from backupd.vocabulary.fleet import PauseScope

    _, records = _opened(ctx, name, all_of_it)
    whole = name is None
    ended = [  # also of what has left the fleet: its pause stands until somebody ends it
        one for one in records.pauses() if (one.scope is PauseScope.FLEET) == whole and one.name == (name or "")
    ]
    if not ended:
        raise UsageError(f"{name or 'the fleet'} is not paused", hint="see `backupd fleet status`")
    for one in ended:
        records.resume(one.scope, one.name)
        say(f"{_called(one.scope, one.name)} is no longer paused")


def _of(ctx: typer.Context, name: str | None, all_of_it: bool) -> "tuple[Records, PauseScope, str]":
    """Whose pause it is.

    Raises:
        UsageError: nobody of this name is known, or nothing is named, or both.
    """
    from backupd.vocabulary.fleet import PauseScope

    configuration, records = _opened(ctx, name, all_of_it)
    if name is None:
        return records, PauseScope.FLEET, ""
    if name in configuration.clusters:
        return records, PauseScope.CLUSTER, name
    if name in configuration.hosts:
        return records, PauseScope.HOST, name
    raise UsageError(f"the fleet has no cluster and no host {name!r}", hint="see `backupd fleet check`")


def _opened(ctx: typer.Context, name: str | None, all_of_it: bool) -> "tuple[FleetConfiguration, Records]":
    """The fleet, and its records.

    Raises:
        UsageError: nothing is named, or both.
    """
    from backupd.fleet.records import Records
    from backupd.operations.fleet.fleet_context import database_url, fleet

    if (name is None) == (not all_of_it):
        raise UsageError("name a cluster or a host, or the whole fleet", hint="backupd fleet pause --all")
    configuration = fleet(ctx.obj.config).configuration
    return configuration, Records.open(database_url(configuration.control))


def _called(scope: "PauseScope", name: str) -> str:
    return f"{scope} {name}" if name else "the fleet"
