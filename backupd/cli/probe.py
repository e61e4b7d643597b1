"""`backupd probe`: what a snapshot costs on this host."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli import quantities
from backupd.cli.output import draws_dots_here, print_document, print_text, tell, write_report
from backupd.policy.cow_area import LEAST_ROUNDS
from backupd.vocabulary.errors import BackupdError, UsageError
from backupd.vocabulary.gauges import Mode, place_words
from backupd.vocabulary.probes import ProbeRequest

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration, JobConfig
    from backupd.vocabulary.probes import ProbeRecord

_CHUNKS = tuple(1 << power for power in range(12, 20))  # what the kernel's snapshot target and LVM take
_DEFAULTS = ProbeRequest()
_WRITE_LATENCY_MS = 5000.0
_REWRITTEN_TO_TUNE = 32 << 20  # bytes: chunks of 512 KiB enough for every write of a window
_KEYS = ("chunk_size", "pvs", "stripes")  # that --write enters


def probe(
    ctx: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="A job of the configuration: its volume, chunk size and PVs."),
    ] = None,
    *,
    volume: Annotated[
        str | None, typer.Option(metavar="VG/LV", help=("A mounted volume instead of a job, with LVM's defaults."))
    ] = None,
    modes: Annotated[
        str | None,
        typer.Option(help="Some of direct, sync, fsync-100, rewrite; default: direct,rewrite; with --tune: rewrite."),
    ] = None,
    threads: Annotated[str, typer.Option(metavar="N,…", help="Numbers of concurrent writer threads.")] = "1",
    block_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of one request.")] = quantities.size_word(
        _DEFAULTS.block_size
    ),
    file_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the probe's file.")] = quantities.size_word(
        _DEFAULTS.file_size
    ),
    rewrite_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size of the area that `rewrite` writes repeatedly; default: "
            f"{quantities.size_word(_DEFAULTS.rewrite_size)}; with --tune: {quantities.size_word(_REWRITTEN_TO_TUNE)}.",
        ),
    ] = None,
    seconds: Annotated[
        int, typer.Option(min=1, max=quantities.MOST_SECONDS, help=("Length of one measurement window."))
    ] = int(_DEFAULTS.seconds),
    repeat: Annotated[
        int, typer.Option(min=1, help="Number of rounds; medians and spread are shown.")
    ] = _DEFAULTS.repeat,
    write_share: Annotated[
        float, typer.Option(help=("Share of writes among the requests, above 0 and up to 1; the rest are reads."))
    ] = _DEFAULTS.write_share,
    chunk_sizes: Annotated[str, typer.Option(metavar="SIZE,…", help="Chunk sizes to compare: 4k to 512k.")] = "",
    cow_on: Annotated[
        list[str] | None, typer.Option(metavar="PV", help="Also measure with the COW area on this PV; repeatable.")
    ] = None,
    snapshots: Annotated[str, typer.Option(metavar="N,…", help="Also measure with this many snapshots at once.")] = "",
    reads: Annotated[bool, typer.Option("--reads", help="Also measure reads, from origin and snapshot.")] = False,
    while_copying: Annotated[
        bool, typer.Option("--while-copying", help="Also measure while the snapshot is being copied.")
    ] = False,
    passive: Annotated[
        bool, typer.Option("--passive", help="No load of its own: watch the write latency before and after a snapshot.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help=("Compare chunk sizes and places of the COW area, including striped ones, and recommend one."),
        ),
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the recommendation of --tune into the job's configuration.")
    ] = False,
    threshold: Annotated[
        float, typer.Option(min=1.0, help="The penalty that counts as settled.")
    ] = _DEFAULTS.threshold,
    max_wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help=("Longest time to wait for the penalty to settle; default: 8 windows.")),
    ] = None,
    max_load: Annotated[
        float | None, typer.Option(help="Do not start above this load average; default: 10 per processor.")
    ] = None,
    max_write_latency: Annotated[
        float, typer.Option(metavar="MS", help="Stop if the volume's writes take longer on average.")
    ] = _WRITE_LATENCY_MS,
    run_id: Annotated[str | None, typer.Option(help="The probe's id; default: generated from the time.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help=("Also write a page that can be mailed to FILE."))
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="The table as CSV on stdout.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Compare two earlier probes (ids, or `latest[:JOB]`); measures nothing.",
        ),
    ] = None,
) -> None:
    """Measure how much a snapshot slows down writes, for how long, and under which settings.

    Runs sysbench on its own file on the volume: without a snapshot, with one, and until the penalty has settled. Says
    beforehand what it will write. Leaves only its record: `backupd history --probes`.
    """
    from backupd import wiring
    from backupd.cli.probe_progress import probe_progress
    from backupd.cli.run import label_log_lines, new_run_id, require_run_id
    from backupd.config import locate
    from backupd.config.entering import require_enterable
    from backupd.host.run_log import RunLogs
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.measure.probe import measure

    if json and csv:
        raise UsageError("--json and --csv cannot both go to stdout", hint="choose one")
    configuration = context.configuration_or_defaults(ctx.obj.config)
    _require_tunable(job, tune=tune, write=write, comparing=compare is not None)
    if compare is not None:
        _compare(configuration, compare, json=json)
        return
    request = ProbeRequest(
        modes=_modes(modes) if modes is not None else (Mode.REWRITE,) if tune else _DEFAULTS.modes,
        threads=quantities.numbers("--threads", threads),
        block_size=quantities.size("--block-size", block_size),
        file_size=quantities.size("--file-size", file_size),
        rewrite_size=_rewritten(rewrite_size, tune=tune),
        seconds=float(seconds),
        repeat=repeat,
        write_share=write_share,
        chunk_sizes=tuple(_chunk_size(word) for word in quantities.words(chunk_sizes)),
        cow_on=tuple(cow_on or ()),
        snapshots=quantities.numbers("--snapshots", snapshots) if snapshots else (),
        reads=reads,
        while_copying=while_copying,
        passive=passive,
        tune=tune,
        threshold=quantities.amount("--threshold", threshold),
        max_wait_seconds=None if max_wait is None else quantities.amount("--max-wait", max_wait),
        max_load=quantities.highest_load(max_load),
        max_write_latency_ms=quantities.amount("--max-write-latency", max_write_latency),
    )
    _require_sound(request)
    if volume is not None and not all(volume.partition("/")):
        raise UsageError(f"--volume {volume} is not a volume", hint="--volume VG/LV: see `lvs`")
    subject = wiring.subject(configuration, job_name=job, volume=volume)
    path = locate(ctx.obj.config, os.environ)
    if write:
        require_enterable(path, subject.job, _KEYS)  # before minutes are spent on measuring
    run_id = require_run_id(run_id or new_run_id())
    label_log_lines(run_id)
    logs = RunLogs(configuration.paths.log)
    with cancellable(), logs.kept(run_id), context.own_catalogue(configuration) as catalogue:
        tools = wiring.host_tools(configuration, catalogue.identity().name)
        try:
            with probe_progress(quiet=ctx.obj.quiet) as telling:
                measure(request, subject, tools, wiring.instruments(), catalogue, run_id=run_id, telling=telling)
        except BackupdError:
            if json:
                _print_what_was_recorded(catalogue, run_id)
            raise
        record = catalogue.probe(run_id)
    _show(record, html=html, csv=csv, json=json)
    if write:
        _write(record, path, configuration.jobs[subject.job])


def _write(record: "ProbeRecord", path: Path, job: "JobConfig") -> None:
    """The configuration says what the probe recommends, where that is not what the job has already."""
    from backupd.config.effective import value_text
    from backupd.config.entering import devices_on, enter
    from backupd.policy.cow_area import RISK, is_at_home, recommended
    from backupd.policy.cow_placing import default_place
    from backupd.vocabulary.units import format_size
    from backupd.vocabulary.volumes import AUTO

    assert record.measurement is not None
    assert record.measurement.tuning is not None
    tuning = record.measurement.tuning
    best, known = recommended(tuning), tuning.layout.pvs
    gone = job.snapshot.pvs != AUTO and not {*job.snapshot.pvs} <= {*known, *known.values()}
    if best.stays and not gone:
        tell(f"{path} was not changed: nothing was better than the current settings of job {job.name}")
        return
    uuids = tuple(known.get(pv, pv) for pv in best.cell.cow_pvs)
    values: dict[str, str | int | tuple[str, ...]] = {}
    if not best.stays:
        values["chunk_size"] = format_size(best.cell.chunk_size)
    if gone or (uuids and uuids != job.snapshot.pvs):
        values["pvs"] = uuids
    if best.cell.stripes != default_place(job.snapshot)[1]:
        values["stripes"] = best.cell.stripes
    notes = {"pvs": devices_on(tuning.made_at.date(), best.cell.cow_pvs)} if uuids else {}
    enter(path, job.name, values, notes=notes)
    told = "; ".join(f"{key} = {value_text(value)}" for key, value in values.items())
    tell(f"wrote into {path}, [jobs.{job.name}.snapshot]: {told}")
    if not is_at_home(best.cell.cow_pvs, tuning.layout.devices):
        tell(f"the COW area is now {place_words(*best.cell.place)}: {RISK}")


def _show(record: "ProbeRecord", *, html: Path | None, csv: bool, json: bool) -> None:
    from backupd.report.probe_table import csv_text, document
    from backupd.report.probe_text import probe_text

    assert record.measurement is not None
    if html is not None:
        from backupd.report.probe_html import html_page

        write_report(html, html_page(record), hint="the probe itself is in the catalogue: `backupd history --probes`")
    if json:
        print_document(document(record))
    elif csv:
        print_text(csv_text(record.measurement).rstrip("\n"))
    else:
        print_text(probe_text(record, ascii_only=not draws_dots_here()))


def _compare(configuration: "Configuration", ids: tuple[str, str], *, json: bool) -> None:
    from backupd.operations import context
    from backupd.report.probe_comparison import compare_document, compare_table

    with context.catalogue(configuration) as catalogue:
        first, second = (catalogue.probe(wanted) for wanted in ids)
    for record in (first, second):
        if record.measurement is None:
            raise UsageError(
                f"probe {record.run_id} did not finish (status {record.status})",
                hint="see `backupd history --probes`",
            )
    if json:
        print_document(compare_document(first, second))
    else:
        print_text(compare_table(first, second))


def _print_what_was_recorded(catalogue: "Catalogue", run_id: str) -> None:
    """The failed probe's document; nothing where it ended before it had a row of its own."""
    import contextlib

    from backupd.report.probe_table import document

    with contextlib.suppress(BackupdError):  # the error that ended the probe is the one to tell
        if catalogue.run(run_id).pid == os.getpid():
            print_document(document(catalogue.probe(run_id)))


def _require_sound(request: ProbeRequest) -> None:
    """What no volume can change.

    Raises:
        UsageError: naming the option.
    """
    if not 0 < request.write_share <= 1:
        raise UsageError(
            (f"--write-share {request.write_share:g} is not a valid share of writes"),
            hint="use a number above 0 and up to 1",
        )
    if request.block_size % 512 or not 512 <= request.block_size <= 16 << 20:
        raise UsageError(f"--block-size {request.block_size} is not a valid block size", hint="a multiple of 512 bytes")
    for option, size in (("--file-size", request.file_size), ("--rewrite-size", request.rewrite_size)):
        if size < request.block_size or size % request.block_size:
            raise UsageError(
                f"{option} {size} is not a multiple of the block size", hint=f"e.g. {request.block_size * 512}"
            )
    if request.tune:
        _require_one_load(request)
    if request.rewrite_size > request.file_size:
        raise UsageError(
            f"--rewrite-size {request.rewrite_size} is larger than the file ({request.file_size})",
            hint="raise --file-size, or lower --rewrite-size",
        )


def _require_tunable(job: str | None, *, tune: bool, write: bool, comparing: bool) -> None:
    """Raises UsageError for options that exclude one another."""
    if write and not tune:
        raise UsageError("--write needs the recommendation of --tune", hint="add --tune")
    if write and job is None:
        raise UsageError("--write changes a job's configuration, but no job was given", hint="backupd probe JOB --tune")
    if tune and comparing:
        raise UsageError("--compare measures nothing, but --tune does", hint="omit one of them")


def _require_one_load(request: ProbeRequest) -> None:
    """A tuning compares one load on one snapshot at a time.

    Raises:
        UsageError: naming the option.
    """
    loads = len(request.modes) * len(request.threads)
    if request.snapshots or request.reads or request.while_copying or (loads > 1 and not request.passive):
        raise UsageError(
            "--tune compares one load on one snapshot at a time",
            hint="omit --snapshots, --reads and --while-copying, and give one mode and one thread count",
        )
    if request.repeat < LEAST_ROUNDS:
        raise UsageError(
            f"--tune needs more rounds than --repeat {request.repeat} to tell gain from noise",
            hint=f"--repeat {LEAST_ROUNDS} or more",
        )


def _modes(text: str) -> tuple[Mode, ...]:
    known = [mode.value for mode in Mode if mode.writes]
    unknown = [word for word in quantities.words(text) if word not in known]
    if unknown or not quantities.words(text):
        raise UsageError(f"--modes: no mode {', '.join(unknown) or 'given'}", hint=f"there are: {', '.join(known)}")
    return tuple(dict.fromkeys(Mode(word) for word in quantities.words(text)))


def _rewritten(word: str | None, *, tune: bool) -> int:
    if word:
        return quantities.size("--rewrite-size", word)
    return _REWRITTEN_TO_TUNE if tune else _DEFAULTS.rewrite_size


def _chunk_size(word: str) -> int:
    size = quantities.size("--chunk-sizes", word)
    if size not in _CHUNKS:
        raise UsageError(
            (f"--chunk-sizes: {word} is not a chunk size that LVM accepts"), hint="a power of two from 4k to 512k"
        )
    return size
