"""The rounds of a probe that compares COW areas, and what it keeps of them: `backupd probe --tune`.

Read `rounds` aloud. Each variant has a snapshot and a window of its own in each round, in another order each time, so
that neither a load that changes nor the place in the order decides.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from backupd.load.tally import Measured, speed_of
from backupd.operations.measure.probe_steps import ProbeSteps, variant_words
from backupd.policy.cow_area import LEAST_ROUNDS, layout_of
from backupd.policy.probe_plan import write_loads
from backupd.vocabulary.errors import GaveUp, ProbeError, SnapshotError
from backupd.vocabulary.gauges import FileLoad, Mode, Stage, TunedCell, Tuning, place_words
from backupd.vocabulary.probes import Variant


def rounds(steps: ProbeSteps) -> None:
    """Every variant once in each round; the tuning is kept. A place that fails meanwhile is given up, and told.

    Raises:
        ProbeError: the default was not measured often enough to be compared with.
        SnapshotError: the default's own place fails, or a snapshot on one that fails cannot be removed.
        GaveUp: writes to the volume took longer than the limit.
    """
    request, variants = steps.request, steps.ground.variants
    load = FileLoad(Mode.PASSIVE, threads=1, block_size=0, area=0) if request.passive else write_loads(request)[0]
    speeds: dict[Variant, list[float]] = {variant: [] for variant in variants}
    with _file(steps):
        for number in range(request.repeat):
            with steps.guarded():
                _keep(steps, load, None, _window(steps, load))
            first = number * len(variants) // request.repeat
            for variant in (*variants[first:], *variants[:first]):
                if variant in speeds:
                    steps.telling.step(f"round {number + 1}: {variant_words(variant)}")
                    _try(steps, load, variant, speeds)
    steps.tuning = _tuning(steps, speeds)


def _try(steps: ProbeSteps, load: FileLoad, variant: Variant, speeds: dict[Variant, list[float]]) -> None:
    """One snapshot, one window; where the place fails, all its variants are given up."""
    try:
        with steps.guarded(), steps.snapshots(variant):
            measured = _window(steps, load)
    except GaveUp:
        raise  # it is the server that suffers
    except SnapshotError as error:
        if variant.place == steps.ground.variants[0].place or _still_has_one(steps):
            raise
        for given_up in [one for one in speeds if one.place == variant.place]:
            del speeds[given_up]
        steps.failed.append(f"the COW area {place_words(*variant.place)} failed and was skipped: {error.message}")
    else:
        speeds[variant].append(_keep(steps, load, variant, measured))


def _still_has_one(steps: ProbeSteps) -> bool:
    """Whether a snapshot could not be removed: with it nothing that is measured afterwards would be right."""
    return bool(steps.tools.snapshots.volume_at(steps.ground.mount.device).snapshots)


def _keep(steps: ProbeSteps, load: FileLoad, variant: Variant | None, measured: Measured) -> float:
    """The window is in the table if it told something; how fast it was, 0 where it did not.

    Counters of the kernel that stand still tell nothing, nor do those that jump back: the device was recreated.
    """
    speed = speed_of(load.mode, measured)
    if not (math.isfinite(speed) and speed > 0):
        return 0.0
    steps.tally.add(load, variant, Stage.BASELINE if variant is None else Stage.FIRST, measured)
    return speed


def _window(steps: ProbeSteps, load: FileLoad) -> Measured:
    return steps.idle_window() if load.mode is Mode.PASSIVE else steps.window(load)


@contextmanager
def _file(steps: ProbeSteps) -> Iterator[None]:
    """Within the block the probe's file is there, where a load of ours is to use it."""
    if steps.request.passive:
        yield
        return
    steps.telling.step("writing the probe's file")
    with steps.file():
        yield


def _tuning(steps: ProbeSteps, speeds: dict[Variant, list[float]]) -> Tuning:
    cells = tuple(
        TunedCell(variant.chunk_size, variant.cow_pvs, tuple(told), variant.stripes) for variant, told in speeds.items()
    )
    untold = [cell for cell in cells if sum(speed > 0 for speed in cell.speeds) < LEAST_ROUNDS]
    if cells[0] in untold:
        raise ProbeError(
            "too little was written to the volume for a comparison, or the kernel's counters jumped",
            hint=(
                "choose a busier hour or longer windows (--seconds), or omit --passive so that the probe makes"
                " its own load"
            ),
        )
    steps.failed += [
        f"{variant_words(Variant(cell.chunk_size, cell.cow_pvs, stripes=cell.stripes))}:"
        f" fewer than {LEAST_ROUNDS} rounds gave a result, so it is not chosen"
        for cell in untold
    ]
    found = steps.ground
    return Tuning(datetime.now(UTC), layout_of(found.volume, found.group), cells)
