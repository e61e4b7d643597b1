"""Something that starts what is due, in memory: a stateful stand-in for processes that outlive the daemon."""

from dataclasses import dataclass, field

from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.schedule import Slot


@dataclass
class FakeChild:
    """Goes on until it is told to end."""

    exit_status: int | None = None
    gone: bool = False

    def ended(self) -> bool:
        """As told."""
        return self.gone

    def end(self, status: int | None = 0) -> None:
        """From now on it has ended."""
        self.gone, self.exit_status = True, status


@dataclass
class FakeLauncher:
    """The processes of a machine. They are found by a later daemon, which does not see their exit status."""

    started: list[Slot] = field(default_factory=list)  # in order, whatever became of them
    processes: dict[Slot, FakeChild] = field(default_factory=dict)
    recoveries: list[FakeChild] = field(default_factory=list)
    readings: dict[str, list[FakeChild]] = field(default_factory=dict)  # of proofs, by target
    receivers: dict[str, list[FakeChild]] = field(default_factory=dict)  # of binlogs, by job
    received_for: dict[str, str] = field(default_factory=dict)  # by job: the mark of the newest of them
    broken: bool = False  # nothing can be started

    def start(self, slot: Slot) -> FakeChild:
        """A process that goes on."""
        if self.broken:
            raise CommandError("program not found: backupd")
        self.started.append(slot)
        self.processes[slot] = FakeChild()
        return self.processes[slot]

    def recover(self) -> FakeChild:
        """Another one."""
        self.recoveries.append(FakeChild())
        return self.recoveries[-1]

    def read_proofs(self, target: str) -> FakeChild:
        """Another one."""
        if self.broken:
            raise CommandError("program not found: timeout")
        self.readings.setdefault(target, []).append(FakeChild())
        return self.readings[target][-1]

    def receive(self, job: str, mark: str) -> FakeChild:
        """Another one."""
        if self.broken:
            raise CommandError("program not found: backupd")
        self.receivers.setdefault(job, []).append(FakeChild())
        self.received_for[job] = mark
        return self.receivers[job][-1]

    def find(self, slot: Slot) -> FakeChild:
        """The same process, seen by somebody who is not its parent."""
        process = self.processes.get(slot)
        return _Found(process) if process is not None else FakeChild(gone=True)


class _Found(FakeChild):
    def __init__(self, process: FakeChild) -> None:
        super().__init__()
        self._process = process

    def ended(self) -> bool:
        return self._process.gone
