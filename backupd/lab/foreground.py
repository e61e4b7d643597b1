"""One command inside the machine, its output carried to files as it comes.

Knows: pipes and exit statuses. Pipes rather than the files themselves, because a command may open /dev/stdout anew.
"""

import os
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from backupd.host.process import spawned

_PIECE = 64 * 1024
_LOOK_SECONDS = 0.05  # how soon the end of a command is seen whose children keep its pipes open


def run_command(argv: Sequence[str], *, stdout: Path, stderr: Path) -> int:
    """Run it to its end; the files hold every byte that it printed. Its exit status as a shell would say it."""
    with stdout.open("ab", buffering=0) as out, stderr.open("ab", buffering=0) as err, spawned(argv) as process:
        _carry(process, out, err)
        status = process.wait()
    return 128 - status if status < 0 else status


def run_on_terminal(argv: Sequence[str], terminal: str) -> int:
    """Run it with that terminal as its own (job control works); its exit status."""
    handle = os.open(terminal, os.O_RDWR)
    try:
        with spawned(["setsid", "--ctty", "--wait", *argv], stdin=handle, stdout=handle, stderr=handle) as process:
            status = process.wait()
    finally:
        os.close(handle)
    return 128 - status if status < 0 else status


def _carry(process: subprocess.Popen[bytes], out: IO[bytes], err: IO[bytes]) -> None:
    """Copy until both pipes end; or, once the command has ended, until what it left in them is copied."""
    with selectors.DefaultSelector() as selector:
        for pipe, file in ((process.stdout, out), (process.stderr, err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, file)
        while selector.get_map():
            ended = process.poll() is not None
            ready = selector.select(_LOOK_SECONDS)
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                if piece:
                    key.data.write(piece)
                else:
                    selector.unregister(key.fileobj)
            if ended and not ready:
                return
