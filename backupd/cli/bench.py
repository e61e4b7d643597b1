"""`backupd bench`: does striping pay on this host?"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli import quantities
from backupd.cli.invocation import JsonOption
from backupd.cli.output import draws_dots_here, print_document, print_text, tell, write_report
from backupd.vocabulary.benches import BenchRequest, PublishedTable
from backupd.vocabulary.errors import BackupdError, UsageError

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.operations.tools import HostTools
    from backupd.vocabulary.benches import BenchPlan, BenchRecord, LayoutBench

_DEFAULTS = BenchRequest()
app = typer.Typer(help="Compare volume layouts on this host's own disks.", no_args_is_help=True)

HtmlOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page that can be mailed to FILE.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="One CSV line per load on stdout.")]
BenchRunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A bench's id, its beginning, or `latest`.")]

_HTML_HINT = "the bench itself is in the catalogue: `backupd bench show RUN --html FILE`"


@app.command()
def layouts(
    ctx: typer.Context,
    *,
    vg: Annotated[str, typer.Option(metavar="VG", help="The volume group whose free extents are used.")] = "",
    pvs: Annotated[
        list[str] | None, typer.Option(metavar="PV,…", help="PVs of it to use; default: all with free space.")
    ] = None,
    md: Annotated[
        list[str] | None,
        typer.Option(metavar="DISK,…", help=("Instead of a volume group: empty disks, for an LV and an mdadm array.")),
    ] = None,
    overwrite_leftovers: Annotated[
        bool,
        typer.Option("--overwrite-leftovers", help="With --md: also disks with data in no known format."),
    ] = False,
    widths: Annotated[str, typer.Option(metavar="N,…", help="Widths of striped layouts; default: 2 to all PVs.")] = "",
    stripe_sizes: Annotated[str, typer.Option(metavar="SIZE,…", help="Stripe sizes of striped layouts.")] = ",".join(
        map(quantities.size_word, _DEFAULTS.stripe_sizes)
    ),
    filesystem: Annotated[str, typer.Option(help="File system: xfs or ext4.")] = _DEFAULTS.filesystem,
    file_size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="Size of the test file.")
    ] = quantities.size_word(_DEFAULTS.file_size),
    seconds: Annotated[
        int, typer.Option(min=1, max=quantities.MOST_SECONDS, help=("Length of one measurement window."))
    ] = int(_DEFAULTS.seconds),
    repeat: Annotated[
        int, typer.Option(min=1, help="Windows per load; medians and spread are shown.")
    ] = _DEFAULTS.repeat,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="TABLE", help="e2, e3, e4 or e5; repeatable. Default: the first three; with --md: e5."
        ),
    ] = None,
    records: Annotated[
        str, typer.Option(metavar="SIZE,…", help="Record sizes of e5; default: ten from 1k to 16M.")
    ] = "",
    threads: Annotated[
        str, typer.Option(metavar="N,…", help="Writer threads of e4; default: 1, 2 and twice the widest layout.")
    ] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Also measure e3 on the volume's raw device, with fio.")] = False,
    no_snapshots: Annotated[
        bool, typer.Option("--no-snapshots", help="Do not measure what snapshots of each layout cost.")
    ] = False,
    max_load: Annotated[
        float | None, typer.Option(help="Do not start above this load average; default: 10 per processor.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="The bench's id; default: generated from the time.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    html: HtmlOption = None,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Find the best layout for these disks: measure linear and striped volumes in a group's free extents.

    Says beforehand what it will create and write, and asks. Touches no existing volume, and leaves only its record:
    `backupd history --benches`. With `--md`, a striped volume and an mdadm array of the same disks.
    """
    from backupd import wiring
    from backupd.cli.bench_plan import plan_lines, require_consent
    from backupd.cli.bench_progress import bench_progress
    from backupd.cli.run import label_log_lines, new_run_id, require_run_id
    from backupd.host.run_log import RunLogs
    from backupd.host.signals import cancellable
    from backupd.lvm import scratch_name
    from backupd.operations import context
    from backupd.operations.measure.bench import plan_bench, run_bench
    from backupd.policy.published_benches import tables_of

    _require_one_output(csv=csv, json=json)
    request = BenchRequest(
        vg=vg,
        pvs=_listed(pvs),
        array_disks=_listed(md),
        overwrite_leftovers=overwrite_leftovers,
        widths=_if_told(quantities.numbers, "--widths", widths),
        stripe_sizes=quantities.sizes("--stripe-sizes", stripe_sizes),
        filesystem=filesystem,
        file_size=quantities.size("--size", file_size),
        seconds=float(seconds),
        repeat=repeat,
        tables=_tables(tables),
        records=_if_told(quantities.sizes, "--records", records) or _DEFAULTS.records,
        threads=_if_told(quantities.numbers, "--threads", threads),
        raw=raw,
        snapshots=not no_snapshots,
        max_load=quantities.highest_load(max_load),
    )
    configuration = context.configuration_or_defaults(ctx.obj.config)
    run_id = require_run_id(run_id or new_run_id())
    label_log_lines(run_id)
    with context.own_catalogue(configuration) as catalogue:
        machine = catalogue.identity().name
        tools, bench_tools = wiring.host_tools(configuration, machine), wiring.bench_tools(machine)
        agreed = plan_bench(request, tools, bench_tools)
        free, name = _free(agreed, tools), scratch_name(run_id)
        for line in plan_lines(agreed, tables=tables_of(request), repeat=repeat, free=free, name=name):
            tell(line)  # even where it is to be quiet: what is agreed to must have been seen
        require_consent(yes=yes)
        with cancellable(), RunLogs(configuration.paths.log).kept(run_id):
            try:
                with bench_progress(agreed, quiet=ctx.obj.quiet) as telling:
                    run_bench(request, agreed, tools, bench_tools, catalogue, run_id=run_id, telling=telling)
            except BackupdError:
                if json:
                    _print_what_was_recorded(catalogue, run_id)
                raise
            record = catalogue.bench(run_id)
    _show(record, tables=(), html=html, csv=csv, json=json)


@app.command()
def show(
    ctx: typer.Context,
    run: BenchRunArgument,
    *,
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Show only e2, e3, e4 or e5; repeatable.")
    ] = None,
    html: HtmlOption = None,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Show an earlier bench: its verdict, tables and plots, or only some tables."""
    from backupd.operations import context

    _require_one_output(csv=csv, json=json)
    wanted = _tables(tables)
    with context.catalogue(context.configuration_or_defaults(ctx.obj.config)) as catalogue:
        record = catalogue.bench(run)
    _show(record, tables=wanted, html=html, csv=csv, json=json)


@app.command()
def compare(ctx: typer.Context, a: BenchRunArgument, b: BenchRunArgument, *, json: JsonOption = False) -> None:
    """Compare two benches, load by load: how they differ, and what exceeds their spread."""
    from backupd.operations import context
    from backupd.report.bench_comparison import compare_document, compare_table

    with context.catalogue(context.configuration_or_defaults(ctx.obj.config)) as catalogue:
        first, second = catalogue.bench(a), catalogue.bench(b)
    for record in (first, second):
        _require_measured(record)
    if json:
        print_document(compare_document(first, second))
    else:
        print_text(compare_table(first, second))


def _show(record: "BenchRecord", *, tables: Sequence[PublishedTable], html: Path | None, csv: bool, json: bool) -> None:
    from backupd.report.bench_document import csv_text, document
    from backupd.report.bench_text import bench_text

    if html is not None:
        from backupd.report.bench_html import bench_page

        write_report(html, bench_page(record, wanted=tables), hint=_HTML_HINT)
    if json:
        print_document(document(record))
    elif csv:
        print_text(csv_text(_require_measured(record)).rstrip("\n"))
    else:
        print_text(bench_text(record, tables=tables, ascii_only=not draws_dots_here()))


def _print_what_was_recorded(catalogue: "Catalogue", run_id: str) -> None:
    """The failed bench's document; nothing where it ended before it had a row of its own."""
    from backupd.report.bench_document import document

    with contextlib.suppress(BackupdError):  # the error that ended the bench is the one to tell
        if catalogue.run(run_id).pid == os.getpid():
            print_document(document(catalogue.bench(run_id)))


def _require_measured(record: "BenchRecord") -> "LayoutBench":
    if record.bench is None:
        raise UsageError(
            f"bench {record.run_id} did not finish (status {record.status})",
            hint="see `backupd history --benches`",
        )
    return record.bench


def _require_one_output(*, csv: bool, json: bool) -> None:
    if json and csv:
        raise UsageError("--json and --csv cannot both go to stdout", hint="choose one")


def _free(plan: "BenchPlan", tools: "HostTools") -> int | None:
    """Bytes that the volume group has free on the PVs of the plan; None where there is none."""
    if not plan.vg:
        return None
    group = tools.snapshots.group(plan.vg)
    return group.free_on(plan.disks) * group.extent_size


def _listed(options: Sequence[str] | None) -> tuple[str, ...]:
    """What stands between the commas of all of them."""
    return tuple(word for option in options or () for word in quantities.words(option))


def _if_told(read: Callable[[str, str], tuple[int, ...]], option: str, text: str) -> tuple[int, ...]:
    return read(option, text) if text else ()


def _tables(options: Sequence[str] | None) -> tuple[PublishedTable, ...]:
    known = [table.value for table in PublishedTable]
    named = [word.lower() for word in _listed(options)]
    unknown = [word for word in named if word not in known]
    if unknown or (options and not named):
        raise UsageError(f"--table: no table {', '.join(unknown) or 'given'}", hint=f"there are: {', '.join(known)}")
    return tuple(dict.fromkeys(map(PublishedTable, named)))
