"""What the stages of a copy could do by themselves, so that the one which holds the others up is seen.

Knows: that all stages work beside each other, so that the one which was busy longest is the bottleneck. Several
streams add up: a stage may have been busy for longer than the copy took. Reading back comes after the copy and holds
nothing up.
"""

from collections.abc import Sequence

from backupd.report.words import columns, duration, size, speed
from backupd.vocabulary.penalty import Throughput


def bottleneck(stages: Sequence[Throughput]) -> Throughput | None:
    """The stage to look at when a copy should be faster; None where nothing was measured."""
    of_copy = (stage for stage in stages if stage.of_copy and stage.busy_seconds)
    return max(of_copy, key=lambda stage: stage.busy_seconds, default=None)


def stage_table(stages: Sequence[Throughput]) -> str:
    """A line for each stage: what it took, for how long it was at work, what it could do by itself."""
    slowest = bottleneck(stages)
    return columns(
        (
            (
                stage.stage,
                size(stage.bytes),
                f"in {duration(stage.busy_seconds)}",
                speed(stage.rate),
                "bottleneck" if stage is slowest else "",
            )
            for stage in stages
        ),
        right=(1, 2, 3),
    )
