"""When a COW area is to be extended while it fills, and to what. Pure.

Knows: how full it is, and how fast it has lately filled.
"""

import math
from collections.abc import Sequence

from backupd.policy.settle_gate import FORECAST_RATES, TREND_RATES, CowForecast
from backupd.policy.trend import points, recent
from backupd.vocabulary.penalty import Sample

LOOK_BACK = 2 * TREND_RATES  # samples that are enough to go by

_NEAR = 0.75  # of the limit: a burst may be faster than the next look
_SOON_SECONDS = 120.0  # until the limit, at the recent rate: LVM may need a minute, and one more try
_STEP_SECONDS = 600.0  # for which a step is to last: the origin stands still for each, so there are to be few
_STEP = 1.25  # times what there is, at least


def wanted_total(lately: Sequence[Sample], cow: CowForecast, *, max_fill: float) -> int | None:
    """Bytes that the COW area should have in all; None while it is large enough.

    `lately` are the newest samples. A step at a time: what is taken is everybody's room, and first writes die down.
    """
    used = next((sample.cow_used for sample in reversed(lately) if sample.cow_used is not None), None)
    if used is None:
        return None
    rates = points((sample.at_seconds, sample.cow_rate) for sample in lately)[-TREND_RATES:]
    rate = recent(rates) if len(rates) >= FORECAST_RATES else 0.0
    near = _NEAR * max_fill
    if used <= near * cow.total and used + rate * _SOON_SECONDS <= max_fill * cow.total:
        return None
    return math.ceil(max(_STEP * cow.total, used / near, (used + rate * _STEP_SECONDS) / max_fill))
