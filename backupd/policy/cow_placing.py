"""Where a COW area goes and in which chunks, where the job leaves that to backupd. Pure.

Knows: that the last tuning of the volume says so as long as it holds, and what is taken instead; and where the COW
area goes when a PV that the job names is gone.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from backupd.policy.chunk_size import Chunks, chunks_for
from backupd.policy.cow_area import cell_of, change_since, choose, is_at_home, layout_of, with_paths_of
from backupd.policy.named_pvs import named_pvs
from backupd.vocabulary.gauges import CowPlace, TunedCell, Tuning, place_words
from backupd.vocabulary.units import size_words
from backupd.vocabulary.volumes import AUTO, Auto, Volume, VolumeGroup


class PlaceSettings(Protocol):
    """What a job says of its COW area's place."""

    @property
    def chunk_size(self) -> int | Auto:
        """Bytes, a power of two from 4 KiB to 512 KiB; or as a probe or the disks say."""

    @property
    def pvs(self) -> tuple[str, ...] | Auto:
        """Where it goes, by paths or uuids; anywhere when empty; or as a probe says."""

    @property
    def stripes(self) -> int | Auto:
        """How many PVs it is striped over, 1 for a linear one; or as a probe says."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A decision, and what was left aside for it."""

    chunks: Chunks
    pvs: tuple[str, ...]  # anywhere when empty
    stripes: int = 1  # 1: linear
    by_probe: bool = False
    left_aside: str = ""  # why a probe's recommendation is not followed
    displaced: str = ""  # why it is not on the PVs that the job names


@dataclass(frozen=True, slots=True)
class _Today:
    """What the job says of the place, its PVs by the paths of today; anywhere, and linear, when one of them is gone."""

    chunk_size: int | Auto
    pvs: tuple[str, ...] | Auto
    stripes: int | Auto
    displaced: str = ""


def placed(settings: PlaceSettings, volume: Volume, group: VolumeGroup, tuning: Tuning | None) -> Placed:
    """By the volume's last tuning where the job says `auto` and it still holds; else as without any."""
    default, settings = without_probe(settings, volume, group), _today(settings, group)
    if volume.pool is not None or not _open(settings):
        return default
    if tuning is None:
        if settings.pvs != AUTO:
            return default
        return _aside(default, "no probe has compared PVs for this volume: backupd probe JOB --tune", "")
    when = f"the probe of {tuning.made_at:%Y-%m-%d}"
    now = layout_of(volume, group)
    change = change_since(tuning, now)
    if change and AUTO not in (settings.chunk_size, settings.pvs):
        return default  # nothing but the stripes is open, and they are linear without a probe
    if change:
        return _aside(default, f"its recommendation is ignored: {change}", when)
    tuning = with_paths_of(tuning, now)
    ours = cell_of(tuning.cells, default.chunks.size, (default.pvs, default.stripes))
    if ours is None and settings.pvs != AUTO:
        return default  # it was not this job's place that was compared
    if ours is None:
        return _aside(default, f"it has not measured the default, {_words(default)}", when)
    free = [cell for cell in tuning.cells if _allowed(settings, cell, volume)]
    choice = choose(free, ours, at_home=lambda cell: is_at_home(cell.cow_pvs, volume.devices))
    if choice.stays:
        reason = f"{default.chunks.reason}; {when} found nothing better within the job's settings"
        return replace(default, chunks=replace(default.chunks, reason=reason))
    cell = choice.cell
    unusable = [pv for pv in cell.cow_pvs if not group.free_by_pv.get(pv)]
    if unusable:
        return _aside(default, f"its recommendation is ignored: {unusable[0]} is full, missing or closed", when)
    failed = [pv for pv in cell.cow_pvs if group.has_failed(pv)]
    if failed:
        return _aside(default, f"its recommendation is ignored: the kernel has disabled {failed[0]}", when)
    chosen = cell.place != default_place(settings)
    where = f" with the COW area {place_words(*cell.place)}" if chosen else ""
    reason = f"the best{where} by {when}, {choice.gain:.0%} faster than the default (noise {choice.noise:.0%})"
    chunks = Chunks(cell.chunk_size, reason)
    return replace(default, chunks=chunks, pvs=cell.cow_pvs, stripes=cell.stripes, by_probe=True)


def without_probe(settings: PlaceSettings, volume: Volume, group: VolumeGroup) -> Placed:
    """As the job says, and by the disks where it leaves that open."""
    today = _today(settings, group)
    pvs, stripes = default_place(today)
    disks = group.striped_over(pvs, stripes) if stripes > 1 else pvs
    return Placed(chunks_for(settings.chunk_size, volume, group, disks), pvs, stripes, displaced=today.displaced)


def default_place(settings: PlaceSettings) -> CowPlace:
    """Where the COW area goes by the job alone: anywhere, and linear, where it leaves that open."""
    pvs = () if isinstance(settings.pvs, str) else settings.pvs
    return pvs, 1 if isinstance(settings.stripes, str) else settings.stripes


def _today(settings: PlaceSettings, group: VolumeGroup) -> _Today:
    if isinstance(settings.pvs, str):
        return _Today(settings.chunk_size, settings.pvs, settings.stripes)
    named = named_pvs(settings.pvs, group)
    if not named.gone:
        return _Today(settings.chunk_size, named.paths, settings.stripes)
    stripes = settings.stripes if isinstance(settings.stripes, str) else 1
    return _Today(settings.chunk_size, (), stripes, "; ".join(named.gone))


def too_small(settings: PlaceSettings, volume: Volume, group: VolumeGroup, tuning: Tuning) -> Placed:
    """What is taken where the place that a probe recommends has too little room."""
    default = without_probe(settings, volume, group)
    return _aside(
        default,
        "its recommendation is ignored: there is not enough space for the COW area",
        f"the probe of {tuning.made_at:%Y-%m-%d}",
    )


def _open(settings: PlaceSettings) -> bool:
    """Whether the job leaves anything to a probe. One PV has no stripes."""
    return AUTO in (settings.chunk_size, settings.pvs) or (settings.stripes == AUTO and len(settings.pvs) != 1)


def _allowed(settings: PlaceSettings, cell: TunedCell, volume: Volume) -> bool:
    """What the job has said itself is not up to a probe.

    Where it names no PVs LVM may choose any, so that the volume's own ones striped add no risk to that.
    """
    asked = ((settings.chunk_size, cell.chunk_size), (settings.stripes, cell.stripes))
    if not all(said in (AUTO, found) for said, found in asked):
        return False
    if settings.pvs == ():
        return not cell.cow_pvs or (cell.stripes > 1 and is_at_home(cell.cow_pvs, volume.devices))
    return settings.pvs == AUTO or set(settings.pvs) == set(cell.cow_pvs)


def _aside(default: Placed, why: str, when: str) -> Placed:
    told = f"{when}: {why}" if when else why
    reason = f"{default.chunks.reason}; {told}"
    return replace(default, chunks=replace(default.chunks, reason=reason), left_aside=told)


def _words(default: Placed) -> str:
    return f"chunks of {size_words(default.chunks.size)} {place_words(default.pvs, default.stripes)}"
