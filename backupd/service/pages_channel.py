"""The window between the daemon and its pages' process: what that one may not open itself, it asks for here.

Knows: the four questions, and how they are asked and answered over a socket. What comes from the pages' process is a
stranger's, for it talks to the network: a question is one of the four, names a run and no path, is short, and takes
less than half of one thread's time. Nothing can be changed through it.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from backupd.host.live_progress import Progress
from backupd.service.machine_view import MachineView
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.records import RUN_ID, Phase

_LONGEST_QUESTION = 1024  # bytes
_MOST_LINES = 1000
_MOST_SECONDS = 1.0  # that folders are waited for


class DaemonView:
    """The side of the pages' process: an outlook's `live`, `logs` and `rooms`. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._guard = threading.Lock()

    def of(self, run_id: str) -> Progress | None:
        """How a live run gets on."""
        told = self._ask("live", run_id) if RUN_ID.fullmatch(run_id) else None
        return None if told is None else Progress(**{**told, "phase": Phase(told["phase"])})

    def born(self, pid: int) -> int | None:
        """When a process was."""
        told: int | None = self._ask("born", pid)
        return told

    def tail(self, run_id: str, *, lines: int) -> list[str]:
        """The end of a run's log."""
        told: list[str] = self._ask("log", run_id, lines) if RUN_ID.fullmatch(run_id) else []
        return told

    def seen(self, *, within_seconds: float) -> Mapping[str, SeenTarget]:
        """The room in folders."""
        return {name: SeenTarget(**seen) for name, seen in self._ask("rooms", float(within_seconds)).items()}

    def _ask(self, *question: object) -> Any:
        with self._guard:
            self._connection.send_bytes(json.dumps(question).encode())
            return json.loads(self._connection.recv_bytes())


def answer(connection: Connection, seen: MachineView) -> None:
    """Questions are answered until the other side is gone, or asks what may not be asked.

    Raises:
        ValueError: it did.
    """
    while True:
        try:
            question = connection.recv_bytes(_LONGEST_QUESTION)
            began = time.monotonic()
            connection.send_bytes(json.dumps(_answer(question, seen)).encode())
        except (EOFError, ConnectionError):
            return
        except OSError as error:  # what `recv_bytes` says of a question that is too long
            raise ValueError(str(error)) from error
        time.sleep(time.monotonic() - began)


def _answer(question: bytes, seen: MachineView) -> object:
    match json.loads(question):
        case ["live", str(run_id)] if RUN_ID.fullmatch(run_id):
            progress = seen.live.of(run_id)
            return None if progress is None else asdict(progress)
        case ["born", int(pid)]:
            return seen.live.born(pid)
        case ["log", str(run_id), int(lines)] if RUN_ID.fullmatch(run_id):
            return seen.logs.tail(run_id, lines=max(0, min(lines, _MOST_LINES)))
        case ["rooms", float(seconds)]:
            found = seen.rooms.seen(within_seconds=max(0.0, min(seconds, _MOST_SECONDS)))
            return {name: asdict(target) for name, target in found.items()}
        case _:
            raise ValueError("the pages' process made a request that is not allowed")
