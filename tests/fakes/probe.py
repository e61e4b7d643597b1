"""A write probe without a disk's whims: a real folder with a real file, and windows as fast as the test says."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.errors import CommandError
from backupd.model import Window

_BLOCK_BYTES = 16 << 10


@dataclass
class FakeProbe:
    """Keeps the probe's contract; window n runs at `iops[n]`, and from the last one on at that."""

    iops: Sequence[float] = (1000.0,)
    file_size: int = 64 << 10
    fail_at_call: int | None = None  # counted from 1, over prepare and window
    during_window: Callable[[float], None] = lambda seconds: None  # to let a clock run, or the server write
    calls: int = 0
    windows: int = 0
    interrupted: bool = False

    def prepare(self, folder: Path) -> int:
        """The folder has mode 0700 and in it a file of that many bytes, none of them a hole."""
        self._call()
        self.interrupted = False
        _require_ours(folder)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CommandError(f"cannot make {folder}") from error
        (folder / "test_file.0").write_bytes(b"x" * self.file_size)
        return self.file_size

    def window(self, folder: Path, seconds: float) -> Window:
        """Write, on paper, at the speed of this window."""
        self._call()
        if self.interrupted:
            raise CommandError("the probe was interrupted")
        if not (folder / "test_file.0").exists():
            raise CommandError(f"no probe file in {folder}")
        speed = self.iops[min(self.windows, len(self.iops) - 1)]
        self.windows += 1
        self.during_window(seconds)
        milliseconds = 1000 / speed if speed else seconds * 1000
        return Window(seconds, speed, round(speed * seconds) * _BLOCK_BYTES, milliseconds, milliseconds * 1.5)

    def interrupt(self) -> None:
        """No window until the next prepare."""
        self.interrupted = True

    def remove(self, folder: Path) -> None:
        """The folder is gone."""
        _require_ours(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at_call:
            raise CommandError(f"the probe was told to fail at call {self.calls}")


def _require_ours(folder: Path) -> None:
    if not folder.name.startswith(".backupd-"):
        raise CommandError(f"{folder} is no probe folder of ours")
