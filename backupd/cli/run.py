"""`backupd run` and `backupd cancel`."""

import contextlib
import logging
import os
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli import quantities
from backupd.cli.history import leads_to_of
from backupd.cli.import_speed import without_collecting
from backupd.cli.invocation import JsonOption
from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import print_document, print_text, say, tell
from backupd.cli.selection import AnyRunArgument, any_run_of
from backupd.vocabulary.errors import BackupdError, CatalogueError, CleanupIncomplete, ExitStatus, UsageError
from backupd.vocabulary.escaping import PlainFormatter
from backupd.vocabulary.records import RUN_ID, RunStatus
from backupd.vocabulary.selectors import RESERVED

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration, JobConfig
    from backupd.operations.binlog.rolling import RolledForward
    from backupd.policy.retries import RetryPlan
    from backupd.vocabulary.records import RunDetails

_LEAST_RATE = 1 << 10  # bytes a second, as of `copy.max_rate`
_CANCEL_SECONDS = 30.0  # a run cleans up within 10 s; a slow LVM may take longer


def run(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB")],
    *,
    run_id: Annotated[str | None, typer.Option(help="The run's id; default: generated from the time.")] = None,
    max_rate: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Read at most this much per second (200M); a lower copy.max_rate still applies."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Take one backup of JOB: lock, snapshot, settle, copy, verify, record."""
    with without_collecting():
        from backupd import wiring
        from backupd.archive import heap
        from backupd.cli.documents import shown_run_document
        from backupd.cli.failure_answers import failure_answers
        from backupd.cli.run_progress import telling_everybody
        from backupd.cli.run_text import run_summary
        from backupd.host.live_progress import LiveRuns
        from backupd.operations import context
        from backupd.operations.backup.run_surroundings import Surroundings, run_job
        from backupd.vocabulary.records import RunStatus

    heap.confine()
    configuration = context.configuration(ctx.obj.config)
    chosen = context.job(configuration, job)
    run_id = require_run_id(run_id or new_run_id())
    ceiling = None if max_rate is None else _rate(max_rate)
    label_log_lines(run_id)
    around = Surroundings(
        catalogue=lambda: context.catalogue(configuration),
        answers=failure_answers(configuration),
        figures=lambda catalogue: left_for_node_exporter(configuration, catalogue),
        notifier=wiring.notifier(configuration),
        tools=lambda catalogue: wiring.tools(configuration, chosen, catalogue.identity().name),
        telling=lambda: telling_everybody(LiveRuns(configuration.paths.run), run_id),
        failed=lambda catalogue: _print_what_was_recorded(catalogue, run_id) if json else None,
        plan_retry=lambda catalogue, error: _plan_retry(configuration, catalogue, chosen, run_id, error),
        proof_keys=frozenset(configuration.proofs.signers),
        configured=configuration.targets,
    )
    details = run_job(chosen, around, run_id=run_id, max_rate=ceiling)
    if json:
        print_document(shown_run_document(details, _leads_to(details, configuration)))
    else:
        print_text(run_summary(details))
    for text in details.attention:
        tell(f"attention: {text}")
    if details.status is RunStatus.ATTENTION:
        raise typer.Exit(ExitStatus.ATTENTION)


def _leads_to(run: "RunDetails", configuration: "Configuration") -> "RolledForward | None":
    """Which archived moments the backup leads to. Where the catalogue does not tell any more, the backup is as good."""
    from backupd.operations import context

    with contextlib.suppress(CatalogueError), context.catalogue(configuration) as catalogue:
        return leads_to_of(run, catalogue, configuration)
    return None


def _rate(text: str) -> int:
    """Bytes a second, from what a person has typed.

    Raises:
        UsageError: it is no size, or too little to copy anything at.
    """
    rate = quantities.size("--max-rate", text)
    if rate < _LEAST_RATE:
        raise UsageError(f"--max-rate: {text} a second is less than 1 KiB", hint="give what the target can take: 200M")
    return rate


def _plan_retry(
    configuration: "Configuration", catalogue: "Catalogue", job: "JobConfig", run_id: str, error: BaseException
) -> "RetryPlan | None":
    """Imported here: a run that is good, or whose job has no schedule, needs none of it."""
    if job.schedules.backup is None:
        return None
    from backupd.service.retries import plan_retry

    return plan_retry(configuration, catalogue, job.name, run_id, error)


def _print_what_was_recorded(catalogue: "Catalogue", run_id: str) -> None:
    """The failed run's document; nothing where it ended before it had a row of its own."""
    from backupd.cli.documents import shown_run_document

    with contextlib.suppress(BackupdError):  # the error that ended the run is the one to tell
        details = catalogue.run(run_id)
        if details.pid == os.getpid():
            print_document(shown_run_document(details, None))


def cancel(ctx: typer.Context, run_id: AnyRunArgument) -> None:
    """Stop a live run. It cleans up and ends with exit status 11."""
    from backupd.host.process import is_alive, was_sent
    from backupd.host.signals import BY_A_PERSON
    from backupd.operations import context
    from backupd.operations.liveness import live_process

    configuration = context.configuration(ctx.obj.config)
    with context.own_catalogue(configuration) as catalogue:
        details = any_run_of(configuration, catalogue, run_id)
        process = live_process(catalogue, details.run_id) if details.status is RunStatus.RUNNING else None
        if process is None or not was_sent(process[0], BY_A_PERSON):
            raise _ended(catalogue.run(details.run_id))
    pid, _ = process
    deadline = time.monotonic() + _CANCEL_SECONDS
    while is_alive(process):
        if time.monotonic() > deadline:
            raise CleanupIncomplete(
                f"run {details.run_id} (process {pid}) has not ended {_CANCEL_SECONDS:.0f} s after {BY_A_PERSON.name}",
                hint=f"check what it waits for: ps -o pid,stat,wchan:30,args -p {pid}",
            )
        time.sleep(0.05)
    say(f"run {details.run_id} was cancelled")


def _ended(details: "RunDetails") -> UsageError:
    if details.status is not RunStatus.RUNNING:
        return UsageError(f"run {details.run_id} has ended (status {details.status})", hint="see `backupd show RUN`")
    return UsageError(
        f"run {details.run_id} is dead: its process is gone", hint="`backupd recover` cleans up dead runs"
    )


def new_run_id() -> str:
    """Sorts by time, fits into an LVM name, a tag and a path; unique without a catalogue."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def require_run_id(run_id: str) -> str:
    """The id, if it can be one.

    Raises:
        UsageError: it cannot.
    """
    if not RUN_ID.fullmatch(run_id) or run_id in RESERVED:
        raise UsageError(
            f"{run_id!r} is not a valid run id",
            hint="use at most 61 letters, digits, `-`, `_` and `.`: it becomes part of an LVM name, a tag and a path",
        )
    return run_id


def label_log_lines(run_id: str) -> None:
    """Every line of the log names the run from now on."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(PlainFormatter(f"%(asctime)s %(levelname)-7s [{run_id}] %(message)s", datefmt="%H:%M:%S"))
