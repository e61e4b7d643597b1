"""A cluster of hosts in memory, which behave as hosts do: a run id is started once, a run goes on whoever asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from backupd.fleet import HostAway, HostRefuses
from backupd.vocabulary.fleet import DescribedJob, HostDescription, Role, RunState, StartOrder
from backupd.vocabulary.records import GOOD, RunDetails, RunError, RunStatus


@dataclass
class FakeHost:
    """One host, its job `nightly` and its runs."""

    name: str
    away: bool = False
    role: Role = Role.REPLICA
    lag_seconds: float | None = 1.0
    targets: tuple[str, ...] = ("nas",)
    looks: int = 2  # at a run before it has ended
    ends: list[RunStatus] = field(default_factory=list)  # of its next runs; then they are good
    runs: dict[str, RunState] = field(default_factory=dict)
    orders: list[StartOrder] = field(default_factory=list)  # that had an effect
    attention: tuple[str, ...] = ("a table is corrupt",)  # what its runs say that need some
    seen_to: tuple[str, ...] = ()  # jobs, by whoever asked last
    machine: str = ""  # of its identity; empty: one of its own
    server: str = ""  # the id of its server
    at_each_call: Callable[[str], None] = lambda _: None  # may change the world; what it raises is the answer

    def describe(self, sees_to: Sequence[str] = ()) -> HostDescription:
        """See `Agent`."""
        self.seen_to = tuple(sees_to)
        self._called("describe")
        running = next((one.run_id for one in self.runs.values() if one.status is RunStatus.RUNNING), "")
        job = DescribedJob("nightly", self.targets, self.role, lag_seconds=self.lag_seconds, running=running)
        job = replace(job, server=self.server)
        return HostDescription(self.machine or f"{self.name}-0badcafe", "1.0", (1, 1), datetime.now(UTC), (job,))

    def start(self, order: StartOrder) -> RunState:
        """See `Agent`. What `at_each_call` raises under `started` is raised once the run goes on."""
        self._called("start")
        if order.run_id not in self.runs:
            self.orders.append(order)
            self.runs[order.run_id] = RunState(order.run_id, RunStatus.RUNNING, "copy", started_at=datetime.now(UTC))
            self._looks_left = self.looks
        self._called("started")
        return self.runs[order.run_id]

    def status(self, run_id: str) -> RunState:
        """See `Agent`."""
        self._called("status")
        state = self.runs.get(run_id, RunState(run_id, None))
        if state.status is RunStatus.RUNNING:
            self._looks_left -= 1
            if self._looks_left <= 0:
                self._end(run_id, self.ends.pop(0) if self.ends else RunStatus.SUCCESS)
        return self.runs.get(run_id, state)

    def cancel(self, run_id: str) -> RunState:
        """See `Agent`."""
        self._called("cancel")
        self._end(run_id, RunStatus.CANCELLED)
        return self.runs[run_id]

    def result(self, run_id: str) -> RunDetails:
        """See `Agent`."""
        self._called("result")
        if run_id not in self.runs:
            raise HostRefuses(f"{self.name}: no run {run_id} was ever started here")
        state = self.runs[run_id]
        assert state.status is not None
        assert state.started_at is not None
        return RunDetails(
            *(run_id, "nightly", self.name, "m", state.status, state.started_at, state.ended_at),
            attention=self.attention if state.status is RunStatus.ATTENTION else (),
        )

    def _end(self, run_id: str, status: RunStatus) -> None:
        error = None if status in GOOD else RunError("target", f"it {status}", "", 8)
        self.runs[run_id] = replace(
            self.runs[run_id], status=status, ended_at=datetime.now(UTC), stored_bytes=7, error=error
        )

    def _called(self, verb: str) -> None:
        if self.away:
            raise HostAway(f"{self.name}: no route to host")
        self.at_each_call(verb)


class FakeAgents:
    """The contract's `Agents`."""

    def __init__(self, *hosts: FakeHost) -> None:
        self.hosts = {host.name: host for host in hosts}

    def agent(self, host: str) -> FakeHost:
        """See `Agents`."""
        return self.hosts[host]

    def live(self) -> int:
        """Runs that go on."""
        return sum(run.status is RunStatus.RUNNING for host in self.hosts.values() for run in host.runs.values())


def refusing(verb: str, host: FakeHost) -> None:
    """The host's agent refuses this verb from now on."""

    def refuse(called: str) -> None:
        if called == verb:
            raise HostRefuses(f"{host.name}: it will not", refusal=RunError("refused", "it will not", "", 5))

    host.at_each_call = refuse
