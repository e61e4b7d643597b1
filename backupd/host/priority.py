"""What of the processors and the disks a thread leaves to others, and what dies last where memory runs out.

Knows: that Linux keeps nice values and I/O classes for each thread (setpriority(2), ioprio_set(2)), and that threads
and children begin with those of the thread which started them.
"""

import ctypes
import logging
import os
import platform
import threading
from pathlib import Path

log = logging.getLogger(__name__)

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # asm/unistd_64.h, asm-generic/unistd.h; glibc has no wrapper
_IOPRIO_WHO_PROCESS = 1  # linux/ioprio.h; with a thread's id it is that thread
_IOPRIO_IDLE = 3 << 13  # IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT
_IOPRIO_LAST = (2 << 13) + 7  # IOPRIO_CLASS_BE, its lowest level

_NICEST = 19
_ARCHIVING = 5
_SCORES = ("-1000", "0")  # of the OOM killer: never; as anybody's
_AUTOGROUP = Path("/proc/self/autogroup")


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


def give_way_archiving() -> None:
    """Nice 5 for the calling thread and those that it starts: what a server's clients wait for comes first.

    Not more: beside a server that takes every processor for good, an archive at nice 10 falls further behind with every
    minute (`make bench-archive`, two processors), and at nice 5 it keeps up. Its disk writes wait for nobody: they are
    few, and a segment is safe only with them. Where the kernel weighs whole sessions (sched(7), "The autogroup
    feature"), niceness counts within one only; so a session of our own gets the same.
    """
    _be_nice(_ARCHIVING)
    if os.getsid(0) != os.getpid():
        return
    try:
        before = int(_AUTOGROUP.read_text(encoding="ascii").split()[-1])
        _AUTOGROUP.write_text(str(max(before, _ARCHIVING)), encoding="ascii")
    except (OSError, ValueError, IndexError) as error:
        log.debug("the session's weight stays as it is: %s", error)


def spare(pid: int) -> None:
    """Where memory runs out, the kernel takes another process, for as much as we may say so.

    A child has our own score, which makes a backup the first to go (`OOMScoreAdjust` of its unit). A score below one
    that a privileged process has set takes CAP_SYS_RESOURCE (proc(5), `oom_score_adj`).
    """
    for score in _SCORES:
        try:
            Path(f"/proc/{pid}/oom_score_adj").write_text(score, encoding="ascii")
        except OSError as error:
            log.debug("process %d does not get the OOM score %s: %s", pid, score, error)
        else:
            return


def _give_way(nice: int, io_priority: int) -> None:
    """Where the I/O class cannot be set (a seccomp filter, another machine type), niceness alone has to do."""
    thread = _be_nice(nice)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None and ctypes.CDLL(None).syscall(number, _IOPRIO_WHO_PROCESS, thread, io_priority) != 0:
        log.debug("the I/O class was refused; using only nice %d", nice)


def _be_nice(nice: int) -> int:
    """The calling thread's id. It never rises."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
    return thread
