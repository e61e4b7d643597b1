"""How much a snapshot's first write copies at a time, where the job leaves that to backupd. Pure.

Knows: the table that docs/pages/cow-area.md shows with measurements, and its reasons in words.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from backupd.vocabulary.units import size_words
from backupd.vocabulary.volumes import Auto, DiskQueue, Volume, VolumeGroup

USUAL = 64 << 10  # bytes: what no measurement speaks against
_LARGEST = 512 << 10  # bytes: LVM takes no larger ones
_VIRTUAL = (
    "the disks are virtual, and the disks under them are not known; measure with backupd probe JOB --chunk-sizes"
    " 64k,512k,"
    " and set snapshot.chunk_size"
)


@dataclass(frozen=True, slots=True)
class Chunks:
    """A chunk size, and what speaks for it."""

    size: int  # bytes
    reason: str

    def __str__(self) -> str:
        return f"chunks of {size_words(self.size)}: {self.reason}"


def chunks_for(asked: int | Auto, volume: Volume, group: VolumeGroup, pvs: tuple[str, ...] = ()) -> Chunks:
    """The chunks of a snapshot of this volume, whose COW area goes on these PVs, or anywhere when there are none.

    A thin volume's snapshots have the chunks of its pool, whatever is asked.
    """
    if volume.pool is not None:
        return Chunks(volume.pool.chunk_size, f"those of thin pool {volume.vg}/{volume.pool.name}")
    if isinstance(asked, int):
        return Chunks(asked, "set by snapshot.chunk_size")
    origin = dict.fromkeys(device for segment in volume.physical_segments for device in segment.devices)
    area = pvs or tuple(pv for pv, extents in group.free_by_pv.items() if extents)
    unknown = [pv for pv in (*origin, *area) if pv not in group.queues]
    if unknown:
        return Chunks(USUAL, f"whether {unknown[0]} is rotational is not known")
    return _by_disks([group.queues[pv] for pv in origin], [group.queues[pv] for pv in area])


def _by_disks(origin: Iterable[DiskQueue], area: Iterable[DiskQueue]) -> Chunks:
    """Seeks are what a first write costs on disks that rotate, and large chunks save them, unless they are cut up."""
    slow_origin, slow_area = ([queue for queue in queues if queue.rotational] for queues in (origin, area))
    if not slow_origin and not slow_area:
        return Chunks(USUAL, "the disks are not rotational")
    if not slow_area:
        return Chunks(USUAL, "the disks under the COW area are not rotational")
    if any(queue.virtual for queue in (*slow_origin, *slow_area)):
        return Chunks(USUAL, _VIRTUAL)
    request = min(queue.largest_request for queue in (*slow_origin, *slow_area))
    if request < _LARGEST:
        return Chunks(USUAL, f"the disks are rotational, but accept requests of at most {size_words(request)}")
    return Chunks(_LARGEST, f"the disks are rotational and accept requests of {size_words(request)}")
