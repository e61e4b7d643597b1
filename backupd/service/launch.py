"""How what is due is started: a process of its own, exactly what a person would type, which the daemon does not own.

Knows: the command line of each activity, and the two ways of starting it (`host.launching`). Under systemd each is a
transient unit, and stopping the daemon leaves them alone. Elsewhere each is a session of its own, whose output
goes to a file.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backupd.host.launching import OWN_VARIABLES, is_unit_known, is_unit_there, output_file, unit_argv
from backupd.host.launching import ourselves as ourselves
from backupd.host.marked_processes import SLOT_VARIABLE, marked
from backupd.host.process import detached, found
from backupd.vocabulary.schedule import Activity, Slot

_READING_SECONDS = 900

RECEIVER_VARIABLE = "BACKUPD_RECEIVER"  # the same, of what archives a binlog: what it was started for


RECEIVE = ("binlog", "receive")


class Child(Protocol):
    """Something that was started."""

    def ended(self) -> bool:
        """Whether it is gone. Never waits."""

    @property
    def exit_status(self) -> int | None:
        """What it ended with; None while it has not, and for ever where that cannot be known."""


class Launcher(Protocol):
    """A way of starting things that outlive the daemon."""

    def start(self, slot: Slot) -> Child:
        """What was due is begun.

        Raises:
            CommandError: it could not be started.
        """

    def recover(self) -> Child:
        """`backupd recover` is begun: cleaning up after dead runs is not the daemon's own work.

        Raises:
            CommandError: it could not be started.
        """

    def read_proofs(self, target: str) -> Child:
        """`backupd catalogue proofs` of this target is begun, and is ended where it takes too long.

        Raises:
            CommandError: it could not be started.
        """

    def receive(self, job: str, mark: str) -> Child:
        """`backupd binlog receive` of this job is begun, with this in its `RECEIVER_VARIABLE`.

        Raises:
            CommandError: it could not be started.
        """

    def find(self, slot: Slot) -> Child:
        """What another daemon has started in this slot; it has ended where there is no such process."""


def arguments(slot: Slot) -> tuple[str, ...]:
    """What a person would type behind `backupd`."""
    match slot.activity:
        case Activity.BACKUP:
            return "run", slot.job, "--run-id", slot.run_id
        case Activity.PROBE:
            return "probe", slot.job, "--run-id", slot.run_id
        case Activity.DRILL | Activity.VERIFY:
            return slot.activity.value, "--job", slot.job
        case Activity.PRUNE:
            return "prune", slot.job
        case Activity.CHECK:
            return "check", slot.job, "--notify"


def proofs_argv(program: Sequence[str], target: str) -> list[str]:
    """It is asked to end after a quarter of an hour, and killed where it does not: the target may hang."""
    return ["timeout", "--kill-after=10", str(_READING_SECONDS), *program, "catalogue", "proofs", "--target", target]


def name_of(slot: Slot) -> str:
    """Of its unit and its file: a run's id, or what tells the slot from all others."""
    return slot.run_id or f"{slot.activity}-{slot.job}-{slot.due_at:%Y%m%d-%H%M%S}"


def mark_of(slot: Slot) -> str:
    """What is in `SLOT_VARIABLE`."""
    again = f"/{slot.number}" if slot.tried else ""  # nothing that an earlier try has left behind bears it
    return f"{slot.job}/{slot.activity}/{slot.due_at.isoformat()}{again}"


@dataclass(frozen=True, slots=True)
class OurChild:
    """A process that we have started and reap."""

    process: subprocess.Popen[bytes]

    def ended(self) -> bool:
        """Reaped when it is."""
        return self.process.poll() is not None

    @property
    def exit_status(self) -> int | None:
        """As a shell tells it: 128 and the signal's number where one has killed it."""
        status = self.process.returncode
        return 128 - status if status is not None and status < 0 else status


@dataclass(frozen=True, slots=True)
class FoundChild:
    """A process that another daemon has started: its end can be seen, its exit status cannot."""

    mark: str
    unit: str = ""  # the name of its unit, which may wait for others before it has a process; empty: it is none
    exit_status: int | None = None

    def ended(self) -> bool:
        """No process bears the mark, and none will."""
        return not marked(SLOT_VARIABLE, self.mark) and not (self.unit and is_unit_there(self.unit))


@dataclass(slots=True)
class UnitChild:
    """A unit that we have started, and what waits for its end: that may end before it, or tell of a start that is late.

    It does when systemd executes itself anew, as in an upgrade, with 0; when systemd takes too long to answer, with 1;
    and when it is killed. What the unit has left at work is none of its end: `KillMode=process` leaves it there.
    """

    waiting: OurChild
    unit: str
    _unseen: bool = False  # the unit's end
    _gone: bool = False  # says systemd

    def ended(self) -> bool:
        """It is gone for us and for systemd."""
        if not self.waiting.ended():
            return False
        known = is_unit_known(self.unit)
        self._unseen = self._unseen or known is True or self.waiting.process.returncode < 0
        self._gone = known is False
        return self._gone

    @property
    def exit_status(self) -> int | None:
        """The unit's, where it was waited for to the end; 0 and 1 may be of what waited."""
        return self.waiting.exit_status if self._gone and not self._unseen else None


@dataclass(frozen=True, slots=True)
class Detached:
    """Each in a session of its own."""

    program: Sequence[str]  # with its options: what comes before the command
    logs: Path

    def start(self, slot: Slot) -> Child:
        """Its output goes to a file in `logs`; nowhere where that cannot be written."""
        return self._start([*self.program, *arguments(slot)], name_of(slot), {SLOT_VARIABLE: mark_of(slot)})

    def recover(self) -> Child:
        """The same."""
        return self._start([*self.program, "recover"], "recover", {})

    def read_proofs(self, target: str) -> Child:
        """The same."""
        return self._start(proofs_argv(self.program, target), f"proofs-{target}", {})

    def receive(self, job: str, mark: str) -> Child:
        """The same."""
        return self._start([*self.program, *RECEIVE, job], f"binlog-{job}", {RECEIVER_VARIABLE: mark})

    def find(self, slot: Slot) -> Child:
        """By its mark."""
        return FoundChild(mark_of(slot))

    def _start(self, argv: Sequence[str], name: str, environment: Mapping[str, str]) -> Child:
        with ExitStack() as closing:
            output = output_file(self.logs, name)
            if output is not None:
                closing.enter_context(output)
            return OurChild(
                detached(argv, output=output or subprocess.DEVNULL, environment=environment, without=OWN_VARIABLES)
            )


@dataclass(frozen=True, slots=True)
class TransientUnits:
    """Each as a unit of systemd's, which outlives the daemon's; its output is in the journal.

    `systemd-run --wait` ends with the unit's own status, or before the unit does (`UnitChild`). The environment of the
    daemon is not handed on, for a unit's environment can be read by everybody (`systemctl show`): what a run needs of
    it belongs into the drop-in.
    """

    program: Sequence[str]

    def start(self, slot: Slot) -> Child:
        """As unit `backupd-run-NAME.service`."""
        return self._start([*self.program, *arguments(slot)], name_of(slot), f"{SLOT_VARIABLE}={mark_of(slot)}")

    def recover(self) -> Child:
        """As unit `backupd-run-recover.service`."""
        return self._start([*self.program, "recover"], "recover", f"{SLOT_VARIABLE}=recover")

    def read_proofs(self, target: str) -> Child:
        """As unit `backupd-run-proofs-TARGET.service`."""
        name = f"proofs-{target}"
        return self._start(proofs_argv(self.program, target), name, f"{SLOT_VARIABLE}={name}")

    def receive(self, job: str, mark: str) -> Child:
        """As unit `backupd-run-binlog-JOB.service`."""
        return self._start([*self.program, *RECEIVE, job], f"binlog-{job}", f"{RECEIVER_VARIABLE}={mark}")

    def find(self, slot: Slot) -> Child:
        """By its mark, and by its unit."""
        return FoundChild(mark_of(slot), name_of(slot))

    def _start(self, command: Sequence[str], name: str, variable: str) -> Child:
        argv = unit_argv(name, variable, command)
        process = detached(argv, output=None, environment={}, without=OWN_VARIABLES)  # it says what it cannot start
        return UnitChild(OurChild(process), name)


def launcher(program: Sequence[str], logs: Path, *, under_systemd: bool) -> Launcher:
    """Units of their own under systemd, where it can be asked for them."""
    if under_systemd and found("systemd-run"):
        return TransientUnits(program)
    return Detached(program, logs)
