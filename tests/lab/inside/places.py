"""File systems and volumes that a test wants on the machine for a while, beside the lab's own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.inside.host import SITE, tool

_SIZE = 128 << 20  # above a tenth of what the volume holds, so that preflight lets it pass
_BLOCK = 512
_UNWATCHED = ("--config", "activation/monitoring=0")  # no dmeventd, which would outlive the volume


@contextmanager
def volume(name: str, *words: str) -> Iterator[None]:
    """A logical volume of somebody's in the lab's volume group."""
    tool("lvcreate", "--yes", *_UNWATCHED, "--name", name, *words)
    try:
        yield
    finally:
        tool("lvremove", "--yes", *_UNWATCHED, f"{SITE.volume_group}/{name}")


@contextmanager
def mounted(device: str, at: Path) -> Iterator[Path]:
    """A new ext4 file system on a device."""
    tool("mkfs.ext4", "-q", "-E", "nodiscard", device)
    at.mkdir()
    tool("mount", device, str(at))
    try:
        yield at
    finally:
        tool("umount", str(at))


@dataclass(frozen=True)
class Disk:
    """An ext4 file system of its own, mounted at `path`, that can be made to fail and to lie."""

    path: Path
    loop: str
    mapped: str
    sectors: int

    def fill(self) -> None:
        """Not one byte fits any more."""
        with (self.path / "filler").open("wb") as file:
            size, end = _SIZE, 0
            while size >= _BLOCK:
                try:
                    os.posix_fallocate(file.fileno(), end, size)
                    end += size
                except OSError:
                    size //= 2

    def drop_writes(self) -> None:
        """From now on writes are acknowledged and forgotten, as a cache without its battery does."""
        self._become(f"0 {self.sectors} flakey {self.loop} 0 0 3600 1 drop_writes")

    def err_writes(self) -> None:
        """From now on each fails, and what was there can be read."""
        self._become(f"0 {self.sectors} flakey {self.loop} 0 0 3600 1 error_writes")

    def change(self, sector: int, content: bytes) -> None:
        """The disk has something else there than what was written, and tells nobody."""
        with Path(self.loop).open("r+b", buffering=0) as file:
            file.seek(sector * _BLOCK)
            file.write(content)
            os.fsync(file.fileno())

    def become_dust(self, piece: int) -> None:
        """It can have bad sectors from now on, in pieces of so many bytes; it has none yet."""
        tool("modprobe", "dm-dust")
        self._become(f"0 {self.sectors} dust {self.loop} 0 {piece}")

    def spoil(self, sectors: range, piece: int) -> None:
        """The pieces with these can be read no more, until they are written anew."""
        name = Path(self.mapped).name
        for number in range(sectors.start * _BLOCK // piece, (sectors.stop - 1) * _BLOCK // piece + 1):
            tool("dmsetup", "message", name, "0", "addbadblock", str(number))
        tool("dmsetup", "message", name, "0", "enable")

    def refuse_writes(self) -> None:
        """The kernel makes the file system read-only, as it does after an error of the disk."""
        number = os.minor(Path(self.mapped).stat().st_rdev)
        Path(f"/sys/fs/ext4/dm-{number}/trigger_fs_error").write_text("1")

    def mend(self) -> None:
        """As good as at first."""
        tool("umount", str(self.path))
        self._become(f"0 {self.sectors} linear {self.loop} 0")
        subprocess.run(["e2fsck", "-fy", self.mapped], capture_output=True, check=False)
        tool("mount", self.mapped, str(self.path))

    def _become(self, table: str) -> None:
        name = Path(self.mapped).name
        tool("dmsetup", "suspend", name)
        tool("dmsetup", "load", name, "--table", table)
        tool("dmsetup", "resume", name)


@contextmanager
def disk(folder: Path) -> Iterator[Disk]:
    """A disk that keeps what it is given, until it is told otherwise."""
    image, path, name = folder / "disk.img", folder / "disk", f"lab-{folder.name[-12:]}"
    with image.open("wb") as file:
        file.truncate(_SIZE)
    loop = tool("losetup", "--find", "--show", str(image)).strip()
    made = Disk(path, loop, f"/dev/mapper/{name}", _SIZE // 512)
    tool("dmsetup", "create", name, "--table", f"0 {made.sectors} linear {loop} 0")
    try:
        tool("modprobe", "dm-flakey")
        tool("mkfs.ext4", "-q", made.mapped)
        path.mkdir()
        tool("mount", "-o", "errors=remount-ro", made.mapped, str(path))
        yield made
    finally:
        subprocess.run(["umount", str(path)], check=False)
        tool("dmsetup", "remove", "--retry", name)
        tool("losetup", "--detach", loop)


@contextmanager
def memory_disk(path: Path, options: str = "rw") -> Iterator[Path]:
    """A small file system in memory."""
    path.mkdir()
    tool("mount", "-t", "tmpfs", "-o", f"size=1m,{options}", "tmpfs", str(path))
    try:
        yield path
    finally:
        tool("umount", str(path))
