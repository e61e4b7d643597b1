"""Retention of one target, and of targets that a job no longer names: by the last rule they had, or not at all."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backupd.config import RetentionConfig, TargetRetentionConfig
from backupd.operations.upkeep.former_targets import former_targets
from backupd.operations.upkeep.prune import Pruning, prune
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.storage import Backup
from tests.fakes.target import MemoryTarget
from tests.story.test_prune import JOB, NOW, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.catalogue:
        site.nights(5)
        yield site


def kept(keep_last: int, *, there: int | None = None) -> RetentionConfig:
    own = {} if there is None else {"there": TargetRetentionConfig(keep_last=there)}
    return RetentionConfig(keep_last=keep_last, targets=own)


def pruned(site: Site, retention: RetentionConfig, *names: str, dry_run: bool = False) -> Pruning:
    """Both targets, of which the job names these."""
    job = replace(JOB, targets=names, retention=retention)
    targets = (site.here, site.there)
    return prune(job, targets, site.catalogue, ownership=site.ownership, now=NOW, dry_run=dry_run)


def test_a_target_has_its_own_rule(site: Site) -> None:
    pruned(site, kept(1, there=3), "here", "there").require_complete()
    assert (site.on(site.here), site.on(site.there)) == ({"r5"}, {"r3", "r4", "r5"})


def test_one_that_is_no_longer_named_keeps_the_last_rule_it_had(site: Site) -> None:
    pruned(site, kept(2, there=4), "here", "there")
    done = pruned(site, kept(1), "here")
    assert (site.on(site.here), site.on(site.there)) == ({"r5"}, {"r2", "r3", "r4", "r5"})
    assert {fate.target for fate in done.fates} == {"here", "there"}
    job = replace(JOB, targets=("here",))
    assert former_targets(job, site.catalogue) == {"there": 4}


def test_what_was_stored_by_the_old_name_of_a_target_is_removed_by_that_name(site: Site) -> None:
    pruned(site, kept(5), "here", "there")
    renamed = MemoryTarget("renamed", stored=site.there.stored, at=site.there.at, records=site.there.records)
    job = replace(JOB, targets=("here", "renamed"), retention=kept(5, there=3))
    targets = (site.here, renamed, site.there)
    prune(job, targets, site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    assert site.on(site.there) == {"r3", "r4", "r5"}


def test_a_rule_that_somebody_writes_for_it_counts_more(site: Site) -> None:
    pruned(site, kept(4), "here", "there")
    pruned(site, kept(4, there=2), "here")
    assert (len(site.on(site.here)), site.on(site.there)) == (4, {"r4", "r5"})


def test_a_dry_run_goes_by_it_and_remembers_nothing(site: Site) -> None:
    pruned(site, kept(2, there=1), "here", "there", dry_run=True)
    assert site.catalogue.last_rule("nightly", "there") is None
    assert len(site.on(site.there)) == 5


def test_what_was_copied_a_moment_after_its_run_pushes_out_no_later_run(site: Site) -> None:
    """By the storage's clock the older of the two is the newer one, and both clocks seem to agree."""
    for run_id, minutes in (("old", 3), ("new", 2)):
        site.back_up(run_id, NOW - timedelta(minutes=minutes), on=(site.here,))
    for run_id, seconds in (("new", 20), ("old", 10)):
        site.store(site.there, run_id, NOW - timedelta(seconds=seconds))
        holding = Holding(HoldingKind.PARTIAL, f"there/nightly/{run_id}")
        backup = Backup("there", f"there/{run_id}", 10, 5, 1, "b" * 64)
        site.catalogue.copied(run_id, backup, holding, source="here")
    pruned(site, kept(1), "here", "there").require_complete()
    assert site.on(site.there) == {"old", "new"}


def test_where_no_rule_was_ever_set_nothing_is_removed(site: Site) -> None:
    done = pruned(site, kept(1), "here")
    assert (site.on(site.here), len(site.on(site.there))) == ({"r5"}, 5)
    assert "there" not in {fate.target for fate in done.fates}
