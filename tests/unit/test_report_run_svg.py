"""A run's cost as pictures: well-formed, true to the samples, and none where nothing was measured."""

from xml.etree import ElementTree

import pytest

from backupd.report.run_svg import course_picture, courses
from backupd.vocabulary.penalty import Sample


def sample(at: float, stage: str = "settle", **measured: float) -> Sample:
    return Sample(at, stage, **measured)  # type: ignore[arg-type]


SAMPLES = (
    sample(-3.0, "baseline", ratio=1.0, write_latency_ms=2.0),
    sample(1.0, ratio=3.5, write_latency_ms=7.0, cow_rate=3 << 20),
    sample(9.0, "copy", ratio=1.2, write_latency_ms=2.4, cow_rate=1 << 20),
)


@pytest.mark.parametrize("samples", [(), (sample(1.0),), (sample(1.0, ratio=2.0),)])
def test_less_than_two_figures_make_no_picture(samples: tuple[Sample, ...]) -> None:
    assert courses(samples) == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, 1e300, 0.0])
def test_every_figure_is_drawn_or_left_out(value: float) -> None:
    for course in courses((sample(1.0, ratio=value), sample(2.0, ratio=value), sample(3.0, ratio=1.5))):
        ElementTree.fromstring(course_picture(course))


def test_there_is_a_course_of_each_figure_that_was_measured() -> None:
    penalty, latency, first_writes = courses(SAMPLES, threshold=1.25)
    assert penalty.points == ((-3.0, 1.0), (1.0, 3.5), (9.0, 1.2))
    assert (penalty.level, penalty.copying_since) == (1.25, 9.0)
    assert latency.points == ((-3.0, 2.0), (1.0, 7.0), (9.0, 2.4))
    assert first_writes.points == ((1.0, 3.0), (9.0, 1.0))


def test_without_a_probe_the_latency_is_what_there_is() -> None:
    found = courses(tuple(sample(at, write_latency_ms=at) for at in (1.0, 2.0)))
    assert [course.title for course in found] == ["Write latency of the volume"]


def test_a_picture_says_in_words_what_it_shows_and_when_the_copy_began() -> None:
    drawn = course_picture(courses(SAMPLES, threshold=1.25)[0])
    texts = "".join(ElementTree.fromstring(drawn).itertext())
    for words in ("1.00x after -3 s, 1.20x after 9 s", "the copy started", "settled: 1.25x or less"):
        assert words in texts
    assert "style=" not in drawn
