"""One user-mode kernel: started, watched, gone.

Knows: its command line, its console log, that it is several processes. Debian's user-mode-linux is a whole kernel as
an ordinary process, without KVM and without root.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from backupd.host.process import spawned
from backupd.lab.kernels import UserModeKernel
from backupd.lab.plan import GuestControl, Plan
from backupd.lab.sizes import MACHINE_MEMORY, MIB
from backupd.vocabulary.errors import LabError

_TAIL_LINES = 40
_GONE_SECONDS = 60.0  # a process that was killed still has to run to its end, on a busy machine


class DeadlinePassed(LabError):
    """The lab's deadline passed; its machine was ended. The lab's commands end with 124 for it."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one machine is made of."""

    control: GuestControl
    memory_folder: Path  # for a file that is mapped executable
    disks: tuple[Path, ...]  # ubdb, ubdc, …
    kernel: UserModeKernel
    interactive: bool = False  # somebody sits at the console; else it is a log
    processor: int | None = None  # the only one that it may use; any where None

    @property
    def console(self) -> Path:
        """What the kernel and its first processes print."""
        return self.control.folder / "console.log"


@dataclass(frozen=True, slots=True)
class LabMachine:
    """A machine that has been started."""

    hardware: Hardware
    process: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        return self.process.poll() is None

    def tail(self) -> str:
        """The end of its console, for a person."""
        try:
            text = self.hardware.console.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def kernel_argv(hardware: Hardware) -> list[str]:
    """The machine's command line.

    `t` in `ubdbt`: no discard and no write-zeroes, which the driver claims and then fails. `uml_dir`: else it would
    make a folder in the home folder. TMPDIR: where the kernel puts the file that is its memory. `taskset`: kernel and
    programs of the machine are processes that wake each other by turns; on one processor that is three times faster
    than across two, and repeatable (`lvcreate -s` took 430 ms instead of 1,500).
    """
    disks = [f"ubd{letter}t={path}" for letter, path in zip("bcdefgh", hardware.disks, strict=False)]
    folder = hardware.control.folder
    pinned = [] if hardware.processor is None else ["taskset", "--cpu-list", str(hardware.processor)]
    return [
        *pinned,
        *("env", f"TMPDIR={hardware.memory_folder}", hardware.kernel.program, f"mem={MACHINE_MEMORY // MIB}M"),
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={folder}/init", f"uml_dir={folder}/uml"),
        *disks,
        *hardware.kernel.options,
        *("con=null", "con0=fd:0,fd:1", *(["quiet"] if hardware.interactive else [])),
    ]


def boot_environment(*, modules: Path, plan: Plan, import_from: Path, keep: Sequence[Path]) -> str:
    """`boot.env` for stage 1: words for a POSIX shell, quoted."""
    words = {
        "MODULES": str(modules),
        "PYTHON": plan.python,
        "IMPORT_FROM": str(import_from),
        "KEEP": "\n".join(str(path) for path in keep),
        "INIT": plan.init,
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in words.items())


def furnish(control: GuestControl, plan: Plan, kernel: UserModeKernel) -> None:
    """The control folder holds all that the machine's first process reads.

    Raises:
        LabError: its path has a character that the kernel's command line can't carry.
    """
    if any(character.isspace() or character in ',:"' for character in str(control.folder)):
        raise LabError(
            f"the kernel cannot take a folder of this name: {control.folder}", hint="set TMPDIR to a plain path"
        )
    package = Path(str(resources.files("backupd")))
    keep = [package.parent, Path(sys.prefix), Path(sys.base_prefix), kernel.modules]
    environment = boot_environment(modules=kernel.modules, plan=plan, import_from=package.parent, keep=keep)
    (control.folder / "boot.env").write_text(environment, encoding="utf-8")
    control.plan.write_text(plan.to_json(), encoding="utf-8")
    init = control.folder / "init"
    init.write_text((package / "lab" / "guest-init.sh").read_text(encoding="utf-8"), encoding="utf-8")
    init.chmod(0o700)


@contextmanager
def booted(hardware: Hardware) -> Iterator[LabMachine]:
    """A machine runs from the block's start; at its end neither it nor any process of it is left.

    Nor when this process is killed: see `guarded_argv`. Of an interactive machine the console is the process's two
    pipes rather than a terminal, for which the kernel would start a process in a session of its own.

    Raises:
        CommandError: the kernel's program is missing.
        LabError: a process of the machine could not be ended.
    """
    lifeline = hardware.control.folder / "lifeline"
    os.mkfifo(lifeline)
    with contextlib.ExitStack() as owed:
        owed.callback(os.close, os.open(lifeline, os.O_RDWR))
        pipes = hardware.interactive
        source = subprocess.PIPE if pipes else subprocess.DEVNULL
        console = subprocess.PIPE if pipes else owed.enter_context(hardware.console.open("wb"))
        argv = guarded_argv(kernel_argv(hardware), lifeline)
        with spawned(argv, stdin=source, stdout=console, stderr=subprocess.STDOUT) as process:
            try:
                yield LabMachine(hardware, process)
            finally:
                _end_session(process)


def guarded_argv(argv: Sequence[str], lifeline: Path) -> list[str]:
    """The same program, with a guard in its process group that ends the group when nobody writes to the fifo any more.

    The kernel consists of several processes, of which only the first would die with us by PR_SET_PDEATHSIG.
    """
    guard = '(exec < "$0" > /dev/null 2>&1; read -r _; kill -KILL 0) & exec "$@"'
    return ["sh", "-c", guard, str(lifeline), *argv]


def processes_of_session(session: int) -> list[int]:
    """The processes of a session that still run, zombies left out (proc(5), `stat`: state and session)."""
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                left.append(int(entry.name))
    return left


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL at once: a machine that is not wanted any more has nothing to save. Its children are traced by it."""
    deadline = time.monotonic() + _GONE_SECONDS
    while left := processes_of_session(process.pid):
        if time.monotonic() > deadline:
            raise LabError(f"processes of the machine cannot be ended: {left}", hint="kill -KILL them")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.01)
    process.wait()
