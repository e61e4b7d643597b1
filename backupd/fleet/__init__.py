"""What a control host needs of the world outside: agents that answer, and an engine that outlives it. The contract.

A host's agent is asked in short calls, each over a connection of its own, and none is kept for the length of a backup.
Whatever an agent answers is a stranger's. An engine carries each backup that is owed to its end exactly once: it may be
killed at any moment, and goes on where it was, whoever starts it again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.fleet import HostDescription, OwedBackup, RunState
from backupd.vocabulary.fleet import StartOrder as StartOrder
from backupd.vocabulary.records import RunDetails, RunError


class HostAway(BackupdError):
    """A host does not answer; it may do so later."""


class HostRefuses(BackupdError):
    """A host's agent answered that it will not do it, or what it answered makes no sense; asking again helps nobody.

    `refusal` is what the agent itself answered; None where it answered nothing that makes sense.
    """

    def __init__(self, message: str, *, hint: str = "", refusal: RunError | None = None) -> None:
        super().__init__(message, hint=hint)
        self.refusal = refusal


class Agent(Protocol):
    """One host's. Every verb is one short call, and raises `HostAway` or `HostRefuses`."""

    def describe(self, sees_to: Sequence[str] = ()) -> HostDescription:
        """The host, its jobs and their servers. Whoever makes the backups of jobs says of which: as long as he goes on
        asking, the host leaves them to him.
        """

    def start(self, order: StartOrder) -> RunState:
        """The run was started, or had been: a run id is started once, however often it is asked for."""

    def status(self, run_id: str) -> RunState:
        """How far it is."""

    def cancel(self, run_id: str) -> RunState:
        """It is asked to end."""

    def result(self, run_id: str) -> RunDetails:
        """All that the host's catalogue has of a run that has ended."""


class Agents(Protocol):
    """All hosts' agents."""

    def agent(self, host: str) -> Agent:
        """This host's; nothing is asked yet."""


class StorySteps(Protocol):
    """What a story that an engine carries may do that changes the world, or takes long. Each is remembered when done:
    when the engine goes on after it was killed, what was done is not done again, but told as it was.
    """

    def step(self, name: str, act: Callable[[], object]) -> object:
        """The act's answer, which must be JSON. Killed within it, the act is repeated: it must be one to repeat, and
        may take hours. Where the act finds the fleet's database away, it is repeated, too, until it answers.
        """

    def attempt(self, host: str, number: int, turn: int) -> object:
        """What `Stories.attempt` answers, which begins once a slot of each of the backup's targets is taken, in the
        order of their names, by the backup's priority, those first that have one already; each is free again when it
        has ended. The answer is JSON. Each try of a backup has its number, from 1; one that came to nothing before it
        began has another turn.
        """


@dataclass(frozen=True, slots=True)
class Later:
    """A story can do nothing before this instant. Until then its cluster is others'."""

    at: datetime
    so_far: object  # what the story is told when it goes on; JSON


class Stories(Protocol):
    """What an engine carries. Whatever is to be stopped is stopped by the story: it alone knows what runs at a host."""

    def backup(self, owed: OwedBackup, so_far: object, steps: StorySteps) -> Later | None:
        """One backup that is owed, to its end: it waits for its window, chooses a member, tries, tries another. Where
        it has to wait, it says until when, and is told then how far it was; None is told to one that begins.
        """

    def attempt(self, owed: OwedBackup, host: str, number: int, steps: StorySteps) -> object:
        """One try by one host, from its start to its end; what became of it."""


class Engine(Protocol):
    """Carries stories to their ends: for each cluster one at a time, within the targets' slots. One that has to wait
    lets the others of its cluster go on.

    What ran when it was killed keeps its cluster and its slots, however urgent what waits is: its run goes on.
    """

    def submit(self, owed: Sequence[OwedBackup]) -> None:
        """Each is carried out once; one that was submitted before is left as it is."""

    def going(self) -> Sequence[str]:
        """The ids of what has not ended."""

    def broken(self) -> Mapping[str, str]:
        """By id, what ended by an error instead of its story's end, and by which: nobody carries it any further."""

    def serving(self, stories: Stories) -> AbstractContextManager[None]:
        """Within the block stories go on: those of all backups that were submitted and have not ended.

        Raises:
            Busy: another control host is active; this one is to wait.
        """
