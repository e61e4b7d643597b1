"""`backupd fleet check` and `backupd fleet plan`, as a person types them on a control host."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from backupd import wiring
from backupd.cli.fleet_serve import _notifier
from backupd.config.fleet import FleetConfiguration
from backupd.config.fleet_reading import InventoryHosts, load_fleet
from backupd.fleet import HostAway
from backupd.fleet.records import Records
from backupd.vocabulary.errors import BackupdError, ExitStatus
from backupd.vocabulary.fleet import HostDescription, SeenHost
from tests.cli.terminal import Ended, Terminal
from tests.fakes.agents import FakeAgents
from tests.fleets import NOW, TOLD_BY, described, replica, source
from tests.hostile_words import HOSTILE, faults

FLEET = """
[control]
database = "{folder}/fleet.sqlite"
zone = "Europe/Berlin"
notifications = "{folder}/backupd.toml"
[hosts]
db1 = {{ cluster = "orders" }}
db2 = {{ cluster = "orders" }}
db3 = {{}}
[targets.nas1]
slots = 1
max_rate = "100MiB"
"""

Told = HostDescription | BackupdError
Type = Callable[..., Ended]


@pytest.fixture
def hosts() -> dict[str, Told]:
    alone = {"fallback_after_seconds": 43200.0}
    return {
        "db1": described("db1", source(server="1", **alone)),
        "db2": described("db2", replica(2.0, server="2", **alone)),
        "db3": described("db3", source(server="3", expected_seconds=600.0, expected_bytes=1 << 30, **alone)),
    }


@pytest.fixture
def fleet(terminal: Terminal, hosts: dict[str, Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types `backupd fleet …` with a file of three hosts, whose agents tell what `hosts` has."""
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET.format(folder=tmp_path))
    (tmp_path / "backupd.toml").write_text(TOLD_BY)

    @contextmanager
    def agents(_configuration: FleetConfiguration) -> Iterator[FakeAgents]:
        yield FakeAgents(hosts)

    monkeypatch.setattr(wiring, "fleet_agents", agents)
    return lambda *words: terminal.run("fleet", *words, configuration=file)


def test_pages_for_other_machines_without_a_token_keep_only_the_control_host_from_starting(
    fleet: Type, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(file.read_text().replace("[control]", '[control]\naddress = "0.0.0.0"'))
    assert fleet("check").status == ExitStatus.OK
    ended = fleet("serve")
    assert ended.status == ExitStatus.USAGE
    assert 'control.address: "0.0.0.0" can be reached from other machines, but no token is set' in ended.stderr


def test_a_fleet_that_is_what_its_file_says_is_a_table_and_status_0(fleet: Type) -> None:
    ended = fleet("check")
    assert (ended.status, ended.stderr) == (ExitStatus.OK, "")
    lines = ended.stdout.splitlines()
    assert lines[0].split()[:3] == ["CLUSTER", "HOST", "MACHINE"]
    assert "every host is what the file says" in lines
    assert next(line for line in lines if "db2" in line).split()[:2] == ["orders", "db2"]


def test_what_needs_attention_is_status_3_and_what_is_refused_status_5(fleet: Type, hosts: dict[str, Told]) -> None:
    hosts["db1"] = HostAway("connection refused", hint="is sshd running?")
    ended = fleet("check")
    assert ended.status == ExitStatus.ATTENTION
    assert "warning  host db1: connection refused\n         hint: is sshd running?\n" in ended.stdout
    hosts["db2"] = HostAway("no route to host")
    ended = fleet("check", "--json")
    assert ended.status == ExitStatus.REFUSED
    assert ended.document["findings"][0]["name"] == "cluster orders"
    assert [host["problem"] for host in ended.document["hosts"]] == ["connection refused", "no route to host", ""]


def test_a_fault_in_the_file_of_notifications_is_found_before_the_control_host_restarts_with_it(
    fleet: Type, tmp_path: Path
) -> None:
    (tmp_path / "backupd.toml").write_text(TOLD_BY.replace('"webhook"', '"webhok"'))
    ended = fleet("check")
    assert ended.status == ExitStatus.REFUSED
    assert "refused  control: notifications cannot be used, and `backupd fleet serve` would not start" in ended.stdout
    assert 'notifications.ops.type: "webhok" is not one of mail, webhook' in ended.stdout
    assert "every host is what the file says" not in ended.stdout
    assert 'notifications.ops.type: "webhok"' in fleet("serve").stderr


@pytest.mark.parametrize(
    ("lines", "unheard"),
    [
        ("jobs = ['nightly']", "failed or were missed"),
        ("on = ['missed', 'digest']", "failed"),
        ("jobs = ['nightly']\n[notifications.all]\ntype = 'webhook'\nurl = 'https://127.0.0.1:9/y'", None),
    ],
)
def test_where_nobody_would_hear_of_a_failed_backup_of_the_fleet_that_is_said(
    fleet: Type, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, unheard: str | None
) -> None:
    """Whoever watches jobs of this machine heard of a cluster's job of that name, before that was told apart."""
    (tmp_path / "backupd.toml").write_text(TOLD_BY + lines)
    configuration = load_fleet(tmp_path / "fleet.toml", lambda _: InventoryHosts()).configuration
    _notifier(configuration)  # as the control host starts
    for said in (capsys.readouterr().err, fleet("check").stdout):
        assert ("notifies nobody of the fleet's backups that" in said) is (unheard is not None)
        assert unheard is None or f"notifies nobody of the fleet's backups that {unheard}\n" in said


def test_the_files_faults_are_told_before_any_host_is_asked(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_configuration: FleetConfiguration) -> None:
        raise AssertionError

    monkeypatch.setattr(wiring, "fleet_agents", never)
    file = tmp_path / "fleet.toml"
    file.write_text("[hosts]\ndb1 = { clutser = 'a' }\n[clusters.b]\n")
    ended = terminal.run("fleet", "check", "--json", configuration=file)
    assert ended.status == ExitStatus.USAGE
    assert "2 faults" in ended.document["error"]["message"]


def test_a_plan_is_a_table_a_chart_and_sentences(fleet: Type, hosts: dict[str, Told]) -> None:
    hosts["db3"] = described("db3", source(expected_seconds=None, expected_bytes=None))
    ended = fleet("plan", "--date", "2026-11-26")
    assert ended.status == ExitStatus.OK
    head, table, chart, words = ended.stdout.split("\n\n")
    assert head == (
        "night of Thu 2026-11-26, times of Europe/Berlin: 2 backups of 2 clusters in 1 h 00 min;"
        " slots and clusters allow 1 h 00 min at best"
    )
    rows = [line.split() for line in table.splitlines()[1:]]
    assert [row[:6] for row in rows] == [
        ["Thu", "21:00", "Thu", "21:30", "db3", "nightly"],
        ["Thu", "21:30", "Thu", "22:00", "orders", "nightly"],
    ]
    assert rows[1][6:8] == ["db2", "nas1"]
    assert "nas1: 1 slot" in chart
    assert "21:00" in chart.splitlines()[0]
    assert "1 backup will take" in words
    assert max(map(len, chart.splitlines())) <= 100


def test_a_plan_as_json_has_everything(fleet: Type) -> None:
    document = fleet("plan", "--date", "2026-11-26", "--json").document
    assert [run["host"] for run in document["runs"]] == ["db2", "db3"]
    assert document["targets"]["nas1"] == {"slots": 1, "max_rate": 100 << 20, "rate_of_one": 100 << 20}
    assert document["makespan_seconds"] == document["bound_seconds"] == 2400


def test_without_asking_the_plan_goes_by_the_records(
    fleet: Type, hosts: dict[str, Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_configuration: FleetConfiguration) -> None:
        raise AssertionError

    monkeypatch.setattr(wiring, "fleet_agents", never)
    ended = fleet("plan", "--no-ask", "--date", "2026-11-26")
    assert "the fleet's records contain no host yet" in ended.stderr
    assert "an hour where nobody knows" in ended.stdout
    assert not (tmp_path / "fleet.sqlite").exists()
    records = Records.open(f"sqlite:///{tmp_path}/fleet.sqlite")
    for host, told in hosts.items():
        assert isinstance(told, HostDescription)
        records.saw(SeenHost(host, NOW, told))
    records.engine.dispose()
    ended = fleet("plan", "--no-ask", "--date", "2026-11-26", "--json")
    assert (ended.stderr, len(ended.document["runs"])) == ("", 2)


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", "0001-01-01", ""])
def test_what_is_no_date_is_status_2(fleet: Type, text: str) -> None:
    ended = fleet("plan", "--date", text)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")


def test_what_hostile_hosts_tell_is_shown_plain(fleet: Type, hosts: dict[str, Told]) -> None:
    hostile = {"server": HOSTILE, "follows": HOSTILE, "running": HOSTILE, "problem": HOSTILE}
    hosts["db1"] = HostAway(HOSTILE, hint=HOSTILE)
    hosts["db2"] = described("db2", replace(replica(1.0), targets=(HOSTILE,), **hostile), machine=HOSTILE)  # type: ignore[arg-type]
    hosts["db3"] = described("db3", source(), machine=HOSTILE, version=HOSTILE)
    for words in (["check"], ["check", "--json"], ["plan"], ["plan", "--json"]):
        ended = fleet(*words)
        assert faults(ended.stdout) == []
        assert faults(ended.stderr) == []
        assert ended.status != ExitStatus.INTERNAL, ended.stderr
