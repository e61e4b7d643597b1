"""This process, begun anew: the same command in the same process, which remembers nothing."""

import os
import sys
from contextlib import suppress
from typing import NoReturn


def replace_ourselves() -> NoReturn:
    """The command that this process was started with starts again in it, whichever thread asks for that.

    Children that were left behind are nobody's then: see `reap`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is wanted


def reap() -> None:
    """Children of whoever this process was before, which have ended, are no zombies."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
