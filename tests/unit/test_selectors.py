"""What may be typed for RUN, and which run it means."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.columns import InstantColumn
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import TargetError, UsageError
from backupd.vocabulary.faults import BadValue
from backupd.vocabulary.instants import parse_instant
from backupd.vocabulary.records import Phase, RunDetails, RunStatus
from backupd.vocabulary.selectors import Selector, parse_selector
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.unit.catalogues import catalogue, path
from tests.unit.test_catalogue import SNAPSHOT, failed

__all__ = ["catalogue", "path"]

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HERE = Backup("disk", "/backups/r1", 1000, 400, 12, "ab" * 32)
THERE = Backup("offsite", "s3://backups/r1", 1000, 400, 12, "ab" * 32)


def finished(catalogue: Catalogue, run_id: str, *backups: Backup, job: str = "nightly") -> RunDetails:
    with catalogue.open_run(job, "db1", run_id=run_id) as run:
        run.took(Phase.LOCK_WAIT, 3600.0)
        run.took(Phase.COPY, 60.0)
        run.complete(backups or (HERE,))
    return catalogue.run(run_id)


def begun_at(path: Path, run_id: str, at: datetime) -> None:
    """As the machine's clock showed it then."""
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE runs SET started_at = ? WHERE run_id = ?", (InstantColumn.text(at), run_id))


def as_of(at: datetime | None) -> str:
    assert at is not None
    return f"as-of={at.isoformat()}"


# --- the grammar ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["20261121-0100-aa", "r", "", "%", "latestly", "latest-goo", "as-offer", "Latest"])
def test_what_is_none_of_the_words_is_an_id_or_its_beginning(text: str) -> None:
    assert parse_selector(text, now=NOW) == Selector(run_id=text)


def test_the_newest_run_may_be_asked_for_with_its_job() -> None:
    assert parse_selector("latest", now=NOW) == Selector(said="latest")
    assert parse_selector("latest:nightly", now=NOW) == Selector(said="latest", job="nightly")
    assert parse_selector("latest-good", now=NOW) == Selector(said="latest-good", good=True)
    assert parse_selector("latest-good:a-b", now=NOW) == Selector(said="latest-good", good=True, job="a-b")


@pytest.mark.parametrize(
    ("time", "by"),
    [
        ("2026-11-20", NOON - timedelta(hours=12)),
        ("2026-11-20T12", NOON),
        ("2026-11-20T12:00", NOON),
        ("2026-11-20 12:00", NOON),
        ("2026-11-20T12:00:30", NOON + timedelta(seconds=30)),
        ("2026-11-20T12:00:00.250", NOON + timedelta(seconds=0.25)),
        ("2026-11-20T12:00Z", NOON),
        ("2026-11-20T13:00+01:00", NOON),
        ("2026-11-20T06:30-05:30", NOON),
        ("12h", NOW - timedelta(hours=12)),
        ("7d", NOW - timedelta(days=7)),
        ("2999-01-01", datetime(2999, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_told_from_its_job(time: str, by: datetime) -> None:
    said = f"as-of={time}"
    assert parse_selector(said, now=NOW) == Selector(said=said, good=True, by=by)
    for job in ("nightly", "db-1_full", "2nd", "7d", "z"):
        assert parse_selector(f"{said}:{job}", now=NOW) == Selector(said=said, good=True, by=by, job=job)


def test_a_job_whose_name_is_figures_needs_a_time_that_ends_in_a_letter() -> None:
    assert parse_selector("as-of=2026-11-20T12:30", now=NOW).job is None
    assert parse_selector("as-of=2026-11-20T12:00:30-05", now=NOW).job is None
    for time in ("2026-11-20T12:00Z", "2026-11-20T12:00:00Z", "7d"):
        assert parse_selector(f"as-of={time}:30", now=NOW).job == "30"
    with pytest.raises(UsageError, match="'2026-11-20T12:00:00:30' is not a time"):
        parse_selector("as-of=2026-11-20T12:00:00:30", now=NOW)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("latest:", "latest: names no job"),
        ("latest-good:", "latest-good: names no job"),
        ("as-of", "'as-of' is not a run"),
        ("as-of:2026-11-20", "'as-of:2026-11-20' is not a run"),
        ("as-of 2026-11-20", "'as-of 2026-11-20' is not a run"),
        ("as-of=", "as-of=: '' is not a time"),
        ("as-of=:nightly", "as-of=:nightly: '' is not a time"),
        ("as-of=nightly", "as-of=nightly: 'nightly' is not a time"),
        ("as-of=5", "as-of=5: '5' is not a time"),
        ("as-of=2026-02-30", "as-of=2026-02-30: '2026-02-30' is not a time"),
        ("as-of=2026-11-20T12:61", "as-of=2026-11-20T12:61: '2026-11-20T12:61' is not a time"),
        ("as-of=2026-11-20:", "as-of=2026-11-20: names no job"),
        ("as-of=2026-11-20:a:b", "as-of=2026-11-20:a:b: '2026-11-20:a' is not a time"),
        ("as-of=yesterday:nightly", "as-of=yesterday:nightly: 'yesterday' is not a time"),
        ("as-of=99999999d", "as-of=99999999d: '99999999d' is not a time"),
        ("as-of=\udce9", "as-of=\udce9: '\\udce9' is not a time"),
    ],
)
def test_what_begins_as_a_word_and_goes_on_otherwise_is_refused_with_the_way_to_write_it(
    text: str, sentence: str
) -> None:
    with pytest.raises(UsageError) as raised:
        parse_selector(text, now=NOW)
    assert raised.value.message == sentence
    assert "write " in raised.value.hint


# --- which run it is --------------------------------------------------------------------------------------------------


def test_latest_is_the_newest_run_and_latest_good_the_newest_that_left_a_whole_copy(catalogue: Catalogue) -> None:
    finished(catalogue, "r1")
    finished(catalogue, "r2")
    failed(catalogue, "r3", TargetError("no room"))
    for job in ("", ":nightly"):
        assert catalogue.run(f"latest{job}").status is RunStatus.FAILED
        assert catalogue.run(f"latest-good{job}").run_id == "r2"
    catalogue.found_broken("r2", "disk", "a bit has fallen over")
    assert catalogue.run("latest-good").run_id == "r1"
    catalogue.removed("r1", "disk", because="by hand")
    with pytest.raises(UsageError, match="there is no backup yet"):
        catalogue.run("latest-good")


def test_the_latest_is_no_run_of_a_clock_that_was_ahead_unless_there_is_no_other(
    catalogue: Catalogue, path: Path
) -> None:
    finished(catalogue, "r1")
    begun_at(path, "r1", datetime.now(UTC) + timedelta(days=365))
    for said in ("latest", "latest-good"):
        assert catalogue.run(said).run_id == catalogue.run(f"{said}:nightly").run_id == "r1"
    finished(catalogue, "r2")
    for said in ("latest", "latest-good"):
        assert catalogue.run(said).run_id == catalogue.run(f"{said}:nightly").run_id == "r2"
        assert catalogue.run_with_backup(parse_selector(said, now=NOW), target="disk").run_id == "r2"


def test_on_a_target_it_is_the_newest_that_has_a_copy_there(catalogue: Catalogue) -> None:
    finished(catalogue, "r1", HERE, THERE)
    finished(catalogue, "r2", HERE)
    for text, target, run_id in (
        ("latest", "offsite", "r1"),
        ("latest-good", "offsite", "r1"),
        ("as-of=2999-01-01", "offsite", "r1"),
        ("as-of=2999-01-01", None, "r2"),
    ):
        assert catalogue.run_with_backup(parse_selector(text, now=NOW), target=target).run_id == run_id


def test_the_snapshot_is_older_than_what_came_after_it_and_no_older_than_the_run(catalogue: Catalogue) -> None:
    run = finished(catalogue, "r1")
    assert run.ended_at is not None
    assert run.snapshot_by is not None
    assert timedelta(0) <= run.snapshot_by - (run.ended_at - timedelta(seconds=60)) < timedelta(seconds=1)
    with catalogue.open_run("nightly", "db1", run_id="r2") as going:
        assert catalogue.run("r2").snapshot_by is None
        going.complete((HERE,))


def test_the_instant_of_the_snapshot_does_not_move_with_what_comes_after_the_run(
    catalogue: Catalogue,
) -> None:
    """Hooks after a run, the hours until a dead one is found, and a clock that is set are in no phase."""
    at = datetime(2026, 11, 20, 3, 0, 0, 250_000, tzinfo=UTC)
    with catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.position(Position("binlog.000007", 4242))
        run.snapshot(replace(SNAPSHOT, taken_at=at))
        run.complete((HERE,))
    assert catalogue.run("r1").snapshot_by == at.replace(second=1, microsecond=0)


def test_as_of_a_time_is_the_newest_good_run_whose_snapshot_was_taken_by_then(catalogue: Catalogue, path: Path) -> None:
    with_lives = {"r1": 7200.0, "r2": 1800.0, "r3": 60.0}  # how long ago each one's snapshot was taken
    taken = {}
    for run_id, seconds in with_lives.items():
        with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
            run.took(Phase.COPY, seconds)
            run.complete((HERE,))
        begun = InstantColumn.text(datetime.now(UTC) - timedelta(seconds=seconds + 30))
        with direct(path, busy_timeout_seconds=1) as connection:  # as if all that had really taken so long
            connection.execute("UPDATE runs SET started_at = ? WHERE run_id = ?", (begun, run_id))
        taken[run_id] = catalogue.run(run_id).snapshot_by
    failed(catalogue, "r4", TargetError("no room"))
    assert catalogue.run("as-of=2999-01-01").run_id == "r3"
    assert catalogue.run("as-of=0s").run_id == "r3"
    assert catalogue.run("as-of=1h:nightly").run_id == "r1"
    for run_id, at in taken.items():
        assert catalogue.run(as_of(at)).run_id == run_id
        assert catalogue.run(f"{as_of(at)}:nightly").run_id == run_id
    assert taken["r2"] is not None
    assert catalogue.run(as_of(taken["r2"] - timedelta(seconds=1))).run_id == "r1"
    catalogue.found_broken("r2", "disk", "a bit has fallen over")
    assert catalogue.run(as_of(taken["r2"])).run_id == "r1"


def test_where_all_are_younger_the_oldest_is_named(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="there is no backup yet"):
        catalogue.run("as-of=2026-11-20")
    finished(catalogue, "r1")
    finished(catalogue, "r2")
    with pytest.raises(UsageError) as raised:
        catalogue.run("as-of=2001-02-03T04:05:nightly")
    assert raised.value.message == "there is no backup of job nightly that was taken by 2001-02-03 04:05:00 UTC"
    assert raised.value.hint.startswith("the oldest one is run r1, taken by 2")


def test_a_probe_and_a_bench_leave_no_backup(catalogue: Catalogue) -> None:
    for said in ("latest-good", "as-of=2026-11-20"):
        with pytest.raises(UsageError, match=f"{said} selects a backup, not a probe"):
            catalogue.probe(f"{said}:nightly")
        with pytest.raises(UsageError, match=f"{said} selects a backup, not a bench"):
            catalogue.bench(said)


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ("2026-10-25 02:30 Europe/Berlin", "was shown twice"),
        ("2026-03-29 02:30 Europe/Berlin", "was never shown"),
        ("2026-11-20 02:30 Mars/Base", "is not a time"),
        ("2026-11-20 02:30 Europe", "is not a time"),
        ("2026-11-20 02:30+01:00 Europe/Berlin", "is not a time"),
    ],
)
def test_a_time_that_a_zone_s_clocks_showed_not_once_is_refused(time: str, told: str) -> None:
    with pytest.raises(BadValue, match=told) as refused:
        parse_instant(time, now=NOW)
    assert "02:30:00+02:00 or 2026-10-25T02:30:00+01:00" in refused.value.hint or "twice" not in told
    assert (
        parse_instant("2026-11-20 13:00 Europe/Berlin", now=NOW) == parse_instant("2026-11-20T12 UTC", now=NOW) == NOON
    )
