"""A call that may never end is waited for for a while, and no longer."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from backupd.archive.pipeline import Pipeline
from backupd.archive.stations import Digest
from backupd.host.daemon_thread import answered
from backupd.host.signals import cancellable
from backupd.vocabulary.errors import Cancelled


def fail() -> int:
    raise KeyError("of its own")


def test_what_a_call_returns_is_returned() -> None:
    assert answered(lambda: 42, within_seconds=10, name="asking") == 42


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(KeyError, match="of its own"):
        answered(fail, within_seconds=10, name="asking")


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What a call waits for that is let go at the end."""
    answers = threading.Event()
    yield answers
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "hangs":
            thread.join()


def test_a_call_that_does_not_end_is_left_to_itself(hanging: threading.Event) -> None:
    with pytest.raises(TimeoutError, match=r"no answer for 0\.05 s") as caught:
        answered(hanging.wait, within_seconds=0.05, name="hangs")
    assert caught.value.errno == errno.ETIMEDOUT
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "hangs")
    assert thread.daemon


class StoppedOnce:
    """A clock of a process that is stopped for an hour as this is let go, and goes on as fast as it is looked at."""

    def __init__(self) -> None:
        self.now, self.stops = 100.0, False

    def __call__(self) -> float:
        self.now += 3600.0 if self.stops else 0.01
        self.stops = False
        return self.now


def test_of_the_time_in_which_the_process_was_stopped_nearly_nothing_is_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by SIGSTOP, or in a frozen cgroup: what is waited for was stopped as well."""
    clock, came = StoppedOnce(), threading.Event()
    monkeypatch.setattr("backupd.host.daemon_thread.time", SimpleNamespace(monotonic=clock))
    looks: list[int] = []

    def idle() -> None:
        looks.append(1)
        clock.stops = len(looks) == 1
        if len(looks) == 3:
            came.set()

    assert answered(came.wait, within_seconds=60, name="asking", idle=idle)


def test_a_signal_ends_the_wait_for_a_call_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, hanging: threading.Event
) -> None:
    monkeypatch.setattr("backupd.host.daemon_thread._END_SECONDS", 0.05)

    def hangs() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        hanging.wait()

    with pytest.raises(Cancelled), cancellable():
        answered(hangs, within_seconds=60, name="hangs")


def test_what_is_half_done_when_a_signal_comes_is_done() -> None:
    came, done = threading.Event(), []

    def works() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        came.wait(0.2)  # longer than a signal is waited for
        done.append("whole")

    with pytest.raises(Cancelled), cancellable():
        answered(works, within_seconds=60, name="works")
    assert done == ["whole"]


class Stopped(threading.Thread):
    """A stop signal comes when it has an id and does not count as started (CPython 3.11)."""

    def _set_tstate_lock(self) -> None:
        super()._set_tstate_lock()  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(0.2)  # the main thread is told meanwhile


def test_a_stop_signal_while_a_thread_begins_is_no_bug_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stopped just then had failed: such a thread cannot be joined."""
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Thread", Stopped)
        pipeline = Pipeline([Digest()])
    with pytest.raises(Cancelled), cancellable(), pipeline:
        raise AssertionError("nobody was told of the signal")
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Stopped)]
