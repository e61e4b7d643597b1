"""`backupd fleet run`, `cancel`, `pause` and `resume`: what a person types is in the records, for whoever serves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd import wiring
from backupd.config.fleet import FleetConfiguration
from backupd.fleet.records import Records
from backupd.vocabulary.errors import BackupdError, ExitStatus
from backupd.vocabulary.fleet import Control, FleetPause, FleetState, HostDescription, PauseScope, RunState
from backupd.vocabulary.records import RunStatus
from tests.cli.terminal import Ended, Terminal
from tests.fakes.agents import FakeAgents
from tests.fleets import described, replica, source
from tests.hostile_words import HOSTILE, faults

FLEET = """
[control]
database = "{folder}/fleet.sqlite"
[hosts]
db1 = {{ cluster = "orders" }}
db2 = {{ cluster = "orders" }}
[targets.nas1]
"""

Type = Callable[..., Ended]
Told = dict[str, HostDescription | BackupdError]


@pytest.fixture
def told() -> Told:
    """What each host answers."""
    return {"db1": described("db1", source()), "db2": described("db2", replica(2.0))}


@pytest.fixture
def ran() -> set[str]:
    """The ids of the runs that db2 has made."""
    return set()


@pytest.fixture
def fleet(terminal: Terminal, tmp_path: Path, told: Told, ran: set[str], monkeypatch: pytest.MonkeyPatch) -> Type:
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET.format(folder=tmp_path))

    @contextmanager
    def agents(_configuration: FleetConfiguration) -> Iterator[FakeAgents]:
        yield FakeAgents(told, runs={("db2", run_id): RunState(run_id, RunStatus.SUCCESS) for run_id in ran})

    monkeypatch.setattr(wiring, "fleet_agents", agents)
    return lambda *words: terminal.run("fleet", *words, configuration=file)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    records = Records.open(f"sqlite:///{tmp_path}/fleet.sqlite")
    yield records
    records.engine.dispose()


def test_a_clock_that_was_ahead_makes_nobody_be_at_work_for_who_asks_for_a_backup(
    fleet: Type, records: Records
) -> None:
    now = datetime.now(UTC)
    for seen_at, said in ((now, False), (now + timedelta(days=1), True)):
        records.at_work(Control("control1", 1, now, seen_at))
        assert ("no control host is running" in fleet("run", "orders").stderr) is said


def test_who_asks_for_a_backup_of_what_is_paused_is_told_what_it_waits_for(fleet: Type, records: Records) -> None:
    assert "is paused" not in fleet("run", "orders").stderr
    fleet("pause", "orders", "--note", "the disks are replaced")
    ended = fleet("run", "orders")
    assert ended.status == ExitStatus.OK
    assert "cluster orders is paused: the disks are replaced" in ended.stderr
    assert "backupd fleet resume" in ended.stderr


def test_who_asks_for_a_backup_by_a_host_that_is_paused_is_told_too(fleet: Type, records: Records) -> None:
    fleet("pause", "db1")
    assert "db1: it is paused; backup" in fleet("run", "db1").stderr


def test_the_note_of_a_paused_host_is_told_to_who_asks_for_a_backup_by_it(fleet: Type, records: Records) -> None:
    fleet("pause", "db1", "--note", "its disk is replaced")
    fleet("pause", "db2", "--note", "until Monday")
    told = "db2: it is paused: until Monday; db1: it is paused: its disk is replaced; backup"
    assert told in fleet("run", "orders").stderr


def test_a_backup_that_a_person_asks_for_is_owed_now_and_goes_first(fleet: Type, records: Records) -> None:
    ended = fleet("run", "orders")
    assert ended.status == ExitStatus.OK
    assert "no control host is running" in ended.stderr
    (backup,) = records.going()
    assert ended.stdout == f"asked for backup {backup.owed.id}\n"
    assert backup.owed.id.endswith("-orders-nightly.r1")
    assert (backup.owed.priority, backup.owed.targets, backup.owed.members[0]) == (0, ("nas1",), "db2")
    assert backup.owed.not_before <= datetime.now(UTC) < backup.owed.not_after


def test_a_second_one_in_the_same_night_has_an_id_of_its_own(fleet: Type, records: Records) -> None:
    fleet("run", "orders")
    fleet("run", "orders")
    assert [backup.owed.id.rpartition(".")[2] for backup in records.going()] == ["r1", "r2"]


def test_an_id_that_a_host_has_used_is_given_to_no_other_backup_though_the_records_have_lost_it(
    fleet: Type, records: Records, ran: set[str]
) -> None:
    """As after a restored dump: the host would tell of the run that it made hours ago."""
    fleet("run", "orders")
    first = records.going()[0].owed.id
    ran |= {first.replace(".r1", ".r2"), first.replace(".r1", ".r3")}
    fleet("run", "orders")
    assert sorted(backup.owed.id for backup in records.going()) == [first, first.replace(".r1", ".r4")]
    ran |= {first.replace(".r1", f".r{number}") for number in range(1, 100)}  # a host may claim anything
    assert fleet("run", "orders").stdout == f"asked for backup {first.replace('.r1', '.r2')}\n"


def test_a_host_that_is_named_does_it_itself(fleet: Type, records: Records) -> None:
    assert fleet("run", "db1").status == ExitStatus.OK
    (backup,) = records.going()
    assert (backup.owed.cluster, backup.owed.only, backup.owed.members) == ("orders", "db1", ("db1",))


def test_a_cluster_whose_last_backup_is_good_is_backed_up_again(fleet: Type, records: Records, told: Told) -> None:
    for ahead in (timedelta(hours=-1), timedelta(days=3)):
        told["db2"] = described("db2", replica(2.0, last_good_at=datetime.now(UTC) + ahead))
        assert fleet("run", "orders").status == ExitStatus.OK
    assert len(records.going()) == 2


def test_a_host_that_is_named_does_it_though_the_policy_names_another(
    fleet: Type, records: Records, tmp_path: Path
) -> None:
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write('[policies.default]\nmember = ["db2"]\n')
    assert fleet("run", "db1").status == ExitStatus.OK
    (backup,) = records.going()
    assert (backup.owed.only, backup.owed.members, backup.owed.targets) == ("db1", ("db1",), ("nas1",))


def test_a_host_whose_name_would_make_no_run_id_is_refused_with_the_name_of_its_cluster(
    fleet: Type, records: Records, tmp_path: Path
) -> None:
    name = "db" + "x" * 60
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write(f'[hosts.{name}]\ncluster = "orders"\n')
    ended = fleet("run", name)
    assert ended.status == ExitStatus.USAGE
    assert "would be longer than 61 characters" in ended.stderr
    assert "hint: type `backupd fleet run orders`" in ended.stderr
    assert records.going() == []


def test_whoever_serves_is_not_asked_for(fleet: Type, records: Records) -> None:
    now = datetime.now(UTC)
    records.at_work(Control("control1", 1, now, now))
    assert fleet("run", "orders").stderr == ""


@pytest.mark.parametrize("words", [("run", "mail"), ("run", "orders", "--job", "mail"), ("cancel", "mail"), ("pause",)])
def test_what_the_fleet_has_not_is_a_sentence_and_a_hint(fleet: Type, words: tuple[str, ...]) -> None:
    ended = fleet(*words)
    assert ended.status == ExitStatus.USAGE
    assert ended.stderr.startswith("error: ")
    assert "hint: " in ended.stderr


def test_what_waits_of_a_cluster_is_to_end(fleet: Type, records: Records) -> None:
    fleet("run", "orders")
    (backup,) = records.going()
    ended = fleet("cancel", "orders", "--note", "not tonight")
    assert ended.stdout == f"cancellation of backup {backup.owed.id} requested\n"
    assert records.cancels() == {backup.owed.id: "not tonight"}
    records.cancel_waiting(datetime.now(UTC))
    assert [(one.state, one.said) for one in records.history()] == [(FleetState.CANCELLED, "not tonight")]


@pytest.mark.parametrize(
    ("words", "scope", "name", "called"),
    [
        (("orders",), PauseScope.CLUSTER, "orders", "cluster orders"),
        (("db1",), PauseScope.HOST, "db1", "host db1"),
        (("--all",), PauseScope.FLEET, "", "the fleet"),
    ],
)
def test_a_pause_stands_until_it_is_ended(
    fleet: Type, records: Records, words: tuple[str, ...], scope: PauseScope, name: str, called: str
) -> None:
    ended = fleet("pause", *words, "--note", "upgrade")
    assert ended.stdout == f"{called} is paused: upgrade\n"
    assert "backs itself up once fallback_after has passed" in ended.stderr
    assert [(pause.scope, pause.name, pause.note) for pause in records.pauses()] == [(scope, name, "upgrade")]
    assert fleet("resume", *words).status == ExitStatus.OK
    assert records.pauses() == list[FleetPause]()
    assert fleet("resume", *words).status == ExitStatus.USAGE


def test_a_pause_of_what_has_left_the_fleet_can_be_ended(fleet: Type, records: Records) -> None:
    records.pause(PauseScope.FLEET, "", "upgrade")
    records.pause(PauseScope.HOST, "db9", "its disks are replaced")
    ended = fleet("resume", "db9")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "host db9 is no longer paused\n")
    assert fleet("resume", "").status == ExitStatus.USAGE
    assert [(pause.scope, pause.name) for pause in records.pauses()] == [(PauseScope.FLEET, "")]


def test_hostile_words_are_shown_plain(fleet: Type, records: Records) -> None:
    fleet("run", "orders")
    word = HOSTILE.replace("\0", "")
    for words in (("run", word), ("pause", word), ("pause", "--all", "--note", word), ("cancel", word)):
        ended = fleet(*words)
        assert faults(ended.stdout) == []
        assert faults(ended.stderr) == []
        assert ended.status != ExitStatus.INTERNAL
