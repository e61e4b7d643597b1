"""`backupd audit`: what was done with runs and backups, and whether that record can be believed."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli import quantities
from backupd.cli.instants import SinceOption, span
from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.catalogue.audit import AuditEntry, Trail
    from backupd.config import Configuration
    from backupd.operations.upkeep.audit import AuditResult, TargetLook


app = typer.Typer(no_args_is_help=True, help="The audit trail: an append-only chain of what was done.")


@app.callback()
def commands() -> None:
    """The audit trail: an append-only chain of what was done."""


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option(min=1, max=quantities.MOST_ROWS, help="How many to show: the newest.")] = 50,
    json: JsonOption = False,
) -> None:
    """List what happened to runs, backups and schedules, the oldest of it first."""
    from backupd.operations import context

    begin, _ = span(since, None, now=datetime.now(UTC))
    with context.catalogue(context.configuration_or_defaults(ctx.obj.config)) as catalogue:
        found = catalogue.audit_entries(since=begin, limit=limit)[::-1]
    if json:
        print_document({"entries": [_entry(entry) for entry in found]})
    else:
        print_text(_table(found) if found else "no event yet")


@app.command()
def verify(
    ctx: typer.Context,
    *,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help=("Check only the manifests on this target; repeatable."), show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check the chain, and compare it with the catalogue and with the manifests on the jobs' targets."""
    from backupd.operations import context

    configuration = context.configuration(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        trail, machine = catalogue.audit_trail(), catalogue.identity().name
    found = checked(configuration, trail, machine, target)
    if json:
        print_document(examination(found))
    else:
        for line in verdict_lines(found):
            say(line)
    found.require_sound()


def checked(
    configuration: "Configuration", trail: "Trail", machine: str, target: "Sequence[str] | None" = None
) -> "AuditResult":
    """The trail, compared with the manifests on these targets, or on all of the jobs'."""
    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations.upkeep.audit import check_trail

    used = dict.fromkeys(name for job in configuration.jobs.values() for name in job.targets)
    targets = [wiring.target(configuration, name, machine) for name in dict.fromkeys(target or used)]
    with cancellable():
        return check_trail(trail, targets, configuration.jobs)


def _table(entries: "list[AuditEntry]") -> str:
    from backupd.report.words import columns

    rows = [
        (
            str(entry.number),
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            entry.event,
            entry.subject,
            ", ".join(f"{name}: {_plain(value)}" for name, value in entry.detail.items() if value not in ("", {}, [])),
        )
        for entry in entries
    ]
    return columns([("ROW", "AT (UTC)", "EVENT", "OF", "DETAIL"), *rows], right=(0,))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {str(one)[:16]}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _entry(entry: "AuditEntry") -> dict[str, Any]:
    return {
        "row": entry.number,
        "at": entry.at.isoformat(),
        "event": entry.event,
        "subject": entry.subject,
        "detail": dict(entry.detail),
    }


def verdict_lines(found: "AuditResult") -> list[str]:
    """What was compared, and what does not hold."""
    from backupd.report.words import many

    lines = [f"audit chain: {many(found.rows, 'row')}"]
    for look in found.looks:
        lines.append(f"target {look.target}: {many(look.manifests, 'manifest')} compared{_beside(look)}")
        lines += [f"  could not be read: {error.message}" for error in look.errors]
    flaws = [f"NOT RIGHT: {flaw.text}" for flaw in found.all_flaws]
    well = "nothing is missing or changed"
    return [*lines, *(flaws or [well if found.is_whole else f"in what could be read, {well}"])]


def _beside(look: "TargetLook") -> str:
    return f", {look.foreign} from imported runs" if look.foreign else ""


def examination(found: "AuditResult") -> dict[str, Any]:
    """The same as a document: what `audit verify --json` prints."""
    return {
        "rows": found.rows,
        "head": found.head,
        "sound": found.is_whole and not found.all_flaws,
        "targets": [
            {
                "target": look.target,
                "manifests": look.manifests,
                "foreign": look.foreign,
                "errors": [{"code": error.code, "message": error.message, "hint": error.hint} for error in look.errors],
            }
            for look in found.looks
        ],
        "flaws": [
            {"row": flaw.row, "run_id": flaw.run_id or None, "target": flaw.target or None, "message": flaw.text}
            for flaw in found.all_flaws
        ],
    }
