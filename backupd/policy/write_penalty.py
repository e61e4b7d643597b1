"""The penalty of a run in five figures, by its samples.

Knows: of which samples each is the median. What follows from them is decided in `settle_gate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median

from backupd.policy.settle_gate import BASELINE, SETTLE
from backupd.vocabulary.penalty import Sample


@dataclass(frozen=True, slots=True)
class Penalty:
    """What writes cost before the snapshot, just after it, and when the copy started; None where not measured."""

    baseline_iops: float | None = None
    initial_iops: float | None = None
    settled_iops: float | None = None
    initial_ratio: float | None = None
    settled_ratio: float | None = None


def penalty_of(samples: Sequence[Sample], *, windows: int = 3) -> Penalty:
    """The penalty in five figures: medians, except that `initial` is the one window that came first.

    `settled` is taken over the last `windows` before the copy. What was measured during the copy is in none of them.
    """
    baseline = _iops(samples, BASELINE)
    settling = _iops(samples, SETTLE)
    before = median(baseline) if baseline else None
    first = settling[0] if settling else None
    last = median(settling[-windows:]) if settling else None
    return Penalty(before, first, last, _ratio(before, first), _ratio(before, last))


def _iops(samples: Sequence[Sample], stage: str) -> list[float]:
    return [
        sample.iops
        for sample in samples
        if sample.stage == stage and sample.iops is not None and isfinite(sample.iops) and sample.iops >= 0
    ]


def _ratio(baseline: float | None, iops: float | None) -> float | None:
    return baseline / iops if baseline and iops else None
