"""The fleet's records, on PostgreSQL and on SQLite: what is kept comes back, and no question grows with the years."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Text, insert, inspect, text

from backupd.fleet import records as module
from backupd.fleet import schema, tables
from backupd.fleet.database import address, engine_for
from backupd.fleet.records import Records
from backupd.fleet.rows import row_of
from backupd.policy.cluster_status import WatchedCluster
from backupd.vocabulary.errors import FleetDatabaseAway, FleetDatabaseError, UsageError
from backupd.vocabulary.fleet import (
    ClusterSummary,
    Control,
    DescribedJob,
    FleetBackup,
    FleetState,
    FleetTry,
    HostDescription,
    OwedBackup,
    PauseScope,
    Role,
    SeenHost,
)
from backupd.vocabulary.records import Phase, RunDetails, RunStatus
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fleet.postgres import PostgresServer, postgres

_NOW = datetime(2026, 11, 26, 1, 2, 3, 4, tzinfo=UTC)
_NIGHT = date(2026, 11, 26)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/fleet.db"
    server: PostgresServer = request.getfixturevalue("server")
    engine = engine_for(address(server.url))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return server.url


@pytest.fixture
def records(url: str) -> Iterator[Records]:
    records = Records.open(url)
    yield records
    records.engine.dispose()


def owed(cluster: str = "shop", night: date = _NIGHT, job: str = "main") -> OwedBackup:
    begin = datetime.combine(night, datetime.min.time(), UTC)
    return OwedBackup(
        *(night, cluster, job, (f"{cluster}-1", f"{cluster}-2"), ("nas1", "s3")),
        not_before=begin,
        not_after=begin + timedelta(hours=6),
        priority=3,
        expected_seconds=600.5,
        expected_bytes=1 << 40,
    )


def done(cluster: str, night: date = _NIGHT) -> FleetBackup:
    due = owed(cluster, night)
    ended = due.not_before + timedelta(hours=1)
    tries = (FleetTry(f"{cluster}-2", due.id, due.not_before, ended, RunStatus.SUCCESS),)
    return FleetBackup(due, FleetState.DONE, tries, ended, "verify", 1 << 41, 1 << 40, 0, "")


def test_a_backup_comes_back_as_it_was_kept(records: Records) -> None:
    first = FleetBackup(owed(), FleetState.WAITING, changed_at=_NOW, said="waits for nas1: \0 \udc80 \u202e ☃")
    records.keep(first)
    records.keep(replace(done("shop"), lost_transactions=1 << 40))
    assert records.backup(first.owed.id) == replace(done("shop"), lost_transactions=1 << 40)
    assert records.backup("20261126-shop-other") is None


def test_words_that_the_database_cannot_keep_are_escaped(records: Records) -> None:
    wild = FleetTry("shop-1", "x", _NOW, said="\0 \udc80 ☃")
    records.keep(FleetBackup(owed(), FleetState.WAITING, (wild,), said="\0 \udc80 ☃"))
    kept = records.backup(owed().id)
    assert kept is not None
    assert kept.said == "\\x00 \\udc80 ☃"
    assert kept.tries == (wild,)


def test_what_is_owed_already_stays_as_it_is(records: Records) -> None:
    records.keep(done("shop"))
    records.owe([FleetBackup(owed("shop"), FleetState.WAITING), FleetBackup(owed("mail"), FleetState.WAITING)])
    assert [backup.state for backup in records.night(_NIGHT)] == [FleetState.WAITING, FleetState.DONE]
    assert [backup.owed.cluster for backup in records.going()] == ["mail"]


def test_a_night_is_planned_once(records: Records) -> None:
    assert records.plan_night(_NIGHT, [FleetBackup(owed("shop"), FleetState.WAITING)])
    assert not records.plan_night(_NIGHT, [FleetBackup(owed("mail"), FleetState.WAITING)])
    assert [backup.owed.cluster for backup in records.night(_NIGHT)] == ["shop"]
    assert records.planned_nights(since=_NIGHT) == [_NIGHT]
    assert records.planned_nights(since=_NIGHT + timedelta(days=1)) == []


def test_history_is_read_page_by_page_from_the_newest(records: Records) -> None:
    for number in range(5):
        for cluster in ("mail", "shop"):
            records.keep(done(cluster, _NIGHT - timedelta(days=number)))
    everything = records.history(limit=100)
    assert [backup.owed.id for backup in everything[:3]] == [
        *("20261126-shop-main", "20261126-mail-main", "20261125-shop-main")
    ]
    pages: list[FleetBackup] = []
    while page := records.history(limit=3, before=pages[-1].owed.id if pages else None):
        pages += page
    assert pages == everything
    assert {backup.owed.cluster for backup in records.history(cluster="mail")} == {"mail"}
    assert len(records.history(host="mail-2")) == 5
    assert records.history(state=FleetState.FAILED) == []
    with pytest.raises(UsageError, match="no backup 19700101-x to continue after"):
        records.history(before="19700101-x")


def terms(cluster: str, *members: str, jobs: tuple[str, ...] = ("main",)) -> WatchedCluster:
    return WatchedCluster(cluster, members, jobs, every_seconds=86_400.0)


def summaries(records: Records, *clusters: WatchedCluster) -> dict[str, ClusterSummary]:
    return records.summaries(clusters, at=_NOW, night=_NIGHT)


def test_a_cluster_s_summary_is_its_newest_its_last_good_and_its_last_proof(records: Records) -> None:
    yesterday = _NIGHT - timedelta(days=1)
    records.keep(done("shop", yesterday))
    records.keep(FleetBackup(owed("shop"), FleetState.MISSED, said="no member answered"))
    for host, proven in (("shop-1", _NOW - timedelta(days=3)), ("shop-2", _NOW - timedelta(days=2)), ("mail-1", _NOW)):
        job = DescribedJob("main", ("s3",), Role.REPLICA, last_proven_at=proven)
        records.saw(SeenHost(host, _NOW, HostDescription(host, "1", (1, 1), _NOW, (job,))))
    found = summaries(records, terms("shop", "shop-1", "shop-2"), terms("mail"))
    assert found["shop"].newest == FleetBackup(owed("shop"), FleetState.MISSED, said="no member answered")
    assert found["shop"].last_good == done("shop", yesterday)
    assert found["shop"].last_good_at == done("shop", yesterday).tries[0].ended_at
    assert found["shop"].last_proven_at == _NOW - timedelta(days=2)
    assert found["mail"] == ClusterSummary("mail", None, None, None, None, lacking=("main", ""))


def test_a_good_job_does_not_hide_a_bad_one_of_its_cluster(records: Records) -> None:
    weeks_ago = _NIGHT - timedelta(days=21)
    failed = FleetBackup(owed("shop", _NIGHT - timedelta(days=1)), FleetState.FAILED, said="the disk is full")
    weekly = replace(done("shop"), owed=owed("shop", job="weekly"))
    for backup in (done("shop", weeks_ago), failed, weekly):
        records.keep(backup)
    both = summaries(records, terms("shop", "shop-1", jobs=("main", "weekly")))["shop"]
    assert (both.newest, both.last_good, both.troubled) == (weekly, done("shop", weeks_ago), (failed,))
    assert both.last_good_at == done("shop", weeks_ago).tries[0].ended_at
    only_weekly = summaries(records, terms("shop", "shop-1", jobs=("weekly",)))["shop"]
    assert (only_weekly.last_good, only_weekly.troubled) == (weekly, ())
    never = summaries(records, terms("shop", "shop-1", jobs=("weekly", "monthly")))["shop"]
    assert (never.newest, never.last_good, never.last_good_at) == (weekly, None, None)
    assert never.lacking == ("monthly", "")


def test_a_good_member_does_not_hide_another_where_each_owes_a_backup(records: Records) -> None:
    each = replace(terms("shop", "shop-1", "shop-2"), every_member=True)
    of = {host: replace(owed("shop"), only=host) for host in each.members}
    weeks_ago = replace(of["shop-1"], night=_NIGHT - timedelta(days=21))
    failed = FleetBackup(of["shop-1"], FleetState.FAILED, said="the disk is full")
    for backup in (failed, replace(done("shop"), owed=of["shop-2"])):
        records.keep(backup)
    never = summaries(records, each)["shop"]
    assert (never.last_good, never.lacking, never.troubled) == (None, ("main", "shop-1"), (failed,))
    records.keep(replace(done("shop", weeks_ago.night), owed=weeks_ago))
    assert summaries(records, each)["shop"].last_good == replace(done("shop", weeks_ago.night), owed=weeks_ago)
    assert summaries(records, terms("shop", "shop-1", "shop-2"))["shop"].troubled == ()


def test_of_one_night_the_backup_counts_that_ended_last_whichever_a_person_asked_for(records: Records) -> None:
    afternoon = replace(done("shop"), owed=replace(owed("shop"), asked_for=1))
    assert afternoon.changed_at is not None
    late = afternoon.changed_at + timedelta(hours=12)
    failed = FleetBackup(owed("shop"), FleetState.FAILED, changed_at=late, said="the disk is full")
    for backup in (afternoon, failed):
        records.keep(backup)
    found = summaries(records, terms("shop", "shop-1"))["shop"]
    assert (found.newest, found.last_good, found.troubled) == (failed, afternoon, (failed,))
    by_host = replace(owed("shop"), only="shop-1", asked_for=1)
    mended = replace(done("shop"), owed=by_host, changed_at=late + timedelta(hours=1))
    records.keep(replace(failed, owed=afternoon.owed))
    records.keep(mended)
    found = summaries(records, terms("shop", "shop-1"))["shop"]
    assert (found.newest, found.troubled) == (mended, ())


def test_what_a_host_made_without_the_fleet_is_known_until_the_fleet_has_made_a_newer_one(records: Records) -> None:
    cluster = [terms("shop", "shop-1", "shop-2")]
    for host, good in (("shop-1", _NOW - timedelta(days=9)), ("shop-2", _NOW - timedelta(days=2)), ("mail-1", _NOW)):
        job = DescribedJob("main", ("s3",), Role.REPLICA, last_good_at=good)
        records.saw(SeenHost(host, _NOW, HostDescription(host, "1", (1, 1), _NOW, (job,))))
    found = summaries(records, *cluster)["shop"]
    assert (found.lacking, found.last_good_at, found.alone) == (
        *(("main", ""), None, ("shop-2", _NOW - timedelta(days=2))),
    )
    records.keep(done("shop", _NIGHT - timedelta(days=5)))
    assert summaries(records, *cluster)["shop"].alone == ("shop-2", _NOW - timedelta(days=2))
    records.keep(done("shop"))
    assert summaries(records, *cluster)["shop"].alone is None


def test_where_each_member_owes_proofs_the_one_without_counts(records: Records) -> None:
    each = replace(terms("shop", "shop-1", "shop-2"), every_member=True)
    found = []
    for host, proven in (("shop-1", _NOW - timedelta(days=3)), ("shop-2", _NOW)):
        job = DescribedJob("main", ("s3",), Role.REPLICA, last_proven_at=proven)
        records.saw(SeenHost(host, _NOW, HostDescription(host, "1", (1, 1), _NOW, (job,))))
        found.append(summaries(records, each)["shop"].last_proven_at)
    assert found == [None, _NOW - timedelta(days=3)]


def as_of_schema_3(connection: Connection) -> None:
    """A notice was not kept until it was told."""
    connection.execute(text("DROP INDEX ix_fleet_notices_owed"))
    connection.execute(text("ALTER TABLE fleet_notices DROP COLUMN notice"))
    connection.execute(text("UPDATE fleet_version SET version = 3"))


def test_an_upgraded_database_has_the_indexes_of_a_new_one(records: Records, url: str) -> None:
    fresh = {index["name"] for index in inspect(records.engine).get_indexes("fleet_backups")}
    with records.engine.begin() as connection:
        as_of_schema_3(connection)
        for name in ("ix_fleet_backups_job_night", "ix_fleet_backups_job_good_at"):
            connection.execute(text(f"DROP INDEX {name}"))
        connection.execute(text("ALTER TABLE fleet_backups DROP COLUMN member"))
        connection.execute(text("CREATE INDEX ix_fleet_backups_cluster_good_at ON fleet_backups (cluster, good_at)"))
        connection.execute(text("UPDATE fleet_version SET version = 1"))
    again = Records.open(url)
    assert {index["name"] for index in inspect(again.engine).get_indexes("fleet_backups")} == fresh
    again.engine.dispose()


def test_an_upgraded_database_knows_whose_each_backup_is(records: Records, url: str) -> None:
    each = replace(terms("shop", "shop-1"), every_member=True)
    backup = replace(done("shop"), owed=replace(owed("shop"), only="shop-1"))
    records.keep(backup)
    with records.engine.begin() as connection:
        as_of_schema_3(connection)
        connection.execute(text("ALTER TABLE fleet_backups DROP COLUMN member"))
        connection.execute(text("UPDATE fleet_version SET version = 2"))
    again = Records.open(url)
    assert summaries(again, each)["shop"].last_good == backup
    again.engine.dispose()


def test_a_host_that_does_not_answer_keeps_what_it_told_last(records: Records) -> None:
    known = {"shop-1-0badcafe": _NOW}
    told = HostDescription("shop-1-0badcafe", "1.0", (1, 1), _NOW, (), machine_since=_NOW, machines=known)
    records.saw(SeenHost("shop-1", _NOW, told))
    records.saw(SeenHost("shop-1", None, None, "connection refused"))
    records.saw(SeenHost("shop-2", None, None, "no route"))
    assert records.seen() == [
        SeenHost("shop-1", _NOW, told, "connection refused"),
        SeenHost("shop-2", None, None, "no route"),
    ]
    records.saw(SeenHost("shop-1", _NOW, told))
    assert records.seen()[0].problem == ""


_UNREADABLE = "cannot be read: the fleet's database contains an invalid value: "


def test_a_host_of_which_the_database_has_something_else_has_a_problem_and_hides_no_other(records: Records) -> None:
    known = {"shop-1-0badcafe": _NOW}
    told = HostDescription("shop-1-0badcafe", "1.0", (1, 1), _NOW, (), machine_since=_NOW, machines=known)
    for host in ("mail-1", "shop-1", "shop-2"):
        records.saw(SeenHost(host, _NOW, told))
    records.saw(SeenHost("shop-2", None, None, "no route"))
    with records.engine.begin() as connection:
        connection.execute(text("UPDATE fleet_hosts SET described = '[1]' WHERE host <> 'mail-1'"))
    mail, *others = records.seen()
    assert mail == SeenHost("mail-1", _NOW, told)
    assert [(one.answered_at, one.described) for one in others] == [(_NOW, None)] * 2
    problem = f"what the fleet's database has of it {_UNREADABLE}'[1]'"
    assert [one.problem for one in others] == [problem, f"no route; {problem}"]
    assert summaries(records, terms("shop", "shop-1"))["shop"].last_proven_at is None
    records.saw(SeenHost("shop-1", _NOW, told))
    assert records.seen()[1] == SeenHost("shop-1", _NOW, told)


def test_a_backup_whose_tries_are_something_else_keeps_no_other_from_being_read(records: Records) -> None:
    begun = FleetTry("shop-2", owed().id, _NOW)
    records.keep(FleetBackup(owed(), FleetState.RUNNING, (begun,), _NOW))
    records.keep(FleetBackup(owed("mail"), FleetState.WAITING))
    records.keep(done("old"))
    with records.engine.begin() as connection:
        connection.execute(text("UPDATE fleet_backups SET tries = '[1]' WHERE cluster <> 'mail'"))
    mail, shop = records.going()
    assert mail == FleetBackup(owed("mail"), FleetState.WAITING)
    assert shop.said == f"what the fleet's database has of its tries {_UNREADABLE}'[1]'"
    (unknown,) = shop.tries
    assert (unknown.host, unknown.status, unknown.asked) == ("shop-2", None, True)  # its run may go on there
    assert len(records.night(_NIGHT)) == len(records.history()) == 3
    assert [one.owed.cluster for one in records.without_result(since=_NIGHT)] == ["old"]
    good = summaries(records, terms("old", "old-1"))["old"]
    assert good.last_good_at == done("old").changed_at
    records.keep(replace(shop, said="", tries=(begun,)))
    assert records.backup(owed().id) == FleetBackup(owed(), FleetState.RUNNING, (begun,), _NOW)


def test_what_cannot_be_read_is_no_reason_to_discard_the_database(records: Records) -> None:
    records.keep(done("shop"))
    with records.engine.begin() as connection:
        connection.execute(text("UPDATE fleet_backups SET owed = '[1]'"))
    with pytest.raises(FleetDatabaseError) as caught:
        records.history()
    assert caught.value.hint.endswith("do not discard the database for it")


def test_a_word_of_a_later_backupd_is_told_and_is_no_bug(records: Records) -> None:
    records.keep(done("shop"))
    records.pause(PauseScope.FLEET, "", "")
    with records.engine.begin() as connection:
        connection.execute(text("UPDATE fleet_backups SET state = 'postponed'"))
        connection.execute(text("UPDATE fleet_pauses SET scope = 'rack'"))
    for ask in (records.history, records.pauses):
        with pytest.raises(FleetDatabaseError, match=r"contains an invalid value: '(postponed|rack)'"):
            ask()


def test_a_pause_stands_until_it_is_ended(records: Records) -> None:
    records.pause(PauseScope.CLUSTER, "shop", "migration")
    records.pause(PauseScope.CLUSTER, "shop", "still")
    records.pause(PauseScope.FLEET, "", "")
    assert [(pause.scope, pause.name, pause.note) for pause in records.pauses()] == [
        *((PauseScope.CLUSTER, "shop", "still"), (PauseScope.FLEET, "", ""))
    ]
    assert records.resume(PauseScope.CLUSTER, "shop")
    assert not records.resume(PauseScope.CLUSTER, "shop")


def test_wishes_and_the_one_at_work_are_remembered(records: Records) -> None:
    records.owe([FleetBackup(owed(), FleetState.WAITING)])
    assert records.cancels() == {}
    records.ask_to_cancel(owed().id, "by hand")
    assert records.cancels() == {owed().id: "by hand"}
    records.cancel_waiting(_NOW)
    assert records.going() == []
    assert records.cancels() == {owed().id: "by hand"}
    records.keep(done("shop"))
    assert records.cancels() == {}
    assert records.control() is None
    records.at_work(Control("control1", 7, _NOW, _NOW))
    records.at_work(Control("control2", 8, _NOW, _NOW))
    assert records.control() == Control("control2", 8, _NOW, _NOW)


def test_a_notice_is_owed_once_and_until_it_was_told(records: Records) -> None:
    notice = Notice(
        NoticeKind.MISSED, "main", _NOW, "a", "caf\udce9 \0 is full", {"hint": "make \ud800 room"}, cluster="shop"
    )
    assert records.notices.never_owed(["a", "b", "c"]) == ["a", "b", "c"]
    assert records.notices.owe(notice, "a", "b")
    assert not records.notices.owe(notice, "a", "c")
    assert records.notices.never_owed(["a", "b", "c"]) == ["c"]
    assert records.notices.waiting() == [
        ("a", replace(notice, text="caf\\udce9 \0 is full", detail={"hint": "make \\ud800 room"}))
    ]
    records.notices.told("a")
    assert not records.notices.owe(notice, "a")
    assert records.notices.waiting() == []
    for about in ("caf\udce9", "\0"):
        assert records.notices.owe(notice, about)
        records.notices.told(about)
    assert records.notices.waiting() == []


def test_what_an_older_backupd_has_told_is_not_told_again(records: Records, url: str) -> None:
    with records.engine.begin() as connection:
        as_of_schema_3(connection)
        connection.execute(insert(tables.notices).values(subject="a", at=_NOW))
    again = Records.open(url)
    notice = Notice(NoticeKind.MISSED, "main", _NOW, "a", "it is full")
    assert not again.notices.owe(notice, "a")
    assert again.notices.owe(notice, "b")
    assert [about for about, _notice in again.notices.waiting()] == ["b"]
    assert "ix_fleet_notices_owed" in {one["name"] for one in inspect(again.engine).get_indexes("fleet_notices")}
    again.engine.dispose()


def test_a_wish_to_cancel_what_still_waits_is_not_forgotten(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    records.owe([FleetBackup(owed(), FleetState.WAITING), FleetBackup(owed("mail"), FleetState.WAITING)])
    monkeypatch.setattr(module, "_CANCELS_LAST", timedelta(seconds=-1))  # any wish is older
    records.ask_to_cancel(owed().id, "by hand")
    assert records.cancels() == {owed().id: "by hand"}
    records.cancel_waiting(_NOW)
    assert records.cancels() == {}


def test_what_waits_is_missed_and_what_runs_is_not(records: Records) -> None:
    records.owe([FleetBackup(owed(), FleetState.WAITING), FleetBackup(owed("mail"), FleetState.RUNNING)])
    assert records.miss_waiting(owed().id, "it waited", _NOW)
    assert not records.miss_waiting(owed().id, "it waited", _NOW)
    assert not records.miss_waiting(owed("mail").id, "it waited", _NOW)
    assert [(one.state, one.said) for one in records.night(_NIGHT)] == [
        (FleetState.RUNNING, ""),
        (FleetState.MISSED, "it waited"),
    ]


def test_since_when_a_host_has_been_its_machine_is_remembered_and_which_it_was_before(records: Records) -> None:
    day, since = timedelta(days=1), []
    for days, machine in enumerate(("db1-0a1b2c3d", "db1-0a1b2c3d", "", "db1-0a1b2c3d", "db2-0a1b2c3d")):
        told = HostDescription(machine, "1", (1, 1), _NOW, ()) if machine else None
        now = records.saw(SeenHost("db1", _NOW + days * day if machine else None, told, "" if machine else "away"))
        if now.described is not None:
            assert records.seen() == [now]
            since.append((now.described.machine_since, now.described.machine_before))
    assert since == [(_NOW, ""), (_NOW, ""), (_NOW, ""), (_NOW + 4 * day, "db1-0a1b2c3d")]


def told_by_db1(records: Records, machine: str, at: datetime) -> HostDescription:
    now = records.saw(SeenHost("db1", at, HostDescription(machine, "1", (1, 1), at, ()))).described
    assert now is not None
    return now


@pytest.mark.parametrize("unreadable", [False, True])
def test_one_odd_look_takes_from_no_host_that_it_was_a_machine_first(records: Records, unreadable: bool) -> None:
    """Nor does a record that a newer backupd has written, with a word that this one does not know."""
    day = timedelta(days=1)
    told_by_db1(records, "db1-0a1b2c3d", _NOW - 300 * day)
    told_by_db1(records, "db9-0a1b2c3d", _NOW - day)
    if unreadable:
        with records.engine.begin() as connection:
            newer = "UPDATE fleet_hosts SET described = replace(described, '\"jobs\"', '\"works\"')"
            connection.execute(text(newer))
        assert records.seen()[0].described is None
    now = told_by_db1(records, "db1-0a1b2c3d", _NOW)
    assert (now.machine_since, now.machine_before) == (_NOW, "db9-0a1b2c3d"), "it has moved, and people are told"
    assert now.machines == {"db1-0a1b2c3d": _NOW - 300 * day, "db9-0a1b2c3d": _NOW - day}
    for number in range(20):
        now = told_by_db1(records, f"liar-{number}", _NOW + timedelta(seconds=number))
    assert len(now.machines) == 8
    assert now.machines["db1-0a1b2c3d"] == _NOW - 300 * day


def test_an_answer_that_comes_after_a_newer_one_changes_nothing(records: Records) -> None:
    newer = told_by_db1(records, "db1-0a1b2c3d", _NOW)
    assert told_by_db1(records, "db9-0a1b2c3d", _NOW - timedelta(seconds=1)) == newer
    assert [one.described for one in records.seen()] == [newer]


def test_an_answer_counts_though_a_wrong_clock_has_left_one_that_is_yet_to_come(records: Records) -> None:
    told_by_db1(records, "db1-0a1b2c3d", datetime(2999, 1, 1, tzinfo=UTC))
    assert told_by_db1(records, "db9-0a1b2c3d", _NOW).machine == "db9-0a1b2c3d"
    assert [one.answered_at for one in records.seen()] == [_NOW]


def test_hosts_are_found_by_the_machine_that_they_told(records: Records) -> None:
    for host, machine in (("db1", "db1-0a1b2c3d"), ("db2", 'a "%_\\ ü'), ("db3", "db1-0a1b2c3d")):
        records.saw(SeenHost(host, _NOW, HostDescription(machine, "1", (1, 1), _NOW, ())))
    records.saw(SeenHost("db4", None, None, "it is away"))
    assert [one.host for one in records.seen({"db1-0a1b2c3d"})] == ["db1", "db3"]
    assert [one.host for one in records.seen({'a "%_\\ ü', "another"})] == ["db2"]
    assert records.seen(set()) == []
    assert len(records.seen()) == 4


def test_a_result_is_kept_without_what_only_its_host_needs(records: Records) -> None:
    details = RunDetails("r", "main", "h", "m", RunStatus.SUCCESS, _NOW, _NOW, phases={Phase.COPY: 3.5})
    records.keep_result("shop", "shop-1", details)
    assert records.result("r") == details
    assert records.result("other") is None


def test_another_process_finds_the_same(records: Records, url: str) -> None:
    records.keep(done("shop"))
    again = Records.open(url)
    assert again.night(_NIGHT) == [done("shop")]
    again.engine.dispose()


def test_a_database_of_a_newer_backupd_is_refused(records: Records, url: str) -> None:
    with records.engine.begin() as connection:
        connection.execute(text("UPDATE fleet_version SET version = 99"))
    with pytest.raises(FleetDatabaseError, match="its schema is 99, this one knows"):
        Records.open(url)


def test_an_older_schema_is_brought_to_this_one(records: Records, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with records.engine.begin() as connection:
        connection.execute(text("ALTER TABLE fleet_pauses DROP COLUMN note"))
    monkeypatch.setattr(tables, "HEAD", tables.HEAD + 1)
    add: Column[str] = Column("note", Text)
    monkeypatch.setitem(schema.STEPS, tables.HEAD - 1, lambda operations: operations.add_column("fleet_pauses", add))
    again = Records.open(url)
    again.pause(PauseScope.FLEET, "", "note")
    assert [pause.note for pause in again.pauses()] == ["note"]
    again.engine.dispose()


def test_a_database_that_is_away_says_so_and_is_found_again(tmp_path: Path) -> None:
    with postgres() as server:
        records = Records.open(server.url)
        records.keep(done("shop"))
        server.stop()
        with pytest.raises(FleetDatabaseAway, match="the fleet's database does not answer") as caught:
            records.keep(done("mail"))
        assert "PostgreSQL" in caught.value.hint
        server.start()
        records.keep(done("mail"))
        assert len(records.night(_NIGHT)) == 2
        records.engine.dispose()


@pytest.mark.matrix
def test_three_years_of_five_hundred_hosts_are_answered_at_once(records: Records) -> None:
    clusters = [f"cluster-{number:03}" for number in range(170)]
    nights = [_NIGHT - timedelta(days=number) for number in range(3 * 365)]
    with records.engine.begin() as connection:
        for night in nights:
            rows = [row_of(done(cluster, night)) for cluster in clusters]
            connection.execute(insert(tables.backups), rows)
    if records.engine.dialect.name == "postgresql":
        with records.engine.begin() as connection:
            connection.execute(text("ANALYZE"))
    shape = [terms(cluster, f"{cluster}-1") for cluster in clusters]
    shape[0] = replace(shape[0], jobs=("main", "never"))
    shape[1] = replace(shape[1], members=("new-1", "new-2"), every_member=True)
    middle = owed("cluster-085", nights[500]).id
    questions: tuple[Callable[[], object], ...] = (
        lambda: records.night(nights[300]),
        lambda: records.history(limit=50),
        lambda: records.history(limit=50, before=middle),
        lambda: records.history(limit=50, cluster="cluster-007", before=middle),
        lambda: records.history(limit=50, host="cluster-007-2"),
        lambda: records.history(limit=50, state=FleetState.DONE),
        lambda: summaries(records, *shape),
        lambda: records.outcomes(nights[34], nights[0]),
        records.going,
    )
    for ask in questions:
        ask()  # the statement is compiled
        assert any(_seconds(ask) < 0.3 for _ in range(50))  # a page may take no more, where it has a processor


def _seconds(ask: Callable[[], object]) -> float:
    began = time.monotonic()
    ask()
    return time.monotonic() - began


@pytest.mark.parametrize("state", [FleetState.WAITING, FleetState.RUNNING, FleetState.CANCELLED])
def test_a_night_that_failed_stands_until_another_has_ended(records: Records, state: FleetState) -> None:
    failed = FleetBackup(owed("shop", _NIGHT - timedelta(days=1)), FleetState.FAILED, said="the disk is full")
    for backup in (done("shop", _NIGHT - timedelta(days=2)), failed, FleetBackup(owed("shop"), state)):
        records.keep(backup)
    found = summaries(records, terms("shop", "shop-1"))["shop"]
    assert found.newest == FleetBackup(owed("shop"), state)
    assert found.troubled == (failed,)
    records.keep(done("shop"))
    assert summaries(records, terms("shop", "shop-1"))["shop"].troubled == ()


def test_what_a_clock_that_was_ahead_has_left_hides_no_night_that_failed_and_counts_when_its_time_has_come(
    records: Records,
) -> None:
    yesterday, next_year = _NIGHT - timedelta(days=1), _NIGHT + timedelta(days=365)
    failed = FleetBackup(owed("shop"), FleetState.FAILED, said="the disk is full")
    for backup in (done("shop", yesterday), failed, done("shop", next_year)):
        records.keep(backup)
    now = summaries(records, terms("shop", "shop-1"))["shop"]
    assert (now.newest, now.last_good, now.troubled) == (failed, done("shop", yesterday), (failed,))
    later = records.summaries([terms("shop", "shop-1")], at=_NOW + timedelta(days=365), night=next_year)["shop"]
    assert (later.newest, later.last_good, later.troubled) == (done("shop", next_year), done("shop", next_year), ())


def test_a_job_that_is_proven_hides_none_that_is_not(records: Records) -> None:
    main = DescribedJob("main", ("s3",), Role.REPLICA)
    other = DescribedJob("scratch", ("s3",), Role.REPLICA, last_proven_at=_NOW)
    records.saw(SeenHost("shop-1", _NOW, HostDescription("shop-1", "1", (1, 1), _NOW, (main, other))))
    for jobs in (("main",), ("main", "scratch")):
        assert summaries(records, terms("shop", "shop-1", jobs=jobs))["shop"].last_proven_at is None
    assert summaries(records, terms("shop", "shop-1", jobs=("scratch",)))["shop"].last_proven_at == _NOW
