"""A long list is cut into pages without a gap, and a long time is thinned without losing its ends."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest

from backupd.catalogue.details import Filter
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import GOOD, RunKind
from tests.many_runs import NEWEST, catalogue_of

RUNS = 450


@pytest.fixture(scope="module")
def catalogue() -> Iterator[Catalogue]:
    with catalogue_of(RUNS, samples_per_run=5) as path, Catalogue.open(path) as opened:
        yield opened


@pytest.mark.thorough
@pytest.mark.parametrize("wanted", [Filter(), Filter("shop"), Filter(statuses=GOOD), Filter("gone")])
@pytest.mark.parametrize("limit", [1, 7, 450, 1000])
def test_pages_follow_one_another_without_a_gap(catalogue: Catalogue, wanted: Filter, limit: int) -> None:
    whole = [cost.run_id for cost in catalogue.costs_page(wanted, limit=RUNS)]
    whole = whole[: 20 * limit]

    seen: list[str] = []
    while len(seen) < len(whole):
        page = catalogue.costs_page(wanted, before=seen[-1] if seen else None, limit=limit)
        assert page
        seen += [cost.run_id for cost in page]

    assert seen == whole
    assert (whole == []) == (wanted.job == "gone")


def test_a_page_has_probes_and_benches_only_where_they_are_wanted(catalogue: Catalogue) -> None:
    everything = catalogue.costs_page(Filter(), limit=RUNS)
    backups = catalogue.costs_page(Filter(), kind=RunKind.BACKUP, limit=RUNS)

    assert {cost.kind for cost in everything} == set(RunKind)
    assert backups == [cost for cost in everything if cost.kind is RunKind.BACKUP]


def test_there_is_no_page_after_a_run_that_is_unknown(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="no run nowhere to continue after"):
        catalogue.costs_page(Filter(), before="nowhere")


def test_few_runs_are_all_told(catalogue: Catalogue) -> None:
    week = Filter("shop", since=NEWEST - timedelta(days=1))

    assert catalogue.costs_over_time(week, points=300) == catalogue.costs_page(week, kind=RunKind.BACKUP, limit=300)


@pytest.mark.parametrize("points", [2, 3, 50])
def test_many_runs_are_thinned_evenly_and_keep_their_ends(catalogue: Catalogue, points: int) -> None:
    every = catalogue.costs_page(Filter("shop", statuses=GOOD), kind=RunKind.BACKUP, limit=RUNS)
    assert len(every) > 50

    thinned = catalogue.costs_over_time(Filter("shop", statuses=GOOD), points=points)

    assert len(thinned) <= points
    assert (thinned[0], thinned[-1]) == (every[0], every[-1])
    assert {cost.run_id for cost in thinned} <= {cost.run_id for cost in every}
    step = (every[0].started_at - every[-1].started_at) / (points - 1)
    gaps = [newer.started_at - older.started_at for newer, older in pairwise(thinned)]
    assert max(gaps) <= 1.5 * step + timedelta(hours=3)
