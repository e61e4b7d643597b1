"""Temporary folders that last as long as the process that made them: what a killed one left, a later one removes.

Knows: that a folder is in use while its lock, flock(2), is held, in whatever container; the kernel forgets that of a
process that has died. Who makes one has it only once it is locked and still there: whatever is not locked may go.
"""

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.host.filesystem import remove_tree
from backupd.host.own_files import is_there
from backupd.vocabulary.errors import CleanupIncomplete

log = logging.getLogger(__name__)


@contextmanager
def held_folder(root: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `root`, which only we can enter; it is gone at the end of the block with all that is in it."""
    remove_abandoned(root, prefix)
    folder, descriptor = _made(root, prefix)
    try:
        yield folder
    finally:
        try:
            remove_tree(folder)
        finally:
            os.close(descriptor)


def remove_abandoned(root: Path, prefix: str) -> tuple[Path, ...]:
    """Folders of such names that no process holds are gone, and were these; what resists stays.

    Anybody may have made one: it is emptied without following a link.
    """
    gone = []
    for name in [entry.name for entry in os.scandir(root) if entry.name.startswith(prefix)]:
        folder = root / name
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(folder)
            log.warning("removed %s, which a process that was killed had left", folder)
            gone.append(folder)
        except (OSError, CleanupIncomplete) as error:
            log.debug("%s stays: %s", folder, error)
        finally:
            os.close(descriptor)
    return tuple(gone)


def _made(root: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and a descriptor that has its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        descriptor = _locked(folder)
        if descriptor is not None:
            return folder, descriptor


def _locked(folder: Path) -> int | None:
    """None where somebody took it for abandoned before it was locked: it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_there(folder, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
