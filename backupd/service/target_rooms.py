"""What room the folders that are targets have, looked at beside whoever asks: a hung NFS mount hangs nobody else.

Knows: how often to look, and that a look may never return.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backupd.config import Configuration, DirectoryConfig
from backupd.host.filesystem import room
from backupd.lvm.mounting import is_read_only_on_host
from backupd.service.systemd import runs_us
from backupd.vocabulary.errors import SnapshotError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SeenTarget:
    """What became of the newest look at a target."""

    up: bool  # the folder is there, with its sentinel where it has one
    free: int | None = None  # bytes for us; None: not up, or not known yet
    size: int | None = None  # bytes of its file system


def look_at(target: DirectoryConfig) -> SeenTarget:
    """What the kernel says of the folder; nothing is written there.

    Under systemd it is asked whether the runs can write there, which are units of their own: all is read-only to us.
    """
    try:
        (target.path / (target.sentinel or "")).stat()
        free, size, read_only = room(target.path)
        if runs_us(os.environ):
            read_only = is_read_only_on_host(target.path)
    except (OSError, SnapshotError):
        return SeenTarget(up=False)
    return SeenTarget(up=target.path.is_dir() and not read_only, free=free, size=size)


@dataclass(frozen=True, slots=True)
class LookTimes:
    """How often to look, and when a look that has not ended has seen nothing."""

    apart_seconds: float = 300.0
    patience_seconds: float = 60.0


class TargetRooms:
    """The configured folders. Threads may share it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        look: Callable[[DirectoryConfig], SeenTarget] = look_at,
        pace: LookTimes = LookTimes(),
    ) -> None:
        folders = (target for target in configuration.targets.values() if isinstance(target, DirectoryConfig))
        self._watched = [_Watched(folder, look, pace) for folder in folders]

    def seen(self, *, within_seconds: float) -> Mapping[str, SeenTarget]:
        """By name. Looks that are due begin now, and are waited for only so long, all together.

        A target is left out until its first look has ended, or has outlasted all patience.
        """
        deadline = time.monotonic() + within_seconds
        begun = [look for one in self._watched if (look := one.begin()) is not None]
        for look in begun:
            look.join(max(0.0, deadline - time.monotonic()))
        return {one.name: seen for one in self._watched if (seen := one.seen()) is not None}


class _Watched:
    """One folder and the look at it that is going on."""

    def __init__(self, target: DirectoryConfig, look: Callable[[DirectoryConfig], SeenTarget], pace: LookTimes) -> None:
        self.name = target.name
        self._target = target
        self._look_at = look
        self._pace = pace
        self._guard = threading.Lock()
        self._look: threading.Thread | None = None
        self._began = 0.0  # monotonic: when the newest look began
        self._seen: SeenTarget | None = None

    def begin(self) -> threading.Thread | None:
        """The look that has started; None where none is due, or one is still going on."""
        with self._guard:
            if self._look is not None and (self._look.is_alive() or self._age() < self._pace.apart_seconds):
                return None
            look = threading.Thread(target=self._take, name=f"room of target {self.name}", daemon=True)
            try:
                look.start()
            except RuntimeError as error:  # no room for one more thread: the next one who asks may have it
                log.warning("no look at target %s: %s", self.name, error)
                return None
            self._look, self._began = look, time.monotonic()
            return look

    def seen(self) -> SeenTarget | None:
        """What the newest look found, or that it hangs."""
        with self._guard:
            hangs = self._look is not None and self._look.is_alive() and self._age() > self._pace.patience_seconds
            return SeenTarget(up=False) if hangs else self._seen

    def _take(self) -> None:
        found = self._look_at(self._target)
        with self._guard:
            self._seen = found

    def _age(self) -> float:
        return time.monotonic() - self._began
