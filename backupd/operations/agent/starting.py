"""A run is started once for its id, whoever asks for it and however often; and is asked to end.

Knows: row first, effect second. Of all that ask for one id at once, the one that gets its row starts the run; the
others answer how far it is. Who dies between the row and the run has used the id up, which `states` tells.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from backupd.catalogue.agent_records import AgentStart
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.host.claims import Claims
from backupd.host.launching import OWN_VARIABLES, UNIT_SECONDS, output_file, unit_argv, units_can_be_asked_for
from backupd.host.marked_processes import marked_processes
from backupd.host.process import detached, run, start_time, was_sent
from backupd.host.signals import BY_A_PERSON
from backupd.operations import context
from backupd.operations.agent.states import AGENT_VARIABLE, mark_of, run_of, state_of
from backupd.operations.liveness import live_process
from backupd.vocabulary.errors import Busy, CatalogueError, CommandError, Refused
from backupd.vocabulary.fleet import RunState, StartOrder
from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.records import RunError, RunStatus

_OF_THE_SESSION = ("SSH_ORIGINAL_COMMAND", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_AUTH_SOCK")


class RunLauncher(Protocol):
    """Starts runs that outlive us."""

    def start(self, order: StartOrder, mark: str) -> None:
        """A process is there that bears this in its `AGENT_VARIABLE`, or will be once what it waits for is done.

        Raises:
            CommandError: it could not be started, or nobody knows: systemd hangs, and may start it later.
        """


@dataclass(frozen=True, slots=True)
class DetachedRuns:
    """As the daemon starts its runs: a transient unit under systemd, a session of its own elsewhere.

    Only root can ask systemd for units; any other user's run is a session of its own, also under systemd.
    """

    program: Sequence[str]  # what a person would type before the command
    logs: Path

    def start(self, order: StartOrder, mark: str) -> None:
        """`backupd run JOB --run-id ID`; its output is in the journal, or in a file in `logs`."""
        argv = [*self.program, *arguments(order)]
        if units_can_be_asked_for():
            variable = f"{AGENT_VARIABLE}={mark}"
            run(unit_argv(order.run_id, variable, argv, wait=False), timeout_seconds=UNIT_SECONDS)
            return
        with ExitStack() as closing:
            output = output_file(self.logs, order.run_id)
            if output is not None:
                closing.enter_context(output)
            detached(
                argv,
                output=output or subprocess.DEVNULL,
                environment={AGENT_VARIABLE: mark},
                without=(*OWN_VARIABLES, *_OF_THE_SESSION),
            )


def arguments(order: StartOrder) -> tuple[str, ...]:
    """What a person would type behind `backupd`."""
    ceiling = () if order.max_rate is None else ("--max-rate", str(order.max_rate))
    return "run", order.job, "--run-id", order.run_id, *ceiling


def start(configuration: Configuration, catalogue: Catalogue, order: StartOrder, launcher: RunLauncher) -> RunState:
    """The run was started, or had been; how far it is.

    Raises:
        UsageError: there is no such job.
        Refused: a person has paused the job, or the id is of a run of another job.
        Busy: another run of the job goes on.
        CatalogueError: the catalogue cannot be read or written; nothing was started.
    """
    if _is_known(catalogue, order):
        return state_of(configuration, catalogue, order.run_id)
    _require_free(configuration, catalogue, order)
    pid = os.getpid()
    row = AgentStart(order.run_id, order.job, order.max_rate, datetime.now(UTC), pid, start_time(pid) or 0)
    if catalogue.take_start(row):
        try:
            launcher.start(order, mark_of(catalogue, order.run_id))
        except CommandError as error:
            kept = RunError(error.code, error.message, error.hint, int(error.exit_status))
            catalogue.start_failed(order.run_id, kept)  # a run that comes later all the same begins nothing then
            _end_unrecorded(catalogue, order.run_id)
    return state_of(configuration, catalogue, order.run_id)


def cancel(configuration: Configuration, catalogue: Catalogue, run_id: str) -> RunState:
    """It has been asked to end where it goes on, and cleans up by itself; how far it is now. Nothing waits for its end.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    if catalogue.agent_start(run_id) is not None:
        with contextlib.suppress(CatalogueError):  # a full disk keeps no run from being ended
            catalogue.start_cancelled(run_id)
    found_run = run_of(catalogue, run_id)
    if found_run is None:
        _end_unrecorded(catalogue, run_id)
    elif found_run.status is RunStatus.RUNNING:
        process = live_process(catalogue, run_id)
        if process is not None:
            was_sent(process[0], BY_A_PERSON)
    return state_of(configuration, catalogue, run_id)


def _end_unrecorded(catalogue: Catalogue, run_id: str) -> None:
    """The process of a run that has no row yet has been sent SIGTERM, if there is one."""
    for pid in marked_processes(AGENT_VARIABLE, mark_of(catalogue, run_id)):
        was_sent(pid, signal.SIGTERM)


def _is_known(catalogue: Catalogue, order: StartOrder) -> bool:
    """A run of this id was started, or is about to be; it must be of the same job."""
    known = run_of(catalogue, order.run_id) or catalogue.agent_start(order.run_id)
    if known is not None and known.job != order.job:
        raise Refused(
            f"run {order.run_id} is of job {known.job or 'none'}, not of job {order.job}",
            hint="an id is given to one run only: do two control hosts, or two clusters, use the same names?",
        )
    return known is not None


def _require_free(configuration: Configuration, catalogue: Catalogue, order: StartOrder) -> None:
    job = context.job(configuration, order.job).name
    pause = catalogue.pauses().get(job)
    if pause is not None:
        note = f": {pause.note}" if pause.note else ""
        raise Refused(
            f"job {job} was paused on that host at {to_the_minute(pause.at)}{note}",
            hint=f"`backupd schedule resume {job}` there lets it run again",
        )
    if holder := Claims(configuration.paths.run).holder_of_job(job):
        raise Busy(f"job {job} is held by {holder}", hint="ask again when that has ended")
