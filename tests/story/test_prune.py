"""Carrying out retention: what goes, what stays, and what a target in trouble does to the others."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, RetentionConfig
from backupd.host.claims import Claims
from backupd.operations.ownership import Ownership, ownership_of
from backupd.operations.upkeep.prune import Pruning, after_run, prune
from backupd.operations.upkeep.rebuild import rebuild
from backupd.targets.names import proof_name
from backupd.vocabulary.errors import Busy, TargetAway, TargetError
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import Check, Drill, RunDetails, RunStatus
from backupd.vocabulary.storage import Backup, Manifest, StoredBackup
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import BELIEVED, MACHINE, MemoryTarget
from tests.mutations import sealed
from tests.story.world import World

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
CALLS = 19  # of a target in the pruning of four backups, of which two go
JOB = JobConfig(name="nightly", host="db1", targets=("here", "there"), retention=RetentionConfig(keep_last=2))


class Site:
    """A catalogue, two targets, and a job's backups on both: one a night, `r1` the oldest."""

    def __init__(self, base: Path) -> None:
        machine = Machine("db1", {"machine-id": "a1"}, boot_id="first boot")
        self.catalogue = Catalogue.open(base / "catalogue.db", machine=lambda: machine)
        self.claims = Claims(base / "run")
        self.ownership = Ownership(self.catalogue, machine, self.claims, renewal_seconds=60, clock=lambda: self.clock)
        self.clock = 0.0  # seconds since the boot
        self.here, self.there = MemoryTarget("here"), MemoryTarget("there")
        for target in (self.here, self.there):
            self.ownership.take(target)
        self.clock = 1000.0  # nobody else has written for long

    def back_up(
        self, run_id: str, at: datetime, *, on: tuple[MemoryTarget, ...] = (), began: datetime | None = None
    ) -> None:
        targets = on or (self.here, self.there)
        for target in targets:
            self.store(target, run_id, at)
        backups = tuple(Backup(target.name, f"{target.name}/{run_id}", 10, 5, 1, "b" * 64) for target in targets)
        run = RunDetails(run_id, "nightly", "db1", MACHINE, RunStatus.SUCCESS, began or at, ended_at=at)
        self.catalogue.import_run(replace(run, backups=backups))

    def store(self, target: MemoryTarget, run_id: str, at: datetime, *, finished: bool = True) -> None:
        target.now = at
        with target.writing("nightly", run_id, "data-1.tar.zst") as writer:
            writer.write(b"12345")
        if finished:
            target.publish(replace(MANIFEST, run_id=run_id))

    def nights(self, count: int) -> None:
        for number in range(count, 0, -1):
            self.back_up(f"r{count - number + 1}", NOW - timedelta(days=number))

    def prune(self, *, dry_run: bool = False) -> Pruning:
        targets = (self.here, self.there)
        return prune(JOB, targets, self.catalogue, ownership=self.ownership, dry_run=dry_run, now=NOW)

    def on(self, target: MemoryTarget) -> set[str]:
        return {one.backup_id for one in target.backups("nightly")}

    def removed(self, target: MemoryTarget) -> dict[str, str]:
        """By the catalogue: run and reason."""
        return {
            run.run_id: backup.removed_because
            for run in self.catalogue.runs(limit=None)
            for backup in run.backups
            if backup.target == target.name and backup.removed_at is not None
        }


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.catalogue:
        yield site


def denying(target: MemoryTarget, *run_ids: str) -> None:
    """As a store with Object Lock does."""
    remove = target.remove

    def denied(job: str, backup_id: str) -> None:
        if backup_id in run_ids:
            raise TargetError(f"{backup_id} is locked until next year", hint="wait")
        remove(job, backup_id)

    target.remove = denied  # type: ignore[method-assign]


def unlisted(target: MemoryTarget, run_id: str, error: TargetError, *, from_look: int = 1) -> None:
    """As a folder that its disk cannot read any more."""
    looks, listed = 0, target.objects

    def fails(job: str, backup_id: str) -> Mapping[str, int]:
        nonlocal looks
        looks += backup_id == run_id
        if backup_id == run_id and looks >= from_look:
            raise error
        return listed(job, backup_id)

    target.objects = fails  # type: ignore[method-assign]


def unreadable(target: MemoryTarget) -> None:
    def fails(job: str | None = None) -> list[object]:
        raise TargetError("connection refused", hint="is the server up?")

    target.backups = fails  # type: ignore[assignment,method-assign]


# --- what goes and what stays ----------------------------------------------------------------------------------------


def test_what_retention_gives_up_is_gone_from_every_target_and_its_row_says_why(site: Site) -> None:
    site.nights(4)
    done = site.prune()
    assert site.on(site.here) == site.on(site.there) == {"r3", "r4"}
    expired = {"r1": "expired: not among the last 2", "r2": "expired: not among the last 2"}
    assert site.removed(site.here) == site.removed(site.there) == expired
    assert [(fate.target, fate.decision.backup_id) for fate in done.removed] == [
        ("here", "r2"), ("here", "r1"), ("there", "r2"), ("there", "r1")
    ]  # fmt: skip
    assert {fate.bytes_stored for fate in done.fates} == {5}
    done.require_complete()
    assert [run.run_id for run in site.catalogue.runs()] == ["r4", "r3", "r2", "r1"]
    assert site.catalogue.audit_trail().chain.first_fault is None


def test_pruning_again_removes_nothing_more(site: Site) -> None:
    site.nights(4)
    site.prune()
    again = site.prune()
    assert (again.removed, again.vanished, again.failures) == ((), (), ())
    assert site.on(site.here) == {"r3", "r4"}


def test_a_dry_run_says_the_same_and_touches_nothing(site: Site) -> None:
    site.nights(4)
    site.store(site.here, "stray", NOW - timedelta(days=3), finished=False)
    site.here.remove("nightly", "r3")
    before = (dict(site.here.stored), dict(site.there.stored), site.catalogue.runs(), site.catalogue.audit_head())
    planned = site.prune(dry_run=True)
    assert planned.removed == ()
    assert planned.vanished == (("here", "r3"),)
    assert (site.here.stored, site.there.stored, site.catalogue.runs(), site.catalogue.audit_head()) == before
    done = site.prune()
    assert [fate.decision for fate in planned.fates] == [fate.decision for fate in done.fates]


def test_a_pin_a_proof_and_what_is_broken_count_for_the_run_wherever_it_lies(site: Site) -> None:
    site.nights(6)
    site.catalogue.pin("r1", "before the merger")
    site.catalogue.record_drill(Drill("r2", ok=True, checks=(Check("t", True, "1", "1"),), seconds=1.0, at=NOW))
    site.catalogue.found_broken("r6", "here", "frame 7 differs")
    site.prune()
    assert site.on(site.here) == {"r1", "r2", "r4", "r5", "r6"}
    assert site.on(site.there) == {"r1", "r2", "r5", "r6"}


def test_the_only_whole_copy_of_a_run_is_not_removed_while_the_others_are_broken(site: Site) -> None:
    site.nights(2)
    site.back_up("r3", NOW - timedelta(hours=9), on=(site.here,))
    site.back_up("r4", NOW - timedelta(hours=8), on=(site.here,))
    site.catalogue.found_broken("r2", "there", "frame 7 differs")
    site.prune()
    assert site.on(site.here) == {"r2", "r3", "r4"}
    assert site.on(site.there) == {"r1", "r2"}
    site.catalogue.verified("r2", "there", NOW)
    site.prune()
    assert site.on(site.here) == {"r3", "r4"}


@pytest.mark.parametrize("content", [None, b"1234"], ids=["missing", "shorter"])
def test_nothing_goes_before_the_target_has_listed_all_of_the_last_good_one(site: Site, content: bytes | None) -> None:
    """Somebody made room by hand: the manifests of the newest two are there, and little else."""
    site.nights(4)
    for run_id in ("r3", "r4"):
        del site.here.stored["nightly", run_id, "data-1.tar.zst"]
        if content is not None:
            site.here.stored["nightly", run_id, "data-1.tar.zst"] = content
    planned = site.prune(dry_run=True)
    assert {run.run_id for run in site.catalogue.runs() for one in run.backups if one.broken} == set()
    site.prune()
    assert site.on(site.here) == {"r1", "r2", "r3", "r4"}
    assert site.on(site.there) == {"r3", "r4"}
    assert all(fate.decision.keep for fate in planned.fates if fate.target == "here")
    assert site.catalogue.run("r4").backups[0].broken == "", "a listing may lie: only reading tells"


def test_one_lying_listing_costs_no_backup(site: Site) -> None:
    site.nights(4)
    hidden = {run_id: site.here.stored.pop(("nightly", run_id, "data-1.tar.zst")) for run_id in ("r3", "r4")}
    fates = {fate.decision.backup_id: fate.decision for fate in site.prune().fates if fate.target == "here"}
    assert "does not list what was stored: data-1.tar.zst is missing: `backupd verify` checks" in fates["r4"].reason
    for run_id, content in hidden.items():
        site.here.stored["nightly", run_id, "data-1.tar.zst"] = content
    site.back_up("r5", NOW)
    site.prune()
    assert site.on(site.here) == {"r4", "r5"}


def test_one_manifest_that_comes_damaged_costs_no_backup(site: Site) -> None:
    site.nights(4)
    manifest = site.here.stored["nightly", "r4", "manifest.json"]
    site.here.stored["nightly", "r4", "manifest.json"] = b"<html>502 Bad Gateway</html>"
    fates = {fate.decision.backup_id: fate.decision for fate in site.prune().fates if fate.target == "here"}
    assert "`backupd verify` checks whether it is lost" in fates["r4"].reason
    assert {one.broken for run in site.catalogue.runs() for one in run.backups} == {""}
    site.here.stored["nightly", "r4", "manifest.json"] = manifest
    site.back_up("r5", NOW)
    site.prune()
    assert site.on(site.here) == {"r4", "r5"}


def test_what_was_found_broken_and_looks_whole_stays_for_as_long_as_if_it_were(site: Site) -> None:
    """And counts for nothing: it pushes out no other."""
    site.nights(4)
    site.catalogue.found_broken("r3", "here", "frame 7 differs")
    planned = site.prune(dry_run=True)
    done = site.prune()
    assert site.on(site.here) == {"r2", "r3", "r4"}
    (fate,) = (one for one in done.fates if (one.target, one.decision.backup_id) == ("here", "r3"))
    assert "found broken (frame 7 differs), but it looks complete now: `backupd verify`" in fate.decision.reason
    assert [one.decision for one in planned.fates] == [one.decision for one in done.fates]
    site.back_up("r5", NOW)
    site.prune()
    assert site.on(site.here) == {"r4", "r5"}


def test_gutted_backups_that_a_rebuild_entered_count_for_nothing_and_go_with_the_next_good_one(site: Site) -> None:
    site.nights(3)
    for run_id, hours in (("x1", 30), ("x2", 1)):
        site.store(site.here, run_id, NOW - timedelta(hours=hours))
        del site.here.stored["nightly", run_id, "data-1.tar.zst"]
    assert [run_id for run_id, _ in rebuild(site.here, site.catalogue, BELIEVED).failures][-2:] == ["x1", "x2"]
    site.prune()
    assert site.on(site.here) == {"r2", "r3", "x1", "x2"}
    site.back_up("r4", NOW)
    site.prune()
    assert site.on(site.here) == {"r3", "r4"}
    assert all("data-1.tar.zst is missing" in site.removed(site.here)[run_id] for run_id in ("x1", "x2"))


def test_what_was_found_broken_and_looks_so_goes_once_there_is_a_newer_good_one(site: Site) -> None:
    site.nights(4)
    site.catalogue.found_broken("r3", "here", "data-1.tar.zst is missing")
    del site.here.stored["nightly", "r3", "data-1.tar.zst"]
    site.prune()
    assert site.on(site.here) == {"r2", "r4"}
    assert site.removed(site.here)["r3"].startswith("expired: broken (data-1.tar.zst is missing)")


def test_a_backup_that_this_backupd_cannot_understand_stays_and_counts_for_nothing(site: Site) -> None:
    site.nights(4)
    manifest = json.loads(site.here.stored["nightly", "r4", "manifest.json"])
    site.here.stored["nightly", "r4", "manifest.json"] = sealed({**manifest, "schema": 2})
    site.prune()
    assert site.on(site.here) == {"r2", "r3", "r4"}
    assert site.catalogue.run("r4").backups[0].broken == ""


def test_a_backup_whose_last_drill_failed_is_not_the_only_proven_one_that_stays(site: Site) -> None:
    site.nights(6)
    for run_id, ok, days in (("r1", True, 5), ("r2", True, 4), ("r2", False, 1)):
        check = Check("t", ok, "1", "1" if ok else "2")
        site.catalogue.record_drill(Drill(run_id, ok, (check,), seconds=1.0, at=NOW - timedelta(days=days)))
    site.prune()
    assert site.on(site.here) == {"r1", "r2", "r5", "r6"}


def test_a_clock_that_is_wrong_gives_up_nothing_alone(site: Site) -> None:
    """By the host's clock `r4` is the newest everywhere."""
    site.nights(4)
    for target, run_id, days in ((site.here, "r1", 0), (site.there, "r4", 1000)):
        at = NOW - timedelta(days=days)
        target.at = {key: at if key[1] == run_id else known for key, known in target.at.items()}
    site.prune()
    assert site.on(site.here) == {"r1", "r3", "r4"}
    assert site.on(site.there) == {"r2", "r3", "r4"}


def test_a_storage_that_was_copied_without_times_keeps_the_newest_until_newer_ones_come(site: Site) -> None:
    site.nights(6)
    site.here.at = {key: NOW - timedelta(hours=int(key[1][1:])) for key in site.here.at}
    site.prune()
    assert site.on(site.here) == {"r1", "r2", "r5", "r6"}
    for run_id in ("r7", "r8"):
        site.back_up(run_id, NOW)
    site.prune()
    assert site.on(site.here) == {"r7", "r8"}


def test_what_was_taken_while_the_clock_was_set_back_is_newer_than_what_was_there_before(site: Site) -> None:
    """A target on this host has no other clock: only the order in which runs were recorded tells."""
    site.nights(3)
    for number in (1, 2, 3):
        site.back_up(f"back{number}", NOW - timedelta(days=30 - number))
    site.back_up("right again", NOW)
    done = site.prune()
    assert site.on(site.here) == site.on(site.there) == {"right again", "back3", "r3"}
    reasons = {fate.decision.backup_id: fate.decision.reason for fate in done.fates}
    assert reasons["back3"] == "last 2 of 2 (by the order of the runs)"


def test_what_a_clock_that_was_ahead_has_recorded_makes_nothing_newer_that_came_after_it(site: Site) -> None:
    site.back_up("ahead", NOW + timedelta(days=400))
    site.nights(4)
    assert {fate.decision.backup_id for fate in site.prune().removed} == {"r1", "r2"}


@pytest.mark.parametrize("days", [-30, 400])
def test_a_clock_that_was_set_within_a_run_makes_nothing_newer_that_came_after_it(site: Site, days: int) -> None:
    site.back_up("within", NOW + timedelta(days=days), began=NOW - timedelta(days=5))
    site.nights(4)
    assert {"r1", "r2"} <= {fate.decision.backup_id for fate in site.prune().removed}


def test_a_run_over_midnight_is_of_the_day_on_which_the_storage_got_it_and_of_no_other(site: Site) -> None:
    job = replace(JOB, retention=RetentionConfig(keep_last=1, daily=9))
    noon = NOW.astimezone().replace(hour=12) - timedelta(days=3)
    for number, hours in enumerate((1, 11, 13, 24), 1):  # the third one after midnight
        at = noon + timedelta(hours=hours)
        site.back_up(f"r{number}", at, began=at - timedelta(hours=3))
    prune(job, (site.here,), site.catalogue, ownership=site.ownership, now=NOW)
    assert site.on(site.here) == {"r2", "r4"}


# --- what the catalogue and the target do not agree on ---------------------------------------------------------------


def test_what_the_catalogue_does_not_have_is_kept_and_told(site: Site) -> None:
    site.nights(3)
    site.store(site.here, "foreign", NOW - timedelta(days=900))
    done = site.prune()
    assert site.on(site.here) == {"foreign", "r2", "r3"}
    (fate,) = (fate for fate in done.fates if fate.decision.backup_id == "foreign")
    assert fate.decision.keep
    assert "`backupd catalogue rebuild --target here`" in fate.decision.reason


def test_the_row_of_a_backup_that_somebody_else_removed_says_so(site: Site) -> None:
    site.nights(3)
    site.here.remove("nightly", "r3")
    done = site.prune()
    assert done.vanished == (("here", "r3"),)
    assert site.removed(site.here) == {"r3": "no longer on the target"}
    assert site.on(site.here) == {"r1", "r2"}


def test_every_backup_that_somebody_else_removed_is_told_with_the_newest_that_is_left(site: Site) -> None:
    site.nights(5)
    for target in (site.here, site.there):
        for run_id in ("r3", "r4", "r5"):
            target.remove("nightly", run_id)
    site.prune()
    (told,) = (run for run in site.catalogue.runs(limit=None) if run.run_id == "r2")
    lost = {f"backup {run_id} is no longer on the target (there)" for run_id in ("r3", "r4", "r5")}
    assert lost <= set(told.attention)
    assert told.status is RunStatus.ATTENTION


def refused_once_and_pinned(site: Site) -> None:
    """Of the expired backup `r1`, which its target may remove by now."""
    remove = site.here.remove
    denying(site.here, "r1")
    site.prune()
    site.here.remove = remove  # type: ignore[method-assign]
    site.catalogue.pin("r1", "before the merger")


class Forgetful(MemoryTarget):
    """Its listings leave out one backup, so often."""

    times = 0
    leaves_out = "r1"

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        found = super().backups(job)
        if not self.times:
            return found
        self.times -= 1
        return [one for one in found if one.backup_id != self.leaves_out]


@pytest.mark.parametrize("times", [1, 9])
def test_a_listing_that_leaves_out_a_backup_strikes_no_row(site: Site, times: int) -> None:
    """What lies there and is listed only the next time, or is returned without being listed, has not gone."""
    site.nights(4)
    here = Forgetful("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    here.times = times
    done = prune(JOB, (here, site.there), site.catalogue, ownership=site.ownership, now=NOW)
    with pytest.raises(TargetError, match="target here does not list backup r1 reliably"):
        done.require_complete()
    assert (done.vanished, site.removed(site.here)) == ((), {})
    assert (len(site.on(site.here)), site.on(site.there)) == (4, {"r3", "r4"})


class Halving(Forgetful):
    """Its listings tell of one backup without its manifest, so often."""

    denied: TargetError | None = None  # what whoever reads is told

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        listed = {one.backup_id for one in super().backups(job)}
        return [replace(one, finished=one.finished and one.backup_id in listed) for one in self.truth(job)]

    def truth(self, job: str | None) -> Sequence[StoredBackup]:
        return MemoryTarget.backups(self, job)

    @contextmanager
    def reading(self, *which: Any, **part: Any) -> Iterator[Iterator[bytes]]:
        if self.denied is not None:
            raise self.denied
        with super().reading(*which, **part) as chunks:
            yield chunks

    def manifest(self, job: str, backup_id: str) -> Manifest:
        if self.denied is not None:
            raise self.denied
        return super().manifest(job, backup_id)


def halving(site: Site, *, times: int, denied: TargetError | None = None, nights: int = 2) -> Halving:
    """It has what the catalogue knows nothing of, as one that was set back or rebuilt does, beside what it knows."""
    site.nights(nights)
    site.store(site.here, "whole", NOW - timedelta(hours=5))
    here = Halving("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    here.leaves_out, here.times, here.denied = "whole", times, denied
    return here


@pytest.mark.parametrize(
    ("times", "denied"), [(1, None), (9, None), (1, TargetError("permission denied", hint="who may read?"))]
)
def test_a_whole_backup_that_nobody_knows_is_no_left_over_on_the_word_of_a_listing(
    site: Site, times: int, denied: TargetError | None
) -> None:
    """Its manifest is returned by name, or is listed the next time."""
    here = halving(site, times=times, denied=denied)
    done = prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW)
    done.require_complete()
    assert done.removed == ()
    assert {one.backup_id for one in here.truth("nightly") if one.finished} == {"r1", "r2", "whole"}


def test_what_was_fetched_back_is_no_empty_folder_on_the_word_of_a_listing(site: Site) -> None:
    here = halving(site, times=1)
    site.catalogue.removing("r1", "here", because="expired")
    site.catalogue.removed("r1", "here", because="expired")
    here.leaves_out, listed = "r1", here.objects
    here.objects = lambda job, run: {} if run == "r1" else listed(job, run)  # type: ignore[assignment,method-assign]
    done = prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW)
    assert done.removed == ()
    assert {one.backup_id for one in here.truth("nightly") if one.finished} == {"r1", "r2", "whole"}


AWAY = TargetAway("the server does not answer", hint="is it up?")


def test_nothing_is_left_over_on_a_target_that_cannot_be_asked_again(site: Site) -> None:
    here = halving(site, times=9, denied=AWAY)
    done = prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW)
    assert (done.removed, len(here.truth("nightly"))) == ((), 3)
    (fate,) = (fate for fate in done.fates if fate.decision.backup_id == "whole")
    assert fate.decision.reason.startswith("kept for now: ")
    assert fate.decision.reason.endswith("the server does not answer")


def test_a_target_that_is_away_by_the_time_that_a_backup_is_to_go_fails(site: Site) -> None:
    here = halving(site, times=9, denied=AWAY, nights=4)
    done = prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW)
    with pytest.raises(TargetError, match="does not answer"):
        done.require_complete()
    assert (done.removed, len(here.truth("nightly"))) == ((), 5)


def asking_for_left_overs(target: MemoryTarget, answer: Callable[[], None] = lambda: None) -> list[str]:
    """Whose manifest was asked for, of what has none by the listing; the target answers so."""
    asked: list[str] = []
    reading = target.reading

    def reads(job: str, backup_id: str, name: str, **part: Any) -> Any:
        if backup_id.startswith("left"):
            asked.append(backup_id)
            answer()
        return reading(job, backup_id, name, **part)

    target.reading = reads  # type: ignore[method-assign]
    return asked


def test_a_left_over_that_cannot_be_asked_for_keeps_nothing_else(site: Site) -> None:
    site.nights(4)
    for run_id in ("left1", "left2"):
        site.store(site.here, run_id, NOW - timedelta(hours=5), finished=False)

    def fails_once() -> None:
        if asked[-1] == "left1" and asked.count("left1") == 1:
            raise AWAY

    asked = asking_for_left_overs(site.here, fails_once)
    done = site.prune()
    done.require_complete()
    assert site.on(site.here) == {"left1", "r3", "r4"}
    assert site.on(site.there) == {"r3", "r4"}
    kept = {fate.decision.backup_id: fate.decision.reason for fate in done.fates if fate.decision.keep}
    assert kept["left1"].startswith("kept for now: ")
    site.prune()
    assert site.on(site.here) == {"r3", "r4"}


def test_a_left_over_is_asked_for_as_it_is_planned_and_before_it_goes(site: Site) -> None:
    site.nights(4)
    site.store(site.here, "left", NOW - timedelta(hours=5), finished=False)
    asked = asking_for_left_overs(site.here)
    site.prune(dry_run=True)
    assert asked == ["left"]
    site.prune()
    assert asked == ["left"] * 3
    assert site.on(site.here) == {"r3", "r4"}


def test_a_removal_that_was_refused_is_not_finished_on_the_word_of_one_listing(site: Site) -> None:
    """It is pinned by then, and whole: only what has lost its manifest is half of a backup."""
    site.nights(4)
    refused_once_and_pinned(site)
    here = Forgetful("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    here.times = 1
    for _ in range(2):
        prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW)
    assert site.on(site.here) == {"r1", "r3", "r4"}


def test_a_backup_that_is_copied_there_while_it_is_listed_has_not_gone(site: Site) -> None:
    site.nights(3)

    class Slow(MemoryTarget):
        def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
            found = super().backups(job)
            if ("nightly", "copied", "manifest.json") not in self.stored:
                site.back_up("copied", NOW - timedelta(hours=1), on=(site.here,))
            return found

    here = Slow("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    done = prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW)
    done.require_complete()
    assert (done.vanished, "copied" in site.removed(site.here)) == ((), False)
    assert "copied" in site.on(site.here)


@pytest.mark.parametrize("foreign", [(), ("foreign",)])
def test_a_target_on_which_not_one_known_backup_is_left_is_not_believed(site: Site, foreign: tuple[str, ...]) -> None:
    site.nights(3)
    site.here.stored.clear()
    site.here.at.clear()
    for run_id in foreign:
        site.store(site.here, run_id, NOW)
    done = site.prune()
    assert site.removed(site.here) == {}
    assert site.on(site.there) == {"r2", "r3"}
    with pytest.raises(TargetError, match="target here: none of the 3 backups of job nightly") as told:
        done.require_complete()
    assert "mounted" in told.value.hint


# --- left-overs ------------------------------------------------------------------------------------------------------


def test_remains_of_a_run_of_ours_that_has_ended_go_at_once(site: Site) -> None:
    site.nights(1)
    with pytest.raises(TargetError), site.catalogue.open_run("nightly", "db1", run_id="failed"):
        raise TargetError("connection reset")
    site.back_up("half", NOW - timedelta(hours=2), on=(site.there,))
    for run_id in ("failed", "half"):
        site.store(site.here, run_id, NOW - timedelta(hours=2), finished=False)
    done = site.prune()
    assert site.on(site.here) == {"r1"}
    assert site.on(site.there) == {"r1", "half"}
    reasons = {fate.decision.reason for fate in done.removed}
    assert reasons == {"left over: unfinished, and no run is working on it"}


def test_a_proof_that_was_written_as_its_backup_was_removed_goes(site: Site) -> None:
    """A proof host had found the backup there, and the storage was away for a while before it took the proof.

    Of one that somebody else has removed nobody knows why.
    """
    site.nights(4)
    site.here.remove("nightly", "r4")
    site.prune()
    for run_id in ("r1", "r4"):
        key = ("nightly", run_id, proof_name(NOW))
        site.here.stored[key], site.here.at[key] = b"{}", NOW
    (gone,) = site.prune().removed
    assert (gone.decision.backup_id, "when retention had removed the backup" in gone.decision.reason) == ("r1", True)
    assert site.on(site.here) == {"r2", "r3", "r4"}


def test_a_folder_that_could_not_go_with_its_backup_goes_once_nothing_of_others_is_in_it(world: World) -> None:
    """NFS keeps what somebody has open as `.nfs…`; a NAS has a folder of its own in each."""
    job = world.job(retention=RetentionConfig(keep_last=1))
    for run_id in ("r1", "r2"):
        world.back_up(run_id)
    folder = world.backups / "r1"

    def pruned() -> tuple[bool, str]:
        with world.catalogue() as catalogue:
            done = prune(job, (world.target,), catalogue, ownership=ownership_of(catalogue, world.tools))
        (fate,) = (fate for fate in done.fates if fate.decision.backup_id == "r1")
        return fate.removed, fate.decision.reason

    (folder / ".nfs000000000b1").write_bytes(b"held open by a tape backup")
    assert pruned() == (True, "expired: not among the last 1")
    assert pruned() == (False, "the backup was removed; what is left is not backupd's: it has .nfs000000000b1")
    (folder / proof_name(NOW)).write_bytes(b"{}")
    assert pruned()[0]
    assert [path.name for path in folder.iterdir()] == [".nfs000000000b1"]
    (folder / ".nfs000000000b1").unlink()
    assert pruned() == (True, "left over: the empty folder of a backup that was removed")
    assert not folder.exists()


@pytest.mark.parametrize("days", [-10, 0, 10, 900])
def test_remains_that_nobody_knows_go_once_no_other_machine_can_be_at_work_on_them(site: Site, days: int) -> None:
    """Whatever a clock says: the folder is this machine's, and nobody has written there since the boot but it."""
    site.nights(1)
    site.store(site.here, "half", NOW - timedelta(days=days), finished=False)
    site.clock = 119.0
    (fate,) = (fate for fate in site.prune().fates if fate.decision.backup_id == "half")
    assert "kept for now" in fate.decision.reason
    site.clock = 120.0
    site.prune()
    assert site.on(site.here) == {"r1"}


def test_what_a_live_run_has_written_is_no_left_over(site: Site) -> None:
    site.nights(1)
    with site.catalogue.open_run("nightly", "db1", run_id="live") as run:
        with ExitStack() as alive:
            alive.enter_context(site.claims.run("live"))
            site.store(site.here, "live", NOW - timedelta(days=9), finished=False)
            (fate,) = (fate for fate in site.prune(dry_run=True).fates if fate.decision.backup_id == "live")
            assert (fate.decision.keep, fate.decision.reason) == (True, "unfinished: its run is alive")
        (fate,) = (fate for fate in site.prune(dry_run=True).fates if fate.decision.backup_id == "live")
        assert not fate.decision.keep
        run.complete(())


def test_a_backup_whose_manifest_was_taken_away_is_not_swept_at_once(site: Site) -> None:
    site.nights(3)
    del site.here.stored["nightly", "r3", "manifest.json"]
    site.prune()
    site.prune()  # by now its row says that it is gone
    assert "r3" in site.on(site.here)
    assert site.removed(site.here) == {"r3": "no longer on the target"}


@pytest.mark.parametrize("name", ["notes.txt", "data-1.tar", "manifest.json.bak", "2025"])
def test_what_a_person_has_put_beside_the_backups_is_nobodys_left_over(site: Site, name: str) -> None:
    site.nights(1)
    site.store(site.here, "by-hand", NOW - timedelta(days=90), finished=False)
    with site.here.writing("nightly", "by-hand", name) as writer:
        writer.write(b"mine")
    site.here.at = dict.fromkeys(site.here.at, NOW - timedelta(days=90))
    done = site.prune()
    assert "by-hand" in site.on(site.here)
    (fate,) = (fate for fate in done.fates if fate.decision.backup_id == "by-hand")
    assert fate.decision.reason == f"not backupd's: it has {name}"


def test_remains_are_told_by_the_names_that_objects_have(site: Site) -> None:
    """Encrypted or not; and none at all, which a run leaves that was ended at once."""
    site.nights(1)
    names = ("data-1.tar.zst", "data-12.tar.zst", "binlog.tar.zst.age", "options.tar.zst", "index.jsonl.zst.age")
    for number, name in enumerate(names):
        site.here.now = NOW - timedelta(days=3)
        with site.here.writing("nightly", f"left-{number}", name) as writer:
            writer.write(b"12345")
    site.prune()
    assert site.on(site.here) == {"r1"}


# --- who may prune, and what goes wrong ------------------------------------------------------------------------------


def test_nothing_is_removed_while_a_run_of_the_job_lives(site: Site) -> None:
    site.nights(4)
    with site.claims.job("nightly", "r5"), pytest.raises(Busy, match="run r5 of job nightly"):
        site.prune()
    assert len(site.on(site.here)) == 4
    with site.claims.job("nightly", "r5"):
        assert len(site.prune(dry_run=True).fates) == 8


def test_no_run_of_the_job_begins_while_it_is_pruned(site: Site) -> None:
    with ExitStack() as claimed:
        claimed.enter_context(site.claims.pruning("nightly"))
        with pytest.raises(Busy, match="`backupd prune` of job nightly"):
            claimed.enter_context(site.claims.job("nightly", "r5"))


def test_what_is_being_read_is_left_to_the_next_pruning(site: Site) -> None:
    site.nights(4)
    with site.claims.reading("r1"):
        done = site.prune()
        assert site.on(site.here) == {"r1", "r3", "r4"}
    (kept, _) = (fate.decision.reason for fate in done.fates if fate.decision.backup_id == "r1")
    assert kept.startswith("backup r1 is held by a reader of backup r1 (process ")
    assert kept.endswith("; else expired: not among the last 2")
    done.require_complete()
    site.prune()
    assert site.on(site.here) == site.on(site.there) == {"r3", "r4"}


def meanwhile(target: MemoryTarget, happens: Callable[[], None]) -> None:
    """While the first backup is removed from the target."""
    remove = target.remove

    def removed(job: str, backup_id: str) -> None:
        target.remove = remove  # type: ignore[method-assign]
        happens()
        remove(job, backup_id)

    target.remove = removed  # type: ignore[method-assign]


def test_what_is_pinned_while_others_are_removed_stays(site: Site) -> None:
    site.nights(4)
    meanwhile(site.here, lambda: site.catalogue.pin("r1", "before the merger"))
    done = site.prune()
    assert site.on(site.here) == site.on(site.there) == {"r1", "r3", "r4"}
    (reason, _) = (fate.decision.reason for fate in done.fates if fate.decision.backup_id == "r1")
    assert reason == "pinned: before the merger"


def test_the_last_good_one_is_the_one_that_is_so_when_the_removal_begins(site: Site) -> None:
    site.nights(4)

    def found_out() -> None:
        for run_id in ("r3", "r4"):
            site.catalogue.found_broken(run_id, "here", "frame 7 differs")

    meanwhile(site.here, found_out)
    site.prune()
    assert site.on(site.here) == {"r1", "r3", "r4"}
    assert site.on(site.there) == {"r3", "r4"}


def test_nothing_goes_once_another_machine_has_written_meanwhile(site: Site) -> None:
    site.nights(4)

    def boots() -> None:
        owner = site.here.owner()
        assert owner is not None
        assert site.here.succeed(replace(owner, number=owner.number + 1, incarnation="f" * 32))

    meanwhile(site.here, boots)
    done = site.prune()
    assert [name for name, _ in done.failures] == ["here"]
    assert len(site.on(site.here)) == 3, "what was being removed when it booted is gone"
    assert site.on(site.there) == {"r3", "r4"}


def test_a_full_target_is_pruned_and_its_owner_record_written_once_there_is_room(site: Site) -> None:
    site.nights(4)
    before = site.here.last_owner_number()
    site.here.free_bytes = 0
    meanwhile(site.here, lambda: setattr(site.here, "free_bytes", 1 << 20))
    site.prune().require_complete()
    assert site.on(site.here) == {"r3", "r4"}
    assert site.here.last_owner_number() == before + 1


def test_a_full_target_from_which_nothing_goes_says_so(site: Site) -> None:
    site.nights(2)
    site.here.free_bytes = 0
    with pytest.raises(TargetError, match="target here: no space left"):
        site.prune().require_complete()
    assert site.on(site.here) == {"r1", "r2"}


def test_nothing_goes_from_a_full_target_of_another_machine(site: Site) -> None:
    site.nights(4)
    owner = site.here.owner()
    assert owner is not None
    assert site.here.succeed(replace(owner, number=owner.number + 1, incarnation="f" * 32))
    site.here.free_bytes = 0
    assert [name for name, _ in site.prune().failures] == ["here"]
    assert len(site.on(site.here)) == 4


def test_a_removal_that_breaks_off_is_told_as_incomplete(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The manifest may be gone by then: that the backup stays would be said of what is none any more."""
    site.nights(4)
    denying(site.here, "r1")
    site.prune()
    [told] = [
        record.getMessage()
        for record in caplog.records
        if "r1" in record.getMessage() and record.levelname == "WARNING"
    ]
    assert told.startswith("clean-up incomplete: backup r1 is not removed from target here; the next `backupd prune`")


def test_a_target_that_cannot_be_read_does_not_keep_the_others_from_being_pruned(site: Site) -> None:
    site.nights(4)
    unreadable(site.here)
    done = site.prune()
    assert site.on(site.there) == {"r3", "r4"}
    assert site.removed(site.here) == {}
    with pytest.raises(TargetError, match="incomplete: target here: connection refused"):
        done.require_complete()


@pytest.mark.parametrize("dry_run", [True, False])
def test_from_two_targets_that_are_one_storage_nothing_goes_and_both_are_told(site: Site, dry_run: bool) -> None:
    """What the rule of one gives up, that of the other may keep."""
    site.there = MemoryTarget("there", stored=site.here.stored, at=site.here.at, records=site.here.records)
    for number in range(4, 0, -1):
        site.back_up(f"r{5 - number}", NOW - timedelta(days=number), on=(site.here,))
    done = site.prune(dry_run=dry_run)
    assert [fate for fate in done.fates if not fate.decision.keep] == []
    assert site.on(site.here) == {"r1", "r2", "r3", "r4"}
    with pytest.raises(TargetError, match=r"here is the same storage as target there.*there is the same") as told:
        done.require_complete()
    assert "remove it from the job" in (told.value.hint or "")


def test_what_a_store_refuses_to_remove_stays_and_the_rest_goes(site: Site) -> None:
    site.nights(5)
    denying(site.here, "r1", "r3")
    done = site.prune()
    assert site.on(site.here) == {"r1", "r3", "r4", "r5"}
    assert set(site.removed(site.here)) == {"r2"}
    assert site.on(site.there) == {"r4", "r5"}
    with pytest.raises(TargetError, match=r"target here: r3 is locked until next year \(and 1 more\)"):
        done.require_complete()


@pytest.mark.parametrize("from_look", [1, 2])  # when the plan is made, or when it is about to go
def test_remains_that_cannot_be_listed_stay_alone_and_the_rest_goes(site: Site, from_look: int) -> None:
    site.nights(4)
    for run_id in ("half", "stray"):
        site.store(site.here, run_id, NOW - timedelta(days=3), finished=False)
    unlisted(site.here, "stray", TargetError("Input/output error"), from_look=from_look)
    done = site.prune()
    assert (site.on(site.here), site.on(site.there)) == ({"stray", "r3", "r4"}, {"r3", "r4"})
    (fate,) = (fate for fate in done.fates if fate.decision.backup_id == "stray")
    assert fate.decision.keep
    assert fate.decision.reason == "kept for now: what is in it is unknown: Input/output error"
    assert [(name, error.message) for name, error in done.failures] == [
        ("here", "what was left of stray stays, because it cannot be listed: Input/output error")
    ]
    with pytest.raises(TargetError, match="pruning job nightly is incomplete: target here: what was left of stray"):
        done.require_complete()


def test_a_dry_run_tells_of_remains_that_cannot_be_listed(site: Site) -> None:
    site.nights(4)
    site.store(site.here, "stray", NOW - timedelta(days=3), finished=False)
    unlisted(site.here, "stray", TargetError("Input/output error"))
    done = site.prune(dry_run=True)
    assert [name for name, _ in done.failures] == ["here"]
    assert {fate.decision.backup_id for fate in done.fates if not fate.decision.keep} == {"r1", "r2"}


def test_what_is_left_of_a_removed_backup_and_cannot_be_listed_stays_alone_and_the_rest_goes(site: Site) -> None:
    site.nights(4)
    site.prune()
    site.here.stored["nightly", "r1", proof_name(NOW)] = b"{}"
    site.here.at["nightly", "r1", proof_name(NOW)] = NOW
    site.back_up("r5", NOW)
    unlisted(site.here, "r1", TargetError("Input/output error"))
    done = site.prune()
    assert site.on(site.here) == {"r1", "r4", "r5"}
    assert [name for name, _ in done.failures] == ["here"]


def test_nothing_goes_from_a_target_that_is_away_when_remains_are_listed(site: Site) -> None:
    site.nights(4)
    site.store(site.here, "stray", NOW - timedelta(days=3), finished=False)
    unlisted(site.here, "stray", TargetAway("stale file handle"))
    done = site.prune()
    assert (site.on(site.here), site.on(site.there)) == ({"stray", "r1", "r2", "r3", "r4"}, {"r3", "r4"})
    assert [(name, error.message) for name, error in done.failures] == [("here", "stale file handle")]


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_whatever_call_of_a_target_fails_a_later_pruning_sets_all_right(site: Site, call: int) -> None:
    """A listing, a look at the last good one and two removals, which break off before any of their objects."""
    site.nights(4)
    site.here.calls, site.here.fail_at_call = 0, call
    assert {name for name, _ in site.prune().failures} <= {"here"}
    assert site.here.calls >= call
    assert {"r3", "r4"} <= site.on(site.here)
    again = site.prune()
    again.require_complete()
    assert again.vanished == ()
    assert site.on(site.here) == site.on(site.there) == {"r3", "r4"}
    assert site.removed(site.here) == dict.fromkeys(("r1", "r2"), "expired: not among the last 2")


class Killed(BaseException):
    """The process is."""


def dying_over(target: MemoryTarget, run_id: str, *, when: str) -> None:
    """A process that removes this backup is killed, once: when its manifest has gone, or when all of it has."""
    remove = target.remove

    def removed(job: str, backup_id: str) -> None:
        if backup_id != run_id:
            remove(job, backup_id)
            return
        target.remove = remove  # type: ignore[method-assign]
        if when == "behind":
            remove(job, backup_id)
        else:
            del target.stored[job, backup_id, "manifest.json"]
        raise Killed

    target.remove = removed  # type: ignore[method-assign]


@pytest.mark.parametrize("when", ["within", "behind"])
def test_a_removal_whose_process_was_killed_is_finished_and_told_with_its_own_reason(site: Site, when: str) -> None:
    """It is finished whatever happens to the run meanwhile: half of a backup is none."""
    site.nights(4)
    dying_over(site.here, "r2", when=when)
    with pytest.raises(Killed):
        site.prune()
    site.catalogue.pin("r2", "too late")
    planned, done = site.prune(dry_run=True), site.prune()
    assert planned.vanished == done.vanished == ()
    assert [one.decision for one in planned.fates] == [one.decision for one in done.fates]
    assert site.on(site.here) == {"r3", "r4"}
    assert site.removed(site.here) == dict.fromkeys(("r1", "r2"), "expired: not among the last 2")
    told = [one for one in site.catalogue.audit_entries() if (one.event, one.subject) == ("removed", "r2")]
    assert [one.detail["because"] for one in told] == ["expired: not among the last 2"]
    assert site.prune().removed == ()


def test_a_removal_that_was_refused_and_given_up_is_nobodys_reason_later(site: Site) -> None:
    """What a person takes away afterwards is told as that, and what is left of it stays."""
    site.nights(3)
    refused_once_and_pinned(site)
    site.prune()
    del site.here.stored["nightly", "r1", "manifest.json"]
    done = site.prune()
    assert done.vanished == (("here", "r1"),)
    assert site.removed(site.here) == {"r1": "no longer on the target"}
    assert "r1" in site.on(site.here)


# --- after a run -----------------------------------------------------------------------------------------------------


def after(site: Site, run_id: str) -> Pruning | None:
    return after_run(JOB, run_id, (site.here, site.there), site.catalogue, ownership=site.ownership)


def test_after_a_good_run_the_job_is_pruned_and_the_run_stays_a_success(site: Site) -> None:
    site.nights(4)
    done = after(site, "r4")
    assert done is not None
    assert len(done.removed) == 4
    assert (site.catalogue.run("r4").status, site.catalogue.run("r4").attention) == (RunStatus.SUCCESS, ())


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (lambda site: unreadable(site.here), "pruning job nightly is incomplete: target here: connection refused"),
        (lambda site: denying(site.there, "r1"), "pruning job nightly is incomplete: target there: r1 is locked"),
        (lambda site: site.here.remove("nightly", "r3"), "backup r3 is no longer on the target (here)"),
    ],
)
def test_trouble_after_a_run_is_an_attention_of_it_and_its_backups_stay(
    site: Site, trouble: Callable[[Site], None], told: str
) -> None:
    site.nights(4)
    before = site.catalogue.run("r4").backups
    trouble(site)
    after(site, "r4")
    run = site.catalogue.run("r4")
    assert (run.status, run.backups) == (RunStatus.ATTENTION, before)
    assert told in run.attention[0]


def test_where_the_next_run_has_begun_it_is_left_to_that_one(site: Site) -> None:
    site.nights(4)
    with site.claims.job("nightly", "r5"):
        assert after(site, "r4") is None
    assert (site.catalogue.run("r4").status, len(site.on(site.here))) == (RunStatus.SUCCESS, 4)
