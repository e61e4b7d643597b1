"""What a run cost, as a picture: how much slower writes were, from before its snapshot until its copy had ended.

Knows: which figures of a sample make a line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.report.lines import Points, measured
from backupd.report.probe_charts import course_svg
from backupd.report.probe_combinations import Series
from backupd.vocabulary.penalty import Sample

_COPY = "copy"  # the stage of a sample
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class RunFigure:
    """One figure over the seconds since the snapshot, as it is drawn by any means."""

    title: str
    name: str  # of the figure, in a word or two
    unit: str
    points: Points
    span: tuple[float, float]  # seconds: the same for all courses of a run
    least: float = 0.0  # must be in sight
    suffix: str = ""  # of the figures beside the axis
    level: float | None = None  # the penalty that counts as settled
    copying_since: float | None = None


def courses(samples: Sequence[Sample], *, threshold: float | None = None) -> tuple[RunFigure, ...]:
    """What was measured, what says most first; nothing where nothing was."""
    began = min((sample.at_seconds for sample in samples if sample.stage == _COPY), default=None)
    at = [sample.at_seconds for sample in samples] or [0.0]
    span = (min(at), max(at))
    found = (
        RunFigure(
            "Write penalty after the snapshot",
            "penalty",
            "baseline ÷ this: above 1 is slower",
            measured(samples, lambda sample: sample.ratio),
            span,
            least=1.0,
            suffix="x",
            level=threshold,
            copying_since=began,
        ),
        RunFigure(
            "Write latency of the volume",
            "latency",
            "milliseconds, average of all writes",
            measured(samples, lambda sample: sample.write_latency_ms),
            span,
            copying_since=began,
        ),
        RunFigure(
            "First writes of the server",
            "first writes",
            "MiB a second that had to be copied to the snapshot first",
            measured(samples, lambda sample: None if sample.cow_rate is None else sample.cow_rate / _MIB),
            span,
            copying_since=began,
        ),
    )
    return tuple(course for course in found if len(course.points) > 1)


def course_picture(course: RunFigure) -> str:
    """The `svg` element; the page must have `svg.style()`."""
    mark = None if course.copying_since is None else (course.copying_since, "the copy started")
    return course_svg(
        [Series("", (course.points,))],
        unit=course.unit,
        span=course.span,
        least=course.least,
        suffix=course.suffix,
        threshold=course.level,
        mark=mark,
        title=course.title,
        alone=False,
    )
