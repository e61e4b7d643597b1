"""Stop signals: they raise once, at a good moment, and never while something is being given back."""

import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, cast

import pytest

from backupd.host import signals
from backupd.host.scoped_thread import ScopedThread
from backupd.host.signals import cancellable, require_going_on, shielded
from backupd.mysql.session import Session
from backupd.mysql.watchdog import Watchdog
from backupd.operations.ownership import Ownership, Renewal
from backupd.vocabulary.errors import Cancelled, ExitStatus


def stop(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGTERM, ExitStatus.TERMINATED, "terminated by SIGTERM"),
        (signal.SIGINT, ExitStatus.CANCELLED, "cancelled by SIGINT"),
    ],
)
def test_a_stop_signal_cancels_and_its_sender_is_told_by_it(number: int, status: ExitStatus, said: str) -> None:
    with pytest.raises(Cancelled) as cancelled, cancellable():
        stop(number)
    assert (cancelled.value.exit_status, cancelled.value.message) == (status, said)


@contextmanager
def hangup(handler: signal.Handlers) -> Iterator[None]:
    """As a command finds it that was started so; these tests may have been with `nohup`."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_closes_cancels_too() -> None:
    with hangup(signal.SIG_DFL):
        with pytest.raises(Cancelled, match="SIGHUP"), cancellable():
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
            stop(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_what_was_started_with_nohup_outlives_its_terminal() -> None:
    with hangup(signal.SIG_IGN), cancellable():
        stop(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_second_signal_does_not_disturb_the_clean_up() -> None:
    cleaned = []
    with pytest.raises(Cancelled), cancellable():
        try:
            stop()
        finally:
            stop()
            cleaned.append("all of it")
    assert cleaned == ["all of it"]


def test_a_signal_under_a_shield_waits_for_its_end() -> None:
    done = []
    with pytest.raises(Cancelled), cancellable():
        with shielded():
            stop()
            done.append("the release")
        done.append("never reached")
    assert done == ["the release"]


def test_an_inner_shield_does_not_end_the_outer_one() -> None:
    done = []
    with pytest.raises(Cancelled), cancellable(), shielded():
        with shielded():
            stop()
        done.append("after the inner shield")
    assert done == ["after the inner shield"]


def test_an_error_under_a_shield_is_not_hidden_by_the_signal() -> None:
    with pytest.raises(ValueError, match="first"), cancellable(), shielded():
        stop()
        raise ValueError("first")


@contextmanager
def lent(back: list[str]) -> Iterator[None]:
    """As whatever must be given back is written everywhere."""
    try:
        yield
    finally:
        with shielded():
            back.append("given back")


@contextmanager
def lent_by_another(back: list[str]) -> Iterator[None]:
    with lent(back):
        yield


def lent_by_a_stack(back: list[str]) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(lent(back))
    return stack


class Beside(ScopedThread):
    def __init__(self, back: list[str]) -> None:
        super().__init__("beside", lambda: None, stop=lambda: back.append("given back"))


class Guarding(Watchdog):
    def __init__(self, back: list[str]) -> None:
        super().__init__(cast(Session, None), cast(Session, None))
        self._back = back

    def _watch(self) -> None:
        with self._change:
            self._change.wait_for(lambda: self._over, timeout=10)
            self._back += ["given back"] if self._over else []


class Renewing(Renewal):
    def __init__(self, back: list[str]) -> None:
        super().__init__(cast(Ownership, None), [], lambda *_lost: None)
        self._back = back

    def _go_on(self) -> None:
        self._back += ["given back"] if self._ended.wait(10) else []


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What hypothesis does at a collection is Python's own call, and what is raised there is lost."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "lend", [lent, lent_by_another, lent_by_a_stack, Beside, Guarding, Renewing], ids=lambda lend: lend.__name__
)
def test_a_signal_at_the_end_of_a_block_skips_nothing_that_is_given_back(lend: Callable[[list[str]], Any]) -> None:
    """At each call that leaving the block makes: Python calls handlers where functions begin and generators resume."""
    cancelled = 0
    for point in range(1, 200):
        back: list[str] = []
        calls = 0

        def interrupt(frame: FrameType, event: str, _argument: object, point: int = point) -> None:
            nonlocal calls
            calls += event == "call"
            if calls == point:
                sys.settrace(None)
                signals._on_signal(signal.SIGTERM, frame)

        try:
            with cancellable():
                with lend(back):
                    sys.settrace(interrupt)
                sys.settrace(None)
                for _ in range(1000 if calls == point else 0):  # where it was too early, it comes a moment later
                    require_going_on()  # in a destructor, what is raised is lost
                    signal.sigtimedwait([], 0.01)
        except Cancelled:
            cancelled += 1
        finally:
            sys.settrace(None)
        assert back == ["given back"], f"at call {point} of the block's end"
        if calls < point:
            break
    assert cancelled == point - 1 > 3


def test_a_signal_that_comes_while_a_line_is_logged_is_not_lost() -> None:
    """A handler of logging prints what is raised below it, and goes on."""

    class Stopping(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            stop()
            return super().format(record)

    handler = logging.StreamHandler(text := io.StringIO())
    handler.setFormatter(Stopping())
    with pytest.raises(Cancelled), cancellable():
        handler.handle(logging.makeLogRecord({"msg": "a line"}))
        signal.sigtimedwait([], 5)
    assert text.getvalue() == "a line\n"


def test_the_handlers_of_before_are_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cancellable():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
