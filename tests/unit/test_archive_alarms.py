"""What is an alarm of a binlog archive, and what Prometheus is told of it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.store import Catalogue
from backupd.service.archive_status import archive_statuses, behind_words, receiver_words
from backupd.service.job_status import job_statuses
from backupd.service.machine_view import own_eyes
from backupd.service.site import Site
from backupd.vocabulary.alarms import Alarm, AlarmKind
from backupd.vocabulary.binlogs import NOT_LOGGED, ArchiveGap
from backupd.vocabulary.records import Drill
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import CHAIN, FIRST, following
from tests.unit.test_metrics import NIGHTLY, configured, failed, good, metrics_of, value

ARCHIVED = {"nightly": {"host": "db1", "targets": ("vault",), "binlog": {}}}
LAST_AT = datetime(2026, 11, 20, 4, 0, 9, tzinfo=UTC)
POSITION = Position(binlog_file="bin.000001", binlog_offset=500)
MINUTE = timedelta(minutes=1)
ARCHIVE_ALARMS = (AlarmKind.BINLOG_GAP, AlarmKind.BINLOG_BEHIND, AlarmKind.BINLOG_SPOOL)
NAMES = ("waiting_seconds", "received_timestamp_seconds", "last_transaction_timestamp_seconds", "gap_timestamp_seconds")


@pytest.fixture
def catalogue(path_in_memory: Path) -> Iterator[Catalogue]:
    with Catalogue.open(path_in_memory / "catalogue.sqlite") as opened:
        yield opened


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


def site(catalogue: Catalogue, folder: Path, now: datetime, **tables: Any) -> Site:
    return Site(configured(folder, **({"jobs": ARCHIVED} | tables)), catalogue, lambda: now)


def alarms(site: Site) -> list[Alarm]:
    """Those of the archive."""
    (found,) = job_statuses(site, own_eyes(site.configuration).live)
    return [alarm for alarm in found.alarms if alarm.kind in ARCHIVE_ALARMS]


def told(site: Site) -> list[float | None]:
    """The four metrics, in the order of their names above."""
    answer = metrics_of(site).exposition()
    return [value(answer, f"binlog_{name}", **NIGHTLY) for name in NAMES]


def placed(catalogue: Catalogue, run_id: str, position: Position = POSITION) -> None:
    """A good backup whose place in the binlog is known."""
    with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.position(position)
        run.complete((Backup("vault", "/v", 5000, 400, 12, "ab" * 32),))


def test_a_gap_is_an_alarm_until_a_good_backup_was_started_after_it_was_noticed(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    placed(catalogue, "before")
    noticed = datetime.now(UTC)
    catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the log was reset", noticed, LAST_AT))
    later = site(catalogue, tmp_path, now + MINUTE)
    text = "the binlog archive has a gap since 2026-11-20 04:00 UTC: the log was reset"
    gap = Alarm(AlarmKind.BINLOG_GAP, text, about=CHAIN)
    assert alarms(later) == [gap]
    assert told(later)[3] == pytest.approx(noticed.timestamp())
    failed(catalogue, ValueError("no"), "bad")
    assert alarms(later) == [gap]
    placed(catalogue, "after")
    assert alarms(later) == []
    assert told(later)[3] is None


def test_a_backup_without_a_lock_ends_no_gap_before_a_drill_has_found_its_place(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the log was reset", datetime.now(UTC), LAST_AT))
    placed(catalogue, "r1", replace(POSITION, binlog_offset=None))
    later = site(catalogue, tmp_path, now + MINUTE)
    assert [alarm.about for alarm in alarms(later)] == [CHAIN]
    catalogue.record_drill(Drill("r1", ok=True, checks=(), seconds=9.0, at=datetime.now(UTC), position=POSITION))
    assert alarms(later) == []
    assert told(later)[3] is None


def test_a_log_that_lacked_changes_is_an_alarm_until_a_backup_was_started_after_it_was_whole_again(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    gap = ArchiveGap(CHAIN, f"{NOT_LOGGED}the server's binlog is off", now - MINUTE, LAST_AT)
    catalogue.archive_gap("nightly", gap)
    placed(catalogue, "meanwhile")
    later = site(catalogue, tmp_path, now + MINUTE)
    assert [alarm.about for alarm in alarms(later)] == [CHAIN]
    catalogue.archive_gap("nightly", replace(gap, resumed_at=datetime.now(UTC)))
    assert [alarm.about for alarm in alarms(later)] == [CHAIN]
    placed(catalogue, "afterwards")
    assert alarms(later) == []


def test_a_gap_behind_a_chain_without_a_transaction_is_dated_by_when_it_was_noticed(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """Where there is no backup at all, too."""
    catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the log was reset", LAST_AT, None))
    (gap,) = alarms(site(catalogue, tmp_path, LAST_AT + MINUTE))
    assert gap.text == "the binlog archive has a gap since 2026-11-20 04:00 UTC: the log was reset"


def test_another_gap_is_another_alarm(catalogue: Catalogue, tmp_path: Path) -> None:
    found = []
    for number in range(2):
        noticed = LAST_AT + number * MINUTE
        catalogue.archive_gap("nightly", ArchiveGap(f"{CHAIN[:-1]}{number}", "the log was reset", noticed, None))
        found.append([alarm.about for alarm in alarms(site(catalogue, tmp_path, LAST_AT + 5 * MINUTE))])
    assert found == [[f"{CHAIN[:-1]}0"], [f"{CHAIN[:-1]}0", f"{CHAIN[:-1]}1"]]


def test_what_waits_for_a_target_for_longer_than_a_quarter_of_an_hour_is_an_alarm_until_it_has_it(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    received = LAST_AT + MINUTE
    catalogue.add_segment(replace(FIRST, machine=catalogue.identity().name, received_at=received, last_at=LAST_AT))
    in_time = site(catalogue, tmp_path, received + 15 * MINUTE)
    assert alarms(in_time) == []
    assert told(in_time) == [900, received.timestamp(), LAST_AT.timestamp(), None]
    late = site(catalogue, tmp_path, received + 25 * MINUTE)
    (behind,) = alarms(late)
    assert (behind.kind, behind.text) == (
        AlarmKind.BINLOG_BEHIND,
        "the binlog archive is behind: a target has lacked segments for 25 min",
    )
    catalogue.left_spool([FIRST.name])
    assert alarms(late) == []
    assert told(late)[0] == 0


def test_what_a_clock_that_was_ahead_has_received_hides_nothing_that_waits_since(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    ahead = replace(FIRST, machine=catalogue.identity().name, received_at=FIRST.received_at + timedelta(days=365))
    catalogue.add_segment(ahead)
    catalogue.add_segment(replace(following(ahead), received_at=FIRST.received_at))
    (behind,) = alarms(site(catalogue, tmp_path, FIRST.received_at + 25 * MINUTE))
    assert behind.text == "the binlog archive is behind: a target has lacked segments for 25 min"


def test_a_spool_that_is_three_quarters_full_is_an_alarm(catalogue: Catalogue, tmp_path: Path) -> None:
    ours = replace(FIRST, machine=catalogue.identity().name, stored_bytes=750 << 20)
    catalogue.add_segment(ours)
    job = {"nightly": {**ARCHIVED["nightly"], "binlog": {"spool_limit": "1000MiB"}}}
    full = site(catalogue, tmp_path, FIRST.received_at, jobs=job)
    assert alarms(full) == []
    catalogue.add_segment(replace(ours, number=2, digest="2" * 64, stored_bytes=1 << 20))
    (spool,) = alarms(full)
    assert (spool.kind, spool.text) == (
        AlarmKind.BINLOG_SPOOL,
        "the binlog spool fills: 751.0 MiB of 1000.0 MiB wait for a target; when it is full, the oldest segments are"
        " dropped",
    )
    answer = metrics_of(full).exposition()
    told = [value(answer, f"binlog_spool_{name}", **NIGHTLY) for name in ("bytes", "limit_bytes")]
    assert told == [751 << 20, 1000 << 20]


@pytest.mark.parametrize(
    ("refused", "state", "words"),
    [
        ("", "working", "running, asked the server 60 s ago"),
        ("access denied", "refused", "the server's log is not received: access denied"),
        ("no\nroute", "silent", "no report for 10 min; then: no\nroute"),
        (None, "never", "it has not reported yet"),
    ],
)
def test_what_a_receiver_does_is_told_by_what_it_told_last(
    catalogue: Catalogue, tmp_path: Path, now: datetime, refused: str | None, state: str, words: str
) -> None:
    if refused is not None:
        catalogue.archive_contact("nightly", at=now, refused=refused)
    at = site(catalogue, tmp_path, now + (10 if state == "silent" else 1) * MINUTE)
    (archive,) = archive_statuses(at, job_statuses(at, own_eyes(at.configuration).live)).values()
    assert (archive.figures.receiver, receiver_words(archive)) == (state, words)


def test_how_far_an_archive_is_behind_stays_since_it_last_had_everything(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    catalogue.archive_contact("nightly", at=now, behind_bytes=0)
    catalogue.archive_contact("nightly", at=now + 2 * MINUTE, behind_bytes=5 << 20, complete=False)
    at = site(catalogue, tmp_path, now + 3 * MINUTE)
    (archive,) = archive_statuses(at, job_statuses(at, own_eyes(at.configuration).live)).values()
    assert (archive.figures.behind_seconds, archive.figures.behind_bytes) == (180, 5 << 20)
    assert behind_words(archive.figures) == "3 min or less, 5.0 MiB when the server was asked last"
    answer = metrics_of(at).exposition()
    assert [value(answer, f"binlog_behind_{name}", **NIGHTLY) for name in ("seconds", "bytes")] == [180, 5 << 20]
    assert value(answer, "binlog_last_recoverable_timestamp_seconds", **NIGHTLY) is None, "there is no backup"


def test_how_many_bytes_an_archive_is_behind_is_not_told_once_its_receiver_is_gone(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    """What it found last is mostly 0, and the server writes on."""
    catalogue.archive_contact("nightly", at=now, behind_bytes=0)
    at = site(catalogue, tmp_path, now + 10 * MINUTE)
    (archive,) = archive_statuses(at, job_statuses(at, own_eyes(at.configuration).live)).values()
    assert (archive.figures.receiver, archive.figures.behind_bytes) == ("silent", None)
    back = site(catalogue, tmp_path, now - 10 * MINUTE)
    (set_back,) = archive_statuses(back, job_statuses(back, own_eyes(back.configuration).live)).values()
    assert (set_back.figures.receiver, set_back.figures.behind_bytes) == ("silent", None), "none would leave it ahead"
    assert receiver_words(set_back) == "no report for 10 min"
    assert behind_words(archive.figures) == "10 min or less"
    answer = metrics_of(at).exposition()
    assert [value(answer, f"binlog_behind_{name}", **NIGHTLY) for name in ("seconds", "bytes")] == [600, None]


def test_a_quiet_server_is_not_behind(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.add_segment(replace(FIRST, machine=catalogue.identity().name), spooled=False)
    assert alarms(site(catalogue, tmp_path, FIRST.received_at + timedelta(days=300))) == []


def test_a_clock_that_was_put_back_makes_nothing_wait_for_less_than_no_time(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    catalogue.add_segment(replace(FIRST, machine=catalogue.identity().name))
    assert told(site(catalogue, tmp_path, FIRST.received_at - MINUTE)) == [0, None, None, None]


def test_of_a_job_whose_binlog_is_not_archived_any_more_nothing_is_told(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.add_segment(replace(FIRST, machine=catalogue.identity().name))
    catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the log was reset", LAST_AT, None))
    without = {"nightly": {"host": "db1", "targets": ("vault",)}}
    later = site(catalogue, tmp_path, FIRST.received_at + timedelta(days=1), jobs=without)
    assert alarms(later) == []
    assert told(later) == [None, None, None, None]


def test_a_server_whose_log_nobody_receives_is_an_alarm_with_the_reason_until_it_is_received_again(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    assert alarms(site(catalogue, tmp_path, now)) == [], "it has never begun"
    catalogue.archive_contact("nightly", at=now)
    catalogue.archive_contact("nightly", at=now + MINUTE, refused="access denied")
    assert alarms(site(catalogue, tmp_path, now + 14 * MINUTE)) == []
    silent = site(catalogue, tmp_path, now + 25 * MINUTE)
    text = "the binlog archive is behind: the server's log has not been received for 25 min: access denied"
    assert alarms(silent) == [Alarm(AlarmKind.BINLOG_BEHIND, text, about="receiver")]
    reached = value(metrics_of(silent).exposition(), "binlog_reached_timestamp_seconds", **NIGHTLY)
    assert reached == pytest.approx(now.timestamp(), abs=1)
    catalogue.archive_contact("nightly", at=now + 20 * MINUTE)
    assert alarms(silent) == []


def test_a_receiver_that_is_behind_is_not_called_none_at_all(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    good(catalogue, "before")
    catalogue.archive_contact("nightly", at=now)
    catalogue.archive_contact("nightly", at=now + 19 * MINUTE, behind_bytes=3 << 20, complete=False)
    (alarm,) = alarms(site(catalogue, tmp_path, now + 20 * MINUTE))
    assert alarm.text.endswith("for 20 min: a receiver is running, 3.0 MiB behind")
    (alarm,) = alarms(site(catalogue, tmp_path, now + 30 * MINUTE))
    assert alarm.text.endswith("for 30 min: no receiver is running")


def test_an_archive_that_somebody_waits_for_and_that_never_begins_is_an_alarm(
    catalogue: Catalogue, tmp_path: Path, now: datetime
) -> None:
    good(catalogue, "before")
    catalogue.archive_awaited("nightly", at=now)
    assert alarms(site(catalogue, tmp_path, now + 14 * MINUTE)) == []
    (alarm,) = alarms(site(catalogue, tmp_path, now + 16 * MINUTE))
    assert "has not been received for 16 min: no receiver has told anything yet" in alarm.text
    catalogue.archive_contact("nightly", at=now + 16 * MINUTE)
    catalogue.archive_awaited("nightly", at=now + 17 * MINUTE)
    assert alarms(site(catalogue, tmp_path, now + 17 * MINUTE)) == []


def test_a_clock_that_was_ahead_silences_nothing(catalogue: Catalogue, tmp_path: Path, now: datetime) -> None:
    good(catalogue, "before")
    catalogue.archive_contact("nightly", at=now + timedelta(days=30))
    assert len(alarms(site(catalogue, tmp_path, now))) == 1
    catalogue.archive_contact("nightly", at=now, refused="the server does not answer")
    assert alarms(site(catalogue, tmp_path, now)) == []
    catalogue.archive_contact("nightly", at=now + 15 * MINUTE, refused="the server does not answer")
    (alarm,) = alarms(site(catalogue, tmp_path, now + 16 * MINUTE))
    assert "the server does not answer" in alarm.text
