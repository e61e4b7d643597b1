"""A moment is found in a catalogue of very many segments without a look at each, and as it would be by all of them."""

import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from backupd.catalogue.archive_outline import at_places
from backupd.catalogue.store import Catalogue
from backupd.policy import roll_forward
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.moments import BeforeGtid, Latest, Moment, ToGtid, ToPosition, ToTime
from backupd.policy.reach import reach as reach_by_rows
from backupd.policy.roll_forward import RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.errors import UsageError
from tests.binlog_segments import BEGAN
from tests.held_archives import plan, reach
from tests.many_segments import backup_at, fill, numbered
from tests.share import examples
from tests.unit.catalogues import catalogue, path
from tests.unit.test_archive_outline import WRITTEN, archives, kept
from tests.unit.test_failover import AFTER, BEFORE, TAKEN

__all__ = ["catalogue", "path"]

NOW = BEGAN + timedelta(days=1)


def moments() -> st.SearchStrategy[Moment]:
    number = st.integers(-1, 610)
    gtids = number.map(lambda number: f"0-1-{number + 1}")
    places = st.tuples(st.sampled_from(WRITTEN), st.sampled_from([0, 1, 500, 1000]))
    return st.one_of(
        st.just(Latest()),
        number.map(lambda seconds: ToTime(BEGAN + timedelta(seconds=seconds))),
        gtids.map(ToGtid),
        gtids.map(BeforeGtid),
        places.map(lambda place: ToPosition(BinlogPlace(place[0].file, place[0].end - place[1]))),
    )


def found(
    catalogue: Catalogue, backups: Sequence[PlacedBackup], moment: Moment, *, target: str | None = None
) -> RestorePlan | str:
    try:
        with catalogue.archive_search("nightly", backups, targets=None if target is None else [target]) as archive:
            return roll_forward.plan(backups, archive, moment, now=NOW)
    except UsageError as refused:
        return str(refused)


def expected(backups: Sequence[PlacedBackup], segments: Sequence[BinlogSegment], moment: Moment) -> RestorePlan | str:
    try:
        return plan(backups, segments, moment, now=NOW)
    except UsageError as refused:
        return str(refused)


@given(archives(), st.lists(moments(), min_size=10, max_size=10), st.sets(st.integers(1, 60), max_size=4))
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_moment_is_restored_by_the_same_segments_as_if_all_were_read(
    catalogue: Catalogue,
    archive: tuple[list[BinlogSegment], list[PlacedBackup]],
    moments: Sequence[Moment],
    lacking: set[int],
) -> None:
    segments, backups = archive
    ours = kept(catalogue, segments)
    for moment in moments:
        assert found(catalogue, backups, moment) == expected(backups, ours, moment)
    gone = [segment for segment in ours if segment.number in lacking]
    for segment in ours:
        catalogue.segment_stored(segment.name, "elsewhere", at=BEGAN)
    catalogue.segments_removed("nightly", "vault", [segment.name for segment in gone], because="a test")
    there = [segment for segment in ours if segment not in gone]
    for moment in moments:
        assert found(catalogue, backups, moment, target="vault") == expected(backups, there, moment)
    with catalogue.archive_search("nightly", backups, targets=["vault"]) as search:
        assert reach_by_rows(backups, search.rows) == reach(backups, there)


# A backup's place is one of the other server's log as well; another has exactly what that log begins with.
@pytest.mark.parametrize("moved", [0, 500, 2000])
def test_what_another_server_s_log_goes_on_with_is_found_as_if_all_were_read(catalogue: Catalogue, moved: int) -> None:
    after = [replace(one, start=one.start + moved, end=one.end + moved) for one in AFTER]
    ours = kept(catalogue, [*BEFORE, *after])
    at_the_end = replace(TAKEN, run_id="r2", place=BinlogPlace(BEFORE[-1].file, BEFORE[-1].end), gtid="0-1-30")
    switched = replace(TAKEN, run_id="r3", place=BinlogPlace(BEFORE[-1].file, 2504), gtid="0-1-30")
    for backup in (TAKEN, replace(at_the_end, taken_at=NOW), replace(switched, taken_at=NOW), replace(TAKEN, gtid="")):
        for gtid in ("0-1-16", "0-1-30", "0-1-31", "0-1-55", "0-1-61"):
            for moment in (ToGtid(gtid), BeforeGtid(gtid), Latest()):
                assert found(catalogue, [backup], moment) == expected([backup], ours, moment)
        for offset in (4, 1504, 2500, 2504, 3004, 5000):
            place = ToPosition(BinlogPlace(BEFORE[-1].file, offset))
            assert found(catalogue, [backup], place) == expected([backup], ours, place)


# --- how much is looked at --------------------------------------------------------------------------------------------

_STEPS = 100  # of SQLite's machine


@contextmanager
def counted(connection: Connection) -> Iterator[Callable[[], int]]:
    """How many hundred steps SQLite takes in the block."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    steps: list[None] = []
    driver.set_progress_handler(lambda: steps.append(None), _STEPS)
    yield lambda: len(steps)
    driver.set_progress_handler(None, 0)


def looked_at(catalogue: Catalogue, count: int, *, rotates_after: int, target: str | None) -> dict[str, int]:
    """By moment, how many hundred steps the decision takes; the last backup is near."""
    backups = [backup_at(number, rotates_after=rotates_after) for number in (*range(100, count, 1000), count - 200)]
    machine = catalogue.identity().name
    wanted = numbered(count - 100, machine=machine, rotates_after=rotates_after)
    steps: dict[str, int] = {}
    assert wanted.last_at is not None
    for moment in (
        *(ToTime(wanted.last_at), ToGtid(wanted.gtid_end), BeforeGtid(wanted.gtid_end), Latest()),
        ToPosition(BinlogPlace(wanted.file, wanted.end)),
    ):
        with (
            catalogue.archive_search("nightly", backups, targets=None if target is None else [target]) as archive,
            counted(archive._connection) as count_of,
        ):
            way = roll_forward.plan(backups, archive, moment, now=NOW + timedelta(days=900))
        assert [one.number for one in way.segments][:1] == [count - 200], moment
        assert (way.segments[-1].number, way.end.met_in_last) in {(count - 100, True), (count, False)}
        steps[str(moment)] = count_of()
    return steps


@pytest.mark.parametrize("rotates_after", [500, 1 << 20])
def test_of_an_archive_that_is_ten_times_as_long_no_more_is_looked_at(
    catalogue: Catalogue, tmp_path: Path, rotates_after: int
) -> None:
    fill(catalogue, 2_000, rotates_after=rotates_after)
    few = looked_at(catalogue, 2_000, rotates_after=rotates_after, target=None)
    with Catalogue.open(tmp_path / "other.db") as longer:
        fill(longer, 20_000, rotates_after=rotates_after)
        many = looked_at(longer, 20_000, rotates_after=rotates_after, target=None)
        on_target = looked_at(longer, 20_000, rotates_after=rotates_after, target="vault")
    for least, most in zip(few.values(), many.values(), strict=True):
        assert most < 2 * least + 20, "a few steps for each backup"
    assert max(on_target.values()) < 20 * 20_000 / _STEPS + max(many.values()), "whether each lies there, and no more"


def test_the_last_transaction_before_a_backup_is_found_without_a_look_at_the_whole_archive(
    catalogue: Catalogue,
) -> None:
    fill(catalogue, 20_000, rotates_after=500)
    first = numbered(1, machine=catalogue.identity().name, rotates_after=500)
    with (
        catalogue.archive_search("nightly", []) as archive,
        counted(archive._connection) as count_of,
    ):
        last = archive.last_before(None)
        assert last is not None
        assert last.number == 20_000
        assert archive.last_before(first) is None
        assert archive.last_before(replace(first, chain="30")) == last
        assert count_of() < 20


@pytest.mark.thorough
def test_of_half_a_million_segments_the_decision_is_made_in_three_seconds_and_little_memory(tmp_path: Path) -> None:
    """35 days of backups, and a moment at the end of the last one: its segments are all that is held."""
    count, a_day = 500_000, 500_000 // 35
    backups = [backup_at(number, rotates_after=5_000) for number in range(1, count, a_day)]
    with Catalogue.open(tmp_path / "catalogue.db") as catalogue:
        fill(catalogue, count, rotates_after=5_000)
        tracemalloc.start()
        began = time.process_time()
        with catalogue.archive_search("nightly", backups) as archive:
            at = numbered(count, machine="", rotates_after=5_000).last_at
            assert at is not None
            way = roll_forward.plan(backups, archive, ToTime(at), now=at)
            spent, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert way.backup is backups[-1]
    assert (way.segments[0].number, way.segments[-1].number) == (number_of(way.backup), count)
    assert spent < 3
    assert peak < 90 << 20


def number_of(backup: PlacedBackup) -> int:
    return int(backup.run_id.removeprefix("run-"))


def test_a_backup_s_place_is_found_in_one_long_binlog_without_a_walk_through_it(catalogue: Catalogue) -> None:
    fill(catalogue, 20_000, rotates_after=1 << 20)
    places = [backup_at(number, rotates_after=1 << 20).place for number in range(500, 20_000, 1000)]
    with catalogue._reading() as connection, counted(connection) as count_of:
        near = at_places(connection, catalogue.identity().name, "nightly", places)
    assert [one.number for one in near] == list(range(500, 20_000, 1000))
    assert catalogue.segments_at("nightly", places) == near
    assert count_of() < 10 * len(places)
