"""A program that puts a load on a disk: run to its end, or ended at once by whoever must.

Knows: that it is installed, its version, deadlines, interruption from another thread.
"""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backupd.host import process
from backupd.vocabulary.errors import CommandError, UnexpectedOutput

LATE_SECONDS = 30.0  # past a window's end: a stalled disk delays the last request by that much and no more

_PROMPT_SECONDS = 0.2  # how soon an interruption is noticed
_VERSION_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A program whose options and output backupd knows, from a first major version on."""

    name: str
    version_prefix: str  # of what `--version` prints
    oldest_major: int
    looked_up: str  # the version in which they were looked up

    def installed_version(self) -> str:
        """The version of the one that is installed.

        Raises:
            CommandError: it is missing, fails or is too old.
            UnexpectedOutput: it does not say its version; the message carries the text.
        """
        require_installed(self.name)
        return self.parse_version(process.run([self.name, "--version"], timeout_seconds=_VERSION_SECONDS).stdout)

    def parse_version(self, text: str) -> str:
        """The version that it says it has.

        Raises:
            CommandError: it is too old.
            UnexpectedOutput: it says none; the message carries the text.
        """
        found = re.match(rf"{re.escape(self.version_prefix)}((\d+)\.\d[\w.-]*)", text)
        if found is None:
            raise self.unexpected(text)
        if int(found.group(2)) < self.oldest_major:
            raise CommandError(
                f"{self.name} {found.group(1)} is too old", hint=f"backupd needs {self.oldest_major}.0 or later"
            )
        return found.group(1)

    def unexpected(self, text: str) -> UnexpectedOutput:
        """The error that says so of what it printed."""
        return UnexpectedOutput(
            f"{self.name} printed something unexpected:\n{text}",
            hint=f"backupd knows {self.name} {self.looked_up}: {self.name} --version",
        )


def acting_as(owner: os.stat_result, *, folder: str = "/") -> list[str]:
    """What a command line begins with that works in this folder as the user and group of `owner`.

    `env` changes into the folder while it still may. Whoever it then becomes can read the environment of all that runs
    as him, which has nothing of ours but PATH. The kernel forgets at a change of user that a child was to die with us
    (prctl(2)), hence `--pdeathsig`.
    """
    path = f"PATH={os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    prefix = ["env", "--ignore-environment", f"--chdir={folder}", path, "LC_ALL=C"]
    if owner.st_uid == os.geteuid() or os.geteuid() != 0:
        return prefix
    who = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups")
    return [*prefix, "setpriv", *who, "--no-new-privs", "--pdeathsig", "KILL", "--"]


class LoadProgram:
    """One program, whose package has its name. A child of it dies with the thread that started it."""

    def __init__(self, name: str, failure: Callable[[int, str], CommandError]) -> None:
        """`failure` makes an error of the status that it ended with and all that it printed."""
        self._name, self._failure = name, failure
        self._interrupted = threading.Event()

    def run(self, argv: Sequence[str], deadline_seconds: float) -> str:
        """Run it to its end; what it printed on its standard output.

        Raises:
            CommandError: it is missing, failed, was interrupted, or did not end within the deadline.
        """
        require_installed(self._name)
        if self._interrupted.is_set():
            raise self._interruption()
        with process.spawned(argv) as child:
            out, err = self._outcome(child, deadline_seconds)
        if child.returncode != 0:
            raise self._failure(child.returncode, f"{out}{err}")
        return out

    def interrupt(self) -> None:
        """What runs now, in whatever thread, ends at once with CommandError; nothing begins until `allow`."""
        self._interrupted.set()

    def allow(self) -> None:
        """It may be run again."""
        self._interrupted.clear()

    def _outcome(self, child: subprocess.Popen[bytes], deadline_seconds: float) -> tuple[str, str]:
        ends = time.monotonic() + deadline_seconds
        while True:
            try:
                out, err = child.communicate(timeout=_PROMPT_SECONDS)
            except subprocess.TimeoutExpired:
                if self._interrupted.is_set():
                    raise self._interruption() from None
                if time.monotonic() > ends:
                    raise CommandError(
                        f"{self._name} did not end within {deadline_seconds:g} s",
                        hint="the disk may have stalled: check the kernel log (dmesg)",
                    ) from None
            else:
                return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def _interruption(self) -> CommandError:
        return CommandError(f"{self._name} was interrupted")


def require_installed(name: str) -> None:
    """Raises CommandError where there is no program of this name; its package has the same one."""
    if not process.found(name):
        raise CommandError(f"{name} is not installed", hint=f"apt-get install {name}")
