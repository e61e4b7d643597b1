"""A host with a real catalogue and a real `backupd agent`, whose server never answers: for tests of a fleet's agents.

Knows: how the host is put together. Its server is a socket that takes connections and says nothing: a run that was
started there goes on until it is cancelled; one that cannot be reached ends a run at once.
"""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.fleet import Agent
from backupd.vocabulary.fleet import RunState
from backupd.vocabulary.records import RunStatus

JOB, SILENT, UNREACHABLE = "nightly", "silent", "unreachable"
_CONFIGURATION = """\
[catalogue]
path = "{folder}/catalogue/catalogue.sqlite"
[paths]
run = "{folder}/run"
staging = "{folder}/staging"
log = "{folder}/log"
[hosts.silent]
socket = "{socket}"
user = "root"
[hosts.unreachable]
socket = "{folder}/nowhere"
user = "root"
[targets.vault]
type = "directory"
path = "{folder}/vault"
[jobs.nightly]
host = "unreachable"
targets = ["vault"]
[jobs.silent]
host = "silent"
targets = ["vault"]
"""
PATIENCE_SECONDS = 200.0  # with processes on a machine that has other work


@dataclass(frozen=True)
class AgentHost:
    """Where it keeps what."""

    folder: Path

    @property
    def configuration(self) -> Path:
        return self.folder / "backupd.toml"

    @property
    def program(self) -> list[str]:
        """What is typed before a command."""
        return [sys.executable, "-P", "-m", "backupd", "--config", str(self.configuration)]

    @property
    def agent(self) -> list[str]:
        """The forced command."""
        return [*self.program, "agent"]

    def catalogue(self) -> Catalogue:
        return Catalogue.open(self.folder / "catalogue" / "catalogue.sqlite")

    def runs(self) -> list[str]:
        """The ids of all runs that there ever were."""
        with self.catalogue() as catalogue:
            return [run.run_id for run in catalogue.runs(limit=None)]


@contextmanager
def agent_host(folder: Path) -> Iterator[AgentHost]:
    """A host in this folder."""
    silent = folder / "silent"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(silent))
        listening.listen(100)
        (folder / "vault").mkdir()
        host = AgentHost(folder)
        host.configuration.write_text(_CONFIGURATION.format(folder=folder, socket=silent))
        yield host


def until(agent: Agent, run_id: str, *, phase: str | None = None) -> RunState:
    """The run's state once it has ended, or once it is in this phase."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        state = agent.status(run_id)
        if state.status is not RunStatus.RUNNING or state.phase == phase:
            return state
    raise AssertionError(f"run {run_id} is where it was: {state}")
