"""Agents of hosts that are in memory: what each tells is set, and so is that it is away or refuses.

Stateful as the contract says: a run id is started once, and what has ended has a result. Knows how many were asked at
a time.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from backupd.fleet import Agent, HostAway, HostRefuses, StartOrder
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.fleet import HostDescription, RunState
from backupd.vocabulary.records import RunDetails, RunStatus


@dataclass
class FakeAgents:
    """The contract's `Agents`."""

    hosts: Mapping[str, HostDescription | BackupdError]
    meet: threading.Barrier | None = None  # of those that are asked at a time: each waits there for the others
    most_at_once: int = 0
    runs: dict[tuple[str, str], RunState] = field(default_factory=dict)
    seen_to: dict[str, tuple[str, ...]] = field(default_factory=dict)  # jobs of a host, by whoever asked last
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def agent(self, host: str) -> Agent:
        return _FakeAgent(self, host)

    @contextmanager
    def asking(self, host: str) -> Iterator[HostDescription]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self.meet is not None:
                self.meet.wait(timeout=30)
            told = self.hosts.get(host, HostAway(f"{host} does not answer"))
            if isinstance(told, BackupdError):
                raise told
            yield told
        finally:
            with self._lock:
                self._at_once -= 1


@dataclass
class _FakeAgent:
    fleet: FakeAgents
    host: str

    def describe(self, sees_to: Sequence[str] = ()) -> HostDescription:
        self.fleet.seen_to[self.host] = tuple(sees_to)
        with self.fleet.asking(self.host) as told:
            return told

    def start(self, order: StartOrder) -> RunState:
        with self.fleet.asking(self.host) as told:
            if order.job not in {job.job for job in told.jobs}:
                raise HostRefuses(f"{self.host} has no job {order.job!r}")
            return self.fleet.runs.setdefault((self.host, order.run_id), RunState(order.run_id, RunStatus.RUNNING))

    def status(self, run_id: str) -> RunState:
        with self.fleet.asking(self.host):
            return self.fleet.runs.get((self.host, run_id), RunState(run_id, None))

    def cancel(self, run_id: str) -> RunState:
        with self.fleet.asking(self.host):
            if (self.host, run_id) in self.fleet.runs:
                self.fleet.runs[self.host, run_id] = RunState(run_id, RunStatus.CANCELLED)
            return self.fleet.runs.get((self.host, run_id), RunState(run_id, None))

    def result(self, run_id: str) -> RunDetails:
        raise HostRefuses(f"{self.host} has no run {run_id!r} that has ended")
