"""A call that may never end is waited for for a while, and no longer."""

import errno
import threading

import pytest

from backupd.host.daemon_thread import answered


def fail() -> int:
    raise KeyError("of its own")


def test_what_a_call_returns_is_returned() -> None:
    assert answered(lambda: 42, within_seconds=10, name="asking") == 42


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(KeyError, match="of its own"):
        answered(fail, within_seconds=10, name="asking")


def test_a_call_that_does_not_end_is_left_to_itself() -> None:
    answers = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer for 0\.05 s") as caught:
        answered(answers.wait, within_seconds=0.05, name="hangs")
    assert caught.value.errno == errno.ETIMEDOUT
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "hangs")
    assert thread.daemon
    answers.set()
    thread.join()
