"""Whether a mounted snapshot shows the server's own files, asked of both before the first of them is copied.

Knows: what stays the same between a live file and its image (inode and generation), and which of the files that the
server names must be there.

The rule for tablespaces: the server is asked before the lock, and what it names then and the listing lacks is asked for
again. A file that the server still names, under the same space id, and that is there live, was there at the instant of
the snapshot too: without it there is no backup. One that it names no more was dropped, renamed or recreated meanwhile
(TRUNCATE and CREATE take another id), and one that is not there live either (DISCARD TABLESPACE) no backup can have.
But a MariaDB of whose tables all are nowhere, with their definitions, is another one than that of this datadir.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from backupd.archive.listing import Listing
from backupd.operations.backup.preflight import Ready
from backupd.operations.backup.volume_checks import REBUILD
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.escaping import some
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.volumes import FileIdentity

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

log = logging.getLogger(__name__)

_NAMED_AT_MOST = 5  # in one sentence
_PACKED = re.compile(rb"(\d+) ([^\0]*)\0")

_A_FEW = 3  # tables that only a dictionary has left, after a crash of long ago
_OF_EVERY_SERVER = frozenset({"mysql", "sys"})
_OF_INNODB = ("FTS_", "#sql")  # a full-text index, an ALTER TABLE that did not end
_PART = re.compile("#[pi]#", re.IGNORECASE)  # of a table: a partition, a vector index

Identify = Callable[[Path], FileIdentity]


class Tablespaces:
    """What the server named at one instant, compressed, some 10 bytes each: they are kept until the copy is done."""

    def __init__(self, named: Mapping[str, int]) -> None:
        pack = zstd.ZstdCompressor(level=1)
        self._packed = bytearray()
        for file, space in named.items():
            self._packed += pack.compress(f"{space} {file}\0".encode(errors="surrogateescape"))
        self._packed += pack.flush()

    def missing_in(self, listing: Listing, folder: bytes) -> dict[str, int]:
        """Those that the listing does not name below this folder (`b"name/"`, or nothing), each with its space id."""
        missing = {found[2]: int(found[1]) for found in _PACKED.finditer(zstd.decompress(self._packed))}
        for entry in listing.entries:
            if entry.name.startswith(folder):
                missing.pop(entry.name.removeprefix(folder), None)
        return {file.decode(errors="surrogateescape"): space for file, space in missing.items()}


def require_same_files(ready: Ready, at: Path, identify: Identify) -> None:
    """The datadir in the snapshot mounted at `at` is the one that was looked at before the lock, and so is what stays.

    No link is followed: an absolute one in the snapshot leads to the live files, which have the same inodes.

    Raises:
        SnapshotError: it is another folder, not there, or behind a link: nothing of it may be stored.
    """
    for live, expected in ready.landmarks.items():
        inside = ready.mount.inside(live)
        if (at / inside).resolve() != at.resolve() / inside:
            raise SnapshotError(
                f"{live} is reached by a symbolic link in the snapshot, at {inside} of its file system",
                hint=_hint(live),
            )
        try:
            found = identify(at / inside)
        except OSError as error:
            raise SnapshotError(
                f"{live} is not in the snapshot, at {inside} of its file system: {error.strerror}", hint=_hint(live)
            ) from error
        if found != expected:
            raise SnapshotError(
                f"{live} differs from what the snapshot has at {inside} of its file system: expected inode"
                f" {expected.inode}, found {found.inode}",
                hint=_hint(live),
            )


def require_no_table_elsewhere(ready: Ready, listing: Listing) -> None:
    """No table has got a DATA DIRECTORY of its own since the preflight: of such a one the image has a `.isl` alone.

    Raises:
        SnapshotError: one has; names it.
    """
    shared = (path.path for path in ready.paths if path.must_share and path.path.is_relative_to(ready.root))
    folders = tuple(os.fsencode(f"{path.relative_to(ready.root)}/".removeprefix("./")) for path in shared)
    names = (entry.name for entry in listing.entries if not entry.folder)
    tables = [os.fsdecode(name) for name in names if name.endswith(b".isl") and name.startswith(folders)]
    if tables:
        raise SnapshotError(
            f"tables with their own DATA DIRECTORY, created since the preflight: {some(tables, _NAMED_AT_MOST)}",
            hint=REBUILD,
        )


def require_tablespaces(
    ready: Ready, root: Path, listing: Listing, named: Tablespaces, *, again: Callable[[], Mapping[str, int]]
) -> str:
    """Every tablespace that the server named before the lock is in the listing of `root`, or was not in the snapshot.

    `again` asks the server once more; it is called only where one is missing.

    Returns:
        What a person should know of those that are nowhere; empty: nothing.

    Raises:
        SnapshotError: one is missing, or all that the server names are nowhere; names it.
        ServerError: the server had to be asked again, and could not be.
    """
    missing = _not_listed(ready, root, listing, named)
    if not missing:
        return ""
    still, datadir = again(), ready.facts.datadir
    named_still = sorted(file for file, space in missing.items() if still.get(file) == space)
    lost = [file for file in named_still if (datadir / file).exists()]
    if lost:
        raise SnapshotError(
            f"the server has tablespaces that are not in the snapshot: {some(lost, _NAMED_AT_MOST)}",
            hint=_hint(datadir),
        )
    log.info("%d tablespaces were dropped, renamed or discarded before the snapshot", len(missing))
    if ready.facts.flavour is not Flavour.MARIADB:  # MySQL's server is known by its uuid
        return ""
    return _nowhere(datadir, named_still, still)


def _nowhere(datadir: Path, without_file: Iterable[str], named: Iterable[str]) -> str:
    """A sentence where most of what the server names is nowhere here: a table that was discarded has its definition.

    One that is here shows that it may be the server of this datadir: files were removed, or a backup restored in part.

    Raises:
        SnapshotError: none is here, as where a server in a container answers whose datadir has the same path.
    """
    nowhere = [file for file in without_file if (frm := _definition(file)) is not None and not (datadir / frm).exists()]
    tables = sum(_definition(file) is not None for file in named)
    if len(nowhere) < _A_FEW or len(nowhere) * 2 <= tables:
        return ""
    if len(nowhere) == tables:
        raise SnapshotError(
            f"none of the {tables} tables that the server names is in its datadir {datadir}:"
            f" {some(nowhere, _NAMED_AT_MOST)}",
            hint="does another server answer, one in a container, say, whose datadir has the same path? set the host's"
            " socket, or an address that leads to the server of this datadir",
        )
    return (
        f"{len(nowhere)} of the {tables} tables that the server names are nowhere in its datadir {datadir}"
        f" ({some(nowhere, _NAMED_AT_MOST)}): were their files removed, or does another server answer?"
    )


def _definition(file: str) -> str | None:
    """Where MariaDB has the definition of a tablespace's table; None of what every server has, and InnoDB's own."""
    path = Path(file)
    if path.parts[0] in _OF_EVERY_SERVER or path.name.startswith(_OF_INNODB):
        return None
    return str(path.with_name(f"{_PART.split(path.name.removesuffix('.ibd'))[0]}.frm"))


def _not_listed(ready: Ready, root: Path, listing: Listing, named: Tablespaces) -> Mapping[str, int]:
    """By name first, since there may be very many; what is left may lie behind a link of the datadir's."""
    datadir = ready.facts.datadir.resolve()
    folder = os.fsencode(f"{datadir.relative_to(ready.root)}/".removeprefix("./"))
    missing = named.missing_in(listing, folder)
    if not missing:
        return missing
    names = {entry.name for entry in listing.entries}
    return {file: space for file, space in missing.items() if _name(ready, root, datadir / file) not in names}


def _name(ready: Ready, root: Path, live: Path) -> bytes | None:
    """What a live file is called in the listing, once the links of the snapshot are followed."""
    if not live.is_relative_to(ready.root):
        return None
    found, root = (root / live.relative_to(ready.root)).resolve(), root.resolve()
    return os.fsencode(found.relative_to(root)) if found.is_relative_to(root) else None


def _hint(live: Path) -> str:
    return f"was it moved, replaced or mounted over? check `findmnt --target {live}`, then try again"
