"""Which program a scratch server is, and how it is started: this host's own, or one in a folder.

Knows: where a tarball, a package and the root of an image have their server, and that such a root brings a C library of
its own. Refuses to start anything but `--version`, and a program in a folder, which is a stranger's, otherwise than a
drill starts it: not as root, without a network, and where it can write nothing.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backupd.host import process
from backupd.host.sandbox import Bounds, not_confined
from backupd.mysql.dialect import DIALECTS
from backupd.mysql.facts import version_number
from backupd.mysql.scratch_account import ids_of_nobody
from backupd.vocabulary.errors import CommandError, HostExhausted, ServerError
from backupd.vocabulary.servers import Flavour, ServerFacts

_PROGRAMS_IN = ("usr/sbin", "usr/bin", "sbin", "bin")  # of a folder with a server: a package's, a tarball's
_LIBRARIES_IN = (
    "usr/lib/*-linux-gnu*",
    "lib/*-linux-gnu*",
    "usr/lib64",
    "lib64",
    "usr/lib",
    "lib",
)  # Debian's; others'
_SECONDS = 30.0
_ANY_STATUS = range(-64, 256)  # or a signal
_LOADER = f"ld-linux-{os.uname().machine.replace('_', '-')}.so.*"


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server program that is installed here."""

    path: str  # or its name, where the shell finds it
    version: str = ""
    loader: tuple[str, ...] = ()  # what starts it, where that is not the kernel with this host's libraries

    @property
    def argv(self) -> tuple[str, ...]:
        """How every command line of it begins: it reads no option file.

        One that was unpacked into a folder looks for its messages and character sets there, not in the host's.
        """
        base = (f"--basedir={Path(self.path).parent.parent}",) if "/" in self.path else ()
        return (*self.loader, self.path, "--no-defaults", *base)


def matching_program(facts: ServerFacts, folders: Sequence[Path] = ()) -> ServerProgram:
    """The server program of the recorded flavour and series; crash recovery is promised by no other.

    It is looked for in each of these folders, into which a server was installed or unpacked, before that of this host.
    One that does not start keeps no other from being found.

    Raises:
        ServerError: there is none, or it is of another series.
        UsageError: nothing on this host can keep a program in a folder within its bounds.
        HostExhausted: it has no room for any program.
    """
    found = []
    for path, loader in _programs(facts.flavour, folders):
        try:
            flavour, version, number = _version((*loader, path), _changed_at(path))
        except HostExhausted:
            raise
        except (CommandError, ServerError) as error:
            found.append(f"{path}, which did not report its version ({error.message})")
            continue
        if flavour is facts.flavour and number[:2] == facts.version_number[:2]:
            return ServerProgram(path, version, loader)
        found.append(f"{path} {version}")
    series = ".".join(map(str, facts.version_number[:2]))
    raise ServerError(
        f"no {facts.flavour} {series} server is installed here; found: {', '.join(found) or 'none'}",
        hint=f"install the server program of the series that was backed up ({facts.version})",
    )


@cache  # a proof host asks for each of thousands of copies
def _version(argv: tuple[str, ...], _changed_at: int) -> tuple[Flavour, str, tuple[int, ...]]:
    """What a program says it is. Raises CommandError or ServerError where it says nothing of the kind."""
    said = _said([*argv, "--no-defaults", "--version"], is_hosts="/" not in argv[-1])
    version = said.partition(" Ver ")[2].split(" ")[0]
    flavour = Flavour.MARIADB if "MariaDB" in said else Flavour.MYSQL  # either may be called mysqld
    return flavour, version, version_number(version)


def _said(argv: Sequence[str], *, is_hosts: bool) -> str:
    if is_hosts:
        return process.run(argv, timeout_seconds=_SECONDS).stdout
    bound = Bounds(ids=ids_of_nobody()).prefix()
    ended = process.run([*bound, *argv], timeout_seconds=_SECONDS, accept=_ANY_STATUS)
    if refusal := not_confined(ended.status, ended.stderr, doing="a server program of another's"):
        raise refusal
    if ended.status != 0:
        said = ended.stderr.strip() or ended.stdout.strip() or "(no output)"
        raise ServerError(f"it ended with status {ended.status}: {said}")
    return ended.stdout


def _changed_at(path: str) -> int:
    """When the program was replaced; 0 where it is gone."""
    try:
        return Path(process.where(path) or path).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _programs(flavour: Flavour, folders: Sequence[Path]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each with what starts it."""
    names = DIALECTS[flavour].programs
    for folder in folders:
        places = (folder / inside / name for inside in _PROGRAMS_IN for name in names)
        yield from ((str(place), _loader(folder)) for place in places if place.is_file())
    yield from ((name, ()) for name in filter(process.found, names))


def _loader(folder: Path) -> tuple[str, ...]:
    """The root of an image is of any release: its programs need its C library, and with that its own loader, ld.so(8).

    Nothing where the folder has none: a tarball's programs are made to run with the host's. A link that leads out of
    the folder, as absolute ones do, is the host's library and not the image's.
    """
    libraries = [path for place in _LIBRARIES_IN for path in sorted(folder.glob(place)) if _is_within(path, folder)]
    loader = next((path for place in libraries for path in place.glob(_LOADER) if _is_within(path, folder)), None)
    if loader is None:
        return ()
    return (str(loader), "--inhibit-cache", "--library-path", ":".join(map(str, libraries)))


def _is_within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve()) and path.exists()
