"""`backupd log`: what a run said, while it goes on or afterwards."""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import tell, write
from backupd.cli.run import require_run_id
from backupd.cli.selection import AnyRunArgument, any_run_of
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunKind

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration

_LOOK_SECONDS = 0.5  # between two looks for new lines


def log(
    ctx: typer.Context,
    run_id: AnyRunArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the run ends.")] = False,
) -> None:
    """Print the log of RUN; logs are kept for 400 days. A bench's log includes its probes."""
    from backupd.host.run_log import RunLogs
    from backupd.operations import context
    from backupd.operations.liveness import run_is_alive

    configuration = context.configuration_or_defaults(ctx.obj.config)
    logs = RunLogs(configuration.paths.log)
    with context.catalogue(configuration) as catalogue:
        found = _found(configuration, catalogue, logs.path, run_id)
        for text in _lines(logs.path(found), found, lambda: follow and run_is_alive(catalogue, found)):
            if not write(text):  # nobody reads any more: there is nothing to follow it for
                return


def _found(configuration: "Configuration", catalogue: "Catalogue", path: Callable[[str], Path], wanted: str) -> str:
    """The run whose log it is. One that has no row, because another kept it from beginning, may have a log as well."""
    from backupd.vocabulary.selectors import parse_selector

    named = not parse_selector(wanted, now=datetime.now(UTC)).said
    if named and path(require_run_id(wanted)).exists():
        return wanted
    run_id = any_run_of(configuration, catalogue, wanted).run_id
    bench = None if path(run_id).exists() else _bench_of(catalogue, run_id)
    if bench is None:
        return run_id
    tell(f"{run_id} is a probe of bench {bench}: this is the bench's log")
    return bench


def _bench_of(catalogue: "Catalogue", run_id: str) -> str | None:
    """The bench that the run is a probe of, in whose process it went, and which keeps a log for both; None without."""
    bench, _, number = run_id.rpartition("-")
    if not number.isdecimal() or catalogue.run(run_id).kind is not RunKind.PROBE:
        return None
    with contextlib.suppress(UsageError):  # no run's id begins like this
        found = catalogue.run(bench)
        return found.run_id if found.run_id == bench and found.kind is RunKind.BENCH else None
    return None


def _lines(path: Path, run_id: str, is_alive: Callable[[], bool]) -> Iterator[str]:
    """Everything that is in the file, and what comes to it until the run has ended.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            going_on = True
            while going_on:
                going_on = is_alive()  # before the look: what a run says last is in the file when it has ended
                yield file.read()
                if going_on:
                    time.sleep(_LOOK_SECONDS)
    except OSError as error:
        raise UsageError(
            f"the log of run {run_id} cannot be read: {path}: {error.strerror}",
            hint="logs are kept for 400 days; `backupd show` shows the catalogue's record of the run",
        ) from error
