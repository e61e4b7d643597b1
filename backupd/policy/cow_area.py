"""Which COW area a probe recommends: the choice among the cells that it measured, and whether it still holds. Pure.

Knows: when a cell is better than the default by more than the noise, and when the disks are no longer those that were
measured.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from statistics import median

from backupd.vocabulary.gauges import CowPlace, TunedCell, Tuning, VolumeLayout
from backupd.vocabulary.volumes import Volume, VolumeGroup

LEAST_ROUNDS = 3  # fewer tell nothing of the noise
LEAST_GAIN = 0.05  # a smaller one is not worth a setting
RISK = "if that PV is lost, the origin cannot be activated until the snapshot is removed"
# The range of n figures divided by n is about the standard error of their median. Of some sixteen cells the luckiest is
# nearly two of these ahead of a default that is as fast; 4.5 leave next to nothing to luck
# (tests/unit/test_cow_area.py).
_CAUTION = 4.5
_MOST_ROUNDS = 10  # by which the range is divided: with more of them it falls by their root only
_ANYTHING = 50.0  # a logarithm: no gain is above it


@dataclass(frozen=True, slots=True)
class CowAreaChoice:
    """The cell that is recommended, beside the default."""

    cell: TunedCell
    default: TunedCell
    gain: float  # how much faster than the default; 0: it is the default, or as fast
    noise: float  # what a gain must be above to count

    @property
    def stays(self) -> bool:
        """Nothing was better than the default by more than the noise."""
        return self.cell == self.default


@dataclass(frozen=True, slots=True)
class _Judged:
    cell: TunedCell
    ratio: float  # to the default, round by round: the median
    spread: float  # (highest - lowest) / median of these
    reach: float  # of their logarithms, highest - lowest: a ratio of 3 is as far from 1 as one of 1/3
    rounds: int


def choose(
    cells: Iterable[TunedCell],
    default: TunedCell,
    *,
    at_home: Callable[[TunedCell], bool] = lambda cell: not cell.cow_pvs,
) -> CowAreaChoice:
    """The best cell; of those within 5 % of it one that is `at_home`, for a COW area elsewhere carries a risk.

    Each round is compared with the default's own figure of that round, so that a load that grows or falls meanwhile
    is no gain and no loss. A round that told nothing (0, or no number: counters that stood still or jumped) does not
    count, and a cell with less than three that did is never chosen.
    """
    judged = [found for cell in cells if cell != default and (found := _judged(cell, default)) is not None]
    usual = median(one.reach for one in judged) if judged else 0.0
    better = [one for one in judged if one.ratio - 1 > _noise(one, usual)]
    if not better:
        fastest = max(judged, key=lambda one: one.ratio, default=None)
        return CowAreaChoice(default, default, 0.0, LEAST_GAIN if fastest is None else _noise(fastest, usual))
    best = max(one.ratio for one in better)
    near = [one for one in better if one.ratio >= best * (1 - LEAST_GAIN)]
    chosen = max(near, key=lambda one: (at_home(one.cell), one.ratio))
    return CowAreaChoice(chosen.cell, default, chosen.ratio - 1, _noise(chosen, usual))


def relative(cell: TunedCell, default: TunedCell) -> tuple[float, float] | None:
    """How fast a cell was beside the default, and the spread of that; None where too few rounds told."""
    found = _judged(cell, default)
    return None if found is None else (found.ratio, found.spread)


def is_at_home(pvs: Collection[str], devices: Collection[str]) -> bool:
    """A COW area there adds no disk that a volume on these devices depends on: they are its own, or LVM chose."""
    return set(pvs) <= set(devices)


def recommended(tuning: Tuning, *, place: CowPlace | None = None) -> CowAreaChoice:
    """The best of all cells, or of those in one place, beside what the job would have had without the probe."""
    cells = [cell for cell in tuning.cells if place is None or cell.place == place]
    return choose(cells, tuning.cells[0], at_home=lambda cell: is_at_home(cell.cow_pvs, tuning.layout.devices))


def cell_of(cells: Iterable[TunedCell], chunk_size: int, place: CowPlace) -> TunedCell | None:
    """The cell of this chunk size in this place, its PVs in any order; None where it was not measured."""
    pvs, stripes = place
    alike = (cell for cell in cells if (cell.chunk_size, cell.stripes) == (chunk_size, stripes))
    return next((cell for cell in alike if set(cell.cow_pvs) == set(pvs)), None)


def layout_of(volume: Volume, group: VolumeGroup) -> VolumeLayout:
    """What a tuning of this volume is bound to."""
    return VolumeLayout(
        volume_uuid=volume.uuid,
        group_uuid=volume.group_uuid,
        devices=volume.devices,
        stripes=volume.stripes,
        stripe_size=volume.stripe_size,
        pvs=dict(group.pv_uuids),
    )


def change_since(tuning: Tuning, now: VolumeLayout) -> str:
    """In which respect the disks are no longer those that were measured, by uuid; empty where they are."""
    then = tuning.layout
    if (then.volume_uuid, then.group_uuid) != (now.volume_uuid, now.group_uuid):
        return "the volume was replaced"
    gone = [pv for pv, uuid in then.pvs.items() if uuid not in now.pvs.values()]
    if gone:
        return f"{gone[0]} is missing or was replaced"
    new = [pv for pv, uuid in now.pvs.items() if uuid not in then.pvs.values()]
    if new:
        return f"{', '.join(new)} was added to the group"
    lay, lies = ([one.pvs.get(pv) for pv in one.devices] for one in (then, now))
    if (lay, then.stripes, then.stripe_size) != (lies, now.stripes, now.stripe_size):
        return "the volume's layout on its PVs has changed"
    return ""


def with_paths_of(tuning: Tuning, now: VolumeLayout) -> Tuning:
    """The same tuning where each PV has the path of `now`: it may be another one after every boot."""
    today = {uuid: pv for pv, uuid in now.pvs.items()}
    path = {pv: today.get(uuid, pv) for pv, uuid in tuning.layout.pvs.items()}
    cells = (replace(cell, cow_pvs=tuple(path.get(pv, pv) for pv in cell.cow_pvs)) for cell in tuning.cells)
    return replace(tuning, layout=now, cells=tuple(cells))


def _judged(cell: TunedCell, default: TunedCell) -> _Judged | None:
    pairs = zip(cell.speeds, default.speeds, strict=False)
    ratios = [ours / theirs for ours, theirs in pairs if _told(ours) and _told(theirs)]
    if len(ratios) < LEAST_ROUNDS:
        return None
    middle = median(ratios)
    highest, lowest = max(ratios), min(ratios)
    return _Judged(cell, middle, (highest - lowest) / middle, math.log(highest) - math.log(lowest), len(ratios))


def _noise(one: _Judged, usual: float) -> float:
    """What its ratio may be above 1 by luck: by its own rounds, or by the other cells' where those differ more."""
    return max(LEAST_GAIN, math.expm1(min(_CAUTION * max(one.reach, usual) / min(one.rounds, _MOST_ROUNDS), _ANYTHING)))


def _told(speed: float) -> bool:
    return math.isfinite(speed) and speed > 0
