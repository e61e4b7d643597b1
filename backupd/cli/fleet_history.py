"""`backupd fleet history`: what became of the backups that nights owed."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from backupd.cli import quantities
from backupd.cli.instants import span
from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.fleet import FleetState

_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC)  # no night is older


def history(
    ctx: typer.Context,
    cluster: Annotated[str | None, typer.Argument(metavar="CLUSTER", help="Only backups of this cluster.")] = None,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="From the night at this time on: 2026-11-20, or 7d for that long ago."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only those that this host made.")] = None,
    outcome: Annotated[FleetState | None, typer.Option("--outcome", help="Only those with this outcome.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=quantities.MOST_ROWS, help="How many to list, newest first.")] = 50,
    csv: Annotated[bool, typer.Option("--csv", help="One CSV line per backup on stdout.")] = False,
    json: JsonOption = False,
) -> None:
    """List the backups that nights owed, newest first: outcome, host, tries, cost, and why it was none."""
    from backupd.policy.night_times import night_of
    from backupd.report.fleet_night_text import history_csv, history_document, history_text
    from backupd.service.fleet.read_only_site import looked_at

    if csv and json:
        raise UsageError("--csv and --json cannot be combined", hint="use one of them")
    begin, _ = span(since, None, now=datetime.now(UTC))
    with looked_at(ctx.obj.config) as site:
        if cluster is not None and not site.records.history(cluster=cluster, limit=1):
            site.terms_of(cluster)
        shape = site.shape
        night = None if begin is None else night_of(max(begin, _FIRST), begins=shape.night_begins, zone=shape.zone)
        found = site.records.history(cluster=cluster, host=host, state=outcome, since=night, limit=limit)
    if json:
        print_document(history_document(found))
    elif csv:
        print_text(history_csv(found).rstrip("\n"))
    else:
        matches = " matches" if cluster or host or since or outcome else " yet"
        print_text(history_text(found) if found else f"no backup{matches}")
