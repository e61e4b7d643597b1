"""How large a COW area is made where the job leaves that to backupd: by what its past runs have filled. Pure.

Knows: a share that is usual, and what runs before say of the next one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backupd.vocabulary.penalty import SnapshotLife

USUAL_PERCENT = 20.0  # of the origin, where nothing is known

_MARGIN = 2.0  # on what is forecast: no two nights are alike
_LEAST = 64 << 20  # bytes
_TELLING = 1 / 3  # of the longest life: a shorter one tells how the first writes were, and nothing of the night
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CowSuggestion:
    """What a COW area should have, and what it can do with where there is not so much; bytes."""

    wanted: int
    least: int
    reason: str


def room_for(origin_size: int, chunk_size: int, past: Sequence[SnapshotLife]) -> CowSuggestion:
    """By the runs that had chunks of this size; the others tell nothing, for what a write fills depends on it.

    The usual share, or twice what is forecast where that is more: what each run would have filled, had it lived for as
    long as the longest. First writes become rarer as the snapshot grows older, so a fill grows as the root of its time.
    A forecast refuses no backup: the usual share is always enough, and less is where the forecast is less.
    """
    usual = round(origin_size * USUAL_PERCENT / 100)
    alike = [life for life in past if life.chunk_size == chunk_size and life.seconds > 0]
    if not alike:
        return CowSuggestion(usual, usual, f"{USUAL_PERCENT:g}% of the origin: no run has shown yet how much it fills")
    longest = max(life.seconds for life in alike)
    telling = [life for life in alike if life.seconds >= _TELLING * longest]
    forecast = max(_LEAST, round(max(life.filled * math.sqrt(longest / life.seconds) for life in telling)))
    runs = "a run" if len(telling) == 1 else f"{len(telling)} runs"
    most = max(life.filled for life in telling) / _MIB
    told = f"{runs} of at most {math.ceil(longest)} s filled up to {most:.0f} MiB"
    if usual >= _MARGIN * forecast:
        return CowSuggestion(usual, min(usual, forecast), f"{USUAL_PERCENT:g}% of the origin is enough: {told}")
    return CowSuggestion(round(_MARGIN * forecast), min(usual, forecast), f"twice the forecast: {told}")
