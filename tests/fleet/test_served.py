"""`backupd fleet serve`, as a service runs it: fleet.toml, PostgreSQL, SSH, a host's own agent and catalogue, all real.

The host's server is real as well, and its datadir is on no LVM volume: each of its runs is refused by its preflight,
which is the quickest end that a real run can have.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.vocabulary.fleet import FleetState
from backupd.vocabulary.records import RunStatus
from tests.agent_host import AgentHost, agent_host
from tests.contract.mariadb import mariadb
from tests.contract.test_agents import forced
from tests.fleet.control_host import ControlHost, control_host, newer_code
from tests.fleet.postgres import PostgresServer, postgres
from tests.fleets import TOLD_BY
from tests.share import seeded

_AWAY_SECONDS = seeded(600, usual=15)
_FLEET = """
[control]
database = "{url}"
key_file = "{ssh.key_file}"
known_hosts = "{ssh.known_hosts}"
user = "{ssh.user}"
poll = "0.5s"
night_begins = "{hours_away:%H:%M}"
[hosts.db1]
address = "{ssh.address}"
port = {ssh.port}
cluster = "shop"
[policies.default]
windows = ["00:00-00:00"]
retries = 1
retry_after = "2s"
[targets.vault]
slots = 1
"""


@dataclass(frozen=True)
class Fleet:
    """One host, and its control host."""

    host: AgentHost
    control: ControlHost
    database: PostgresServer


@contextmanager
def _host(folder: Path, socket: Path) -> Iterator[AgentHost]:
    with agent_host(folder) as host:
        text = host.configuration.read_text()
        host.configuration.write_text(text.replace(f"{folder}/nowhere", str(socket)))
        yield host


@pytest.fixture
def fleet(path_in_memory: Path, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        server = stack.enter_context(mariadb())
        host = stack.enter_context(_host(path_in_memory, server.socket))
        ssh = stack.enter_context(forced(host, tmp_path / "keys"))
        database = stack.enter_context(postgres())
        url = database.url.replace("@/", "@localhost/")
        # Where a night's end came within a test, the next one would owe its backups too.
        hours_away = datetime.now(UTC) + timedelta(hours=12)
        text = _FLEET.format(url=url, ssh=ssh, hours_away=hours_away)
        control = stack.enter_context(control_host(tmp_path, url, text))
        yield Fleet(host, control, database)


@pytest.mark.matrix
@pytest.mark.timeout(1500)
def test_a_night_by_ssh_goes_on_where_it_was_when_its_control_host_is_killed_and_upgraded(
    fleet: Fleet, tmp_path: Path
) -> None:
    newer = newer_code(tmp_path)
    first = fleet.control.serve()
    fleet.control.until(lambda: fleet.host.runs() != [])
    first.kill()
    first.wait()
    second = fleet.control.serve(newer)
    fleet.control.until(lambda: [one.state for one in fleet.control.records.history()] == [FleetState.FAILED])
    (backup,) = fleet.control.records.history()
    ids = [one.run_id for one in backup.tries]
    assert ids == [backup.owed.id, f"{backup.owed.id}.2"]
    assert sorted(fleet.host.runs()) == sorted(ids)
    assert [one.status for one in backup.tries] == [RunStatus.REFUSED, RunStatus.REFUSED]
    fleet.control.until(lambda: fleet.control.records.result(ids[-1]) is not None)
    second.terminate()
    assert second.wait(30) == 0
    assert "this control host is active" in fleet.control.said()


@pytest.mark.timeout(1500)
def test_a_standby_waits_and_takes_over(fleet: Fleet) -> None:
    first = fleet.control.serve()
    fleet.control.until(lambda: "this control host is active" in fleet.control.said())
    fleet.control.serve()
    fleet.control.until(
        lambda: "another control host is active on this database; this one waits" in fleet.control.said()
    )
    first.kill()
    first.wait()
    begun = fleet.control.times_at_work()  # on a busy machine the first may have lost its lock and begun anew
    fleet.control.until(lambda: fleet.control.times_at_work() > begun)


@pytest.mark.timeout(1500)
def test_sighup_with_a_typo_in_the_file_ends_nothing_and_without_one_counts(fleet: Fleet) -> None:
    control = fleet.control
    serving = control.serve()
    control.until(lambda: "this control host is active" in control.said())
    sound = control.file.read_text()
    control.file.write_text(sound.replace("retries = 1", "retires = 1"))
    serving.send_signal(signal.SIGHUP)
    control.until(lambda: "the configuration was not reloaded, the previous one stays in force" in control.said())
    control.file.write_text(sound)
    begun = control.times_at_work()
    serving.send_signal(signal.SIGHUP)
    control.until(lambda: control.times_at_work() > begun)
    assert serving.poll() is None


@pytest.mark.timeout(600)
def test_sighup_with_a_fault_in_the_file_of_notifications_ends_nothing(tmp_path: Path) -> None:
    told_by = tmp_path / "backupd.toml"
    told_by.write_text(TOLD_BY)
    url = f"sqlite:///{tmp_path}/fleet.sqlite"
    text = f'[control]\ndatabase = "{tmp_path}/fleet.sqlite"\nnotifications = "{told_by}"\nport = 0\n[hosts.db1]\n'
    with control_host(tmp_path, url, f'{text}address = "127.0.0.1"\nport = 9\n') as control:
        serving = control.serve()
        control.until(lambda: "this control host is active" in control.said())
        told_by.write_text(TOLD_BY.replace('"webhook"', '"webhok"'))
        serving.send_signal(signal.SIGHUP)
        control.until(lambda: "restarts" in control.said() or "was not reloaded" in control.said())
        assert "the previous one stays in force" in control.said()
        assert serving.poll() is None
        told_by.write_text(TOLD_BY)
        begun = control.times_at_work()
        serving.send_signal(signal.SIGHUP)
        control.until(lambda: control.times_at_work() > begun)


@pytest.mark.matrix
@pytest.mark.timeout(1500 + _AWAY_SECONDS)
def test_a_database_that_is_away_for_long_within_a_night_loses_nothing_and_starts_nothing_twice(fleet: Fleet) -> None:
    control = fleet.control
    serving = control.serve()
    control.until(lambda: fleet.host.runs() != [])
    fleet.database.stop()
    time.sleep(_AWAY_SECONDS)  # it is what is tried
    assert serving.poll() is None
    fleet.database.start()
    control.until(lambda: [one.state for one in control.records.history()] == [FleetState.FAILED])
    (backup,) = control.records.history()
    assert [one.status for one in backup.tries] == [RunStatus.REFUSED, RunStatus.REFUSED]
    assert sorted(fleet.host.runs()) == sorted(one.run_id for one in backup.tries)
