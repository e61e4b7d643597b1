"""The course of a bench as SVG: what each disk and the processors did, second by second, one lane below the other.

Knows: how samples become steps in time, and the bands of the layouts behind them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import median

from backupd.report import legend
from backupd.report.probe_combinations import short_pv
from backupd.report.scale import Scale, scale
from backupd.report.svg import Picture, element, label
from backupd.report.words import duration, figure
from backupd.vocabulary.benches import DiskSample
from backupd.vocabulary.scratch_layouts import MIB

_WIDTH, _LEFT, _RIGHT, _TOP = 760, 56, 16, 100
_HEAD = 58  # of the bands, above the first lane
_LANE, _BETWEEN = 64, 30  # height of one, and the room for its name above
_STEPS = 680  # across the picture, about one for each of its points: more samples than these share a step
_FARTHEST_BACK = 2.0  # seconds: what a sample stands for at the most
_GAP = 1.5  # times the usual step: farther apart, nothing is known of the time between
_SMALL = "small fill-soft"
_WRITTEN, _READ, _SYSTEM, _IOWAIT = "fill-s0", "fill-s1", "fill-s3", "fill-s2"

_TwoValues = Callable[[DiskSample], tuple[float, float]]  # the lower and the upper one of two that are added


@dataclass(frozen=True, slots=True)
class SampleStep:
    """From one instant to the next, as the samples in it were on the average."""

    began: float
    ended: float
    samples: tuple[DiskSample, ...]

    def mean(self, values: _TwoValues) -> tuple[float, float]:
        """Of each of the two; what is no number counts as nothing."""
        pairs = [values(sample) for sample in self.samples]
        lower, upper = (sum(map(_known, column)) / len(pairs) for column in zip(*pairs, strict=True))
        return lower, upper


@dataclass(frozen=True, slots=True)
class Band:
    """The time that one layout took."""

    layout: str
    steps: tuple[SampleStep, ...]

    @property
    def seconds(self) -> float:
        """From its first sample to its last."""
        return self.steps[-1].ended - self.steps[0].began


def course_svg(samples: Sequence[DiskSample], *, title: str = "Each disk over time", alone: bool = True) -> str:
    """A lane for each disk, with the same scale, and one for the processors; empty where nothing was recorded.

    `alone`: with style and background, to be kept as a file; otherwise the page must have `svg.style()`.
    """
    found = bands(samples)
    if not found:
        return ""
    disks = list(dict.fromkeys(disk for sample in samples for disk in (*sample.read, *sample.written)))
    across = scale(
        [instant for band in found for step in band.steps for instant in (step.began, step.ended)], tight=True
    )
    highest = max(sum(_rates(disk)(sample)) for sample in samples for disk in disks) if disks else 0.0
    upright = scale([0.0, highest], count=3)
    bottom = _TOP + (len(disks) + 1) * (_LANE + _BETWEEN) - _BETWEEN
    parts = [label(_LEFT, 24, title, cls="title fill-ink"), *_layouts(found, across, bottom)]
    for number, disk in enumerate(disks):
        top = _TOP + number * (_LANE + _BETWEEN)
        parts += _axis(upright, top, f"{short_pv(disk)}, MiB/s", upright.labels())
        parts += _areas(found, _rates(disk), across, upright, top, (_WRITTEN, _READ))
    share_of_time = Scale(0.0, 1.0, (0.0, 0.5, 1.0))
    top = bottom - _LANE
    parts += _axis(share_of_time, top, "processor time", ("0", "50%", "100%"))
    parts += _areas(found, _processors, across, share_of_time, top, (_IOWAIT, _SYSTEM))
    explained, lines = _legend(bottom + 62)
    height = round(bottom + 62 + lines * legend.LINE)
    drawn = [*parts, *_seconds(across, bottom), *explained]
    return Picture(_WIDTH, height, title, _words(found, disks), drawn).text(alone=alone)


def bands(samples: Sequence[DiskSample]) -> tuple[Band, ...]:
    """The samples as the layouts took turns, in the order of time, and in no more steps than can be seen."""
    known = sorted((sample for sample in samples if isfinite(sample.at_seconds)), key=lambda sample: sample.at_seconds)
    usual = min(_usual_step(known), _FARTHEST_BACK)
    together = max(1, -(-len(known) // _STEPS))
    found: list[Band] = []
    spell: list[SampleStep] = []
    before: DiskSample | None = None
    for sample in known:
        turned = before is not None and sample.layout != before.layout
        if turned and before is not None:
            found.append(Band(before.layout, _joined(spell, together)))
            spell = []
        apart = before is None or sample.at_seconds - before.at_seconds > _GAP * usual
        began = sample.at_seconds - usual if apart or before is None else before.at_seconds
        spell.append(SampleStep(began, sample.at_seconds, (sample,)))
        before = sample
    return (*found, Band(before.layout, _joined(spell, together))) if before is not None else ()


def _usual_step(known: Sequence[DiskSample]) -> float:
    steps = [b.at_seconds - a.at_seconds for a, b in pairwise(known) if b.at_seconds > a.at_seconds]
    return median(steps) if steps else 1.0


def _joined(steps: Sequence[SampleStep], together: int) -> tuple[SampleStep, ...]:
    """So many of them as one."""
    groups = [steps[first : first + together] for first in range(0, len(steps), together)]
    return tuple(
        SampleStep(group[0].began, group[-1].ended, tuple(sample for step in group for sample in step.samples))
        for group in groups
    )


def _rates(disk: str) -> _TwoValues:
    """What a disk wrote and read, in MiB/s."""
    return lambda sample: (_known(sample.written.get(disk)) / MIB, _known(sample.read.get(disk)) / MIB)


def _processors(sample: DiskSample) -> tuple[float, float]:
    return _known(sample.iowait), _known(sample.system)


# --- what is drawn ---------------------------------------------------------------------------------------------------


def _layouts(found: Sequence[Band], across: Scale, bottom: float) -> list[str]:
    """A ground for every second layout; above it its name and how long it took, where there is room."""
    parts = []
    for number, band in enumerate(found):
        left, right = _x(across, band.steps[0].began), _x(across, band.steps[-1].ended)
        if number % 2 == 0:
            ground = {"x": left, "y": _TOP - _HEAD, "width": max(right - left, 0.0), "height": bottom - _TOP + _HEAD}
            parts.append(element("rect", **ground, cls="fill-grid", fill_opacity="0.5"))
        for y, words, cls in ((16, band.layout, "small fill-ink"), (31, duration(band.seconds), _SMALL)):
            if len(words) * legend.LETTER * 0.9 <= right - left:
                parts.append(label((left + right) / 2, _TOP - _HEAD + y, words, cls=cls, text_anchor="middle"))
    return parts


def _axis(upright: Scale, top: float, name: str, words: Sequence[str]) -> list[str]:
    right = _WIDTH - _RIGHT
    parts = [label(_LEFT, top - 6, name, cls="small fill-ink")]
    for value, text in zip(upright.ticks, words, strict=True):
        y = _y(upright, value, top)
        parts.append(element("line", x1=_LEFT, x2=right, y1=y, y2=y, cls="line-grid"))
        parts.append(label(_LEFT - 8, y + 4, text, cls=_SMALL, text_anchor="end"))
    return parts


def _areas(
    found: Sequence[Band], values: _TwoValues, across: Scale, upright: Scale, top: float, paints: tuple[str, str]
) -> list[str]:
    """Two areas, the second on top of the first; open where nothing is known of the time between."""
    parts = []
    for band in found:
        for stretch in _unbroken(band.steps):
            means = [step.mean(values) for step in stretch]
            floors = ([0.0] * len(means), [lower for lower, _ in means])
            heights = ([lower for lower, _ in means], [lower + upper for lower, upper in means])
            for floor, height, paint in zip(floors, heights, paints, strict=True):
                if any(high > low for low, high in zip(floor, height, strict=True)):
                    there = _stairs(stretch, height, across, upright, top)
                    back = _stairs(stretch, floor, across, upright, top)[::-1]
                    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*there, *back))
                    parts.append(element("polygon", points=points, cls=paint))
    return parts


def _unbroken(steps: Sequence[SampleStep]) -> list[list[SampleStep]]:
    stretches: list[list[SampleStep]] = []
    for step in steps:
        if stretches and stretches[-1][-1].ended == step.began:
            stretches[-1].append(step)
        else:
            stretches.append([step])
    return stretches


def _stairs(
    steps: Sequence[SampleStep], heights: Sequence[float], across: Scale, upright: Scale, top: float
) -> list[tuple[float, float]]:
    return [
        (_x(across, instant), _y(upright, height, top))
        for step, height in zip(steps, heights, strict=True)
        for instant in (step.began, step.ended)
    ]


def _seconds(across: Scale, bottom: float) -> list[str]:
    parts = [element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=bottom, y2=bottom, cls="line-soft")]
    for value, words in zip(across.ticks, across.labels(), strict=True):
        x = _x(across, value)
        parts.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, cls="line-soft"))
        parts.append(label(x, bottom + 19, words, cls=_SMALL, text_anchor="middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return [*parts, label(middle, bottom + 38, "seconds since measuring started", cls=_SMALL, text_anchor="middle")]


def _legend(top: float) -> tuple[list[str], int]:
    entries = (("written", _WRITTEN), ("read", _READ), ("I/O wait", _IOWAIT), ("system", _SYSTEM))
    return legend.keys([(words, legend.area_sign(cls)) for words, cls in entries], _LEFT, top, _WIDTH)


def _words(found: Sequence[Band], disks: Sequence[str]) -> str:
    """What each disk moved on the average while each layout was measured."""
    said = []
    for band in found:
        samples = [sample for step in band.steps for sample in step.samples]
        rates = [
            f"{short_pv(disk)} {figure(sum(sum(_rates(disk)(sample)) for sample in samples) / len(samples), 1)} MiB/s"
            for disk in disks
        ]
        said.append(f"{band.layout}, {duration(band.seconds)}: {', '.join(rates)}")
    return "; ".join(said)


def _known(value: float | None) -> float:
    return value if value is not None and isfinite(value) and value > 0 else 0.0


def _x(across: Scale, value: float) -> float:
    return _LEFT + across.place(value) * (_WIDTH - _LEFT - _RIGHT)


def _y(upright: Scale, value: float, top: float) -> float:
    return top + (1 - upright.place(value)) * _LANE
