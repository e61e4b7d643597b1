"""An `lvm` shell that runs before it is needed, so that a command under the lock costs no process start.

Knows: how to talk to it and when it has answered.

The shell reads lines from a pipe, prints no prompt, and has no exit status per command. So each command is followed by
a line that is no command at all: the complaint about it proves that everything before it has ended. What the shell says
goes to memory rather than to a pipe: when backupd is killed nobody reads, and LVM would die of SIGPIPE where it must
not. It then meets the end of its input instead, finishes what it was doing, and ends.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backupd.host.process import ChildLedger, part_from, spawned
from backupd.vocabulary.errors import SnapshotError

_NOISE = ("TEST MODE", "WARNING:", "Reducing COW size", "Retrying metadata scan")
_ENDED = "see in the kernel log (dmesg) whether it was killed, for memory perhaps; then start the run again"
_TAIL = "Try 'help'."  # of the complaint about a line that is no command


class LvmShell:
    """One living shell; `lvm_shell` makes it."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self._process = process
        self._output = output
        self._commands = 0
        self._read_to = 0

    def send(self, command: str) -> None:
        """Hand over one command and return at once; `reply` tells when it has ended.

        Raises:
            SnapshotError: the shell has died.
        """
        self._commands += 1
        self._read_to = os.fstat(self._output).st_size
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n{self._marker}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise SnapshotError(f"the lvm shell has ended: {self._unread() or '(no output)'}", hint=_ENDED) from error

    def reply(self) -> str | None:
        """What the last command printed, once it has ended; None while it is still at work.

        Raises:
            SnapshotError: the shell has died.
        """
        died = self._process.poll() is not None
        said, marker, _ = self._unread().partition(f"No such command '{self._marker}'")
        if marker:
            return said
        if died:
            raise SnapshotError(f"the lvm shell has ended in mid-command: {said.strip() or '(no output)'}", hint=_ENDED)
        return None

    def end(self, waiting: Callable[[], None]) -> None:
        """It has finished what it was doing, and ended; one that hangs is waited for for five minutes.

        `waiting` is called meanwhile; what it raises goes on.
        """
        part_from(self._process, waiting)

    @property
    def _marker(self) -> str:
        return f"backupd-{os.getpid()}-{self._commands}"

    def _unread(self) -> str:
        length = os.fstat(self._output).st_size - self._read_to
        return os.pread(self._output, length, self._read_to).decode("utf-8", "replace")


@contextmanager
def lvm_shell(ledger: ChildLedger | None) -> Iterator[LvmShell]:
    """A shell for the length of the block, in a session of its own. It is never killed: the block's end waits for it.

    Raises:
        CommandError: there is no `lvm`.
    """
    output = os.memfd_create("lvm-shell")
    try:
        with spawned(
            ["lvm"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            environment={"HOME": "/nonexistent"},  # or it writes its history to $HOME/.lvm_history when it ends
            ledger=ledger,
            dies_with_us=False,
        ) as process:
            yield LvmShell(process, output)
    finally:
        os.close(output)


def meaningful(said: str) -> str:
    """What a command printed, without warnings that we know of, on one line."""
    lines = (line.strip() for line in said.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith(_NOISE) and not line.endswith(_TAIL))
