"""Retention of a binlog archive: what goes once the backups that needed it have gone, and what never does."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from backupd.catalogue import binlog_segments, tables
from backupd.cli.documents import prune_document
from backupd.cli.run_text import pruned_segments_table
from backupd.config import TargetRetentionConfig
from backupd.host import claims
from backupd.operations.upkeep import prune_segments
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.rebuild_segments import rebuild_segments
from backupd.policy.trust import Known, Trust
from backupd.vocabulary.binlogs import NOT_READ, ArchiveGap, BinlogSegment
from backupd.vocabulary.errors import Busy, NotOurs, TargetError
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import FIRST, chain_of, following, lay_segments, sealed_chain
from tests.fakes.target import MemoryTarget
from tests.signers import signer
from tests.story.test_prune import AWAY, JOB, NOW, Forgetful, Halving, Site, asking_for_left_overs, unlisted

OTHER_CHAIN = "20261119T040000Z-0123abcd"


class ArchiveSite(Site):
    """A job's backups, and a binlog archive on both targets: ten segments a night, of which each backup ends one."""

    def __init__(self, base: Path, nights: int = 4) -> None:
        super().__init__(base)
        machine = self.catalogue.identity().name
        began = NOW - timedelta(days=nights + 1)
        first = replace(FIRST, machine=machine, received_at=began, first_at=began, last_at=began)
        self.segments = [
            replace(one, received_at=began + timedelta(hours=2.4 * number))
            for number, one in enumerate(chain_of(10 * (nights + 1), first=first))
        ]
        for one in self.segments:
            self.known(one, self.here, self.there)
        for night in range(1, nights + 1):
            self.back_up(f"r{night}", began + timedelta(days=night), behind=self.segments[10 * night - 1])

    def known(self, segment: BinlogSegment, *targets: MemoryTarget) -> None:
        self.catalogue.add_segment(segment, spooled=False)
        for target in targets:
            target.stored[segment.job, "binlog", segment.name] = b"a segment"
            self.catalogue.segment_stored(segment.name, target.name, at=segment.received_at)

    def back_up(  # type: ignore[override]
        self, run_id: str, at: datetime, *, behind: BinlogSegment | None, on: tuple[MemoryTarget, ...] = ()
    ) -> None:
        targets = on or (self.here, self.there)
        for target in targets:
            self.store(target, run_id, at)
        backups = tuple(Backup(target.name, f"{target.name}/{run_id}", 10, 5, 1, "b" * 64) for target in targets)
        run = RunDetails(run_id, "nightly", "db1", self.catalogue.identity().name, RunStatus.SUCCESS, at, ended_at=at)
        place = None if behind is None else Position(behind.file, behind.end, behind.gtid_end)
        self.catalogue.import_run(replace(run, backups=backups, position=place))

    def left(self, target: MemoryTarget) -> list[int]:
        """The numbers of the segments that lie there; the catalogue says the same."""
        told = {segment.name for segment in self.catalogue.segments("nightly", target=target.name)}
        assert set(target.segments("nightly")) == told
        return sorted(int(name[-17:-7]) for name in told)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ArchiveSite]:
    site = ArchiveSite(tmp_path)
    with site.catalogue:
        yield site


def test_what_no_kept_backup_needs_goes_with_those_that_needed_it(site: ArchiveSite) -> None:
    done = site.prune()
    done.require_complete()
    assert site.on(site.here) == {"r3", "r4"}
    assert site.left(site.here) == site.left(site.there) == list(range(30, 51)), "r3 ends the thirtieth"
    assert [(fate.target, fate.segments, fate.removed, fate.bytes_stored) for fate in done.segments] == [
        ("here", 29, 29, 29 * 300),
        ("there", 29, 29, 29 * 300),
    ]
    assert "before the oldest backup, r3" in done.segments[0].reason
    assert [segment.number for segment in site.catalogue.segments("nightly")] == list(range(30, 51)), "no row is left"
    assert site.prune().segments == ()


def test_the_audit_chain_tells_of_them_in_one_row_a_target(site: ArchiveSite) -> None:
    site.prune()
    rows = [entry for entry in site.catalogue.audit_entries() if entry.event == "segments-removed"]
    assert [(row.subject, row.detail["target"], row.detail["segments"]) for row in rows] == [
        ("nightly", "there", 29),
        ("nightly", "here", 29),
    ]
    assert (rows[0].detail["first"], rows[0].detail["last"]) == (site.segments[0].name, site.segments[28].name)


def test_a_dry_run_counts_them_and_removes_none(site: ArchiveSite) -> None:
    done = site.prune(dry_run=True)
    assert [(fate.segments, fate.removed) for fate in done.segments] == [(29, 0), (29, 0)]
    assert len(site.left(site.here)) == 50


def test_they_go_in_pages_the_oldest_first(site: ArchiveSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that fails in between has lost the oldest, and the next pruning goes on."""
    for module in (binlog_segments, prune_segments):
        monkeypatch.setattr(module, "PAGE", 10)
    asked: list[str] = []

    class Failing(MemoryTarget):
        def remove_segments(self, job: str, names: Sequence[str]) -> None:
            asked.append(names[0])
            if len(asked) == 2:
                raise TargetError("it is away")
            super().remove_segments(job, names)

    failing = Failing("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    done = prune(JOB, (failing, site.there), site.catalogue, ownership=site.ownership, now=NOW)
    assert [name for name, _ in done.failures] == ["here"]
    assert asked == [site.segments[0].name, site.segments[10].name]
    assert site.left(failing) == list(range(11, 51))
    assert site.left(site.there) == list(range(30, 51))
    assert prune(JOB, (failing,), site.catalogue, ownership=site.ownership, now=NOW).failures == ()
    assert site.left(failing) == list(range(30, 51))


def killed_after(site: ArchiveSite, removed: int) -> None:
    """A pruning dies when `here` has lost so many segments of a page."""

    class Killed(MemoryTarget):
        def remove_segments(self, job: str, names: Sequence[str]) -> None:
            super().remove_segments(job, names[:removed])
            raise KeyboardInterrupt

    whole = site.here
    site.here = Killed("here", whole.machine, stored=whole.stored, records=whole.records, at=whole.at)
    with pytest.raises(KeyboardInterrupt):
        site.prune()
    site.here = whole


def test_what_one_that_was_killed_had_begun_to_remove_is_noted_and_the_next_one_finishes_it(site: ArchiveSite) -> None:
    killed_after(site, 5)
    (going,) = site.catalogue.leaving_segments("nightly", "here").values()
    assert [segment.number for segment in going] == list(range(1, 30))
    site.prune().require_complete()
    assert site.left(site.here) == list(range(30, 51))
    assert site.catalogue.leaving_segments("nightly", "here") == {}


def test_what_one_that_was_killed_had_not_removed_yet_stays_for_a_backup_that_has_come_since(site: ArchiveSite) -> None:
    killed_after(site, 5)
    site.store(site.here, "r0", NOW - timedelta(days=3))
    site.prune().require_complete()
    assert site.left(site.here) == list(range(6, 51))
    assert site.catalogue.leaving_segments("nightly", "here") == {}


def test_what_one_that_was_killed_may_have_removed_on_a_target_is_not_removed_on_another(site: ArchiveSite) -> None:
    killed_after(site, 29)
    site.store(site.here, "r1", NOW - timedelta(days=4))  # fetched back from the other, where it expires now
    site.catalogue.import_run(
        replace(site.catalogue.run("r1"), backups=(Backup("here", "here/r1", 10, 5, 1, "b" * 64),))
    )
    job = replace(JOB, retention=replace(JOB.retention, targets={"here": TargetRetentionConfig(keep_last=9)}))
    prune(job, (site.there, site.here), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    assert (site.on(site.here), site.on(site.there)) == ({"r1", "r3", "r4"}, {"r3", "r4"})
    assert site.left(site.there) == list(range(10, 51)), "r1 is rolled forward by them"


def test_nobody_looks_for_lost_ones_while_they_go(site: ArchiveSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_AWAITED_SECONDS", 0)

    class Going(MemoryTarget):
        def remove_segments(self, job: str, names: Sequence[str]) -> None:
            with pytest.raises(Busy, match="who removes segments of job nightly"), site.claims.segments(job):
                pass
            super().remove_segments(job, names)

    here = Going("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    with site.claims.segments("nightly"):
        done = prune(replace(JOB, targets=("there",)), (site.there,), site.catalogue, ownership=site.ownership, now=NOW)
    assert [name for name, _ in done.failures] == ["there"]
    assert len(site.left(site.there)) == 50


def test_a_target_of_another_machine_s_is_never_touched(site: ArchiveSite) -> None:
    record = site.here.owner()
    assert record is not None
    site.here.succeed(replace(record, number=record.number + 1, incarnation="f" * 32, host="clone"))
    done = site.prune()
    assert [(name, type(error)) for name, error in done.failures] == [("here", NotOurs)]
    assert len(site.left(site.here)) == 50
    assert len(site.left(site.there)) == 21


def test_where_a_backup_is_that_the_catalogue_does_not_know_everything_stays(site: ArchiveSite) -> None:
    site.store(site.here, "whose", NOW - timedelta(days=9))
    site.prune()
    assert (len(site.left(site.here)), len(site.left(site.there))) == (50, 21)


@pytest.mark.parametrize("away", [False, True])
def test_where_a_left_over_may_be_a_backup_everything_stays(site: ArchiveSite, away: bool) -> None:
    """It has a manifest although the listing has none, or nobody can tell."""
    site.store(site.here, "left", NOW - timedelta(days=9))
    here = Halving("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    here.leaves_out, here.times = "left", 9

    def answer() -> None:
        if away:
            raise AWAY

    asking_for_left_overs(here, answer)
    prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    assert {one.backup_id for one in here.truth("nightly")} == {"left", "r3", "r4"}
    assert len(site.left(here)) == 50


def test_a_listing_that_leaves_out_a_backup_costs_it_no_segment(site: ArchiveSite) -> None:
    site.catalogue.pin("r1", "kept")
    here = Forgetful("here", stored=site.here.stored, records=site.here.records, at=site.here.at)
    here.times = 1
    prune(JOB, (here, site.there), site.catalogue, ownership=site.ownership, now=NOW)
    assert (len(site.left(site.here)), site.left(site.there)) == (50, list(range(10, 51)))
    prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    assert (site.on(site.here), site.left(site.here)) == ({"r1", "r3", "r4"}, list(range(10, 51)))


def test_what_another_target_s_backup_needs_and_that_target_lacks_stays(site: ArchiveSite) -> None:
    job = replace(JOB, retention=replace(JOB.retention, targets={"there": TargetRetentionConfig(keep_last=9)}))
    lost = [segment.name for segment in site.segments[14:17]]
    site.there.remove_segments("nightly", lost)
    site.catalogue.segments_removed("nightly", "there", lost, because="lost")
    prune(job, (site.here, site.there), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    assert (site.on(site.here), len(site.on(site.there))) == ({"r3", "r4"}, 4)
    assert site.left(site.here) == [15, 16, 17, *range(30, 51)]
    assert site.left(site.there) == [*range(10, 15), *range(18, 51)]


def test_a_target_that_the_configuration_has_no_more_keeps_no_segment_on_others(
    site: ArchiveSite, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last backup stays on record for good, and lacks all that has been archived since: nobody restores it."""
    job = replace(JOB, targets=("here",))
    gone = [segment.name for segment in site.segments[14:]]
    site.there.remove_segments("nightly", gone)
    site.catalogue.segments_removed("nightly", "there", gone, because="it was taken out of the job by then")

    def pruned(configured: tuple[str, ...]) -> None:
        prune(
            job, (site.here,), site.catalogue, ownership=site.ownership, configured=configured, now=NOW
        ).require_complete()

    said = "target here: segments kept: backups on target there need them, and there does not have them"
    with caplog.at_level("INFO"):
        pruned(("here", "there"))
        assert (site.left(site.here), said in caplog.messages) == (list(range(15, 51)), True)
        caplog.clear()
        pruned(("here",))
    assert (site.left(site.here), said in caplog.messages) == (list(range(30, 51)), False)


def test_what_follows_a_backup_whose_place_is_not_known_yet_stays(site: ArchiveSite) -> None:
    """A drill of a backup without a lock may find where it stands."""
    taken = site.segments[24].received_at + timedelta(minutes=30)
    site.back_up("lock-free", taken, behind=None)
    site.catalogue.pin("lock-free", "kept")
    site.prune().require_complete()
    assert site.on(site.here) == {"lock-free", "r3", "r4"}
    assert site.left(site.here) == list(range(25, 51))


def test_a_clock_that_was_ahead_while_a_backup_without_a_place_was_taken_costs_it_no_segment(
    tmp_path: Path,
) -> None:
    """By an hour, and then it was set right: what was received within that hour bears earlier times than the backup."""
    site = ArchiveSite(tmp_path, nights=0)
    ahead = NOW - timedelta(minutes=10)
    with site.catalogue:
        with site.catalogue.open_run("nightly", "db1", run_id="lock-free") as run:
            site.store(site.here, "lock-free", ahead)
            run.complete((Backup("here", "here/lock-free", 10, 5, 1, "b" * 64),))
        by_the_clock(site, "lock-free", ahead)
        last = site.segments[-1]
        for number in range(1, 21):  # three minutes each
            at = ahead - timedelta(hours=1) + timedelta(minutes=3 * number)
            last = replace(following(last), received_at=at)
            site.known(last, site.here, site.there)
        for run_id in ("r1", "r2"):
            site.back_up(run_id, NOW, behind=last)
        site.catalogue.pin("lock-free", "kept")
        site.prune().require_complete()
        assert site.on(site.here) == {"lock-free", "r1", "r2"}
        assert site.left(site.here) == list(range(10, 31)), "it was begun behind the tenth"
        assert site.left(site.there) == [30]


def by_the_clock(site: ArchiveSite, run_id: str, at: datetime) -> None:
    """The run began and ended then."""
    runs = tables.runs
    with site.catalogue._writing() as connection:
        connection.execute(update(runs).where(runs.c.run_id == run_id).values(started_at=at, ended_at=at))


def test_a_chain_that_no_kept_backup_is_of_goes_whole(site: ArchiveSite) -> None:
    old = replace(FIRST, machine=site.catalogue.identity().name, chain=OTHER_CHAIN, file="other.000001")
    for one in chain_of(3, first=replace(old, received_at=NOW - timedelta(days=5, hours=1))):
        site.known(one, site.here)
    site.prune().require_complete()
    assert site.left(site.here) == list(range(30, 51))
    assert site.catalogue.archive_chains("nightly") == [site.segments[0].chain]


def test_the_segment_that_was_received_last_stays_for_the_archive_to_go_on_behind_it(site: ArchiveSite) -> None:
    elsewhere = replace(site.segments[-1], file="other.000001")
    site.back_up("r5", NOW, behind=elsewhere)
    job = replace(JOB, retention=replace(JOB.retention, keep_last=1))
    prune(job, (site.here, site.there), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
    assert site.left(site.here) == [50]
    assert prune(job, (site.here,), site.catalogue, ownership=site.ownership, now=NOW).segments == ()
    assert site.left(site.here) == [50]


def test_on_a_target_that_has_no_backup_yet_everything_stays(site: ArchiveSite) -> None:
    """Nobody can tell what its first one will need."""
    new = MemoryTarget("new")
    site.ownership.take(new)
    for one in site.segments:
        new.stored[one.job, "binlog", one.name] = b"a segment"
        site.catalogue.segment_stored(one.name, new.name, at=one.received_at)
    job = replace(JOB, targets=(*JOB.targets, "new"))
    done = prune(job, (site.here, new), site.catalogue, ownership=site.ownership, now=NOW)
    assert (site.left(site.here), site.left(new)) == (list(range(30, 51)), list(range(1, 51)))
    assert {fate.target for fate in done.segments} == {"here"}


def test_no_segment_goes_from_a_target_with_remains_that_cannot_be_listed(site: ArchiveSite) -> None:
    """They may be a whole backup that a listing has left out."""
    site.store(site.here, "stray", NOW - timedelta(days=3), finished=False)
    unlisted(site.here, "stray", TargetError("Input/output error"))
    site.prune()
    assert site.on(site.here) == {"stray", "r3", "r4"}
    assert (site.left(site.here), site.left(site.there)) == (list(range(1, 51)), list(range(30, 51)))


def test_a_folder_with_segments_and_no_owner_record_is_nobody_s(site: ArchiveSite) -> None:
    """As one with backups: it was copied there, or somebody has removed the record."""
    copied = MemoryTarget("copied", site.here.machine)
    lay_segments(copied, sealed_chain(1, signer(), first=replace(FIRST, machine=copied.machine)))
    for ask in (site.ownership.take, site.ownership.require_ours):
        with pytest.raises(NotOurs, match="a binlog archive but no owner record"):
            ask(copied)
    assert not copied.records


def test_what_a_rebuild_could_not_read_may_be_what_a_backup_stands_in(tmp_path: Path) -> None:
    """Of a lost catalogue, whose target did not answer for a while: the next rebuild has all, if all is there still."""

    class Silent(MemoryTarget):
        silent_about = left_out = ""

        def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
            """One is left out, once."""
            (name, self.left_out), found = (self.left_out, ""), super().segments(job, after=after)
            return {one: size for one, size in found.items() if one != name}

        @contextmanager
        def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
            if name == self.silent_about:
                raise TargetError("it cannot be read")
            with super().reading(job, backup_id, name, **which) as chunks:
                yield chunks

    site = ArchiveSite(tmp_path, nights=0)
    site.here = Silent("here", site.here.machine, stored=site.here.stored, records=site.here.records, at=site.here.at)
    with site.catalogue:
        began = NOW - timedelta(days=5)
        first = replace(FIRST, machine=site.here.machine, chain=OTHER_CHAIN, file="other.000001", received_at=began)
        key = signer()
        stored = sealed_chain(20, key, first=first)
        lay_segments(site.here, stored)
        site.back_up("r1", began + timedelta(days=1), behind=stored[9].segment, on=(site.here,))
        site.back_up("r2", began + timedelta(days=2), behind=stored[14].segment, on=(site.here,))

        def rebuilt_and_pruned() -> list[int]:
            rebuild_segments(site.here, site.catalogue, Trust(frozenset([key.public])), job="nightly")
            prune(JOB, (site.here,), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
            there = {segment.name for segment in site.catalogue.segments("nightly", target="here")}
            return [number for number, one in enumerate(stored, 1) if one.segment.name in there]

        site.here.silent_about = stored[9].segment.name
        assert rebuilt_and_pruned() == list(range(11, 21)), "nobody knows yet that r1 needs the eleventh"
        site.here.left_out = stored[9].segment.name
        assert rebuilt_and_pruned() == list(range(11, 21)), "a listing may lie: it is there, and still not read"
        (gap,) = [gap for gap in site.catalogue.archive_gaps("nightly") if gap.not_read_on]
        assert (gap.chain, gap.not_read_on) == (stored[9].segment.name.removesuffix(".binlog"), "here")
        site.here.silent_about = ""
        assert rebuilt_and_pruned() == list(range(10, 21))
        assert not [gap for gap in site.catalogue.archive_gaps("nightly") if gap.not_read_on]


def test_what_was_forgotten_while_its_disk_was_away_is_known_again_with_its_backups(tmp_path: Path) -> None:
    site = ArchiveSite(tmp_path, nights=0)
    here = site.here
    with site.catalogue:
        began, key = NOW - timedelta(days=5), signer()
        site.catalogue.know_key(key.public, here.machine, Known.MADE)
        first = replace(FIRST, machine=here.machine, chain=OTHER_CHAIN, file="other.000001", received_at=began)
        here.stored.clear()
        stored = sealed_chain(20, key, first=first)
        lay_segments(here, stored)
        site.catalogue.import_segments([one.segment for one in stored], "here", at=began)
        site.back_up("r1", began + timedelta(days=1), behind=stored[9].segment, on=(here,))
        disk = here.stored, here.at, here.records
        here.stored, here.at, here.records = {}, {}, {}
        site.ownership.take(here)
        site.back_up("r2", began + timedelta(days=2), behind=stored[19].segment, on=(here,))
        assert prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW).vanished == (("here", "r1"),)
        here.stored, here.at, here.records = disk
        prune(JOB, (here,), site.catalogue, ownership=site.ownership, now=NOW).require_complete()
        known = [segment.number for segment in site.catalogue.segments("nightly", chain=OTHER_CHAIN, target="here")]
        assert known == list(range(10, 21)), "r1 counts as before, and what it is rolled forward by"


def test_what_no_rebuild_can_read_keeps_nothing_but_what_follows_in_its_chain(
    site: ArchiveSite, caplog: pytest.LogCaptureFixture
) -> None:
    old = replace(FIRST, machine=site.catalogue.identity().name, chain=OTHER_CHAIN, file="other.000001")
    former = chain_of(6, first=replace(old, received_at=NOW - timedelta(days=5, hours=1)))
    for one in former[:2] + former[3:]:
        site.known(one, site.here)
    gap = ArchiveGap(former[2].name.removesuffix(".binlog"), f"{NOT_READ}here", NOW, None)
    site.catalogue.archive_gap("nightly", gap)
    site.prune().require_complete()
    kept = [segment.number for segment in site.catalogue.segments("nightly", chain=OTHER_CHAIN)]
    assert (kept, site.left(site.there)) == ([4, 5, 6], list(range(30, 51)))
    assert f"segment {former[2].name} could not be read" in caplog.text


def test_what_no_rebuild_can_read_keeps_nothing_where_every_backup_stands_elsewhere_in_its_chain(
    site: ArchiveSite,
) -> None:
    gap = ArchiveGap(f"{site.segments[0].chain}-{5:010}", f"{NOT_READ}here", NOW, None)
    site.catalogue.archive_gap("nightly", gap)
    site.prune().require_complete()
    assert site.left(site.here) == list(range(30, 51))


def test_what_is_printed_counts_them_by_target_and_reason(site: ArchiveSite) -> None:
    planned, done = site.prune(dry_run=True), site.prune()
    assert [one["removed"] for one in prune_document([planned], dry_run=True)["segments"]] == [0, 0]
    first = prune_document([done], dry_run=False)["segments"][0]
    assert (first["target"], first["segments"], first["removed"], first["bytes_stored"]) == ("here", 29, 29, 8700)
    for pruning, dry_run, word in ((planned, True, "remove "), (done, False, "removed ")):
        lines = pruned_segments_table([pruning], dry_run=dry_run).splitlines()
        assert [word in line and "before the oldest backup, r3" in line for line in lines] == [False, True, True]


def test_a_job_without_an_archive_is_told_nothing_of_segments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path)
    site.back_up("r1", NOW - timedelta(days=1))
    with caplog.at_level("INFO"):
        site.prune()
    assert "segment" not in caplog.text
