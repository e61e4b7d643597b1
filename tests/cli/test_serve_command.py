"""`backupd serve` as a person meets it where it cannot begin: one sentence, a hint, a status."""

import os
import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.host.claims import Claims
from backupd.service.systemd import Notify
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal
from tests.story.world import World


@pytest.fixture
def terminal(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """The schedules name UTC, whatever the machine of the tests goes by."""
    made = Terminal(world, monkeypatch, capsys)
    serve(made, 'zone = "UTC"', "port = 0")
    return made


def serve(terminal: Terminal, *keys: str) -> None:
    """The configuration has these keys of `[service]`, and a schedule."""
    text = terminal.configuration.read_text().partition("[service]")[0].partition("[jobs.nightly.schedules")[0]
    schedule = '[jobs.nightly.schedules.backup]\ncron = "0 3 * * *"\n'
    terminal.configuration.write_text(f"{text}{schedule}[service]\n" + "\n".join(keys))


@contextmanager
def taken() -> Iterator[int]:
    """A port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has begun is asked to end."""

    def end(_notify: Notify) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Notify, "ready", end)


@pytest.mark.usefixtures("ready")
def test_it_begins_says_so_and_ends_well(terminal: Terminal) -> None:
    threads = threading.active_count()
    ended = terminal.run("serve", "--no-web")
    assert ended.status == ExitStatus.OK, ended.stderr
    assert "runs the scheduled jobs: nightly" in ended.stderr
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert threading.active_count() <= threads + 1  # the pool's last thread may be on its way out


@pytest.mark.usefixtures("ready")
def test_a_port_that_is_taken_is_told_at_once_and_the_schedules_are_kept(terminal: Terminal) -> None:
    with taken() as port:
        serve(terminal, f"port = {port}")
        ended = terminal.run("serve")
    assert ended.status == ExitStatus.OK
    assert f"no pages and no metrics: address 127.0.0.1:{port} is taken by another program; hint: see" in ended.stderr
    assert "runs the scheduled jobs: nightly" in ended.stderr


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_told(terminal: Terminal, address: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("secret\n")
    serve(terminal, f'address = "{address}"', f'token_file = "{token}"')
    ended = terminal.run("serve")
    assert ended.status == ExitStatus.OK
    assert f"address {address}:9476 cannot be used for listening: " in ended.stderr


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "db1.example.com"])
def test_without_a_token_nobody_else_gets_in(terminal: Terminal, address: str) -> None:
    serve(terminal, f'address = "{address}"')
    ended = terminal.run("serve")
    assert ended.status == ExitStatus.USAGE
    assert "can be reached from other machines, but no token is set" in ended.stderr


@pytest.mark.usefixtures("ready")
def test_what_only_the_pages_need_is_a_warning_to_everything_else(terminal: Terminal) -> None:
    serve(terminal, 'address = "0.0.0.0"', 'zone = "UTC"')
    said = 'service.address: "0.0.0.0" can be reached from other machines, but no token is set'
    checked = terminal.run("config", "check")
    assert (checked.status, f"warning: {said}: `backupd serve` refuses to start" in checked.stdout) == (0, True)
    assert "every local user" not in checked.stdout
    assert terminal.run("history").status == ExitStatus.OK
    served = terminal.run("serve", "--no-web")
    assert served.status == ExitStatus.OK
    assert said in served.stderr
    assert "runs the scheduled jobs: nightly" in served.stderr


def test_a_pipe_which_its_runs_could_not_read_again_is_refused(terminal: Terminal) -> None:
    reading, writing = os.pipe()
    os.write(writing, terminal.configuration.read_bytes())
    os.close(writing)
    ended = terminal.run("serve", configuration=Path(f"/dev/fd/{reading}"))
    os.close(reading)
    assert ended.status == ExitStatus.USAGE
    assert "is not a regular file" in ended.stderr


@pytest.mark.usefixtures("ready")
def test_a_token_that_others_can_read_shows_no_pages_to_anybody(terminal: Terminal, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cr3t-of-ours\n")
    token.chmod(0o644)
    serve(terminal, f'token_file = "{token}"')
    ended = terminal.run("serve")
    assert ended.status == ExitStatus.OK
    assert "there are no pages and no metrics: service.token_file: " in ended.stderr
    assert "s3cr3t" not in ended.stderr
    assert "http://" not in ended.stderr


def test_a_daemon_that_ends_just_before_it_is_to_drain_has_ended(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_before = subprocess.Popen(["true"])
    ended_before.wait()
    monkeypatch.setattr(Claims, "daemon_pid", lambda _claims: ended_before.pid)
    ended = terminal.run("serve", "--drain")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "the daemon has ended\n")


def test_a_second_daemon_is_busy(terminal: Terminal, world: World) -> None:
    with Claims(world.places.run).daemon():
        ended = terminal.run("serve", "--no-web")
    assert ended.status == ExitStatus.BUSY
    assert "the daemon is held by another `backupd serve`" in ended.stderr


def test_a_damaged_catalogue_is_no_reason_to_wait(terminal: Terminal, world: World) -> None:
    world.places.catalogue.write_bytes(b"SQLite format 3\0" + b"?" * 5000)
    ended = terminal.run("serve", "--no-web")
    assert ended.status == ExitStatus.CATALOGUE
    assert str(world.places.catalogue) in ended.stderr


def test_a_newer_catalogue_is_refused_with_a_sentence(terminal: Terminal, world: World) -> None:
    terminal.run("history")  # makes one
    with sqlite3.connect(world.places.catalogue) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    ended = terminal.run("serve", "--no-web")
    assert ended.status == ExitStatus.CATALOGUE
    assert "was written by a newer backupd" in ended.stderr
