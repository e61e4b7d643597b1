"""What room the folders that are targets have, looked at beside whoever asks: a hung NFS mount hangs nobody else.

Knows: how often to look, and that a look may never return. Refuses to know any target but folders: to ask another
machine takes a login, and a bucket has no end.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backupd.config import Configuration, DirectoryConfig
from backupd.filesystem import room

_APART_SECONDS = 300.0  # from one look to the next
_PATIENCE_SECONDS = 60.0  # a look that takes longer than this has not seen its target


@dataclass(frozen=True, slots=True)
class SeenTarget:
    """What became of the newest look at a target."""

    up: bool  # the folder is there, with its sentinel where it has one
    free: int | None = None  # bytes for us; None: not up, or not known yet
    size: int | None = None  # bytes of its file system


class TargetRooms:
    """The configured folders. Threads may share it."""

    def __init__(self, configuration: Configuration, *, apart_seconds: float = _APART_SECONDS) -> None:
        folders = (target for target in configuration.targets.values() if isinstance(target, DirectoryConfig))
        self._watched = [_Watched(folder) for folder in folders]
        self._apart = apart_seconds

    def seen(self, *, within_seconds: float) -> Mapping[str, SeenTarget]:
        """By name. Looks that are due begin now, and are waited for only so long, all together.

        Until its first look has ended or has lasted a minute, a target is left out.
        """
        deadline = time.monotonic() + within_seconds
        begun = [look for one in self._watched if (look := one.look(self._apart)) is not None]
        for look in begun:
            look.join(max(0.0, deadline - time.monotonic()))
        return {one.name: seen for one in self._watched if (seen := one.seen()) is not None}


class _Watched:
    """One folder and the look at it that is going on."""

    def __init__(self, target: DirectoryConfig) -> None:
        self.name = target.name
        self._path = target.path
        self._sentinel = target.sentinel
        self._guard = threading.Lock()
        self._look: threading.Thread | None = None
        self._began = 0.0  # monotonic: when the newest look began
        self._seen: SeenTarget | None = None

    def look(self, apart_seconds: float) -> threading.Thread | None:
        """The look that has begun; None where none is due, or one is still going on."""
        with self._guard:
            due = self._look is None or time.monotonic() - self._began >= apart_seconds
            if not due or (self._look is not None and self._look.is_alive()):
                return None
            self._began = time.monotonic()
            self._look = threading.Thread(target=self._take, name=f"room of target {self.name}", daemon=True)
            self._look.start()
            return self._look

    def seen(self) -> SeenTarget | None:
        with self._guard:
            hangs = self._look is not None and self._look.is_alive()
            if hangs and time.monotonic() - self._began > _PATIENCE_SECONDS:
                return SeenTarget(up=False)
            return self._seen

    def _take(self) -> None:
        found = _looked(self._path, self._path / self._sentinel if self._sentinel else self._path)
        with self._guard:
            self._seen = found


def _looked(path: Path, proof: Path) -> SeenTarget:
    try:
        proof.stat()
        free, size, read_only = room(path)
    except OSError:
        return SeenTarget(up=False)
    return SeenTarget(up=path.is_dir() and not read_only, free=free, size=size)
