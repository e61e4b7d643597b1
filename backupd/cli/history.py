"""`backupd history` and `backupd show`: what backups, probes and benches found and cost, and what became of them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli import quantities
from backupd.cli.import_speed import without_collecting
from backupd.cli.instants import SinceOption, UntilOption, span
from backupd.cli.invocation import JsonOption
from backupd.cli.output import draws_dots_here, print_document, print_text
from backupd.cli.selection import AnyRunArgument, any_run_of
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backupd.catalogue.costs import RunCost
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.binlog.rolling import RolledForward
    from backupd.vocabulary.benches import BenchRecord
    from backupd.vocabulary.probes import ProbeRecord
    from backupd.vocabulary.records import RunDetails


@without_collecting()
def history(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only runs of this job.")] = None,
    *,
    probes: Annotated[bool, typer.Option("--probes", help="List probes instead of backups.")] = False,
    benches: Annotated[bool, typer.Option("--benches", help="List benches of layouts instead of backups.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    status: Annotated[
        list[RunStatus] | None, typer.Option("--status", help=("Only runs with this outcome; repeatable."))
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=quantities.MOST_ROWS, help="How many to list, newest first.")] = 50,
    csv: Annotated[bool, typer.Option("--csv", help="One CSV line per backup on stdout, with its cost.")] = False,
    json: JsonOption = False,
) -> None:
    """List runs, newest first, including failed ones; --probes and --benches list measurements instead."""
    from backupd.operations import context

    _require_one_list(job, probes=probes, benches=benches, csv=csv, json=json)
    configuration = context.unchecked(ctx.obj.config)
    begin, end = span(since, until, now=datetime.now(UTC))
    statuses = status or ()
    with context.catalogue(configuration) as catalogue:
        context.require_known_job(configuration.checked, catalogue, job)
        if json and not (probes or benches):
            details = catalogue.runs(job=job, since=begin, until=end, statuses=statuses, limit=limit)
            _print_runs(details, _rolled(catalogue, details))
        elif csv:
            costs = catalogue.costs(job=job, since=begin, until=end, statuses=statuses, limit=limit)
            _print_costs(costs, _rolled(catalogue, costs))
        elif benches:
            benched = catalogue.benches(since=begin, until=end, statuses=statuses, limit=limit)
            _list_benches(benched, json=json, filtered=bool(begin or end or statuses))
        elif probes:
            found = catalogue.probes(job=job, since=begin, until=end, statuses=statuses, limit=limit)
            _list_probes(found, json=json, filtered=bool(begin or end or statuses))
        else:
            runs = catalogue.costs(job=job, since=begin, until=end, statuses=statuses, limit=limit)
            rolled = _rolled(catalogue, runs)
            _list_runs(runs, rolled, own=catalogue.identity().name, filtered=bool(begin or end or statuses))


def _require_one_list(job: str | None, *, probes: bool, benches: bool, csv: bool, json: bool) -> None:
    """The options ask for one list that there is.

    Raises:
        UsageError: they do not.
    """
    others = {"--json": json, "--probes": probes, "--benches": benches}
    if csv and (other := next((name for name, asked in others.items() if asked), None)):
        raise UsageError(f"--csv and {other} cannot be combined", hint="--csv lists backups only; use one of them")
    if probes and benches:
        raise UsageError("--probes and --benches cannot be combined", hint="they are separate lists; use one of them")
    if benches and job is not None:
        raise UsageError(f"job {job} has no benches", hint="a bench measures disks, not a job: omit JOB")


def _print_costs(costs: "list[RunCost]", rolled: "Mapping[str, datetime]") -> None:
    from backupd.report.costs import csv_text

    print_text(csv_text(costs, rolled).rstrip("\n"))


def _print_runs(runs: "list[RunDetails]", rolled: "Mapping[str, datetime]") -> None:
    from backupd.cli.documents import history_document

    print_document(history_document(runs, rolled))


def _rolled(catalogue: "Catalogue", runs: "Sequence[RunCost | RunDetails]") -> "Mapping[str, datetime]":
    """Up to when each of them can be rolled forward; whoever archives no binlog waits for none of that."""
    jobs = catalogue.archived_jobs({run.job for run in runs})
    if not jobs:
        return {}
    from backupd.operations.binlog.rolling import rolled_forward

    return rolled_forward(catalogue, jobs)


def _list_runs(runs: "list[RunCost]", rolled: "Mapping[str, datetime]", *, own: str, filtered: bool) -> None:
    from backupd.report.history_columns import history_table

    print_text(history_table(runs, own=own, rolled=rolled) if runs else "no matching run" if filtered else "no run yet")


def _list_probes(probes: "list[ProbeRecord]", *, json: bool, filtered: bool) -> None:
    from backupd.cli.documents import probes_document
    from backupd.report.probe_text import probes_table

    if json:
        print_document(probes_document(probes))
    else:
        print_text(probes_table(probes) if probes else "no matching probe" if filtered else "no probe yet")


def _list_benches(benches: "list[BenchRecord]", *, json: bool, filtered: bool) -> None:
    from backupd.cli.documents import benches_document
    from backupd.report.bench_text import benches_table

    if json:
        print_document(benches_document(benches))
    else:
        print_text(benches_table(benches) if benches else "no matching bench" if filtered else "no bench yet")


@without_collecting()
def show(
    ctx: typer.Context,
    run_id: AnyRunArgument,
    *,
    json: JsonOption = False,
) -> None:
    """Show everything that the catalogue has on one run: a backup, a probe or a bench."""
    from backupd.host.run_log import RunLogs
    from backupd.operations import context
    from backupd.vocabulary.records import RunKind

    configuration = context.configuration_or_defaults(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        run = any_run_of(configuration, catalogue, run_id)
        match run.kind:
            case RunKind.BACKUP:
                log = RunLogs(configuration.paths.log).path(run.run_id)
                _show_run(run, leads_to_of(run, catalogue, configuration), log=log, json=json)
            case RunKind.PROBE:
                _show_probe(catalogue.probe(run.run_id), json=json)
            case RunKind.BENCH:
                _show_bench(catalogue.bench(run.run_id), json=json)


def leads_to_of(run: "RunDetails", catalogue: "Catalogue", configuration: "Configuration") -> "RolledForward | None":
    """Which moments the backup leads to; of a job that left the configuration, by the targets that have the backup.
    None of another machine's, whose log is in another catalogue.
    """
    if run.machine != catalogue.identity().name or not catalogue.archived_jobs([run.job]):
        return None
    from backupd.operations.binlog.rolling import leads_to

    job = configuration.jobs.get(run.job)
    on = [copy.target for copy in run.backups if copy.is_there] if job is None else job.targets
    return leads_to(run, catalogue, on)


def _show_run(run: "RunDetails", rolled: "RolledForward | None", *, log: Path, json: bool) -> None:
    from backupd.cli.documents import shown_run_document
    from backupd.cli.run_text import bill_table, drill_table, rolled_table, run_summary
    from backupd.report.pace import pace_table
    from backupd.report.phase_bars import phase_bars
    from backupd.report.run_plot import run_plots
    from backupd.report.stages import stage_table

    if json:
        print_document(shown_run_document(run, rolled))
        return
    print_text(run_summary(run))
    bill = bill_table(run)
    if bill:
        print_text(f"\nwhat it cost the server\n{bill}")
    if run.phases:
        print_text("\nphases")
        print_text(phase_bars(run.phases, ascii_only=not draws_dots_here()))
    if run.throughput:
        print_text("\nstages of the copy")
        print_text(stage_table(run.throughput))
    if run.pace:
        print_text("\nspeed of the copy")
        print_text(pace_table(run.pace))
    drawn = run_plots(run, ascii_only=not draws_dots_here())
    if drawn:
        print_text(f"\n{drawn}")
    if rolled is not None:
        print_text(f"\nbinlog archive\n{rolled_table(rolled)}")
    for drill in run.drills:
        print_text(f"\ndrill {drill.to_moment}".rstrip())
        print_text(drill_table(drill.checks))
    if log.is_file():
        print_text(f"\nlog: {log}")


def _show_probe(probe: "ProbeRecord", *, json: bool) -> None:
    from backupd.report.probe_table import document
    from backupd.report.probe_text import probe_text

    if json:
        print_document(document(probe))
    else:
        print_text(probe_text(probe, ascii_only=not draws_dots_here()))


def _show_bench(bench: "BenchRecord", *, json: bool) -> None:
    from backupd.report.bench_document import document
    from backupd.report.bench_text import bench_text

    if json:
        print_document(document(bench))
    else:
        print_text(bench_text(bench, ascii_only=not draws_dots_here()))
