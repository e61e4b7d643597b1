"""Where every extent of a host's volume groups lies, and what the volumes are used for: the words of `backupd volumes`.

Frozen values, no I/O, no behaviour beyond arithmetic on their own fields. Sizes are bytes, extents are counted from 0.
How a volume lies is told by the PVs' extents themselves: a hidden LV (a leg, a pool's data) is told as a part of the
volume that it serves, and the volume's segments as the disks see them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backupd.vocabulary.volumes import Volume, VolumeGroup


@dataclass(frozen=True, slots=True)
class Stretch:
    """Extents that follow one another on one PV."""

    pv: str
    first: int
    count: int

    @property
    def last(self) -> int:
        """The number of the last one."""
        return self.first + self.count - 1

    def __str__(self) -> str:
        """As LVM's commands take it."""
        return f"{self.pv}:{self.first}-{self.last}"


_Place = tuple[Stretch, ...]  # where one stripe of a segment lies, or one leg: in one piece, but for a leg of several


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """Extents of a volume that are laid out alike, and where each of their stripes (or legs) lies."""

    first: int  # the volume's own extent
    count: int
    kind: str  # LVM's segtype: linear, striped, raid1, thin, …
    stripes: int  # that data is spread over: of a raid1, whose legs are alike, 1
    stripe_size: int  # 0 where there is but one stripe
    places: tuple[_Place, ...] = ()  # none: a thin volume lies where its pool does

    @property
    def last(self) -> int:
        """The number of the last one."""
        return self.first + self.count - 1


@dataclass(frozen=True, slots=True)
class HiddenVolume:
    """A hidden LV: a leg, a pool's data or metadata, a cache, what is cached."""

    name: str
    role: str  # LVM's words for what it is to the volume above, without `private`
    size: int
    segments: tuple[PlacedSegment, ...]


class VolumeKind(StrEnum):
    """What an LV is to LVM."""

    VOLUME = "volume"
    SNAPSHOT = "snapshot"
    THIN_VOLUME = "thin volume"
    THIN_SNAPSHOT = "thin snapshot"
    POOL = "pool"

    @property
    def can_have_snapshots(self) -> bool:
        """As far as its kind goes, of backupd's."""
        return self in (VolumeKind.VOLUME, VolumeKind.THIN_VOLUME, VolumeKind.THIN_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class PlacedVolume:
    """An LV that is not hidden, with every extent that serves it."""

    volume: Volume  # of one that is not active `device` is LVM's own `-1:-1`
    kind: VolumeKind
    active: bool
    open: bool  # by a mount, a device on it, or a process
    segments: tuple[PlacedSegment, ...]  # of a pool or a cached volume those of what holds the data
    parts: tuple[HiddenVolume, ...] = ()
    origin: str = ""  # of a snapshot

    @property
    def extents(self) -> int:
        """How many it has."""
        return sum(segment.count for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Occupied:
    """Extents of a PV in one use."""

    first: int
    count: int
    volume: str  # whose; empty: they are free
    part: str = ""  # the hidden LV that they are; with an empty `volume` it is the group's own (a spare)


@dataclass(frozen=True, slots=True)
class PhysicalVolume:
    """A PV, and what is on it from its first extent to its last."""

    name: str
    size: int
    extents: int
    free: int  # extents that nothing is on
    allocatable: bool  # False: closed by `pvchange -xn`; what is free on it is no room
    missing: bool
    occupied: tuple[Occupied, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A volume group as LVM tells it."""

    room: VolumeGroup
    exported: bool
    pvs: tuple[PhysicalVolume, ...]  # in LVM's order
    volumes: tuple[PlacedVolume, ...]  # by name
    spares: tuple[HiddenVolume, ...] = ()  # hidden LVs that serve no volume, but the group


@dataclass(frozen=True, slots=True)
class Landscape:
    """All that LVM knows on this host."""

    groups: tuple[PlacedGroup, ...]  # by name
    unused: tuple[PhysicalVolume, ...] = ()  # PVs of no group


# --- what the volumes are used for -----------------------------------------------------------------------------------


class UseKind(StrEnum):
    """Ways in which a host uses a volume."""

    MOUNT = "mounted"
    SWAP = "swap"
    HOLDER = "holder"  # another block device is on it
    OPEN = "open"  # by something that is none of the others: a process, a container's mount


@dataclass(frozen=True, slots=True)
class Use:
    """One use: the mount point, the device on it; empty where it is open to somebody unknown."""

    kind: UseKind
    by: str = ""
    filesystem: str = ""  # of a mount


class KnownFrom(StrEnum):
    """How it is known where a server's data lies."""

    SERVER = "server"  # it said so now
    LAST_RUN = "last run"  # of the job; the server did not answer


@dataclass(frozen=True, slots=True)
class HostHere:
    """A configured host whose data directory is on the volume."""

    name: str
    known_from: KnownFrom


@dataclass(frozen=True, slots=True)
class JobHere:
    """A job that backs the volume up, and whether its snapshot fits now."""

    name: str
    known_from: KnownFrom
    needs: int | None  # bytes, of the COW area or of its pool; None where it cannot be told
    refusal: str = ""  # why a snapshot as the job asks for it cannot be; empty: it fits
    hint: str = ""

    @property
    def fits(self) -> bool:
        """There is room for its snapshot."""
        return not self.refusal


@dataclass(frozen=True, slots=True)
class SnapshotHere:
    """A snapshot of the volume, and whose it is."""

    name: str
    thin: bool
    run_id: str | None  # of ours; None: somebody else's


@dataclass(frozen=True, slots=True)
class SnapshotRoom:
    """What all snapshots of a volume could take together, in bytes."""

    free: int
    by_pv: Mapping[str, int]  # empty: they lie in the pool
    pool: str = ""


@dataclass(frozen=True, slots=True)
class SurveyedVolume:
    """A volume with all that it is used for."""

    placed: PlacedVolume
    uses: tuple[Use, ...] = ()
    hosts: tuple[HostHere, ...] = ()
    jobs: tuple[JobHere, ...] = ()
    snapshots: tuple[SnapshotHere, ...] = ()
    run_id: str | None = None  # it bears the tags of this run: it is ours
    room: SnapshotRoom | None = None  # None: no snapshots are taken of its kind


@dataclass(frozen=True, slots=True)
class SurveyedGroup:
    """A volume group with all that its volumes are used for."""

    placed: PlacedGroup
    volumes: tuple[SurveyedVolume, ...]


@dataclass(frozen=True, slots=True)
class HostElsewhere:
    """A configured host whose data is on none of these volumes, or it is not known where."""

    name: str
    jobs: tuple[str, ...]
    known: bool  # True: it is elsewhere
    detail: str  # where, or why that is not known


@dataclass(frozen=True, slots=True)
class Survey:
    """Every volume of the host, how it lies and what it is used for."""

    groups: tuple[SurveyedGroup, ...]
    unused: tuple[PhysicalVolume, ...] = ()
    elsewhere: tuple[HostElsewhere, ...] = ()
