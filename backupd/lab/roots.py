"""Another distribution's server on this machine: fetched once from where the machine's own packages come from.

Knows: apt's sources, mmdebstrap, how to ask the program for its version.

Packages are extracted, not installed (`--variant=extract`): no script of theirs runs, so that neither root nor a mount
nor a chroot is needed. Seen with mmdebstrap 1.3.5, for root, for root without CAP_SYS_ADMIN and CAP_MKNOD as in an
unprivileged container, and for a plain user: 4 to 8 s, 113 MiB for Debian 13's MariaDB, 329 MiB for MySQL 9.7.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backupd.host.process import run
from backupd.lab import images, room
from backupd.lab.options import ServerKind
from backupd.lab.servers import SOFTWARE, Distribution
from backupd.lab.sizes import MIB
from backupd.vocabulary.errors import CommandError, LabError

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_ROOM = 700 * MIB  # the larger root, and its packages while it is extracted
_FORMAT = 1
_FETCH_SECONDS = 600.0
_QUICK_SECONDS = 60.0
_INDEX_FIELDS = "$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"
_ORIGIN_UNKNOWN = "$(ORIGIN)"  # apt leaves the word as it is where it has no lists

# An archive may be a frozen one, whose Release file has expired. One retry: apt's three take minutes to say the same.
_APT_OPTIONS = ('Acquire::Check-Valid-Until "false"', 'Acquire::Retries "1"', 'Acquire::http::Timeout "30"')


class DistributionUnreachable(LabError):
    """A distribution's packages cannot be fetched from here."""


@contextmanager
def server_usr(kind: ServerKind, cache: Path, archive: str | None = None) -> Iterator[Path | None]:
    """The `/usr` that has this kind's programs; None where it is the machine's own. Nobody removes it in the block.

    `archive` is where packages come from; what apt uses where None.

    Raises:
        LabError: the distribution cannot be reached, or lacks the server, or there is too little room.
    """
    origin = SOFTWARE[kind].origin
    if origin is None:
        yield None
        return
    uri = archive or machines_archive()
    with images.kept(cache, _key(kind, origin, uri), lambda part: fetch(origin, uri, part)) as root:
        yield root / "usr"


def machines_archive() -> str | None:
    """The archive of Debian's that this machine's packages come from; None where none is told."""
    return archive_of(_apt_indexes(), platform.freedesktop_os_release().get("VERSION_CODENAME", ""))


def version(kind: ServerKind, usr: Path | None) -> str:
    """What the program says of itself: `9.7.4-2`, `10.11.19-MariaDB-0+deb12u1`.

    Another distribution's program is started by its own loader with its own libraries, which needs no chroot.

    Raises:
        LabError: it did not say so.
    """
    program = SOFTWARE[kind].program
    argv = [program] if usr is None else [*_started_by(usr), str(usr / "sbin" / program)]
    try:
        said = run([*argv, "--no-defaults", "--version"], timeout_seconds=_QUICK_SECONDS).stdout
    except CommandError as error:
        raise LabError(f"the lab's server does not start: {error.message}", hint="backupd lab clean") from error
    words = said.partition(" Ver ")[2].split()
    if not words:
        raise LabError(f"the lab's server reported no version: {said!r}", hint="backupd lab clean, and try again")
    return words[0]


def archive_of(indexes: str, codename: str) -> str | None:
    """The archive that Debian's own packages come from, of `apt-get indextargets`; None where none is told.

    Updates and security fixes lie in suites of their own, with a dash in their name, and may lie in an archive of
    their own, which is no whole distribution. Where apt knows no origins yet, the suite must be this machine's.
    """
    for line in indexes.splitlines():
        origin, suite, component, uri = line.split("|", 3)
        is_debians = origin == "Debian" or (origin == _ORIGIN_UNKNOWN and suite == codename)
        if is_debians and component == "main" and "-" not in suite:
            return uri.rstrip("/")
    return None


def fetch_argv(origin: Distribution, archive: str | None, root: Path, apt_options: Sequence[str]) -> list[str]:
    """mmdebstrap's command line; with no archive it takes the public one, which it knows.

    Its temporary files lie beside the root: `/tmp` may be closed to us.
    """
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    source = [f"deb {signed}{archive} {origin.suite} main"] if archive else []
    return [
        *("env", f"TMPDIR={root.parent}", "mmdebstrap", "--mode=chrootless", "--variant=extract"),
        *(f"--aptopt={option}" for option in (*_APT_OPTIONS, *apt_options)),
        f"--include={','.join(origin.packages)}",
        *(origin.suite, str(root), *source),
    ]


def fetch(origin: Distribution, archive: str | None, part: Path) -> None:
    """Its `/usr` is in the folder, and nothing else.

    Raises:
        DistributionUnreachable: the archive did not answer, or lacks the package.
        LabError: there is too little room.
    """
    room.require_cache_room(part, _ROOM, what=f"Debian {origin.suite}'s {origin.packages[0]}")
    root = part / "root"
    argv = fetch_argv(origin, archive, root, _apt_proxies())
    done = run(argv, timeout_seconds=_FETCH_SECONDS, accept=range(256))
    if done.status != 0:
        raise DistributionUnreachable(
            f"cannot fetch {origin.packages[0]} of Debian {origin.suite} from {archive or 'the public archive'}: "
            f"{_reason(done.stderr)}",
            hint="what another distribution has comes from where apt's packages come from (`apt-get indextargets`): "
            "that archive must be within reach and carry the suite",
        )
    (root / "usr").rename(part / "usr")
    for left in part.iterdir():
        if left.name != "usr":
            shutil.rmtree(left)


def _reason(said: str) -> str:
    errors = [line.removeprefix("E: ") for line in said.splitlines() if line.startswith("E: ")]
    return errors[0] if errors else said.strip()[-500:] or "mmdebstrap said nothing"


def _apt_indexes() -> str:
    """With origins where apt has package lists; it lists nothing at all without, unless it is told not to look."""
    listed = ["indextargets", f"--format={_INDEX_FIELDS}", "Created-By: Packages"]
    known = run(["apt-get", *listed], timeout_seconds=_QUICK_SECONDS).stdout
    return known or run(["apt-get", "--no-release-info", *listed], timeout_seconds=_QUICK_SECONDS).stdout


def _apt_proxies() -> list[str]:
    """The machine's way to its archive: mmdebstrap's apt does not read the machine's configuration."""
    lines = run(["apt-config", "dump", "Acquire"], timeout_seconds=_QUICK_SECONDS).stdout.splitlines()
    ways = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CaInfo")
    return [line.rstrip(";") for line in lines if line.startswith(ways) and not line.endswith(' "";')]


def _key(kind: ServerKind, origin: Distribution, archive: str | None) -> str:
    facts = "\n".join([str(_FORMAT), archive or "", origin.suite, *origin.packages])
    return f"root-{kind}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def loader_and_libraries(usr: Path) -> tuple[Path, Path]:
    """What starts this distribution's programs on a machine that is not it: its loader, and its libraries' folder.

    Raises:
        LabError: it has no loader.
    """
    loaders = sorted((*usr.glob("lib64/ld-linux-*.so.*"), *usr.glob("lib/ld-linux-*.so.*")))
    if not loaders:
        raise LabError(f"no program can be started from {usr}", hint="backupd lab clean, and try again")
    return loaders[0], usr / "lib" / f"{platform.machine()}-linux-gnu"


def _started_by(usr: Path) -> list[str]:
    loader, libraries = loader_and_libraries(usr)
    return [os.fspath(loader), "--library-path", os.fspath(libraries)]
