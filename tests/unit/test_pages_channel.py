"""What the pages' process may ask the daemon, and what becomes of it when it asks anything else."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from backupd.config import Configuration, DirectoryConfig, PathsConfig, TargetKind
from backupd.host.live_progress import LiveRuns, Progress
from backupd.service.machine_view import own_eyes
from backupd.service.pages_channel import DaemonView, answer
from backupd.vocabulary.records import Phase

PROGRESS = Progress(Phase.COPY, 1.5, 2.5, done=3, total=4)


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """One live run, which has said two lines; one target; and a file that is nobody's business."""
    LiveRuns(tmp_path / "run").tell("r1", PROGRESS)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "r1.log").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.log").write_text("secret\n")
    (tmp_path / "secret.json").write_text('{"phase": "copy", "since": 1, "at": 1}')
    paths = PathsConfig(run=tmp_path / "run", log=tmp_path / "log")
    vault = DirectoryConfig(name="vault", type=TargetKind.DIRECTORY, path=tmp_path)
    return Configuration(paths=paths, targets={"vault": vault})


@contextmanager
def opened(configuration: Configuration) -> Iterator[tuple[Connection, list[str]]]:
    """A window at which a thread answers; what it was ended for is in the list."""
    ours, theirs = socket.socketpair()
    faults: list[str] = []

    def answering() -> None:
        with Connection(ours.detach()) as connection:
            try:
                answer(connection, own_eyes(configuration))
            except (ValueError, RecursionError) as error:
                faults.append(str(error))

    thread = threading.Thread(target=answering)
    thread.start()
    with Connection(theirs.detach()) as connection:
        yield connection, faults
    thread.join(60)
    assert not thread.is_alive()


def test_through_the_window_is_seen_what_own_eyes_see(configuration: Configuration) -> None:
    eyes = own_eyes(configuration)
    with opened(configuration) as (connection, faults):
        window = DaemonView(connection)
        assert window.of("r1") == PROGRESS
        assert window.of("r2") is None
        assert window.born(os.getpid()) == eyes.live.born(os.getpid())
        assert window.born(1 << 30) is None
        assert window.tail("r1", lines=2) == ["two", "three"]
        assert window.tail("r2", lines=2) == []
        assert window.seen(within_seconds=1).keys() == eyes.rooms.seen(within_seconds=1).keys() == {"vault"}
        assert window.seen(within_seconds=1)["vault"].up
    assert faults == []


@pytest.mark.parametrize("name", ["../secret", "/etc/shadow", "", "a/b", "..", "x" * 5000, "r1\0"])
def test_a_name_that_is_no_run_is_not_asked_for(configuration: Configuration, name: str) -> None:
    with opened(configuration) as (connection, faults):
        assert (DaemonView(connection).of(name), DaemonView(connection).tail(name, lines=5)) == (None, [])
    assert faults == []


@pytest.mark.parametrize(
    "question",
    [
        b'["log", "../secret", 5]',
        b'["live", "../../secret"]',
        b'["log", "r1", "5"]',
        b'["rooms", []]',
        b'["born", "../1"]',
        b'["cancel", "r1"]',
        b'{"live": "r1"}',
        b"nonsense",
        b"\xff\xfe",
        b"[" * 1000,
        b" " * 2000,
        json.dumps(["log", "r1", 5, "more"]).encode(),
    ],
)
def test_whoever_asks_anything_else_is_answered_no_more(configuration: Configuration, question: bytes) -> None:
    with opened(configuration) as (connection, faults):
        connection.send_bytes(question)
        with pytest.raises((EOFError, ConnectionError)):
            connection.recv_bytes()
    assert len(faults) == 1
    assert "secret" not in faults[0]
