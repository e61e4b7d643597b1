"""Whether a child of ours has ended; its end is not taken (reaped) by that.

Knows: that until it is taken a child's number, and that of its process group, are its own: a signal to the group
reaches whoever is left of it, and no stranger.
"""

import math
import os
import select
import subprocess
import time

_LOOK_SECONDS = 0.05


def has_ended(process: subprocess.Popen[bytes], *, within_seconds: float) -> bool:
    """Known at once; looking now and then takes longer, and `make bench-lock` has a server wait for it."""
    if process.returncode is not None:
        return True
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:  # another thread has waited for it
        return True
    except OSError:  # no descriptor is free: that is no reason to give up a child
        return _is_seen_to_end(process.pid, within_seconds=within_seconds)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(math.ceil(within_seconds * 1000)))
    finally:
        os.close(descriptor)


def _is_seen_to_end(pid: int, *, within_seconds: float) -> bool:
    """The same by looking every 50 ms."""
    deadline = time.monotonic() + within_seconds
    while not _is_seen_ended(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _is_seen_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # another thread has waited for it
        return True
