"""How a bench lays a scratch volume over disks, and what it does to it. Frozen values, no I/O.

Apart from `benches`, because the catalogue has columns of these, and is opened for much else than a bench.
"""

from dataclasses import dataclass
from enum import StrEnum

KIB, MIB = 1 << 10, 1 << 20


class Operation(StrEnum):
    """What is done to the bench's file, past the page cache."""

    WRITE = "write"  # sequentially, over blocks that the file has already
    REWRITE = "rewrite"  # sequentially: each record is read, and written back in its place
    READ = "read"  # sequentially
    RANDOM_WRITE = "random-write"
    RANDOM_READ = "random-read"

    @property
    def is_random(self) -> bool:
        """Whether records are taken from anywhere, each as likely."""
        return self in (Operation.RANDOM_WRITE, Operation.RANDOM_READ)


class Medium(StrEnum):
    """What a load works on."""

    FILE = "file"  # of a file system on the scratch volume
    RAW = "raw"  # the scratch volume's own device, by fio: sysbench's fileio test takes no block device


class LayoutKind(StrEnum):
    """How a scratch volume is made."""

    LINEAR = "linear"  # on its first disk alone
    STRIPED = "striped"  # by LVM
    RAID0 = "raid0"  # by mdadm


@dataclass(frozen=True, slots=True)
class ScratchLayout:
    """One way of laying a scratch volume over disks."""

    kind: LayoutKind
    disks: tuple[str, ...]  # PVs, or for RAID-0 the disks themselves
    stripe_size: int = 0  # bytes; 0 for a linear one

    @property
    def width(self) -> int:
        """The number of its stripes; 1 is linear."""
        return len(self.disks)

    @property
    def is_volume(self) -> bool:
        """It is an LV, of which there can be snapshots; an array is none."""
        return self.kind is not LayoutKind.RAID0

    @property
    def name(self) -> str:
        """What its figures are filed under: `linear`, `striped-3x64k`, `raid0-2x64k`. Part of the scratch volume's."""
        if self.kind is LayoutKind.LINEAR:
            return self.kind.value
        return f"{self.kind}-{self.width}x{self.stripe_size // KIB}k"
