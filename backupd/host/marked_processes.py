"""Processes of ours that are known by a variable in the environment that they were started with (proc(5), `environ`).

Anybody can write anything into the environment of a process of his own, which root then reads: so it is asked whose the
process is.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from backupd.host.own_files import is_our_process

SLOT_VARIABLE = "BACKUPD_SLOT"  # of whatever a schedule starts: a later daemon finds it by this


def marked(variable: str, value: str) -> bool:
    """Whether there is one that has this variable."""
    return next(marked_processes(variable, value), None) is not None


def marked_processes(variable: str, value: str) -> Iterator[int]:
    """Each live one that has this variable."""
    wanted = f"{variable}={value}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if wanted in (folder / "environ").read_bytes().split(b"\0") and is_our_process(int(folder.name)):
                    yield int(folder.name)


def variable_of(pid: int, variable: str) -> str | None:
    """What a live process of ours has of this name in the environment that it was started with; None where it has none,
    or is gone, or another user's.
    """
    begin = f"{variable}=".encode()
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes() if is_our_process(pid) else b""
    except OSError:
        return None
    found = next((each for each in environment.split(b"\0") if each.startswith(begin)), None)
    return None if found is None else found.removeprefix(begin).decode("utf-8", "replace")
