"""The units of configs/systemd as a package would install them, in a machine whose first process is systemd.

Knows: how to install, start and ask units. Refuses to know what they are for.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.lab.inside.host import tool

SHIPPED = Path(__file__).parents[3] / "configs" / "systemd"
UNITS = Path("/run/systemd/system")  # the first that is searched, and here the only one
PROGRAM = Path("/usr/bin/backupd")
_LOG = Path("/run/lab/out/units.log")  # seen outside, in DIR


def install() -> None:
    """The units are known to systemd and find their program; without a journal, what they print goes to DIR.

    What is added for this machine alone: the program is a checkout's, which may lie in a folder that the daemon's
    sandbox covers.
    """
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    PROGRAM.unlink(missing_ok=True)
    PROGRAM.symlink_to(tool("which", "backupd").strip())
    shutil.copytree(SHIPPED, UNITS, dirs_exist_ok=True)
    printing = (f"Standard{stream}=append:{_LOG}" for stream in ("Output", "Error"))
    here = ["[Service]", *printing]
    for name in ("binlog@", "prove", "recover", "run-", "run@"):
        drop_in(f"backupd-{name}.service", "lab", here)
    ours = {str(Path(__file__).parents[3]), sys.prefix, sys.base_prefix}
    drop_in("backupd.service", "lab", [*here, *(f"BindReadOnlyPaths={path}" for path in sorted(ours))])
    _LOG.touch()
    systemctl("daemon-reload")


def drop_in(unit: str, name: str, lines: list[str]) -> None:
    """These settings hold too, after the next `daemon-reload`."""
    folder = UNITS / f"{unit}.d"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.conf").write_text("\n".join([*lines, ""]))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Every unit that is started within the block has these."""
    systemctl("set-environment", *(f"{name}={value}" for name, value in variables.items()))
    try:
        yield
    finally:
        systemctl("unset-environment", *variables)


def systemctl(*words: str, expect: int = 0) -> str:
    """What it prints."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    assert done.returncode == expect, f"systemctl {words}: {done.returncode} {done.stdout}{done.stderr}"
    return done.stdout


def shown(unit: str, name: str) -> str:
    """One property."""
    return systemctl("show", "--value", f"--property={name}", unit).strip()


def logged() -> str:
    """What all units have printed so far."""
    return _LOG.read_text()


def transient(name: str, *command: str, expect: int = 0) -> str:
    """Run it to its end as a transient unit of this name; what it printed."""
    before = len(logged())
    argv = ["systemd-run", "--quiet", "--collect", "--wait", f"--unit={name}", "--", *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    printed = logged()[before:]
    assert done.returncode == expect, f"{command}: {done.returncode} {done.stderr}\n{printed}"
    return printed
