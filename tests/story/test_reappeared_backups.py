"""A disk that was not mounted, or is one of several in turn: what was on it counts again as soon as it is back."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from backupd.vocabulary.records import Check, Drill
from tests.fakes.target import MemoryTarget
from tests.story.test_prune import NOW, Site


class Disks:
    """Several that are mounted in one place, one at a time."""

    def __init__(self, target: MemoryTarget) -> None:
        self.target = target
        self.away: dict[str, tuple[object, ...]] = {}

    def swap(self, out: str, into: str) -> None:
        """This one is taken away, and that one is there; an empty one, if it never was."""
        target = self.target
        self.away[out] = (target.stored, target.at, target.records)
        target.stored, target.at, target.records = self.away.pop(into, ({}, {}, {}))  # type: ignore[assignment]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.catalogue:
        yield site


def while_not_mounted(site: Site) -> Disks:
    """Three nights' backups, of which the first was proven and the second found broken; the fourth is on no disk."""
    site.nights(3)
    drill = Drill("r1", ok=True, checks=(Check("t", True, "1", "1"),), seconds=1.0, at=NOW - timedelta(days=2))
    site.catalogue.record_drill(drill)
    site.catalogue.found_broken("r2", "here", "frame 7 differs")
    disks = Disks(site.here)
    disks.swap("disk", "mount point")
    site.ownership.take(site.here)
    site.back_up("r4", NOW - timedelta(hours=9), on=(site.here,))
    assert set(site.prune().vanished) == {("here", "r1"), ("here", "r2"), ("here", "r3")}
    return disks


def test_what_was_on_a_disk_that_was_not_mounted_counts_again_when_it_is_back(site: Site) -> None:
    while_not_mounted(site).swap("mount point", "disk")
    site.prune(dry_run=True)
    assert set(site.removed(site.here)) == {"r1", "r2", "r3"}, "a dry run changes nothing"
    done = site.prune()
    fates = {fate.decision.backup_id: fate.decision.reason for fate in done.fates if fate.target == "here"}
    assert fates["r3"] == "last good one, last 1 of 2"
    assert fates["r1"] == "last proven one, last 2 of 2"
    assert fates["r2"].startswith("found broken (frame 7 differs)"), "what was found of it is known as before"
    assert site.removed(site.here) == {"r4": "no longer on the target"}


def test_a_dry_run_says_of_what_is_there_again_what_would_become_of_it(site: Site) -> None:
    while_not_mounted(site).swap("mount point", "disk")
    planned, done = site.prune(dry_run=True), site.prune()
    assert planned.failures == done.failures == ()
    said, became = ([fate.decision for fate in one.fates if fate.target == "here"] for one in (planned, done))
    assert said == became


def test_disks_in_turn_each_keep_what_the_rule_says(site: Site) -> None:
    disks = Disks(site.here)
    for week in range(8):
        site.ownership.take(site.here)
        site.back_up(f"r{week}", NOW - timedelta(weeks=8 - week), on=(site.here,))
        site.prune()
        disks.swap(*(("odd", "even") if week % 2 else ("even", "odd")))
    assert site.on(site.here) == {"r4", "r6"}


def without_an_object(site: Site) -> None:
    del site.here.stored["nightly", "r3", "data-1.tar.zst"]


def another_manifest(site: Site) -> None:
    site.here.stored["nightly", "r3", "manifest.json"] = b"{}"


@pytest.mark.parametrize("spoilt", [without_an_object, another_manifest])
def test_what_is_not_seen_to_be_as_recorded_stays_and_counts_for_nothing(
    site: Site, spoilt: Callable[[Site], None]
) -> None:
    while_not_mounted(site).swap("mount point", "disk")
    spoilt(site)
    fates = {fate.decision.backup_id: fate.decision for fate in site.prune().fates if fate.target == "here"}
    assert (fates["r3"].keep, "`backupd catalogue rebuild --target here`" in fates["r3"].reason) == (True, True)
    assert "r3" in site.removed(site.here)


def test_what_retention_had_removed_and_somebody_fetched_back_is_left_to_a_person(site: Site) -> None:
    site.nights(4)
    kept = {key: content for key, content in site.here.stored.items() if key[1] == "r1"}
    at = {key: when for key, when in site.here.at.items() if key[1] == "r1"}
    site.prune()
    site.here.stored |= kept
    site.here.at |= at
    fates = {fate.decision.backup_id: fate.decision for fate in site.prune().fates if fate.target == "here"}
    assert fates["r1"].keep
    assert fates["r1"].reason.startswith("found again, although removed (expired: not among the last 2)")
