"""What can be restored of an archive is the same by the few segments that the catalogue reads as by all of them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update

from backupd.catalogue import archive_outline, binlog_tables, tables
from backupd.catalogue.store import Catalogue
from backupd.operations.binlog.placed_backups import placed_backups
from backupd.operations.binlog.rolling import leads_to, rolled_forward
from backupd.policy.binlog_chain import ChainRow, PlacedBackup
from backupd.policy.reach import reach as reach_by_rows
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.records import Drill, DrilledMoment, RunDetails
from tests.binlog_segments import BEGAN, begun_by, chain_of, upgraded
from tests.fakes.chain_rows import rows
from tests.held_archives import reach
from tests.share import examples
from tests.unit.catalogues import catalogue, path
from tests.web.sample import GOOD, NOW, sample_site

__all__ = ["catalogue", "path"]


MOMENT = DrilledMoment("2026-11-20 03:12:44 UTC", None)


def kept(catalogue: Catalogue, segments: Sequence[BinlogSegment]) -> list[BinlogSegment]:
    """These are all that the catalogue knows, as they come."""
    machine = catalogue.identity().name
    ours = [replace(segment, machine=machine) for segment in segments]
    with catalogue._engine.begin() as connection:
        connection.execute(delete(binlog_tables.stored))
        connection.execute(delete(binlog_tables.segments))
    assert catalogue.import_segments(ours, "vault", at=BEGAN) == []
    return ours


def drawn(catalogue: Catalogue, backups: Sequence[PlacedBackup]) -> tuple[ChainRow, ...]:
    with catalogue._reading() as connection:
        pieces = archive_outline.ended(connection, catalogue.identity().name, "nightly")
        return archive_outline.drawn_rows(connection, pieces, backups)


OTHER = "20261120T050000Z-89abcdef"
WRITTEN = chain_of(60, rotates_after=7)


def backup_at(segment: BinlogSegment, offset: int, number: int) -> PlacedBackup:
    """Taken when the server's log ended so many bytes before the end of that segment."""
    place = BinlogPlace(segment.file, max(4, segment.end - offset))
    return PlacedBackup(f"run-{number:02}", place, segment.gtid_start, segment.received_at)


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[BinlogSegment], list[PlacedBackup]]:
    """Chains with some segments lost, one of them in another chain, in an order as after a clock that was set back."""
    there = [segment for segment in WRITTEN if draw(st.integers(0, 19))]
    cut = draw(st.integers(0, 60))
    again = [replace(segment, chain=OTHER) if segment.number > cut else segment for segment in there]
    idle = [
        replace(segment, first_at=None, last_at=None, transactions=0) if not draw(st.integers(0, 5)) else segment
        for segment in again
    ]
    if draw(st.booleans()):
        idle = draw(st.permutations(idle))
    taken = draw(st.lists(st.tuples(st.sampled_from(WRITTEN), st.sampled_from([0, 1, 500, 1000, 7])), max_size=5))
    return idle, [backup_at(segment, offset, number) for number, (segment, offset) in enumerate(taken)]


def ends(row: ChainRow) -> Sequence[object]:
    return row.chain, row.start, row.end, row.last_at, row.ended


@given(archives())
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_can_be_restored_is_the_same_by_few_segments(
    catalogue: Catalogue, archive: tuple[list[BinlogSegment], list[PlacedBackup]]
) -> None:
    segments, backups = archive
    ours = kept(catalogue, segments)
    found = drawn(catalogue, backups)
    assert reach_by_rows(backups, found) == reach(backups, ours)
    assert sorted(map(repr, map(ends, found))) == sorted(map(repr, map(ends, rows(ours))))


def test_a_segment_that_was_written_to_follow_another_one_begins_a_row(catalogue: Catalogue) -> None:
    chain = chain_of(9)
    chain[4] = replace(chain[4], previous="f" * 64)
    ours = kept(catalogue, chain)
    first, second = drawn(catalogue, [])
    assert [len(first.segments), len(second.segments)] == [2, 2]
    assert (first.end.offset, "was written to follow another" in first.ended) == (ours[3].end, True)


def test_what_a_later_series_of_the_server_logs_begins_a_row_in_whichever_order_it_comes(catalogue: Catalogue) -> None:
    old = replace(WRITTEN[6], format=begun_by("10.11.19-MariaDB"))
    new = upgraded(old, to="11.8.9-MariaDB")
    for come in ([old, new], [new, old]):
        ours = kept(catalogue, come)
        found = drawn(catalogue, ())
        assert list(map(ends, found)) == list(map(ends, rows(ours)))
        assert len(found) == 2


def test_what_follows_a_segment_that_is_forgotten_begins_a_row(catalogue: Catalogue) -> None:
    ours = kept(catalogue, chain_of(9))
    gone = [segment.name for segment in ours[3:5]]
    catalogue.segments_removed("nightly", "vault", gone, because="a test")
    catalogue.forget_segments(gone)
    assert [row.segments[0].number for row in drawn(catalogue, [])] == [1, 6]
    catalogue.add_segment(ours[4])
    catalogue.add_segment(ours[3])
    assert [row.segments[0].number for row in drawn(catalogue, [])] == [1]


def test_what_a_client_has_dated_ahead_is_followed_on_a_target_up_to_its_receipt(catalogue: Catalogue) -> None:
    first, *_, last = kept(catalogue, [*WRITTEN[:2], replace(WRITTEN[2], last_at=BEGAN + timedelta(days=4000))])
    assert catalogue.followed_on(first, last, "vault") == last.received_at


def test_backups_are_those_that_the_runs_tell_and_each_leads_to_what_follows_it(tmp_path: Path) -> None:
    with sample_site(tmp_path, nights=12) as site:
        catalogue = site.catalogue
        doubted = catalogue.runs(job="sample-shop")[7].run_id
        catalogue.record_drill(Drill(doubted, False, (), 1.0, site.now() + timedelta(days=1)))
        told = catalogue.run(GOOD).started_at + timedelta(seconds=1.5)
        with catalogue._engine.begin() as connection:  # one that has its snapshot's instant, beside those that have not
            known = update(tables.snapshots).where(tables.snapshots.c.run_id == GOOD).values(taken_at=told)
            assert connection.execute(known).rowcount == 1
        found = catalogue.archive_outlines(["sample-shop", "sample-archive", "nothing"])
        runs: list[RunDetails] = catalogue.runs(job="sample-shop", ours=True, limit=None)
        good = catalogue.run(GOOD)
        rolled = leads_to(good, catalogue, ["vault", "offsite", "elsewhere"])
        assert rolled_forward(catalogue, ["sample-shop"])[GOOD] == NOW - timedelta(seconds=7)
        assert leads_to(replace(good, drills=(Drill(GOOD, False, (), 1.0, NOW),)), catalogue, []) is None
    assert rolled is not None
    assert (rolled.since, rolled.until) == (good.snapshot_by, NOW - timedelta(seconds=7))
    before_the_newest = datetime(2026, 11, 20, 20, 59, 59, tzinfo=UTC)
    assert rolled.targets == (("vault", rolled.until), ("offsite", before_the_newest), ("elsewhere", None))
    assert list(found) == ["sample-shop"]
    expected = [backup for backup in reversed(placed_backups(runs)) if backup.good]
    assert list(found["sample-shop"].backups) == expected
    assert doubted not in {backup.run_id for backup in expected}


@pytest.mark.parametrize(
    "drills",
    [
        [(False, 1, MOMENT)],
        [(False, 1, None), (True, 2, MOMENT)],
        [(True, 2, None), (False, 1, None)],  # that of a proof host, which is taken in later
    ],
)
def test_a_drill_casts_doubt_on_a_backup_here_as_there(
    tmp_path: Path, drills: Sequence[tuple[bool, int, DrilledMoment | None]]
) -> None:
    with sample_site(tmp_path, nights=12) as site:
        run_id = site.catalogue.runs(job="sample-shop")[2].run_id
        for ok, hours, moment in drills:
            at = site.now() + timedelta(days=1, hours=hours)
            site.catalogue.record_drill(Drill(run_id, ok, (), 1.0, at, moment=moment))
        of_runs = placed_backups(site.catalogue.runs(job="sample-shop", limit=None))
        found = site.catalogue.archive_outlines(["sample-shop"])["sample-shop"].backups
        assert {one.run_id for one in found} == {one.run_id for one in of_runs if one.good}
