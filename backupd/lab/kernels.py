"""Which user-mode kernel a machine runs: the newest that Debian has, fetched once, or the one that is installed here.

Debian 12's and 13's (6.1, 6.12) have room for 2.7 KB of a processor's registers and die in their first process where
those take more (`put_fp_registers`), as with AMX, 11 KB. There the newest serves, with ptrace as older ones have it.

Knows: where its program and its modules lie, and how a program of a newer distribution is made to start here.

From Linux 6.16 on a user-mode kernel can do without ptrace (`seccomp=`). Measured on one machine, 6.1 of Debian 12
beside 7.2: touching a new page 92 and 26 us, a system call 17 and 9 us, `python3 -c pass` 110 and 45 ms.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.host.process import run
from backupd.lab import images, roots
from backupd.lab.options import Kernel
from backupd.lab.servers import Distribution
from backupd.vocabulary.errors import LabError

NEWEST = Distribution("testing", ("user-mode-linux",))
_FORMAT = 1
_QUICK_SECONDS = 60.0
_PROGRAM = "linux.uml"
_INSTALLED = Path("/usr")
_PROCESSOR = Path("/proc/cpuinfo")
_MANY_REGISTERS = {"amx_tile", "apx"}  # flags of it


@dataclass(frozen=True, slots=True)
class UserModeKernel:
    """A kernel that runs as a process."""

    program: str  # a path, or a name that is looked for on PATH
    modules: Path  # its module tree, the folder that bears its release
    options: tuple[str, ...] = ()  # of its command line, that others do not know


@contextmanager
def ready(
    kind: Kernel, cache: Path, *, say: Callable[[str], None], archive: str | None = None
) -> Iterator[UserModeKernel]:
    """That kernel can be started; nobody removes it in the block.

    Where the newest cannot be fetched, the installed one serves; where that cannot run on this processor, the newest
    does, as slowly. `say` is told of either.

    Raises:
        LabError: there is no kernel at all, or no room for one.
    """
    with ExitStack() as owed:
        if kind is Kernel.UML_INSTALLED and not _runs_here():
            say("the installed user-mode kernel cannot save this processor's registers; the newest serves, with ptrace")
            kernel = _of(owed.enter_context(_fetched(cache, archive)), "seccomp=off")
        elif kind is Kernel.UML_INSTALLED:
            kernel = installed()
        else:
            try:
                kernel = _of(owed.enter_context(_fetched(cache, archive)), "seccomp=auto")
            except roots.DistributionUnreachable as error:
                kernel = _instead(error)
                say(f"{error.message}; this machine's own user-mode kernel serves instead, which is slower")
        yield kernel


def installed() -> UserModeKernel:
    """The one of the package `user-mode-linux` that this machine has.

    Raises:
        LabError: it has none.
    """
    return UserModeKernel(_PROGRAM, modules_of(_INSTALLED))


def modules_of(usr: Path) -> Path:
    """The module tree of the user-mode kernel in this `/usr`. Debian's package has exactly one.

    Raises:
        LabError: there is none.
    """
    trees = sorted(usr.glob("lib/uml/modules/*/kernel"))
    if not trees:
        raise LabError(f"no modules of a user-mode kernel in {usr}", hint="apt-get install --reinstall user-mode-linux")
    return trees[-1].parent


def patch_argv(program: Path, *, loader: str, libraries: str) -> list[str]:
    """Afterwards the program is started by that loader with those libraries.

    Written into it rather than given on a command line: the kernel takes the room behind its own program for its own,
    and that is the loader's where the loader was started.
    """
    return ["patchelf", "--set-interpreter", loader, "--set-rpath", libraries, os.fspath(program)]


def _runs_here() -> bool:
    """Whether the installed one has room for the registers of this processor."""
    return not _MANY_REGISTERS & set(_PROCESSOR.read_text(encoding="ascii", errors="replace").split())


def _of(root: Path, *options: str) -> UserModeKernel:
    usr = root / "usr"
    return UserModeKernel(os.fspath(usr / "bin" / _PROGRAM), modules_of(usr), options)


def _instead(unreachable: roots.DistributionUnreachable) -> UserModeKernel:
    if not _runs_here():
        raise unreachable
    try:
        return installed()
    except LabError:
        raise unreachable from None


def _fetched(cache: Path, archive: str | None) -> AbstractContextManager[Path]:
    uri = archive or roots.machines_archive()
    facts = "\n".join([str(_FORMAT), uri or "", NEWEST.suite, *NEWEST.packages])
    key = f"kernel-{NEWEST.suite}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return images.kept(cache, key, lambda part: _fetch(uri, part, cache / key))


def _fetch(archive: str | None, part: Path, kept: Path) -> None:
    """Its `/usr` is in the folder, and its program starts from where the folder is to be kept."""
    roots.fetch(NEWEST, archive, part)
    loader, libraries = (kept / path.relative_to(part) for path in roots.loader_and_libraries(part / "usr"))
    argv = patch_argv(part / "usr" / "bin" / _PROGRAM, loader=os.fspath(loader), libraries=os.fspath(libraries))
    run(argv, timeout_seconds=_QUICK_SECONDS)
