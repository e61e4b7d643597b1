"""What of the processors and the disks is left to others: by whole processes, and by threads for themselves.

Knows: that Linux keeps nice values and I/O classes for each thread (setpriority(2), ioprio_set(2)), that threads and
children begin with those of the thread which started them, and that a kernel which groups tasks by session weighs nice
values within a session only, and sessions against each other by a value of their own (sched(7), "The autogroup
feature"). Refuses to know when it is time to give way.
"""

import ctypes
import logging
import os
import platform
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

log = logging.getLogger(__name__)

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # asm/unistd_64.h, asm-generic/unistd.h; glibc has no wrapper
_IOPRIO_WHO_PROCESS = 1  # linux/ioprio.h; with a thread's id it is that thread
_IOPRIO_IDLE = 3 << 13  # IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT
_IOPRIO_LAST = (2 << 13) + 7  # IOPRIO_CLASS_BE, its lowest level

_STEP = 10  # nice values: a tenth of what a process gets that gives way to nobody, where both want a processor
_NICEST = 19
_SESSION = Path("/proc/self/autogroup")


def give_way() -> None:
    """Nice 19 and the idle I/O class for the calling thread and those that it starts: nothing waits for them."""
    _give_way(_NICEST, _IOPRIO_IDLE)


def give_way_copying() -> None:
    """Nice 5 and the best-effort I/O class, its lowest level, for the same: the server pays until the copy is done.

    At nice 19 a copy beside a busy processor takes ten times as long, and the snapshot lives ten times as long. A read
    that waits in the disk's queue, as the idle class lets it, keeps every first write of the server to its chunk
    waiting: kcopyd polls until the read has ended (`__check_for_conflicting_io` in drivers/md/dm-snap.c).
    """
    _give_way(5, _IOPRIO_LAST)


def _give_way(nice: int, io_priority: int) -> None:
    """Where the I/O class cannot be set (a seccomp filter, another machine type), niceness alone has to do."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))  # never to rise
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None and ctypes.CDLL(None).syscall(number, _IOPRIO_WHO_PROCESS, thread, io_priority) != 0:
        log.debug("the I/O class was refused; nice %d has to do", nice)


class Yielding:
    """The block leaves the processors to others, but for those times in which it is told to take its share.

    One that could not take back what it gave (in a container without CAP_SYS_NICE) gives a single nice value. Where the
    process leads its session, as under systemd and under the daemon, the session gives way too; a shell's does not.
    """

    def __init__(self) -> None:
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        self._low = min(self._usual + _STEP, _NICEST)

    def __enter__(self) -> Self:
        try:
            _set_all(min(self._usual + 1, _NICEST))
            _set_all(self._usual)
        except PermissionError:
            self._low = self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        self.give_way()
        return self

    def __exit__(self, *_: object) -> None:
        self.take_share()

    def give_way(self) -> None:
        """From now on others go first."""
        self._set(self._low, session=_STEP)

    def take_share(self) -> None:
        """From now on it has what it was started with."""
        self._set(self._usual, session=0)

    def _set(self, nice: int, *, session: int) -> None:
        """Where there is one value only, threads that gave more for themselves keep theirs: none could come back."""
        if self._low != self._usual:
            _set_all(nice)
        if os.getsid(0) == os.getpid():
            try:
                _SESSION.write_text(str(session), encoding="ascii")
            except OSError as error:  # a kernel without such groups
                log.debug("the session keeps its share: %s", error)


def _set_all(nice: int) -> None:
    """For every thread that there is."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
