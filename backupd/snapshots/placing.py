"""Where a COW area goes and in which chunks, where the job leaves that to backupd. Pure.

Knows: that the last tuning of the volume says so as long as it holds, and what is taken instead. Refuses to know how
large the area is (`plan`), and the table of disks (`chunks`).
"""

from dataclasses import dataclass, replace
from typing import Protocol

from backupd.gauges import TunedCell, Tuning
from backupd.model import AUTO, Auto, Volume, VolumeGroup
from backupd.snapshots.chunks import Chunks, chunks_for
from backupd.tuning import cell_of, change_since, choose, is_at_home, layout_of


class PlaceSettings(Protocol):
    """What a job says of its COW area's place."""

    @property
    def chunk_size(self) -> int | Auto:
        """Bytes, a power of two from 4 KiB to 512 KiB; or as a probe or the disks say."""

    @property
    def pvs(self) -> tuple[str, ...] | Auto:
        """Where it goes; anywhere when empty; or as a probe says."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A decision, and what was left aside for it."""

    chunks: Chunks
    pvs: tuple[str, ...]  # anywhere when empty
    by_probe: bool = False
    left_aside: str = ""  # why a probe's recommendation is not followed


def placed(settings: PlaceSettings, volume: Volume, group: VolumeGroup, tuning: Tuning | None) -> Placed:
    """By the volume's last tuning where the job says `auto` and it still holds; else as without any."""
    default = without_probe(settings, volume, group)
    if volume.pool is not None or AUTO not in (settings.chunk_size, settings.pvs):
        return default
    if tuning is None:
        if settings.pvs != AUTO:
            return default
        return _aside(default, "no probe has compared PVs for it: backupd probe JOB --tune", "")
    when = f"the probe of {tuning.made_at:%Y-%m-%d}"
    change = change_since(tuning, layout_of(volume, group))
    if change:
        return _aside(default, f"its recommendation is left aside: {change}", when)
    ours = cell_of(tuning.cells, default.chunks.size, default.pvs)
    if ours is None and settings.pvs != AUTO:
        return default  # it was not this job's place that was compared
    if ours is None:
        return _aside(default, f"it has not measured the default, {_words(default.chunks.size, default.pvs)}", when)
    free = [cell for cell in tuning.cells if _allowed(settings, cell)]
    choice = choose(free, ours, at_home=lambda cell: is_at_home(cell.cow_pvs, volume.devices))
    if choice.stays:
        reason = f"{default.chunks.reason}; {when} found nothing better"
        return replace(default, chunks=replace(default.chunks, reason=reason))
    cell = choice.cell
    unusable = [pv for pv in cell.cow_pvs if not group.free_by_pv.get(pv)]
    if unusable:
        return _aside(default, f"its recommendation is left aside: {unusable[0]} is full, missing or closed", when)
    failed = [pv for pv in cell.cow_pvs if group.has_failed(pv)]
    if failed:
        return _aside(default, f"its recommendation is left aside: the kernel has given up {failed[0]}", when)
    where = f" with the COW area on {', '.join(cell.cow_pvs)}" if cell.cow_pvs and settings.pvs == AUTO else ""
    reason = f"the best{where} by {when}, {choice.gain:.0%} faster than the default (noise {choice.noise:.0%})"
    return Placed(Chunks(cell.chunk_size, reason), cell.cow_pvs, by_probe=True)


def without_probe(settings: PlaceSettings, volume: Volume, group: VolumeGroup) -> Placed:
    """As the job says, and by the disks where it leaves that open."""
    pvs = () if isinstance(settings.pvs, str) else settings.pvs
    return Placed(chunks_for(settings.chunk_size, volume, group, pvs), pvs)


def too_small(settings: PlaceSettings, volume: Volume, group: VolumeGroup, tuning: Tuning) -> Placed:
    """What is taken where the place that a probe recommends has too little room."""
    default = without_probe(settings, volume, group)
    return _aside(
        default,
        "its recommendation is left aside: there is too little room for the COW area",
        f"the probe of {tuning.made_at:%Y-%m-%d}",
    )


def _allowed(settings: PlaceSettings, cell: TunedCell) -> bool:
    """What the job has said itself is not up to a probe."""
    return settings.chunk_size in (AUTO, cell.chunk_size) and settings.pvs in (AUTO, cell.cow_pvs)


def _aside(default: Placed, why: str, when: str) -> Placed:
    told = f"{when}: {why}" if when else why
    reason = f"{default.chunks.reason}; {told}"
    return replace(default, chunks=replace(default.chunks, reason=reason), left_aside=told)


def _words(chunk_size: int, pvs: tuple[str, ...]) -> str:
    return f"chunks of {chunk_size >> 10} KiB on {', '.join(pvs) or 'any PV'}"
