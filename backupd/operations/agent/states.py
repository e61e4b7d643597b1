"""How far a run is that an agent was asked for, by all that this host knows: rows, processes, live progress.

Knows: that a row is believed only as far as a process stands behind it. A start whose run never came, and a run whose
process has died, are told as failed and not as running for ever.
"""

from dataclasses import replace
from pathlib import Path

from backupd.catalogue.agent_records import AgentStart
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.host.launching import is_unit_there
from backupd.host.live_progress import LiveRuns
from backupd.host.marked_processes import marked
from backupd.host.process import is_alive
from backupd.operations.liveness import run_is_alive
from backupd.vocabulary.errors import ExitStatus, UsageError
from backupd.vocabulary.fleet import RunState
from backupd.vocabulary.records import RunDetails, RunError, RunStatus

AGENT_VARIABLE = "BACKUPD_AGENT"  # in the environment of what an agent starts: `mark_of`
STARTING = "starting"  # the phase of a run that has no row yet

_DIED = RunError(
    "died", "the process of the run has died", "`backupd recover` on that host cleans up", int(ExitStatus.INTERNAL)
)


def state_of(configuration: Configuration, catalogue: Catalogue, run_id: str) -> RunState:
    """How far it is, or that no run of this id was ever asked for.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    run = run_of(catalogue, run_id)
    if run is None:
        start = catalogue.agent_start(run_id)
        if start is None:
            return RunState(run_id, None)
        if start.error is None and _may_still_come(start, mark_of(catalogue, run_id)):
            return RunState(run_id, RunStatus.RUNNING, STARTING, started_at=start.asked_at)
        run = run_of(catalogue, run_id)  # it may have come, and even ended, since the first look
        if run is None:
            return _never_came(start, configuration.paths.log)
    if run.status is RunStatus.RUNNING and not run_is_alive(catalogue, run_id):
        run = run_of(catalogue, run_id) or run  # likewise
        if run.status is RunStatus.RUNNING:
            run = replace(run, status=RunStatus.FAILED, error=_DIED)
    return _state(configuration, run)


def result_of(configuration: Configuration, catalogue: Catalogue, run_id: str) -> RunDetails:
    """All that the catalogue has of a run that has ended.

    Raises:
        UsageError: there was no such run, or it goes on.
        CatalogueError: the catalogue cannot be read.
    """
    state = state_of(configuration, catalogue, run_id)
    if state.status is None:
        raise UsageError(f"no run {run_id} was ever started here", hint="see `backupd history` on that host")
    if state.status is RunStatus.RUNNING:
        raise UsageError(f"run {run_id} has not ended", hint="ask again when its status says so")
    run = run_of(catalogue, run_id)
    if run is not None:
        return replace(run, status=state.status, error=state.error)
    start = catalogue.agent_start(run_id)
    assert start is not None  # else it would have no state
    host = configuration.jobs[start.job].host if start.job in configuration.jobs else ""
    return RunDetails(
        run_id=run_id,
        job=start.job,
        host=host,
        machine=catalogue.identity().name,
        status=state.status,
        started_at=start.asked_at,
        error=state.error,
        max_rate=start.max_rate,
    )


def run_of(catalogue: Catalogue, run_id: str) -> RunDetails | None:
    """The run of exactly this id; None where there is none.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    try:
        found = catalogue.run(run_id)
    except UsageError:
        return None
    return found if found.run_id == run_id else None  # a beginning may name another


def mark_of(catalogue: Catalogue, run_id: str) -> str:
    """What the process of this run bears in its environment; those of another catalogue on this host bear another."""
    return f"{catalogue.identity().name}/{run_id}"


def _may_still_come(start: AgentStart, mark: str) -> bool:
    """A process is there that is the run, or is about to start it; or systemd has it wait for others.

    What waits when it is cancelled begins nothing any more.
    """
    if is_alive((start.pid, start.process_start)) or marked(AGENT_VARIABLE, mark):
        return True
    return start.cancelled_at is None and is_unit_there(start.run_id)


def _never_came(start: AgentStart, logs: Path) -> RunState:
    hint = f"see {logs / f'{start.run_id}.out.log'} or `journalctl -u backupd-run-{start.run_id}` on that host"
    lost = RunError("never-recorded", "the run ended before it was recorded", hint, int(ExitStatus.INTERNAL))
    if start.cancelled_at is not None and start.error is None:
        cancelled = RunError("cancelled", "the run was cancelled before it began", "", int(ExitStatus.CANCELLED))
        return RunState(start.run_id, RunStatus.CANCELLED, started_at=start.asked_at, error=cancelled)
    return RunState(start.run_id, RunStatus.FAILED, started_at=start.asked_at, error=start.error or lost)


def _state(configuration: Configuration, run: RunDetails) -> RunState:
    going = LiveRuns(configuration.paths.run).of(run.run_id) if run.status is RunStatus.RUNNING else None
    stored = run.backups[0] if run.backups else None
    copied, expected = (stored.bytes_read, stored.bytes_read) if stored is not None else (None, None)
    if going is not None and going.total:
        copied, expected = going.done, going.total
    return RunState(
        run.run_id,
        run.status,
        phase="" if going is None else going.phase.value,
        copied_bytes=copied,
        expected_bytes=expected,
        started_at=run.started_at,
        ended_at=run.ended_at,
        stored_bytes=None if stored is None else stored.bytes_stored,
        lost_transactions=None if run.losses is None else round(run.losses.lost),
        error=run.error,
    )
