"""Whoever has the control host's key can start backups, end them and read the history, and do nothing else."""

import json
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backupd.fleet.ssh_agents import SshAccess, SshAgents, SshHost
from backupd.vocabulary.records import RunStatus
from tests.agent_host import JOB, PATIENCE_SECONDS, AgentHost, agent_host, until
from tests.servers.sshd import SshServer, serving

SECRET = "correct horse battery staple"


@dataclass(frozen=True)
class Thief:
    """He has the key, OpenSSH's own client, and all the time in the world."""

    server: SshServer
    host: AgentHost
    loot: Path  # where a file of his would be

    def ssh(
        self, *arguments: str, stdin: bytes = b"\n", after: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        """`ssh ARGUMENTS… HOST AFTER…`."""
        server = self.server
        return subprocess.run(
            [
                *("ssh", "-F", "none", "-i", str(server.key_file), "-p", str(server.port)),
                *("-o", f"UserKnownHostsFile={server.known_hosts}", "-o", "BatchMode=yes", *arguments),
                *(f"{server.user}@{server.address}", *after),
            ],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def asked(self, **request: Any) -> Any:
        """What the agent answers to this."""
        body = {"protocol": 1, "backupd": "0.9", **request}
        return json.loads(self.ssh(stdin=json.dumps(body).encode() + b"\n").stdout)

    def require_nothing_done(self) -> None:
        """He has written nothing and started nothing."""
        assert not self.loot.exists()
        assert self.host.runs() == []
        logs = self.host.folder / "log"
        assert not logs.exists() or list(logs.iterdir()) == []


@pytest.fixture
def thief(path_in_memory: Path, tmp_path: Path) -> Iterator[Thief]:
    with agent_host(path_in_memory) as host:
        password = path_in_memory / "password"
        password.write_text(SECRET)
        password.chmod(0o600)
        text = host.configuration.read_text()
        host.configuration.write_text(text.replace('user = "root"', f'user = "root"\npassword_file = "{password}"'))
        command = shlex.join(host.agent).replace('"', '\\"')
        with serving(tmp_path / "keys", key_options=f'command="{command}",restrict') as server:
            yield Thief(server, host, tmp_path / "loot")


def is_refusal(said: bytes) -> bool:
    return bool(json.loads(said)["error"]["code"] == "not-understood")


@pytest.mark.parametrize("command", ["touch {loot}", "sh -c 'touch {loot}'", "backupd --help", "agent; touch {loot}"])
def test_he_runs_no_command(thief: Thief, command: str) -> None:
    done = thief.ssh(after=[command.format(loot=thief.loot)])
    assert is_refusal(done.stdout)
    thief.require_nothing_done()


def test_he_can_start_a_backup_and_read_its_history(thief: Thief) -> None:
    access = SshAccess(thief.server.key_file, thief.server.known_hosts, 10.0, PATIENCE_SECONDS, at_once=1)
    server = thief.server
    agents = SshAgents(access, lambda name: SshHost(name, server.address, server.port, server.user))
    assert thief.asked(ask="start", job=JOB, run_id="mine")["answer"]["status"] is not None
    assert until(agents.agent("db1"), "mine").status is RunStatus.REFUSED
    assert thief.asked(ask="result", run_id="mine")["answer"]["job"] == JOB
    agents.close()


def test_he_learns_no_secret(thief: Thief) -> None:
    thief.asked(ask="start", job=JOB, run_id="mine")
    for ask in ("describe", "status", "result", "cancel"):
        said = json.dumps(thief.asked(ask=ask, run_id="mine"))
        assert SECRET not in said
        assert "password" not in said


def test_he_gets_no_shell_and_no_terminal(thief: Thief) -> None:
    typed = f"touch {thief.loot}\n".encode()
    assert is_refusal(thief.ssh(stdin=typed).stdout)
    done = thief.ssh("-tt", stdin=typed)
    assert b"PTY allocation request failed" in done.stderr
    assert done.stdout == b""
    thief.require_nothing_done()


def test_he_moves_no_files(thief: Thief) -> None:
    assert is_refusal(thief.ssh("-s", after=["sftp"]).stdout)
    assert is_refusal(thief.ssh(after=[f"scp -t {thief.loot}"]).stdout)
    thief.require_nothing_done()


@pytest.mark.parametrize("option", ["-R", "-W", "-w"])
def test_he_gets_into_no_network(thief: Thief, option: str) -> None:
    with socket.socket() as inner:
        inner.bind(("127.0.0.1", 0))
        inner.listen()
        place = f"127.0.0.1:{inner.getsockname()[1]}"
        options = {"-R": ["-N", "-R", f"0:{place}"], "-W": ["-W", place], "-w": ["-N", "-w", "any:any"]}[option]
        done = thief.ssh("-o", "ExitOnForwardFailure=yes", *options)
    assert done.returncode == 255
    assert done.stdout == b""


def test_what_he_sets_in_the_environment_changes_nothing(thief: Thief) -> None:
    evil = thief.loot.with_name("evil.toml")
    evil.write_text("")
    environment = {**os.environ, "BACKUPD_CONFIG": str(evil), "SSH_ORIGINAL_COMMAND": f"--config {evil} run {JOB}"}
    for done in (
        thief.ssh("-o", f"SetEnv=BACKUPD_CONFIG={evil}", stdin=b'{"protocol":1,"backupd":"0.9","ask":"describe"}\n'),
        subprocess.run(
            thief.host.agent,
            input=b'{"protocol":1,"backupd":"0.9","ask":"describe"}\n',
            env=environment,
            capture_output=True,
            check=True,
        ),
    ):
        assert {job["job"] for job in json.loads(done.stdout)["answer"]["jobs"]} == {JOB, "silent"}
    thief.require_nothing_done()


@pytest.mark.parametrize(
    "request_",
    [
        {"ask": "restore", "run_id": "mine"},
        {"ask": "prune", "job": JOB},
        {"ask": "pause", "job": JOB},
        {"ask": "start", "job": "--help", "run_id": "mine"},
        {"ask": "start", "job": "../nightly", "run_id": "mine"},
        {"ask": "start", "job": f"{JOB}; touch LOOT", "run_id": "mine"},
        {"ask": "start", "job": "$(touch LOOT)", "run_id": "mine"},
        {"ask": "start", "job": JOB, "run_id": "../../../../LOOT"},
        {"ask": "start", "job": JOB, "run_id": "LOOT"},
        {"ask": "start", "job": JOB, "run_id": "--config=/tmp/x"},
        {"ask": "start", "job": JOB, "run_id": "mine", "max_rate": "1 --json"},
        {"ask": "start", "job": JOB, "run_id": "mine", "max_rate": 1},
        {"ask": "cancel", "run_id": "1"},
        {"ask": "result", "run_id": "latest-good"},
        {"ask": "result", "run_id": "/etc/shadow"},
    ],
    ids=str,
)
def test_no_name_of_his_becomes_a_path_an_option_or_a_command(thief: Thief, request_: dict[str, Any]) -> None:
    answer = thief.asked(**json.loads(json.dumps(request_).replace("LOOT", str(thief.loot))))
    assert "error" in answer or answer["answer"]["status"] is None
    thief.require_nothing_done()


def test_what_is_too_much_is_refused_before_it_is_read(thief: Thief) -> None:
    assert is_refusal(thief.ssh(stdin=b"[" * (100 << 20)).stdout)
    thief.require_nothing_done()


def test_a_session_that_asks_for_nothing_ends_by_itself(thief: Thief) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing), os.fdopen(reading) as nothing:
        done = subprocess.run(
            thief.host.agent, stdin=nothing, capture_output=True, timeout=PATIENCE_SECONDS, check=True
        )
    assert "no whole request came within 10 s" in json.loads(done.stdout)["error"]["message"]
