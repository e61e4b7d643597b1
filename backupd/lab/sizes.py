"""How large everything in a lab is, in bytes.

Knows: what a row costs, how the four disks are cut, what one lab needs of the machine under it. All pure.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

EXTENT = 4 * MIB  # LVM's default
STRIPES = 3
STRIPE_SIZE = 64 * KIB
POOL_CHUNK_SIZE = 64 * KIB  # LVM's default
POOL_METADATA_SIZE = 32 * MIB  # some 600,000 chunks of data, each shared with a snapshot or not
MACHINE_MEMORY = 2 * GIB
SPARE_DISK = 512 * MIB  # room for the smallest XFS (300 MiB) on one of them alone

_BYTES_A_ROW = 600  # measured: sbtest1 with its index 270, its insert in the binlog 200; and some air
_EMPTY_SERVER = 300 * MIB  # redo log, system tablespaces, XFS's own log
_GROWTH_A_SECOND = 1500 * KIB  # binlog and redo of a closed load on ssd disks, the fastest writer we have
_LONGEST_GROWTH_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The disks of one lab: sparse files, so that only what is written costs anything."""

    volume: int  # the logical volume `data`
    disk: int  # each of the four physical volumes
    scratch: int  # the disk that is not under LVM: catalogue, restored servers

    @property
    def extents_a_disk(self) -> int:
        """Extents of `data` on each of its three disks."""
        return self.volume // EXTENT // STRIPES


@dataclass(frozen=True, slots=True)
class Needs:
    """What one lab takes from the machine under it, at most."""

    memory: int  # the machine's own memory, a file that is mapped executable
    disks: int  # what the sparse disk images may grow to
    cache: int  # what the prepared disks keep in the cache folder


def sizes_for(rows: int) -> Sizes:
    """Room for the rows, their binlog and a long load. Every disk of `data` keeps an eighth of the volume free."""
    volume = _round_up(4 * GIB + rows * KIB, EXTENT * STRIPES)
    share = volume // STRIPES
    spare = _round_up(volume // 8, EXTENT)
    return Sizes(volume=volume, disk=share + spare + EXTENT, scratch=4 * GIB + rows * KIB * 2)


def needs_for(rows: int, *, deadline_seconds: float, spare_disks: int = 0) -> Needs:
    """Data, a snapshot's copies of it, a restored server, and the growth until the deadline; and the spare disks."""
    prepared = _EMPTY_SERVER + rows * _BYTES_A_ROW
    growth = int(min(deadline_seconds, _LONGEST_GROWTH_SECONDS)) * _GROWTH_A_SECOND
    spare = spare_disks * SPARE_DISK
    return Needs(memory=MACHINE_MEMORY, disks=3 * prepared + growth + spare, cache=prepared)


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
