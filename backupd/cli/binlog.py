"""`backupd binlog …`: the continuous archive of a job's binlog."""

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli import quantities
from backupd.cli.binlog_verify import verify
from backupd.cli.instants import span
from backupd.cli.invocation import IdentityOption, JsonOption
from backupd.cli.moments import segments_read
from backupd.cli.output import draws_dots_here, print_document, print_text, say, tell, tell_findings
from backupd.cli.selection import TargetOption, identities_in
from backupd.vocabulary.binlogs import ChangeKind
from backupd.vocabulary.errors import Cancelled, UsageError
from backupd.vocabulary.instants import to_the_second

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.config import Configuration, JobConfig
    from backupd.operations.binlog.searching import LogFindings
    from backupd.policy.log_search import LogSearch

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="The continuous archive of a job's binlog.")

_WIDTH, _WIDEST = 72, 120
_MOST_FOUND = 10_000  # transactions that one search may list: they are held until all are found

ArchivedJobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job with a table [jobs.JOB.binlog].")]


@app.command()
def receive(ctx: typer.Context, job: ArchivedJobArgument) -> None:
    """Archive a job's binlog until this is stopped; `backupd serve` does it for every job by itself.

    What the server writes is on every target some seconds later. Stopped or killed, nothing is lost: the archive
    continues where it was, for as long as the server still has that binlog.
    """
    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.binlog.archive import archive
    from backupd.operations.binlog.tools import archive_tools, binlog_of

    configuration = context.configuration(ctx.obj.config)
    chosen = context.job(configuration, job)
    config = binlog_of(chosen)
    with context.catalogue(configuration) as catalogue, cancellable():
        machine = catalogue.identity().name
        targets = [wiring.target(configuration, name, machine) for name in chosen.targets]
        tools = archive_tools(configuration, chosen, wiring.host_tools(configuration, machine), targets, catalogue)
        tell(f"archiving the binlog of job {job} to {', '.join(chosen.targets)}")
        try:
            archive(job, config, tools)
        except Cancelled as stopped:
            raise type(stopped)(
                stopped.message, hint="nothing is lost: it continues from there when it is started again"
            ) from stopped


@app.command("list")
def list_(
    ctx: typer.Context,
    job: ArchivedJobArgument,
    *,
    target: Annotated[str | None, typer.Option("--target", help="Consider only what is on this target.")] = None,
    json: JsonOption = False,
) -> None:
    """List what can be restored of a job: which moments, from which backup, what cannot and why, what is stored where.

    The last moment is that of the last transaction that is archived.
    """
    from backupd.operations import context
    from backupd.operations.binlog.archive_status import archive_listing
    from backupd.report.binlog_archive import listing_document
    from backupd.report.binlog_text import listing_text

    configuration = context.configuration(ctx.obj.config)
    chosen = _archived_job(configuration, job, target)
    with context.catalogue(configuration) as catalogue:
        listing = archive_listing(chosen, catalogue, configuration.targets, target=target, now=datetime.now(UTC))
    if json:
        print_document(listing_document(listing))
    else:
        width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDEST)
        print_text(listing_text(listing, width=width, ascii_only=not draws_dots_here()))


@app.command()
def status(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this job.")] = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show how far the archive of each job is: behind the server, on each target, in the spool; and its gaps.

    The exit status is 0 whatever it shows.
    """
    from functools import partial

    from backupd.host.claims import Claims
    from backupd.operations import context
    from backupd.operations.binlog.archive_status import archive_report, server_log
    from backupd.operations.binlog.left_spools import left_in_spools
    from backupd.report.binlog_archive import archive_report_document
    from backupd.report.binlog_text import archive_report_text

    configuration = context.configuration(ctx.obj.config)
    archived = [one for one in configuration.jobs.values() if one.binlog is not None]
    chosen = archived if job is None else [_archived_job(configuration, job, None)]
    claims, now = Claims(configuration.paths.run), datetime.now(UTC)
    with context.catalogue(configuration) as catalogue:
        tell_findings(left_in_spools(configuration, catalogue))
        found = [
            archive_report(one, catalogue, claims, partial(server_log, configuration, one), now=now) for one in chosen
        ]
    if json:
        print_document({"jobs": [archive_report_document(one) for one in found]})
    else:
        nothing = "no job archives its binlog: a table [jobs.JOB.binlog] turns it on"
        print_text("\n\n".join(archive_report_text(one) for one in found) or nothing)


@app.command()
def search(
    ctx: typer.Context,
    job: ArchivedJobArgument,
    *,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="DB.T[,DB.U…]", help="Only transactions that change one of these tables; repeatable."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND[,KIND…]",
            help=f"Only changes of these kinds: {', '.join(ChangeKind)}; repeatable.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Committed at this time or later: 2026-11-20T14:00, or 2h for that long ago.",
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Committed before this time.")] = None,
    gtid: Annotated[str | None, typer.Option("--gtid", metavar="GTID", help="Only this transaction.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST_FOUND, help="How many to list, oldest first.")] = 100,
    target: TargetOption = None,
    identity: IdentityOption = None,
    json: JsonOption = False,
) -> None:
    """Find transactions in the archive: when, which GTID and position, which tables, how many rows, which statement.

    Only segments that may have them are fetched, and they are read on this host. A statement that backupd does not
    understand is of kind `other`.
    """
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.binlog.searching import search as searched

    configuration = context.configuration(ctx.obj.config)
    chosen = _archived_job(configuration, job, target)
    wanted = _wanted(table or (), kind or (), since, until, gtid)
    with context.catalogue(configuration) as catalogue, cancellable():
        reader = segments_read(configuration, catalogue, chosen.name, target=target, identities=identities_in(identity))
        found = searched(wanted, catalogue, reader, at_most=limit)
        newest = catalogue.latest_segment(chosen.name)
    _print_found(found, job, json=json)
    end = wanted.until or datetime.now(UTC)
    if not (found.transactions or json) and (newest is None or newest.received_at < end):
        archived = "nothing" if newest is None else f"nothing later than {to_the_second(newest.received_at)}"
        tell(f"hint: {archived} is archived: `backupd binlog status {job}` says how far the archive is")
    if found.unread:
        raise found.unread[0]


def _archived_job(configuration: "Configuration", name: str, target: str | None) -> "JobConfig":
    """The job, whose binlog is archived, and that target is configured where one is named.

    Raises:
        UsageError: there is no such job or target.
        ConfigurationError: its binlog is not archived.
    """
    from backupd.operations import context
    from backupd.operations.binlog.tools import binlog_of

    job = context.job(configuration, name)
    binlog_of(job)
    if target is not None and target not in configuration.targets:
        raise UsageError(f"no target {target!r}", hint=f"configured targets: {', '.join(configuration.targets)}")
    return job


def _wanted(
    tables: "Sequence[str]", kinds: "Sequence[str]", since: str | None, until: str | None, gtid: str | None
) -> "LogSearch":
    """What is looked for.

    Raises:
        UsageError: something of it is not what it should be.
    """
    from backupd.mysql.tablefiles import tables_in
    from backupd.policy.gtid import is_one
    from backupd.policy.log_search import LogSearch

    if gtid is not None and not is_one(gtid):
        raise UsageError(
            f"--gtid: {gtid!r} is not the GTID of a transaction",
            hint="MariaDB's are as 0-1-4711, MySQL's as 3e11fa47-71ca-11e1-9e33-c80aa9429562:4711",
        )
    begin, end = span(since, until, now=datetime.now(UTC))
    named = tables_in(",".join(tables)) if tables else ()
    return LogSearch(
        tables=tuple((one.schema, one.name) for one in named),
        kinds=frozenset(_kind(word) for text in kinds for word in quantities.words(text)),
        since=begin,
        until=end,
        gtid=gtid,
    )


def _kind(word: str) -> ChangeKind:
    try:
        return ChangeKind(word.lower())
    except ValueError:
        raise UsageError(f"--kind: {word!r} is not a kind of change", hint=f"use {', '.join(ChangeKind)}") from None


def _print_found(found: "LogFindings", job: str, *, json: bool) -> None:
    from backupd.cli.documents import findings_document
    from backupd.report.binlog_text import next_command, transactions_table
    from backupd.report.words import many

    if json:
        print_document(findings_document(job, found))
        return
    tell(f"read {found.read} of {many(found.segments, 'segment')}")
    if not found.transactions:
        say("nothing found")
        return
    print_text(transactions_table(found.transactions, ascii_only=not draws_dots_here()))
    if found.more:
        say(f"there are more: these are the oldest {len(found.transactions)}; ask for more with --limit")
    chosen = "it" if len(found.transactions) == 1 else "the one of these that did the damage"
    tell(f"hint: to restore what was committed before {chosen}: {next_command(job, found.transactions)}")


app.command()(verify)
