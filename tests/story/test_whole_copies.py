"""The last whole copy of a run stays for what another target would keep, had its own copy not been found broken."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backupd.config import RetentionConfig, TargetRetentionConfig
from backupd.operations.upkeep.prune import Pruning, prune
from backupd.operations.upkeep.reappeared_backups import GONE
from tests.fakes.target import MemoryTarget
from tests.story.test_prune import JOB, NOW, Site

BOTH_ORDERS = pytest.mark.parametrize("order", [("here", "there"), ("there", "here")], ids=" ".join)
Told = dict[tuple[str, str], tuple[bool, str]]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Four nights on both targets; one of `here`'s objects of the first is lost, and a verification has said so."""
    site = Site(tmp_path)
    with site.catalogue:
        site.nights(4)
        lost(site, "r1")
        yield site


def lost(site: Site, run_id: str) -> None:
    del site.here.stored["nightly", run_id, "data-1.tar.zst"]
    site.catalogue.found_broken(run_id, "here", "data-1.tar.zst is missing")


def kept(there: int, *, here: int) -> RetentionConfig:
    return RetentionConfig(keep_last=there, targets={"here": TargetRetentionConfig(keep_last=here)})


def pruned(
    site: Site,
    order: tuple[str, ...],
    retention: RetentionConfig,
    *,
    names: tuple[str, ...] | None = None,
    configured: tuple[str, ...] = ("here", "there"),
    dry_run: bool = False,
) -> Pruning:
    """In this order; the job names all of these targets where nothing else is said."""
    job = replace(JOB, targets=names or order, retention=retention)
    targets = [{"here": site.here, "there": site.there}[name] for name in order]
    return prune(
        *(job, targets, site.catalogue),
        ownership=site.ownership,
        configured=configured,
        dry_run=dry_run,
        now=NOW,
    )


def told(pruning: Pruning) -> Told:
    pruning.require_complete()
    return {
        (fate.target, fate.decision.backup_id): (fate.decision.keep, fate.decision.reason) for fate in pruning.fates
    }


def pruned_as_told(site: Site, order: tuple[str, ...], retention: RetentionConfig) -> Told:
    """What a dry run says is what a pruning does."""
    planned = told(pruned(site, order, retention, dry_run=True))
    assert told(pruned(site, order, retention)) == planned
    return planned


@BOTH_ORDERS
def test_it_stays_after_the_broken_one_has_gone(site: Site, order: tuple[str, ...]) -> None:
    for _ in range(3):
        fates = pruned_as_told(site, order, kept(2, here=30))
        assert fates["there", "r1"] == (True, "only complete copy: broken on here")
    assert site.removed(site.here) == {
        "r1": "expired: broken (data-1.tar.zst is missing), and there is a newer good one"
    }
    assert (site.on(site.here), site.on(site.there)) == ({"r2", "r3", "r4"}, {"r1", "r3", "r4"})


@BOTH_ORDERS
def test_it_goes_once_the_rule_there_would_not_keep_that_one_either(site: Site, order: tuple[str, ...]) -> None:
    retention = kept(1, here=4)
    pruned_as_told(site, order, retention)
    assert site.on(site.there) == {"r1", "r4"}
    site.back_up("r5", NOW - timedelta(hours=2))
    pruned_as_told(site, order, retention)
    pruned_as_told(site, order, retention)
    assert (site.on(site.here), site.on(site.there)) == ({"r2", "r3", "r4", "r5"}, {"r5"})


@BOTH_ORDERS
def test_it_goes_by_its_own_rule_where_none_of_the_two_wants_the_run(site: Site, order: tuple[str, ...]) -> None:
    for _ in range(2):  # what is there broken and has not gone yet keeps it once more
        pruned_as_told(site, order, kept(2, here=2))
    assert (site.on(site.here), site.on(site.there)) == ({"r3", "r4"}, {"r3", "r4"})


@BOTH_ORDERS
@pytest.mark.parametrize("is_there", [True, False], ids=["also there", "only here"])
def test_of_all_that_were_lost_those_stay_that_the_rule_would_have_kept_had_none_been(
    site: Site, order: tuple[str, ...], *, is_there: bool
) -> None:
    """They take one another's places in a calendar, also where the other target has never had the one that counts."""
    lost(site, "r2")
    if not is_there:
        site.there.remove("nightly", "r2")
        site.catalogue.removed("r2", "there", because="expired: not among the last 1")
    retention = RetentionConfig(keep_last=1, targets={"here": TargetRetentionConfig(keep_last=1, daily=3)})
    for _ in range(2):
        pruned_as_told(site, order, retention)
    assert (site.on(site.here), site.on(site.there)) == ({"r3", "r4"}, {"r2", "r4"} if is_there else {"r4"})


@BOTH_ORDERS
def test_one_that_this_pruning_sees_to_be_incomplete_is_no_whole_one(site: Site, order: tuple[str, ...]) -> None:
    """Nobody has verified `here`'s newest; it was away for a night."""
    site.back_up("r5", NOW - timedelta(hours=5), on=(site.there,))
    site.back_up("r6", NOW - timedelta(hours=4), on=(site.there,))
    del site.here.stored["nightly", "r4", "data-1.tar.zst"]
    fates = pruned_as_told(site, order, kept(2, here=2))
    assert fates["there", "r4"] == (True, "only complete copy: uncertain on here")
    assert site.on(site.there) >= {"r4", "r5", "r6"}


def take_away(site: Site, run_id: str) -> None:
    """Somebody has, and nobody has looked since."""
    for name in [name for name in site.here.stored if name[1] == run_id]:
        del site.here.stored[name]


@BOTH_ORDERS
def test_one_that_somebody_took_away_was_not_given_up(site: Site, order: tuple[str, ...]) -> None:
    take_away(site, "r2")
    for _ in range(2):
        fates = pruned_as_told(site, order, kept(1, here=3))
        assert fates["there", "r2"] == (True, "only complete copy: lost on here")
    site.back_up("r5", NOW - timedelta(hours=2))
    pruned_as_told(site, order, kept(1, here=3))
    assert (site.on(site.here), site.on(site.there)) == ({"r3", "r4", "r5"}, {"r5"})


@BOTH_ORDERS
def test_one_that_is_there_again_counts_as_before(site: Site, order: tuple[str, ...]) -> None:
    disk = {name: content for name, content in site.here.stored.items() if name[1] == "r2"}
    take_away(site, "r2")
    pruned_as_told(site, order, kept(1, here=3))
    site.here.stored.update(disk)
    pruned_as_told(site, order, kept(1, here=3))
    assert (site.on(site.here), site.on(site.there)) == ({"r2", "r3", "r4"}, {"r4"})


@BOTH_ORDERS
def test_a_target_without_a_rule_counts_while_what_is_broken_is_there(site: Site, order: tuple[str, ...]) -> None:
    """Whoever has removed it by hand, as the hint of `copy` says, has given it up."""
    for _ in range(2):
        fates = told(pruned(site, order, RetentionConfig(keep_last=2), names=("there",)))
        assert fates["there", "r1"] == (True, "only complete copy: broken on here")
    site.catalogue.removed("r1", "here", because=GONE)
    pruned(site, order, RetentionConfig(keep_last=2), names=("there",))
    assert (site.on(site.here), site.on(site.there)) == ({"r1", "r2", "r3", "r4"}, {"r3", "r4"})


@BOTH_ORDERS
def test_a_target_that_only_copies_go_to_counts_where_the_job_says_what_it_keeps(
    site: Site, order: tuple[str, ...]
) -> None:
    """Whether what was there was broken, or was taken away without a word."""
    retention = kept(2, here=30)
    site.catalogue.removed("r1", "here", because=GONE)
    take_away(site, "r1")
    take_away(site, "r2")
    for _ in range(2):
        pruned(site, order, retention, names=("there",))
    assert (site.on(site.here), site.on(site.there)) == ({"r3", "r4"}, {"r1", "r2", "r3", "r4"})


@pytest.fixture
def third(tmp_path: Path) -> Iterator[tuple[Site, MemoryTarget]]:
    """As above, on three targets."""
    site, third = Site(tmp_path / "three"), MemoryTarget("third")
    with site.catalogue:
        site.ownership.take(third)
        site.back_up("r1", NOW - timedelta(days=4), on=(site.here, site.there, third))
        for number in (2, 3, 4):
            site.back_up(f"r{number}", NOW - timedelta(days=5 - number), on=(site.here, site.there, third))
        lost(site, "r1")
        yield site, third


@BOTH_ORDERS
def test_of_two_whole_ones_that_no_rule_keeps_one_stays(
    third: tuple[Site, MemoryTarget], order: tuple[str, ...]
) -> None:
    site, target = third
    job = replace(JOB, targets=(*order, "third"), retention=kept(2, here=30))
    targets = [*[{"here": site.here, "there": site.there}[name] for name in order], target]
    for _ in range(2):
        planned, done = (
            told(prune(job, targets, site.catalogue, ownership=site.ownership, dry_run=dry, now=NOW))
            for dry in (True, False)
        )
        assert planned == done
    assert (site.on(site.there), site.on(target)) == ({"r3", "r4"}, {"r1", "r3", "r4"})


def test_one_that_is_being_removed_counts_as_gone(third: tuple[Site, MemoryTarget]) -> None:
    """It may be half gone: a store that was away has left the rest to the next pruning."""
    site, target = third
    site.catalogue.removing("r1", target.name, because="expired: not among the last 2")
    fates = pruned_as_told(site, ("there", "here"), kept(2, here=30))
    assert fates["there", "r1"] == (True, "only complete copy: broken on here")
    assert "r1" in site.on(site.there)


def former(site: Site, order: tuple[str, ...], *, configured: tuple[str, ...]) -> list[Told]:
    """`here` has left the job, whose last rule there was to keep four; what a dry run says, and two prunings do."""
    fates = []
    for dry_run in (True, False, False):
        done = pruned(
            *(site, order, RetentionConfig(keep_last=2)),
            names=("there",),
            configured=configured,
            dry_run=dry_run,
        )
        fates.append(told(done))
    return fates


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Site]:
    """As the first one, but `here` has had a rule before its copy was found broken."""
    site = Site(tmp_path / "left")
    with site.catalogue:
        site.nights(4)
        pruned(site, ("here", "there"), kept(4, here=4))
        lost(site, "r1")
        yield site


@BOTH_ORDERS
def test_a_target_that_has_left_the_job_counts_while_it_can_be_restored_from(
    left: Site, order: tuple[str, ...]
) -> None:
    planned, first, second = former(left, order, configured=("here", "there"))
    assert planned == first
    assert first["there", "r1"] == second["there", "r1"]
    assert second["there", "r1"] == (True, "only complete copy: broken on here")
    assert (left.on(left.here), left.on(left.there)) == ({"r2", "r3", "r4"}, {"r1", "r3", "r4"})


@BOTH_ORDERS
def test_what_is_taken_away_from_a_target_that_has_left_the_job_is_given_up(left: Site, order: tuple[str, ...]) -> None:
    """It is being emptied; see the page about moving. What was broken there was not given up by that."""
    take_away(left, "r1")
    take_away(left, "r2")
    planned, first, _ = former(left, order, configured=("here", "there"))
    assert planned == first
    assert (left.on(left.here), left.on(left.there)) == ({"r3", "r4"}, {"r1", "r3", "r4"})


def test_a_target_that_the_configuration_has_no_more_keeps_no_copy_on_others(left: Site) -> None:
    for _ in range(2):
        pruned(left, ("there",), RetentionConfig(keep_last=2), configured=("there",))
    assert left.on(left.there) == {"r3", "r4"}
