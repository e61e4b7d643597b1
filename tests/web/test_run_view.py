"""What the page of a run says, whatever became of the run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.host.live_progress import LiveRuns, Progress
from backupd.service.machine_view import own_eyes
from backupd.service.site import Site
from backupd.service.web.run_view import RunView, run_view
from backupd.vocabulary.records import Phase, RunStatus
from backupd.vocabulary.servers import Position
from tests.web.sample import ATTENTION, GOOD, LIVE, NOW, end, sample_site


@pytest.fixture
def site(path_in_memory: Path) -> Iterator[Site]:
    """Some nights, and a run that is copying."""
    with sample_site(path_in_memory, nights=4) as made:
        yield made


def view_of(site: Site, run_id: str) -> RunView:
    return run_view(site, own_eyes(site.configuration), site.catalogue.run(run_id))


def tell(site: Site, progress: Progress) -> None:
    LiveRuns(site.configuration.paths.run).tell(LIVE, progress)


def test_a_live_run_has_its_phase_its_share_and_what_is_left(site: Site) -> None:
    at = NOW.timestamp()
    tell(site, Progress(Phase.COPY, since=at - 100, at=at, done=1 << 30, total=4 << 30))
    getting = view_of(site, LIVE).getting
    assert getting is not None
    assert (getting.words, getting.share) == ("copying", 0.25)
    assert getting.detail.startswith("25%: 1.0 GiB of at most 4.0 GiB, 10.2 MiB/s, about ")


@pytest.mark.parametrize(
    "progress",
    [
        Progress(Phase.COPY, since=1e12, at=0.0, done=5, total=0),
        Progress(Phase.COPY, since=5.0, at=5.0, done=9, total=3),
        Progress(Phase.SETTLE, since=NOW.timestamp() + 99, at=0.0),
    ],
)
def test_figures_that_cannot_be_are_no_reason_to_fail(site: Site, progress: Progress) -> None:
    tell(site, progress)
    getting = view_of(site, LIVE).getting
    assert getting is not None
    assert getting.share is None or 0 <= getting.share <= 1


def test_a_live_run_that_has_told_nothing_is_at_work(site: Site) -> None:
    LiveRuns(site.configuration.paths.run).forget(LIVE)
    view = view_of(site, LIVE)
    assert view.getting is not None
    assert view.getting.words == "in progress"
    assert all(bar.whole for bar in view.bars)


def test_the_phase_that_goes_on_is_in_the_timeline(site: Site) -> None:
    last = view_of(site, LIVE).bars[-1]
    assert (last.words, last.took, last.whole) == ("copy", "3 min 30 s so far", False)


def test_a_run_that_ended_is_not_live_whatever_its_file_says(site: Site) -> None:
    end(site.catalogue, LIVE)
    view = view_of(site, LIVE)
    assert (view.run.status, view.alive, view.getting) == (RunStatus.FAILED, False, None)
    assert all(bar.whole for bar in view.bars)


def test_every_phase_is_seen_and_none_is_drawn_outside(site: Site) -> None:
    bars = view_of(site, GOOD).bars
    assert [bar.words for bar in bars][-2:] == ["release", "verification"]
    assert all(bar.width >= 4 and bar.at >= 0 and bar.at + bar.width <= 1000.2 for bar in bars)


def test_copies_say_what_is_known_of_them(site: Site) -> None:
    site.catalogue.found_broken(GOOD, "offsite", "frame 3 differs")
    site.catalogue.removed(ATTENTION, "vault", because="not kept")
    vault, offsite = view_of(site, GOOD).copies
    assert vault.good
    assert vault.state.startswith("read back and equal, 2026-11-20")
    assert (offsite.good, offsite.state) == (False, "BROKEN: frame 3 differs")
    (removed,) = view_of(site, ATTENTION).copies
    assert removed.state.endswith("UTC: not kept")


def test_the_log_s_end_is_there(site: Site) -> None:
    assert view_of(site, LIVE).log[0].endswith("preflight: begun")
    assert view_of(site, GOOD).log == ()


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (Position("bin.000002"), "in bin.000002; a drill finds the offset"),
        (Position("bin.000002", 4711), "bin.000002:4711"),
    ],
)
def test_a_position_without_offset_is_left_to_a_drill(site: Site, position: Position, words: str) -> None:
    run = replace(site.catalogue.run(GOOD), position=position, derived=False)
    assert dict(run_view(site, own_eyes(site.configuration), run).facts)["Position"] == words
