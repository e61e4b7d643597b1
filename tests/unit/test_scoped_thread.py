"""A thread for the length of a block: it has ended when the block has, and its own error is not lost."""

import threading

import pytest

from backupd.host.scoped_thread import ScopedThread

PATIENCE = 10.0


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("scoped")]


def test_it_works_while_the_block_lasts_and_has_ended_when_it_has() -> None:
    stop, working = threading.Event(), threading.Event()

    def work() -> None:
        working.set()
        stop.wait()

    with ScopedThread("scoped", work, stop=stop.set) as beside:
        assert working.wait(PATIENCE)
        assert not beside.has_ended
        beside.require_working()
    assert beside.has_ended
    assert ours() == []


def test_an_error_of_its_own_is_raised_at_the_blocks_end() -> None:
    def work() -> None:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"), ScopedThread("scoped", work, stop=lambda: None):
        pass


def test_the_blocks_own_error_comes_first() -> None:
    def work() -> None:
        raise ValueError("of its own")

    with pytest.raises(KeyError), ScopedThread("scoped", work, stop=lambda: None):
        raise KeyError
    assert ours() == []


def test_whoever_asks_is_told_what_ended_it() -> None:
    def work() -> None:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"), ScopedThread("scoped", work, stop=lambda: None) as beside:
        while True:
            beside.require_working()


def test_a_call_that_does_not_end_is_waited_for_no_longer_than_it_may_take() -> None:
    """It stands in the kernel, and keeps neither the block's end nor the process's."""
    answers, standing = threading.Event(), threading.Event()

    def work() -> None:
        standing.set()
        answers.wait()

    try:
        with ScopedThread("scoped", work, stop=lambda: None, end_seconds=0.05) as beside:
            assert standing.wait(PATIENCE)
        assert not beside.has_ended
        assert [thread.daemon for thread in threading.enumerate() if thread.name.startswith("scoped")] == [True]
    finally:
        answers.set()
