"""A thread gives way for itself and for those that it starts, and never rises."""

import os
import threading
from collections.abc import Callable

from backupd.host.priority import give_way, give_way_copying

NOBODY = 65534


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


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_gives_way_with_those_that_it_starts_and_no_other() -> None:
    seen: list[int] = []

    def work() -> None:
        give_way()
        inner = threading.Thread(target=lambda: seen.append(nice()))
        inner.start()
        inner.join()

    usual = nice()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [19]
    assert nice() == usual


def test_a_thread_that_gives_way_never_rises() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        os.setuid(NOBODY)
        give_way_copying()
        assert nice() == 7

    assert in_a_child(work) == 0
