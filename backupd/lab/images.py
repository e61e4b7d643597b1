"""The cache of prepared disks and server roots: so that the second lab with the same options starts in seconds.

Knows: what makes two sets of disks the same, sparse copies, locks. An entry appears in the cache all at once or not
at all; whoever uses one holds a shared lock on it.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path

from backupd.host.process import run
from backupd.lab.options import LabOptions
from backupd.lab.sizes import SPARE_DISK, Sizes

DISKS = ("b.img", "c.img", "d.img", "e.img", "f.img")  # four for LVM, one for what is not under LVM
SPARES = ("g.img", "h.img")
_FORMAT = 1
_SOURCES = (
    *("disks.py", "guest-init.sh", "guest.py", "programs.py", "server.py", "servers.py", "sizes.py", "workbench.py"),
)
_COPY_SECONDS = 600.0


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/backupd/lab`, else `~/.cache/backupd/lab` (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "backupd" / "lab"


def cache_key(options: LabOptions, *, server: str, sizes: Sizes, sources: str) -> str:
    """A name for everything that matters to what is on the disks. `server` and `sources` are versions."""
    kind = f"{options.server}-{'thin-' if options.thin else ''}{options.layout}-{options.filesystem}-{options.rows}"
    facts = "\n".join([str(_FORMAT), kind, server, repr(sizes), sources])
    return f"{kind}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def sources_digest() -> str:
    """Changes whenever the code that prepares disks does."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(resources.files("backupd.lab").joinpath(name).read_bytes())
    return digest.hexdigest()


def make_blank(folder: Path, sizes: Sizes) -> list[Path]:
    """Five empty sparse files of the right lengths, in the order of the machine's disks."""
    paths = []
    for name in DISKS:
        path = folder / name
        _make_sparse(path, sizes.scratch if name == DISKS[-1] else sizes.disk)
        paths.append(path)
    return paths


def make_spares(folder: Path, count: int) -> list[Path]:
    """As many empty sparse files, which come after the others. They are no part of what is kept."""
    paths = [folder / name for name in SPARES[:count]]
    for path in paths:
        _make_sparse(path, SPARE_DISK)
    return paths


@contextmanager
def kept(cache: Path, key: str, prepare: Callable[[Path], None]) -> Iterator[Path]:
    """A folder with what was prepared for that key; nobody removes it within the block.

    `prepare(folder)` is called when the cache has none, with an empty folder of the cache's file system in which it
    leaves what is to be kept. Of several who come at once one prepares and the others wait, but only for that: the
    block itself holds nobody up. So nobody waits for the lock that preparing needs, but for the one that using needs.
    """
    cache.mkdir(parents=True, exist_ok=True)
    entry = cache / key
    while True:
        with _locked(cache / f"{key}.lock", fcntl.LOCK_SH):
            if entry.is_dir():
                yield entry
                return
        with ExitStack() as held:
            try:
                held.enter_context(_locked(cache / f"{key}.lock", fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                continue
            if not entry.is_dir():
                _make(cache, key, prepare)


def _make(cache: Path, key: str, prepare: Callable[[Path], None]) -> None:
    part = Path(tempfile.mkdtemp(prefix=f"{key}.part-", dir=cache))
    try:
        prepare(part)
        part.rename(cache / key)
        clean(cache, beside=key)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def copy_disks(source: Path, folder: Path) -> list[Path]:
    """Copies of the disks, sparse, sharing blocks where the file system can; in the order of the machine's disks."""
    run(
        ["cp", "--sparse=always", "--reflink=auto", *(str(source / name) for name in DISKS), str(folder)],
        timeout_seconds=_COPY_SECONDS,
    )
    return [folder / name for name in DISKS]


def clean(cache: Path, *, beside: str = "") -> list[str]:
    """Every entry that nobody uses right now is gone; the names of those that went.

    One in use stays: its lab still copies from it, runs a server from it, or prepares it. `beside` limits this to
    those that the one of that key replaces: same options, older sources or server.
    """
    gone = []
    pattern = f"{beside.rpartition('-')[0]}-*.lock" if beside else "*.lock"
    for lock in sorted(cache.glob(pattern)) if cache.is_dir() else ():
        key = lock.name.removesuffix(".lock")
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            leftovers: Sequence[Path] = [*cache.glob(f"{key}.part-*"), cache / key]
            for folder in leftovers:
                if folder.is_dir():
                    shutil.rmtree(folder)
                    gone.append(folder.name)
            lock.unlink()
    return gone


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    """Hold the lock file, whichever file bears that name once we hold it: `clean` may have removed the one before."""
    while True:
        with path.open("a") as file:
            fcntl.flock(file, kind)
            if _is_still_called(path, os.fstat(file.fileno()).st_ino):
                yield
                return


def _is_still_called(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False


def _make_sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
