"""Stop signals: they raise once, at a good moment, and never while something is being given back."""

import os
import signal

import pytest

from backupd.host.signals import cancellable, shielded
from backupd.vocabulary.errors import Cancelled


def stop(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_cancels(number: int) -> None:
    with pytest.raises(Cancelled, match=signal.Signals(number).name), cancellable():
        stop(number)


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


def test_the_handlers_of_before_are_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cancellable():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
