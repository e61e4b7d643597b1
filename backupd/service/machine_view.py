"""What is to be seen of this machine beside the catalogue: how live runs get on, what runs said, the room of folders.

Knows: who sees each. The daemon sees with its own eyes; the pages' process may open no file, and asks the daemon
through a window.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from backupd.config import Configuration
from backupd.host.live_progress import LiveRuns, Progress
from backupd.host.process import start_of_ours
from backupd.host.run_log import RunLogs
from backupd.service.target_rooms import SeenTarget, TargetRooms

ONCE_SECONDS = 2.0  # that a process which asks but once waits for looks at folders


class Live(Protocol):
    """How live runs get on."""

    def of(self, run_id: str) -> Progress | None:
        """What was told last; None where nothing was."""

    def born(self, pid: int) -> int | None:
        """When this process was, in clock ticks since boot; None when there is none."""


class Logs(Protocol):
    """What runs said."""

    def tail(self, run_id: str, *, lines: int) -> list[str]:
        """The last lines, the oldest first; none where there is no log."""


class Rooms(Protocol):
    """What room there is in the targets that are folders."""

    def seen(self, *, within_seconds: float) -> Mapping[str, SeenTarget]:
        """By name; a target that is not known yet is left out."""


@dataclass(frozen=True, slots=True)
class MachineView:
    """All of it."""

    live: Live
    logs: Logs
    rooms: Rooms


class LiveHere(LiveRuns):
    """Live runs, and whether they are."""

    def born(self, pid: int) -> int | None:
        """By /proc, which may be shown to root only (`hidepid`)."""
        return start_of_ours(pid)


def own_eyes(configuration: Configuration) -> MachineView:
    """For whoever may open the files of this configuration."""
    return MachineView(LiveHere(configuration.paths.run), RunLogs(configuration.paths.log), TargetRooms(configuration))
