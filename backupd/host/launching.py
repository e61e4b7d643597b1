"""How a command of ours is started as a process that goes on when we end: what a person would type, and nothing more.

Knows: a transient unit of systemd's, and a session of its own with its output in a file. Under systemd each is a unit
`backupd-run-….service`: a drop-in folder `backupd-run-.service.d` gives all of them their sandbox, credentials and
environment (systemd.unit(5), truncated names).
"""

import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from backupd.host.process import found, run
from backupd.vocabulary.errors import CommandError

log = logging.getLogger(__name__)

OWN_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # of a service's main process, of no child
UNIT_SECONDS = 10.0  # for systemd to take a unit, or to tell of one
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)


def ourselves(configuration: Path) -> tuple[str, ...]:
    """What a person would type before the command; `-P`: no module is taken from the folder that we work in."""
    return sys.executable, "-P", "-m", "backupd", "--config", str(configuration)


def unit_argv(name: str, variable: str, command: Sequence[str], *, wait: bool = True) -> list[str]:
    """A transient unit that is forgotten when it has ended, however it did; it is found by a variable, `NAME=VALUE`.

    With `wait` this ends with the unit's own status; without, as soon as systemd has taken it: its process may come
    much later, as the unit waits for others (`is_unit_there`).
    """
    return [
        *("systemd-run", "--quiet", "--collect", "--wait" if wait else "--no-block", f"--unit={_unit(name)}"),
        *(f"--description=backupd {name}", f"--setenv={variable}", "--", *command),
    ]


def is_unit_there(name: str) -> bool:
    """Whether such a unit waits for others, or has a process. So it may where systemd does not tell."""
    return is_unit_known(name) is not False


def is_unit_known(name: str) -> bool | None:
    """Whether systemd says that such a unit waits for others, or has a process; None where it does not tell."""
    if not units_can_be_asked_for():
        return False
    argv = ["systemctl", "show", "--property=Job,ActiveState", f"{_unit(name)}.service"]
    try:
        lines = run(argv, timeout_seconds=UNIT_SECONDS).stdout.splitlines()
    except CommandError as error:
        log.warning("systemd does not tell of %s: %s", _unit(name), error.message)
        return None
    told = {name: value for name, _, value in (line.partition("=") for line in lines)}
    return told.get("Job", "") not in ("", "0") or told.get("ActiveState") not in ("inactive", "failed")


def units_can_be_asked_for() -> bool:
    """Whether this process may have systemd start units: only root can."""
    return os.geteuid() == 0 and is_booted_by_systemd() and found("systemd-run")


def is_booted_by_systemd() -> bool:
    """Whether the system's own systemd can be asked for units."""
    return _BOOTED.is_dir()


def _unit(name: str) -> str:
    return f"backupd-run-{re.sub(r'[^0-9A-Za-z_.-]', '-', name)}"


def output_file(folder: Path, name: str) -> IO[bytes] | None:
    """Where the output of a session is appended to; None where it cannot be written, which the log tells."""
    try:
        folder.mkdir(mode=0o750, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(folder / f"{name}.out.log", flags, 0o640), "ab")
    except OSError as error:
        log.warning("the output of %s is not recorded: %s", name, error)
        return None
