"""`backupd` as a person meets it: the whole of `main`, error boundary included, on a world of fakes.

Knows: how a command line becomes an exit status and two streams of text. Refuses to know what the commands do.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backupd import wiring
from backupd.cli import output
from backupd.cli.main import main
from backupd.host import machine_ids
from tests.story.world import World


@dataclass(frozen=True)
class Ended:
    """What became of one command."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout; anything beside it is a fault."""
        return json.loads(self.stdout)


class Terminal:
    """Runs commands on a world, whose tools stand in for those that `wiring` would make."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self.configuration = world.base / "backupd.toml"
        self.configuration.write_text(self._toml())
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setattr(wiring, "tools", lambda configuration, job, machine: world.tools_of(machine))
        monkeypatch.setattr(wiring, "host_tools", lambda configuration, machine: world.tools_of(machine))
        monkeypatch.setattr(machine_ids, "this_machine", lambda: world.machine)
        monkeypatch.setattr(wiring, "target", lambda configuration, name, machine: world.target.of_machine(machine))

    def run(self, *arguments: str, configuration: Path | None = None) -> Ended:
        """Type `backupd --config FILE ARGUMENTS…`."""
        return self.type("--config", str(configuration or self.configuration), *arguments)

    def type(self, *arguments: str) -> Ended:
        """Type `backupd ARGUMENTS…`."""
        self._monkeypatch.setattr(sys, "argv", ["backupd", *arguments])
        self._monkeypatch.setattr(output._Printed, "document", False)
        self._capsys.readouterr()
        with _logging_of_its_own(), pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    def _toml(self) -> str:
        world = self.world
        return f"""
            [catalogue]
            path = "{world.places.catalogue}"
            [paths]
            run = "{world.places.run}"
            staging = "{world.places.staging}"
            log = "{world.base}/log"
            [hosts.db1]
            socket = "{world.base}/mysqld.sock"
            user = "backupd"
            [targets.vault]
            type = "directory"
            path = "{world.vault}"
            [jobs.nightly]
            host = "db1"
            targets = ["vault"]
            canary = true
            [jobs.nightly.settle]
            probe = true
            windows = 1
            baseline_windows = 1
        """


@contextmanager
def _logging_of_its_own() -> Iterator[None]:
    """As in a new process: nobody has set up logging yet, and nobody keeps what this command sets up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
