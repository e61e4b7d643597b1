"""What becomes of a command whose words nobody takes: a reader that has seen enough, a full disk, no stream at all."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import RunStatus
from tests.cli.terminal import Terminal
from tests.story.world import World


@contextmanager
def full_disk() -> Iterator[io.TextIOWrapper]:
    """Takes nothing: no space left on device."""
    with Path("/dev/full").open("w") as file, Path(os.devnull).open("w") as nowhere:
        yield file
        os.dup2(nowhere.fileno(), file.fileno())  # closing would fail too: what was written waits in it


@contextmanager
def pipe_that_nobody_reads() -> Iterator[io.TextIOWrapper]:
    """As after `| head -1`: broken pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file:
        yield file


def test_a_backup_does_not_fail_because_nobody_can_be_told_how_it_goes(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with full_disk() as stderr, monkeypatch.context() as here:
        here.setattr(sys, "stderr", stderr)
        ended = terminal.run("run", "nightly", "--run-id", "r1")
    assert ended.status == ExitStatus.OK
    assert world.row("r1").status is RunStatus.SUCCESS


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_reader_that_has_seen_enough_changes_no_status(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch, json: tuple[str, ...]
) -> None:
    world.host.fail("unmount")
    with pipe_that_nobody_reads() as stdout, monkeypatch.context() as here:
        here.setattr(sys, "stdout", stdout)
        ended = terminal.run("run", "nightly", *json)
    assert ended.status == ExitStatus.ATTENTION
    assert "attention: clean-up incomplete: unmount failed" in ended.stderr


@pytest.mark.parametrize(
    "command", [["history"], ["history", "--json"], ["metrics"], ["config", "show"], ["log", "r1"], ["manual"]]
)
def test_a_result_that_cannot_be_written_is_told_without_a_traceback(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    with full_disk() as stdout, monkeypatch.context() as here:
        here.setattr(sys, "stdout", stdout)
        ended = terminal.run(*command)
    assert ended.status == ExitStatus.USAGE
    assert ended.stderr.startswith("error: stdout could not be written: no space left on device\nhint: ")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("command", "status"), [("version --json", 0), ("--config none.toml history --json", 2)])
def test_a_command_without_a_stream_ends_as_it_does_with_it(
    tmp_path: Path, closed: str, command: str, status: int
) -> None:
    script = f'exec "$0" -m backupd {command} {closed}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr
