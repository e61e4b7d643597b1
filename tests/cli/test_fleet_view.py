"""`backupd fleet status`, `history` and `report`, as a person types them: what the records have, plainly."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.fleet.records import Records
from backupd.policy.night_times import night_of
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.fleet import Control, FleetBackup, FleetState, FleetTry, OwedBackup, SeenHost
from tests.cli.terminal import Ended, Terminal
from tests.fleet.many_nights import TARGETS, MadeFleet
from tests.fleets import described, source
from tests.hostile_words import faults
from tests.web.test_fleet_hostile_strings import spoil

Type = Callable[..., Ended]


def configuration(made: MadeFleet, folder: Path) -> Path:
    """A file of this fleet."""
    lines = [f'[control]\ndatabase = "{folder}/fleet.sqlite"']
    lines += [f"[targets.{name}]\nslots = {slots}" for name, slots in TARGETS.items()]
    lines += [f'[hosts.{host}]\ncluster = "{cluster}"' for cluster, hosts in made.members.items() for host in hosts]
    (folder / "fleet.toml").write_text("\n".join(lines))
    return folder / "fleet.toml"


@pytest.fixture
def made() -> MadeFleet:
    now = datetime.now(UTC)
    tonight = night_of(now, begins=MadeFleet(hosts=1).shape.night_begins, zone="UTC")
    return MadeFleet(hosts=12, nights=20, newest=tonight - timedelta(days=1), now=now)


@pytest.fixture
def records(made: MadeFleet, tmp_path: Path) -> Records:
    records = Records.open(f"sqlite:///{tmp_path}/fleet.sqlite")
    made.fill(records)
    return records


@pytest.fixture
def fleet(terminal: Terminal, made: MadeFleet, records: Records, tmp_path: Path) -> Type:
    """Types `backupd fleet …` on its control host."""
    file = configuration(made, tmp_path)
    return lambda *words: terminal.run("fleet", *words, configuration=file)


def test_status_has_a_line_for_each_cluster_and_each_host_that_has_a_problem(fleet: Type, made: MadeFleet) -> None:
    ended = fleet("status")
    assert ended.status == ExitStatus.OK
    assert all(f"\n{cluster} " in ended.stdout for cluster in made.members)
    assert "paused: cluster shop-001: the disks are replaced" in ended.stdout
    assert "no route to host" in ended.stdout
    document = fleet("status", "--json").document
    assert [one["cluster"] for one in document["clusters"]] != []
    assert document["control"]["host"] == "control1"
    assert {one["target"] for one in document["slots"]} == set(TARGETS)


def test_status_names_hosts_of_two_clusters_that_are_one_machine(
    fleet: Type, made: MadeFleet, records: Records
) -> None:
    (first, (one, *_)), (second, (other, *_)) = list(made.members.items())[:2]
    for host in (one, other):
        records.saw(SeenHost(host, made.now, described(host, source(server="u"), machine="db-0a1b2c3d")))
    ended = fleet("status")
    assert f"it is the same machine, db-0a1b2c3d, as {other} of cluster {second}" in ended.stdout
    assert f"it is the same machine, db-0a1b2c3d, as {one} of cluster {first}" in ended.stdout


def test_who_has_the_slots_of_a_target_that_is_full_is_named(fleet: Type, made: MadeFleet, records: Records) -> None:
    target, slots = next(iter(TARGETS.items()))
    for number in range(slots):
        members = (f"db{number}",)
        owed = OwedBackup(
            *(made.now.date(), f"c{number}", "nightly", members, (target,), made.now, made.now, 1),
            expected_seconds=60.0,
            expected_bytes=1,
        )
        tried = FleetTry(f"db{number}", owed.id, made.now)
        records.owe([FleetBackup(owed, FleetState.RUNNING, (tried,), made.now)])
    assert "c0 on db0" in fleet("status").stdout


def test_a_monitoring_agent_is_told_what_is_overdue(fleet: Type, made: MadeFleet, records: Records) -> None:
    ended = fleet("status", "--nagios")
    assert (ended.status, ended.stdout.partition(" - ")[0]) == (0, "BACKUPD FLEET OK")
    assert ended.stdout.count("\n") == 1
    records.at_work(Control("control1", 4711, made.now - timedelta(days=2), made.now - timedelta(days=1)))
    ended = fleet("status", "--nagios")
    assert (ended.status, "no control host is running" in ended.stdout) == (1, True)


def test_a_clock_that_was_ahead_makes_nobody_be_at_work_and_no_host_answer(
    fleet: Type, made: MadeFleet, records: Records
) -> None:
    ahead, host = made.now + timedelta(days=365), next(iter(made.members.values()))[0]
    before = fleet("status", "--nagios").stdout
    records.at_work(Control("control1", 4711, ahead, ahead))
    (told,) = (one for one in records.seen() if one.host == host)
    records.saw(replace(told, answered_at=ahead))
    records.saw(SeenHost(host, None, None, "no route to host"))
    ended = fleet("status", "--nagios")
    assert (ended.status, "no control host is running" in ended.stdout) == (1, True)
    assert hosts_away(ended.stdout) == hosts_away(before) + 1


def test_a_host_that_no_control_host_has_asked_for_long_does_not_count_as_answering(
    fleet: Type, made: MadeFleet, records: Records
) -> None:
    before = fleet("status", "--nagios").stdout
    told = next(one for one in records.seen() if not one.problem)
    for long, more in ((timedelta(hours=6), 0), (timedelta(days=9), 1)):
        for at in (made.now + timedelta(days=1), made.now - long):  # an older answer counts only after a wrong clock's
            records.saw(replace(told, answered_at=at))
        ended = fleet("status", "--nagios")
        assert (ended.status, hosts_away(ended.stdout)) == (more, hosts_away(before) + more)
    assert "no control host has asked 1 host for over six hours" in ended.stdout
    (shown,) = (one for one in fleet("status", "--json").document["hosts"] if one["host"] == told.host)
    assert shown["state"] == "away"
    assert shown["problems"][0].startswith("no control host has asked it since ")
    assert shown["problems"][0] in fleet("status").stdout


def hosts_away(line: str) -> int:
    return int(line.partition("hosts_away=")[2].partition(";")[0])


def test_a_monitoring_agent_is_told_unknown_where_there_is_nothing_to_look_at(
    terminal: Terminal, tmp_path: Path
) -> None:
    ended = terminal.run("fleet", "status", "--nagios", configuration=tmp_path / "missing.toml")
    assert (ended.status, ended.stdout.startswith("BACKUPD UNKNOWN - ")) == (3, True)


def test_history_is_of_a_cluster_since_a_day_and_also_for_a_spreadsheet(fleet: Type, made: MadeFleet) -> None:
    ended = fleet("history", "shop-001", "--since", "5d", "--json")
    backups = ended.document["backups"]
    assert {one["cluster"] for one in backups} == {"shop-001"}
    assert 5 <= len(backups) <= 7
    rows = list(csv.DictReader(io.StringIO(fleet("history", "shop-001", "--csv").stdout)))
    assert len(rows) == 21
    assert rows[0]["id"] == backups[0]["id"]
    missed = fleet("history", "--outcome", "done", "--limit", "3", "--json").document["backups"]
    assert [one["state"] for one in missed] == [FleetState.DONE] * 3


def test_what_began_after_midnight_is_of_the_night_before_also_where_it_is_asked_for_by_its_time(
    fleet: Type, made: MadeFleet
) -> None:
    morning = f"{made.newest + timedelta(days=1)}T03:00"
    backups = fleet("history", "--since", morning, "--json").document["backups"]
    assert str(made.newest) in {one["night"] for one in backups}


def test_where_nothing_has_this_outcome_that_is_said(terminal: Terminal, made: MadeFleet, tmp_path: Path) -> None:
    records = Records.open(f"sqlite:///{tmp_path}/fleet.sqlite")
    records.owe([next(made.night(made.newest))])
    state = FleetState.MISSED if records.history()[0].state is not FleetState.MISSED else FleetState.DONE
    ended = terminal.run("fleet", "history", "--outcome", state, configuration=configuration(made, tmp_path))
    assert ended.stdout == "no backup matches\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "nobody"], "there is no cluster nobody"),
        (["history", "--csv", "--json"], "--csv and --json cannot be combined"),
        (["report", "--night", "2026-11-26", "--month", "2026-11"], "--night and --month cannot be combined"),
        (["report", "--night", "soon"], "'soon' is not a date"),
        (["report", "--month", "2026-13"], "'2026-13' is not a month"),
        (["report", "--month", "2999-01"], "is in the future"),
    ],
)
def test_what_cannot_be_is_said(fleet: Type, words: list[str], said: str) -> None:
    ended = fleet(*words)
    assert ended.status == ExitStatus.USAGE
    assert said in ended.stderr + ended.stdout


def test_the_report_is_of_the_last_night_in_which_something_was_tried(
    fleet: Type, made: MadeFleet, tmp_path: Path
) -> None:
    page = tmp_path / "night.html"
    ended = fleet("report", "--html", str(page), "--json")
    assert len(ended.document["backups"]) == len(made.members)
    assert sum(ended.document["counts"].values()) == len(made.members)
    assert page.read_text().count("<svg") == 1
    text = fleet("report", "--night", str(made.newest)).stdout
    assert f"night of {made.newest}: " in text
    assert "MOST TAKEN" in text


def test_the_report_of_a_month_has_a_line_for_each_cluster_and_a_calendar(
    fleet: Type, made: MadeFleet, tmp_path: Path
) -> None:
    page = tmp_path / "month.html"
    month = f"{made.newest:%Y-%m}"
    ended = fleet("report", "--month", month, "--html", str(page))
    assert all(f"\n{cluster} " in ended.stdout for cluster in made.members)
    assert 'class="calendar"' in page.read_text()
    assert fleet("report", "--month", month, "--json").document["clusters"]


def test_a_fleet_without_records_is_a_sentence(terminal: Terminal, made: MadeFleet, tmp_path: Path) -> None:
    ended = terminal.run("fleet", "status", configuration=configuration(made, tmp_path))
    assert ended.status == ExitStatus.CATALOGUE
    assert "the fleet has no records yet" in ended.stderr
    assert "hint: start the control host" in ended.stderr


def test_what_strangers_call_things_is_shown_plain(fleet: Type, records: Records, made: MadeFleet) -> None:
    spoil(records, MadeFleet(hosts=200, nights=1))
    for words in (["status"], ["history"], ["history", "--csv"], ["report", "--night", "2026-11-25"]):
        ended = fleet(*words)
        assert (ended.status, faults(ended.stdout)) == (0, [])
        if words != ["status"]:
            assert "{{7*7}}" in ended.stdout
