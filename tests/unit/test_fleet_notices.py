"""What a control host tells: what there is not, what is wrong with its inventory, which hosts have gone."""

import logging
import socket
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest

from backupd.config.fleet_reading import FleetFile
from backupd.fleet.records import Records
from backupd.notifications.words import document, title
from backupd.operations.fleet import fleet_notices
from backupd.operations.fleet.fleet_notices import (
    notice_of,
    tell_end,
    tell_gone,
    tell_moved,
    tell_one_machine,
    tell_own_clock,
    tell_problems,
    tell_unplanned,
    with_page,
)
from backupd.operations.fleet.serving import reload
from backupd.policy.one_machine import CountsAs
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.fleet import FleetBackup, FleetState, OwedBackup, SeenHost
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fleets import NOW, away, described, seen, source

NIGHT = date(2026, 11, 26)


@pytest.fixture
def records(path_in_memory: Path) -> Iterator[Records]:
    made = Records.open(f"sqlite:///{path_in_memory}/fleet.sqlite")
    yield made
    made.engine.dispose()


def owed_now(records: Records) -> list[Notice]:
    """What is to be told; from now on it was."""
    waiting = records.notices.waiting()
    for about, _notice in waiting:
        records.notices.told(about)
    return [notice for _about, notice in waiting]


def test_a_backup_that_failed_is_in_the_log_though_nobody_is_told(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    owed = OwedBackup(NIGHT, "shop", "nightly", ("db1",), (), NOW, NOW, 1, 1.0, 1)
    tell_end(records, FleetBackup(owed, FleetState.FAILED, said="the disk is full"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "20261126-shop-nightly: the backup of cluster shop failed: the disk is full"


@pytest.mark.parametrize(
    ("state", "became"),
    [
        (FleetState.FAILED, "failed"),
        (FleetState.MISSED, "was missed"),
        (FleetState.RUNNING, "needs attention"),
    ],
)
def test_a_subject_names_the_cluster(state: FleetState, became: str) -> None:
    owed = OwedBackup(NIGHT, "shop", "nightly", ("db1",), (), NOW, NOW, 1, 1.0, 1)
    told = notice_of(FleetBackup(owed, state, said="the disk is full"))
    assert title(told) == f"backupd on {socket.gethostname()}: nightly of cluster shop {became}"
    assert document(told)["cluster"] == "shop"


def test_the_subject_of_what_is_wrong_with_a_fleet_says_so(records: Records) -> None:
    tell_problems(records, NIGHT, ("the inventory /i is cut",))
    assert [title(one) for one in owed_now(records)] == [
        f"backupd on {socket.gethostname()}: the fleet needs attention"
    ]


def test_people_are_told_at_which_address_they_see_the_backup_that_failed() -> None:
    told: list[Notice] = []
    owed = OwedBackup(NIGHT, "shop", "nightly", ("db1",), (), NOW, NOW, 1, 1.0, 1)
    for pages in ("https://backups.example.com", None):
        with_page(told.append, pages)(notice_of(FleetBackup(owed, FleetState.FAILED, said="the disk is full")))
    assert told[0].detail["page"] == "https://backups.example.com/backups/20261126-shop-nightly"
    assert "page" not in told[1].detail


def test_an_inventory_s_fault_leads_to_the_fleet_s_first_page(records: Records) -> None:
    told: list[Notice] = []
    tell_problems(records, NIGHT, ("the inventory /i is cut",))
    for notice in owed_now(records):
        with_page(told.append, "https://backups.example.com")(notice)
    assert [one.detail["page"] for one in told] == ["https://backups.example.com"]


def test_a_night_that_cannot_be_planned_is_told_once_and_logged_each_time(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Notice] = []
    for _ in range(2):
        tell_unplanned(records, NIGHT, KeyError("db9\n"))
        told += owed_now(records)
    (notice,) = told
    assert notice.text == r"the night of 2026-11-26 could not be planned: KeyError: 'db9\n'"
    assert notice.kind is NoticeKind.ATTENTION
    assert len(caplog.records) == 2


def test_what_is_wrong_with_the_inventory_is_told_once_a_night(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Notice] = []
    for night in (NIGHT, NIGHT, NIGHT + timedelta(days=1)):
        tell_problems(records, night, ("the inventory /i is cut",))
        told += owed_now(records)
    assert [(one.kind, one.text) for one in told] == [(NoticeKind.ATTENTION, "the inventory /i is cut")] * 2
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("clocks", "said"),
    [
        ((-90000.0, -90010.0, 0.0), "25h ahead: 2 of 3 hosts disagree with it, so none of them is used"),
        ((130.0, 120.0), "2m behind: 2 of 2 hosts disagree with it, so none of them is used"),
        ((-90000.0,), None),
        ((-90000.0, 0.0), None),
        ((-90000.0, 90000.0), None),
        ((-90000.0, -90000.0, 0.0, 0.0), None),
        ((5.0, 30.0, -50.0), None),
    ],
)
def test_a_control_host_whose_own_clock_is_wrong_says_so_once(
    records: Records, clocks: tuple[float, ...], said: str | None
) -> None:
    """All hosts would be passed over, each for a clock of its own that is right."""
    told: list[Notice] = []
    hosts = [seen(f"db{number}", source(), clock_ahead_seconds=one) for number, one in enumerate(clocks)]
    for _ in range(2):
        tell_own_clock(records, [*hosts, away("db9")])
        told += owed_now(records)
    assert [one.kind for one in told] == ([] if said is None else [NoticeKind.ATTENTION])
    assert all(f"the clock of control host {socket.gethostname()} seems to be {said}" in one.text for one in told)


def test_hosts_of_two_clusters_that_are_one_machine_and_one_server_are_told_once_a_day(records: Records) -> None:
    told: list[Notice] = []
    for host in ("db4", "db5", "no longer in the fleet"):
        records.saw(seen(host, source(server="u"), machine="db4-0a1b2c3d"))
    records.saw(away("db5"))  # what it told last counts
    for clusters in (("bills", "bills"), ("bills", "users"), ("bills", "users")):
        counted = {host: CountsAs(one, ("nightly",)) for host, one in zip(("db4", "db5"), clusters, strict=True)}
        apart = tell_one_machine(records, counted)
        told += owed_now(records)
        assert set(apart) == (set() if len(set(clusters)) == 1 else {"db4", "db5"})
    (notice,) = told
    assert notice.text == (
        "db4 of cluster bills, db5 of cluster users have one identity, db4-0a1b2c3d, and one server: no backup of db4,"
        " db5 begins"
    )
    assert "backupd identity new" in notice.detail["hint"]


def test_hosts_of_one_machine_with_two_servers_are_told_once_a_day_and_none_is_stopped(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {host: CountsAs(host, ("nightly",)) for host in ("bills", "users")}
    for host in counted:
        records.saw(seen(host, source(server=f"uuid of {host}"), machine="db4-0a1b2c3d"))
    assert not tell_one_machine(records, counted)
    (notice,) = owed_now(records)
    assert notice.text == "bills of cluster bills, users of cluster users have one identity, db4-0a1b2c3d"
    assert not tell_one_machine(records, counted)
    assert owed_now(records) == []
    monkeypatch.setattr(fleet_notices, "datetime", _Tomorrow)
    assert not tell_one_machine(records, counted)
    assert [one.text for one in owed_now(records)] == [notice.text]


class _Tomorrow(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(days=1)


def test_a_host_behind_which_another_machine_is_now_is_told(records: Records) -> None:
    """Whoever asked it then, and though the control host was restarted since."""
    for machine in ("db5-0a1b2c3d", "db4-0a1b2c3d", "db4-0a1b2c3d"):
        records.saw(seen("db5", source(), machine=machine))
    records.saw(away("db5"))
    for _ in range(2):
        tell_moved(records)
    (notice,) = owed_now(records)
    assert notice.text == "another machine answers than before: db5 was db5-0a1b2c3d and is db4-0a1b2c3d"


def test_a_host_that_was_told_to_have_moved_hides_no_other_that_moves_the_same_day(records: Records) -> None:
    told: list[str] = []
    for one in ("m1", "m2", "m1", "m2"):
        records.saw(seen("a1", source(), machine=one))
        records.saw(seen("orders1", source(), machine="stranger" if len(told) == 2 else "o"))
        tell_moved(records)
        told += [notice.text.partition(": ")[2] for notice in owed_now(records)]
    assert told == ["a1 was m1 and is m2", "a1 was m2 and is m1", "orders1 was o and is stranger"]


def test_hosts_that_the_fleet_lost_are_named_once_and_again_when_they_were_there_in_between(records: Records) -> None:
    told: list[Notice] = []
    for host in ("db1", "db2", "db3"):
        records.saw(SeenHost(host, NOW, described(host, source())))
    records.saw(SeenHost("never-answered", None, None, "it is away"))
    for _ in range(2):
        tell_gone(records, ("db1",))
        told += owed_now(records)
    assert [one.text for one in told] == ["the fleet no longer has db2, db3: no backup of theirs is planned"]
    records.saw(SeenHost("db2", datetime.now(UTC), described("db2", source())))
    tell_gone(records, ("db1", "db2"))
    assert owed_now(records) == []
    tell_gone(records, ("db1",))
    (told_again,) = owed_now(records)
    assert told_again.text == "the fleet no longer has db2: no backup of theirs is planned"


def test_a_file_with_a_fault_is_told_and_does_not_end_what_is_at_work() -> None:
    said: list[str] = []
    begun: list[str] = []

    def broken() -> FleetFile:
        raise ConfigurationError("fleet.toml: hosts.db1.prot: unknown key", hint="port")

    reload(broken, said.append, begun.append)
    assert said == [
        "the configuration was not reloaded, the previous one stays in force: fleet.toml: hosts.db1.prot: unknown key"
    ]
    assert begun == []
