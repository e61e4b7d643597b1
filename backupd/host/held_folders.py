"""Temporary folders that last as long as the process that made them: what a killed one left, the next one removes.

Knows: that a folder is in use while its lock, flock(2), is held, in whatever container; the kernel forgets that of a
process that has died. An empty one is spared: who made it a moment ago has not locked it yet.
"""

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.host.filesystem import remove_tree
from backupd.vocabulary.errors import CleanupIncomplete

log = logging.getLogger(__name__)


@contextmanager
def held_folder(root: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `root`, which only we can enter; it is gone at the end of the block with all that is in it."""
    _remove_abandoned(root, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        try:
            remove_tree(folder)
        finally:
            os.close(descriptor)


def _remove_abandoned(root: Path, prefix: str) -> None:
    """Anybody may have made a folder of such a name: it is emptied without following a link. What resists stays."""
    for name in [entry.name for entry in os.scandir(root) if entry.name.startswith(prefix)]:
        folder = root / name
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.listdir(descriptor):  # noqa: PTH208 - of the folder that is locked, whatever has its name
                remove_tree(folder)
                log.warning("removed %s, which a process that was killed had left", folder)
        except (OSError, CleanupIncomplete) as error:
            log.debug("%s stays: %s", folder, error)
        finally:
            os.close(descriptor)
