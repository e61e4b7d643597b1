"""What every way of asking a host's agent keeps: real agents over pipes and by SSH, one suite for both."""

import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd import __version__
from backupd.fleet import Agent, HostRefuses, StartOrder
from backupd.fleet.ssh_agents import SshAccess, SshAgents, SshHost
from backupd.policy.agent_protocol import MOST_CURVE_POINTS
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.fleet import Role
from backupd.vocabulary.penalty import Sample
from backupd.vocabulary.records import RunStatus
from tests.agent_host import JOB, PATIENCE_SECONDS, SILENT, AgentHost, agent_host, until
from tests.fleet.process_agents import ProcessAgents
from tests.servers.sshd import SshServer, serving


@dataclass(frozen=True)
class Way:
    """A way to a host's agent."""

    agent: Agent
    host: AgentHost


def ssh_agents(server: SshServer) -> SshAgents:
    access = SshAccess(server.key_file, server.known_hosts, PATIENCE_SECONDS, PATIENCE_SECONDS, at_once=32)
    return SshAgents(access, lambda name: SshHost(name, server.address, server.port, server.user))


@contextmanager
def forced(host: AgentHost, keys: Path) -> Iterator[SshServer]:
    """An sshd whose one key may run the agent, as the documentation has it."""
    command = shlex.join(host.agent).replace('"', '\\"')
    with serving(keys, key_options=f'command="{command}",restrict') as server:
        yield server


@pytest.fixture
def host(path_in_memory: Path) -> Iterator[AgentHost]:
    with agent_host(path_in_memory) as made:
        yield made


@pytest.fixture(params=["ssh", pytest.param("process", marks=pytest.mark.matrix)])
def way(request: pytest.FixtureRequest, host: AgentHost, tmp_path: Path) -> Iterator[Way]:
    if request.param == "process":
        yield Way(ProcessAgents(lambda _: host.agent, answer_seconds=PATIENCE_SECONDS).agent("db1"), host)
        return
    with forced(host, tmp_path / "keys") as server:
        agents = ssh_agents(server)
        yield Way(agents.agent("db1"), host)
        agents.close()


def refusal(act: Callable[[], object]) -> HostRefuses:
    with pytest.raises(HostRefuses) as caught:
        act()
    assert caught.value.hint
    return caught.value


def test_a_long_run_is_told_with_some_of_its_samples(way: Way) -> None:
    samples = [Sample(float(second), "copy", write_latency_ms=1.0) for second in range(10_000)]
    with (
        way.host.catalogue() as catalogue,
        pytest.raises(HostRefuses),
        catalogue.open_run(JOB, "db", run_id="r1") as run,
    ):
        run.samples(samples)
        raise HostRefuses("so")
    told = way.agent.result("r1").samples
    assert len(told) == MOST_CURVE_POINTS
    assert (told[0], told[-1]) == (samples[0], samples[-1])


def test_a_host_is_described_with_its_jobs_though_one_server_is_down_and_one_hangs(way: Way) -> None:
    described = way.agent.describe()
    with way.host.catalogue() as catalogue:
        assert described.machine == catalogue.identity().name
    assert (described.version, described.protocols) == (__version__, (1, 1))
    assert described.clock_ahead_seconds == 0
    down, hanging = described.jobs
    assert (down.job, down.role, down.targets) == (JOB, Role.UNKNOWN, ("vault",))
    assert "cannot connect to the server" in down.problem
    assert (hanging.job, hanging.role) == (SILENT, Role.UNKNOWN)
    assert "did not answer" in hanging.problem


def test_a_run_is_started_once_and_its_end_and_its_record_are_told(way: Way) -> None:
    order = StartOrder(JOB, "20261126-shop-nightly", max_rate=50 << 20)
    assert way.agent.status(order.run_id).status is None
    assert way.agent.start(order).status is not None
    ended = until(way.agent, order.run_id)
    assert ended.status is RunStatus.REFUSED
    assert ended.error is not None
    assert "cannot connect to the server" in ended.error.message
    assert way.agent.start(order) == ended
    assert way.host.runs() == [order.run_id]
    with way.host.catalogue() as catalogue:
        assert way.agent.result(order.run_id) == catalogue.run(order.run_id)
        assert catalogue.run(order.run_id).max_rate == 50 << 20


def test_a_run_goes_on_when_the_agent_has_answered_and_ends_when_it_is_cancelled(way: Way) -> None:
    order = StartOrder(SILENT, "r1")
    way.agent.start(order)
    assert until(way.agent, "r1", phase="preflight").status is RunStatus.RUNNING
    assert "has not ended" in str(refusal(lambda: way.agent.result("r1")))
    busy = refusal(lambda: way.agent.start(StartOrder(SILENT, "r2")))
    assert busy.refusal is not None
    assert busy.refusal.code == "busy"
    assert next(job for job in way.agent.describe().jobs if job.job == SILENT).running == "r1"
    way.agent.cancel("r1")
    ended = until(way.agent, "r1")
    assert (ended.status, ended.error and ended.error.exit_status) == (RunStatus.CANCELLED, ExitStatus.CANCELLED)
    assert way.agent.cancel("r1").status is RunStatus.CANCELLED


def test_of_many_that_start_one_run_at_once_all_hear_how_far_it_is_and_one_run_there_is(way: Way) -> None:
    together, heard = threading.Barrier(6), []

    def ask() -> None:
        together.wait()
        heard.append(way.agent.start(StartOrder(SILENT, "r1")))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [state.status for state in heard] == [RunStatus.RUNNING] * 6
    assert until(way.agent, "r1", phase="preflight").status is RunStatus.RUNNING
    assert way.host.runs() == ["r1"]
    way.agent.cancel("r1")
    until(way.agent, "r1")


def test_what_cannot_be_started_is_refused_in_a_sentence(way: Way) -> None:
    with way.host.catalogue() as catalogue:
        catalogue.pause(JOB, "disk is exchanged")
    paused = refusal(lambda: way.agent.start(StartOrder(JOB, "r1")))
    assert "job nightly was paused on that host" in str(paused)
    assert "disk is exchanged" in str(paused)
    unknown = refusal(lambda: way.agent.start(StartOrder("other", "r1")))
    assert "no job 'other'" in str(unknown)
    assert "no run r1 was ever started here" in str(refusal(lambda: way.agent.result("r1")))
    assert way.agent.cancel("r1").status is None
    assert way.host.runs() == []


def test_one_id_is_of_one_job(way: Way) -> None:
    way.agent.start(StartOrder(JOB, "r1"))
    assert "run r1 is of job nightly, not of job silent" in str(
        refusal(lambda: way.agent.start(StartOrder(SILENT, "r1")))
    )
