"""Which direct requests are too small for a disk, for whoever was refused one."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.vocabulary.errors import CommandError

_DEVICES = Path("/sys/dev/block")


@contextmanager
def explained(where: Path, record: int) -> Iterator[None]:
    """A CommandError within gets a hint that names the sector, where records of this size are no whole sectors."""
    try:
        yield
    except CommandError as error:
        sector = sector_size(where)
        if sector is None or record % sector == 0:
            raise
        raise CommandError(
            error.message, hint=f"its disk needs whole sectors of {sector} bytes: omit smaller records"
        ) from error


def sector_size(path: Path, devices: Path = _DEVICES) -> int | None:
    """Bytes of the logical sector of this block device, or of the one that this path is on.

    No direct request is smaller. None where there is no such device, or the kernel does not say. Source: the kernel's
    Documentation/ABI/stable/sysfs-block, `queue/logical_block_size`; a partition has its disk's.
    """
    try:
        found = path.stat()
        number = found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev
        device = (devices / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
        disk = device.parent if (device / "partition").exists() else device
        return int((disk / "queue/logical_block_size").read_text())
    except (OSError, ValueError):
        return None
