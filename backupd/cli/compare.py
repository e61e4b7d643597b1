"""`backupd compare`: two backups side by side."""

from typing import Annotated

import typer

from backupd.cli.output import print_document, print_text
from backupd.cli.selection import AnyRunArgument, any_run_of
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunKind

_COMPARES = {RunKind.PROBE: "backupd probe --compare", RunKind.BENCH: "backupd bench compare"}


def compare(
    ctx: typer.Context,
    a: AnyRunArgument,
    b: Annotated[str, typer.Argument(metavar="RUN", help="The second one.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare two backups: what each cost, how they differ, and which differences are large."""
    from backupd.operations import context
    from backupd.report.run_comparison import compare_document, compare_text

    configuration = context.configuration_or_defaults(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        first, second = (any_run_of(configuration, catalogue, wanted) for wanted in (a, b))
    for run in (first, second):
        if run.kind is not RunKind.BACKUP:
            alike = first.kind is second.kind
            hint = f"{_COMPARES[run.kind]} {a} {b}" if alike else "name two backups: see `backupd history`"
            raise UsageError(f"run {run.run_id} is a {run.kind}, not a backup", hint=hint)
    if first.run_id == second.run_id:
        raise UsageError(f"{a} and {b} are the same run", hint="name two runs: see `backupd history`")
    if json:
        print_document(compare_document(first, second))
    else:
        print_text(compare_text(first, second))
