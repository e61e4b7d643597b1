"""What can go wrong between a control host and an agent: never a hang, never more than fits, always a sentence."""

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from backupd.fleet import Agent, HostAway, HostRefuses
from backupd.fleet.ssh_agents import SshAccess, SshAgents, SshHost
from backupd.policy import agent_protocol as protocol
from backupd.vocabulary.fleet import RunState
from backupd.vocabulary.records import RunStatus
from tests.agent_host import PATIENCE_SECONDS
from tests.contract.tcp_proxy import proxy
from tests.fleet.process_agents import ProcessAgents
from tests.servers.sshd import SshServer, serving

Asking = Callable[..., Agent]  # an agent that is this command; how long it is waited for

ANSWER = protocol.answer_text(RunState("r1", RunStatus.RUNNING), version="0.9").decode().strip()
SLOW = "exec sleep 120"  # in the place of its shell: who ends that ends it; sshd ends nobody


@contextmanager
def by_ssh(
    keys: Path, argv: Sequence[str], *, answer_seconds: float = PATIENCE_SECONDS
) -> Iterator[tuple[Agent, SshServer]]:
    command = shlex.join(argv).replace('"', '\\"')
    with serving(keys, key_options=f'command="{command}",restrict') as server:
        agents = agents_of(server, answer_seconds=answer_seconds)
        yield agents.agent("db1"), server
        agents.close()


def agents_of(
    server: SshServer,
    *,
    at_once: int = 32,
    answer_seconds: float = PATIENCE_SECONDS,
    connect_seconds: float = PATIENCE_SECONDS,
) -> SshAgents:
    access = SshAccess(
        server.key_file,
        server.known_hosts,
        connect_seconds=connect_seconds,
        answer_seconds=answer_seconds,
        at_once=at_once,
    )
    return SshAgents(access, lambda name: SshHost(name, server.address, server.port, server.user))


@pytest.fixture(params=["process", "ssh"])
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Asking]:
    """An agent that is a shell script, by each way."""
    opened = []

    def of(script: str, *, answer_seconds: float = PATIENCE_SECONDS) -> Agent:
        argv = ("sh", "-c", script)
        if request.param == "process":
            return ProcessAgents(lambda _: argv, answer_seconds=answer_seconds).agent("db1")
        way = by_ssh(tmp_path / "keys", argv, answer_seconds=answer_seconds)
        opened.append(way)
        return way.__enter__()[0]

    yield of
    for way in opened:
        way.__exit__(None, None, None)


def away(agent: Agent) -> HostAway:
    with pytest.raises(HostAway) as caught:
        agent.status("r1")
    assert caught.value.hint
    return caught.value


def refused(agent: Agent) -> HostRefuses:
    with pytest.raises(HostRefuses) as caught:
        agent.status("r1")
    assert caught.value.hint
    assert caught.value.message.isprintable()
    return caught.value


# --- whatever an agent prints ----------------------------------------------------------------------------------------


def test_an_answer_is_taken_whatever_is_said_beside_it(asking: Asking) -> None:
    script = f"cat > /dev/null; head -c 3000000 /dev/zero >&2; printf %s {shlex.quote(ANSWER)}"
    assert asking(script).status("r1").status is RunStatus.RUNNING


@pytest.mark.parametrize(
    ("script", "fact"),
    [
        ("echo 'Welcome to db1!'", "cannot be parsed"),
        ("head -c 4096 /dev/urandom", "cannot be parsed"),
        ("echo '{}'", "has no valid speaks"),
        ("echo '[1]'", "not a JSON object"),
        (f"printf %s {shlex.quote(ANSWER[:60])}", "cannot be parsed"),
        ("exit 0", "without an answer"),
        ("echo 'backupd: \033[2Jnot found' >&2; exit 127", "ended with status 127 and without an answer"),
        ("exec yes", "sent more than 8 MiB"),
    ],
)
def test_what_is_no_answer_is_refused_in_a_sentence(asking: Asking, script: str, fact: str) -> None:
    assert fact in refused(asking(script)).message


@pytest.mark.parametrize("script", [SLOW, "exec yes >&2", f"printf '{{'; {SLOW}", f"exec >&-; {SLOW}"])
def test_an_agent_that_never_ends_is_left(asking: Asking, script: str) -> None:
    began = time.monotonic()
    assert "did not answer within 1 s" in away(asking(script, answer_seconds=1.0)).message
    assert time.monotonic() - began < 60


def test_an_agent_that_is_killed_in_the_middle_may_answer_later(asking: Asking) -> None:
    assert away(asking("printf '{'; kill -9 $$")).message


def test_an_agent_that_is_not_there_is_no_host_that_is_away() -> None:
    assert "ended with status 127" in refused(ProcessAgents(lambda _: ["/nowhere/backupd"]).agent("db1")).message


# --- the way there ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    script = f"cat > /dev/null; printf %s {shlex.quote(ANSWER)}"
    with by_ssh(tmp_path_factory.mktemp("keys"), ("sh", "-c", script)) as (_, found):
        yield found


def through(server: SshServer, *, connect_seconds: float = PATIENCE_SECONDS, **changed: object) -> Agent:
    there = replace(server, **changed)  # type: ignore[arg-type]
    return agents_of(there, connect_seconds=connect_seconds).agent("db1")


def host_key(server: SshServer) -> str:
    return server.known_hosts.read_text().partition(" ")[2]


def known(server: SshServer, tmp_path: Path, text: str) -> Agent:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return through(server, known_hosts=path)


def test_a_host_that_shows_another_key_is_refused_and_its_key_not_taken(server: SshServer, tmp_path: Path) -> None:
    other = (server.key_file.with_suffix(".pub")).read_text()
    text = f"[{server.address}]:{server.port} {other}"
    agent = known(server, tmp_path, text)
    for _ in range(2):
        error = refused(agent)
        assert "shows a different host key than" in error.message
        assert "this may be an attack" in error.hint
    assert (tmp_path / "known_hosts").read_text() == text


@pytest.mark.parametrize(
    ("text", "fact"),
    [("", "does not know"), ("[{0.address}]:{0.port} {1}\n@revoked * {1}\n", "is revoked in")],
    ids=["new", "revoked"],
)
def test_a_host_that_nobody_has_vouched_for_is_refused(server: SshServer, tmp_path: Path, text: str, fact: str) -> None:
    agent = known(server, tmp_path, text.format(server, host_key(server).strip()))
    assert fact in refused(agent).message


def test_who_is_known_is_parsed_once_for_each_change_beside_what_waits_for_hosts(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a company's machines takes seconds, within which no other host may count as away."""
    parsed: list[str] = []
    load = asyncssh.SSHKnownHosts.load

    def loaded(self: asyncssh.SSHKnownHosts, text: str) -> None:
        parsed.append(threading.current_thread().name)
        load(self, text)

    monkeypatch.setattr(asyncssh.SSHKnownHosts, "load", loaded)
    path = tmp_path / "known_hosts"
    path.write_text(f"[{server.address}]:{server.port} {host_key(server)}")
    agents = agents_of(replace(server, known_hosts=path))
    with ThreadPoolExecutor(8) as asked:
        assert [state.status for state in asked.map(lambda _: agents.agent("db1").status("r1"), range(8))]
    assert len(parsed) == 1
    with path.open("a") as file:
        file.write(f"@revoked * {host_key(server)}")
    for _ in range(2):
        assert "is revoked in" in refused(agents.agent("db1")).message
    assert len(parsed) == 2
    assert "agents" not in parsed
    agents.close()


def test_what_is_no_known_hosts_file_is_told_by_its_line(server: SshServer, tmp_path: Path) -> None:
    error = refused(known(server, tmp_path, f"db1\n[{server.address}]:{server.port} {host_key(server)}"))
    assert error.message == f"known_hosts: cannot read {tmp_path}/known_hosts: Invalid known hosts entry: db1"


def test_a_key_that_the_host_does_not_take_is_told_with_what_to_write_there(server: SshServer) -> None:
    stranger = server.key_file.with_name("host_key")  # another private key
    error = refused(through(server, key_file=stranger))
    assert f"does not accept the control host's key {stranger}" in error.message
    assert 'command="/usr/bin/backupd agent",restrict' in error.hint


def test_a_key_that_others_can_read_is_not_used(server: SshServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(server.key_file.read_bytes())
    key.chmod(0o644)
    assert str(key) in refused(through(server, key_file=key)).message


def test_a_host_without_sshd_is_away(server: SshServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = away(through(server, port=taken.getsockname()[1]))
    assert "could not connect to db1" in error.message


def test_a_host_behind_a_firewall_that_says_nothing_is_away(server: SshServer) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert (
            "did not answer for 2 s" in away(through(server, port=silent.getsockname()[1], connect_seconds=2.0)).message
        )


def test_a_name_that_is_no_hosts_is_away(server: SshServer) -> None:
    assert "could not connect to db1" in away(through(server, address="no-such-host.invalid")).message


@pytest.mark.parametrize("address", ["db3..example.org", f"{'x' * 64}.example.org"])
def test_an_address_that_none_can_be_is_that_host_s_fault(server: SshServer, address: str) -> None:
    assert "db1 could not be asked: UnicodeError: " in refused(through(server, address=address)).message


def test_no_host_chooses_the_group_of_a_key_exchange(tmp_path: Path) -> None:
    only = "KexAlgorithms diffie-hellman-group-exchange-sha256\n"
    with serving(tmp_path / "keys", key_options="restrict", more=only) as server:
        assert "could not agree on encryption" in refused(through(server)).message


@pytest.mark.parametrize("offered", ["curve25519-sha256", "ecdh-sha2-nistp256"])
def test_a_host_that_offers_one_usual_key_exchange_is_asked(tmp_path: Path, offered: str) -> None:
    options = f'command="printf %s {shlex.quote(ANSWER)}",restrict'.replace(ANSWER, ANSWER.replace('"', '\\"'))
    with serving(tmp_path / "keys", key_options=options, more=f"KexAlgorithms {offered}\n") as server:
        assert through(server).status("r1").status is RunStatus.RUNNING


def test_a_line_that_is_cut_in_the_middle_of_an_answer_is_a_host_that_is_away(tmp_path: Path) -> None:
    script = f"printf '{{'; head -c 2000000 /dev/zero; {SLOW}"
    with by_ssh(tmp_path / "keys", ("sh", "-c", script)) as (_, server), proxy(server.port) as between:
        path = tmp_path / "known_hosts"
        path.write_text(f"[127.0.0.1]:{between.port} {host_key(server)}")
        agent = through(server, port=between.port, known_hosts=path)
        between.cut_after(500_000)
        error = away(agent)
    assert "lost the connection to db1" in error.message
    assert "ask for the run's status" in error.hint


def test_many_threads_ask_at_once_and_only_so_many_connections_are_made(server: SshServer) -> None:
    before = set(threading.enumerate())
    agents = agents_of(server, at_once=3)
    heard: list[RunState] = []
    threads = [threading.Thread(target=lambda: heard.append(agents.agent("db1").status("r1"))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [state.status for state in heard] == [RunStatus.RUNNING] * 12
    agents.close()
    assert not {thread for thread in threading.enumerate() if thread.name == "agents"} - before
