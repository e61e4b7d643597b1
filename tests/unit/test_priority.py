"""A thread gives way for itself and for those that it starts, and never rises."""

import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.host import priority
from backupd.host.priority import give_way, give_way_archiving, give_way_copying

NOBODY = 65534


def in_a_child(work: Callable[[], None]) -> int:
    """The exit status of a process that does this; 1 where it raises, after it told what."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            if status:
                traceback.print_exc()
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


def weight(autogroup: Path) -> int:
    return int(autogroup.read_text().split()[-1])


def test_a_session_of_its_own_gives_way_as_a_whole_and_another_ones_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    autogroup = tmp_path / "autogroup"
    monkeypatch.setattr(priority, "_AUTOGROUP", autogroup)

    def work() -> None:
        autogroup.write_text("/autogroup-1 nice 0\n")
        give_way_archiving()
        assert (nice(), weight(autogroup)) == (max(5, usual), 0)
        os.setsid()
        give_way_archiving()
        assert weight(autogroup) == 5
        autogroup.write_text("/autogroup-1 nice 9\n")
        give_way_archiving()
        assert weight(autogroup) == 9
        autogroup.unlink()
        give_way_archiving()

    usual = nice()
    assert in_a_child(work) == 0


def test_the_kernel_takes_the_weight_unless_it_keeps_none_or_refuses_it_to_anybody() -> None:
    autogroup = Path("/proc/self/autogroup")

    def work() -> None:
        os.setsid()
        give_way_archiving()
        try:
            taken = weight(autogroup) == 5
        except FileNotFoundError:
            taken = False
        if not taken:
            with pytest.raises(OSError):
                autogroup.write_text("5")

    assert in_a_child(work) == 0
