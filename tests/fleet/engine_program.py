"""A process that carries simple stories by an engine, for tests that kill it: `KIND URL FOLDER SLOTS…`.

What the stories do to the world is files in FOLDER, which no kill undoes: a line of `log` for each event. A run of a
host goes on whether its control host lives or not: it has ended at an instant that was settled when it began.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

from backupd.fleet import Engine, Later, StorySteps
from backupd.vocabulary.errors import Busy
from backupd.vocabulary.fleet import OwedBackup, try_id
from tests.fleet.local_engine import LocalEngine

_LEASE_SECONDS = 2.0  # who starts waits for as long; a process that is well confirms within it on a busy machine, too
_WAITS = 2  # of a story that has to


class FileStories:
    """Each backup: chosen once, tried as often as its name says, recorded once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def backup(self, owed: OwedBackup, so_far: object, steps: StorySteps) -> Later | None:
        """Its first try fails where its job is called `again`; one called `later` has to wait twice before it."""
        waited = so_far if isinstance(so_far, int) else 0
        if owed.job == "later" and waited < _WAITS:
            steps.step(f"put off {waited}", lambda: self._say("put off", owed.id, waited))
            return Later(datetime.now(UTC) + timedelta(seconds=owed.expected_seconds), waited + 1)
        host = steps.step("choose", lambda: self._say("chosen", owed.id, owed.members[0]))
        for number in (1, 2):
            answer = steps.attempt(str(host), number, 1)
            if answer == {"good": True}:
                break
        steps.step("record", lambda: self._say("recorded", owed.id, answer))
        return None

    def attempt(self, owed: OwedBackup, host: str, number: int, steps: StorySteps) -> object:
        """A run of the host, which takes as long as expected."""
        run_id = try_id(owed, number)
        steps.step("start", lambda: self._start(owed, run_id))
        steps.step("wait", lambda: self._wait(run_id))
        return {"good": number > 1 or owed.job != "again"}

    def _start(self, owed: OwedBackup, run_id: str) -> object:
        """Once, whole or not at all, whenever this process is killed."""
        begun = time.time()
        facts = {
            "cluster": owed.cluster,
            "targets": owed.targets,
            "begun": begun,
            "ends": begun + owed.expected_seconds,
        }
        partial = self._folder / f"{run_id}.{os.getpid()}"
        partial.write_text(json.dumps(facts))
        try:
            (self._folder / f"{run_id}.run").hardlink_to(partial)
        except FileExistsError:
            return "started before"
        self._say("started", run_id, owed.cluster)
        return "started"

    def _wait(self, run_id: str) -> object:
        run = self._folder / f"{run_id}.run"
        ends = json.loads(run.read_text())["ends"] if run.exists() else 0.0
        while time.time() < ends:
            time.sleep(0.02)
        return ends

    def _say(self, *what: object) -> object:
        with (self._folder / "log").open("a") as log:
            log.write(json.dumps(what) + "\n")
        return what[-1]


def main(kind: str, url: str, folder: str, *slots: str) -> None:
    """Serve until SIGTERM; say `serving` or `busy` on standard output."""
    engine = _engine(kind, url, {name: int(number) for name, _, number in (one.partition("=") for one in slots)})
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with engine.serving(FileStories(Path(folder))):
            _say("serving")
            ended.wait()
    except Busy:
        _say("busy")
    os._exit(0)


def _engine(kind: str, url: str, slots: Mapping[str, int]) -> Engine:
    makers: Mapping[str, Callable[[], Engine]] = {
        "dbos": lambda: _dbos(url, slots),
        "dbos-before": lambda: _dbos_before(url, slots),
        "local": lambda: LocalEngine(url, slots, _lost, lease_seconds=_LEASE_SECONDS),
    }
    return makers[kind]()


def _dbos(url: str, slots: Mapping[str, int]) -> Engine:
    from backupd.fleet.dbos_engine import DbosEngine

    return DbosEngine(url, slots, _lost, poll_seconds=0.1, lease_seconds=_LEASE_SECONDS)


def _dbos_before(url: str, slots: Mapping[str, int]) -> Engine:
    """As of a backupd in which no story could wait."""
    from dbos._dbos import _get_or_create_dbos_registry

    engine = _dbos(url, slots)
    _get_or_create_dbos_registry().workflow_info_map.pop("fleet.part", None)
    return engine


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _lost(reason: str) -> NoReturn:
    _say(f"lost: {reason}")
    os._exit(75)


if __name__ == "__main__":
    main(*sys.argv[1:])
