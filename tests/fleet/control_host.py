"""`backupd fleet …` as programs, on one fleet.toml: a control host that can be killed and followed by another."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import backupd
from backupd.fleet.records import Records

_SECONDS = 600.0  # on a machine that has other work
_COMMAND_SECONDS = 300.0
_LOOK_SECONDS = 0.1


class ControlHost:
    """The command line of a control host, and what its database has."""

    def __init__(self, folder: Path, url: str, fleet: str) -> None:
        self.records = Records.open(url)
        self.file = folder / "fleet.toml"
        self.file.write_text(fleet)
        self._log = folder / "log"
        self._serving: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str) -> list[str]:
        """What is typed."""
        return [sys.executable, "-P", "-m", "backupd", "--config", str(self.file), "fleet", *words]

    def told(self, *words: str) -> str:
        """What a command prints; it must succeed."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS
        )
        assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, code: Path | None = None) -> "subprocess.Popen[bytes]":
        """One more that serves, or waits for those that do; of this code, as `newer_code` makes it."""
        environment = {**os.environ, **({"PYTHONPATH": str(code)} if code is not None else {})}
        with self._log.open("ab") as said:
            process = subprocess.Popen(self.command("serve"), stdout=said, stderr=said, env=environment)
        self._serving.append(process)
        return process

    def said(self) -> str:
        """By all that ever served."""
        return self._log.read_text()

    def times_at_work(self) -> int:
        """How often one that serves has begun to act."""
        return self.said().count("this control host is active")

    def until(self, holds: Callable[[], bool], *, within_seconds: float = _SECONDS) -> None:
        """Wait for something to be so. Where it never is, what was said and what the database has are told."""
        deadline = time.monotonic() + within_seconds
        while not holds():
            assert time.monotonic() < deadline, f"{self.said()}\n{self.records.history()}\n{self.told('status')}"
            time.sleep(_LOOK_SECONDS)

    def end(self) -> None:
        """Nothing of it goes on."""
        for process in self._serving:
            process.kill()
            process.wait()
        self.records.engine.dispose()


def newer_code(folder: Path) -> Path:
    """A backupd of another version, whose stories have another source: DBOS tells versions apart by that."""
    made = folder / "newer"
    shutil.copytree(Path(backupd.__file__).parent, made / "backupd", ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in (
        ("__init__.py", f'"{backupd.__version__}"', '"99.0"'),
        ("fleet/dbos_engine.py", "    engine = _served()\n", "    engine = _served()  # as ever\n"),
    ):
        file = made / "backupd" / name
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))
    return made


@contextmanager
def control_host(folder: Path, url: str, fleet: str) -> Iterator[ControlHost]:
    """One for the length of the block; nothing serves before it is told to."""
    made = ControlHost(folder, url, fleet)
    try:
        yield made
    finally:
        made.end()
