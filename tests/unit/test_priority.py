"""A process gives way, and takes its share again, with all of its threads; where it could not, it keeps what it has."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.priority import Yielding, give_way_copying

NOBODY = 65534


@contextmanager
def companion(*, begin: Callable[[], None] = lambda: None) -> Iterator[int]:
    """A thread that waits, by the kernel's number."""
    over, begun = threading.Event(), threading.Event()

    def work() -> None:
        begin()
        begun.set()
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    assert thread.native_id is not None
    try:
        yield thread.native_id
    finally:
        over.set()
        thread.join()


def nice_of(*threads: int) -> set[int]:
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in (threading.get_native_id(), *threads)}


def test_a_process_gives_way_and_takes_its_share_with_all_its_threads() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with companion() as before, Yielding() as yielding, companion() as meanwhile:
        assert nice_of(before, meanwhile) == {min(usual + 10, 19)}
        yielding.take_share()
        assert nice_of(before, meanwhile) == {usual}
        with companion() as later:
            yielding.give_way()
            assert nice_of(before, meanwhile, later) == {min(usual + 10, 19)}
    assert nice_of() == {usual}


def in_a_child(work: Callable[[], None]) -> int:
    """The exit status of a process that does this; 1 where it raises."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("usual", [0, 18, 19])
def test_a_process_that_may_not_rise_again_keeps_its_share(usual: int) -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, usual)
        os.setuid(NOBODY)
        with Yielding() as yielding:
            assert nice_of() == {min(usual + 1, 19)}
            yielding.take_share()
            assert nice_of() == {min(usual + 1, 19)}

    assert in_a_child(work) == 0


def test_a_nice_process_is_never_nicer_than_nice_is() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 15)
        with Yielding() as yielding:
            assert nice_of() == {19}
            yielding.take_share()
            assert nice_of() == {15}

    assert in_a_child(work) == 0


def test_threads_that_gave_more_keep_theirs_where_none_may_rise() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # wherever an earlier test has left this process
        os.setuid(NOBODY)
        with Yielding() as yielding, companion(begin=give_way_copying) as copying:
            yielding.take_share()
            assert os.getpriority(os.PRIO_PROCESS, copying) == 5

    assert in_a_child(work) == 0


def test_a_thread_that_gives_way_never_rises() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        os.setuid(NOBODY)
        give_way_copying()
        assert nice_of() == {7}

    assert in_a_child(work) == 0


def group() -> str:
    """`/autogroup-25 nice 0`: of the session, by the kernel."""
    return Path("/proc/self/autogroup").read_text().split()[-1]


def test_the_session_that_a_process_leads_gives_way_with_it() -> None:
    def work() -> None:
        os.setsid()
        with Yielding() as yielding:
            assert group() == "10"
            yielding.take_share()
            assert group() == "0"
            yielding.give_way()
        assert group() == "0"

    assert in_a_child(work) == 0


def test_a_session_that_somebody_else_leads_is_left_alone() -> None:
    def work() -> None:
        os.setsid()

        def follow() -> None:
            with Yielding():
                assert group() == "0"

        assert in_a_child(follow) == 0

    assert in_a_child(work) == 0


def test_a_process_whose_session_has_no_group_gives_way_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a kernel has no such file; in the session that a machine began with, writing to it is refused."""
    monkeypatch.setattr("backupd.priority._SESSION", tmp_path / "none" / "autogroup")

    def work() -> None:
        os.setsid()
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        with Yielding():
            assert nice_of() == {min(usual + 10, 19)}

    assert in_a_child(work) == 0
