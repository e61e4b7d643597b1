"""A replication cluster of three hosts in one machine: a source and two replicas, each with an sshd and an agent.

Knows: how replicas are seeded and follow, and how each member gets a configuration, a catalogue, an identity, locks and
logs of its own. `db1` is the lab's own server on its volume; the data of `db2` is on a volume of its own; that of `db3`
lies in a plain folder, of which there is no snapshot. Refuses to know what a fleet does with them.
"""

import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql

from backupd.vocabulary.records import RunDetails
from tests.agent_host import AgentHost
from tests.contract.test_agents import forced
from tests.lab.inside.host import SITE, tool, until
from tests.lab.inside.inside_layouts import LINEAR, served
from tests.lab.inside.servers import SecondServer, second_server
from tests.servers.sshd import SshServer

JOB = "nightly"
_PORT = 3306
_PASSWORD = secrets.token_hex(12)
_SMALL = ("--innodb-buffer-pool-size=32M", "--performance-schema=OFF", "--binlog-format=ROW")
_CONFIGURATION = """\
[catalogue]
path = "{folder}/catalogue/catalogue.sqlite"
[paths]
run = "{folder}/run"
staging = "{folder}/staging"
log = "{folder}/log"
[hosts.own]
socket = "{socket}"
user = "root"
[targets.vault]
type = "directory"
path = "{vault}"
[jobs.nightly]
host = "own"
targets = ["vault"]
[jobs.nightly.snapshot]
size = "96MiB"
[jobs.nightly.settle]
enabled = false
[jobs.nightly.copy]
max_rate = "{rate}"
"""


@dataclass(frozen=True)
class Member:
    """One of the three."""

    name: str
    host: AgentHost
    ssh: SshServer

    def backupd(self, *words: str) -> str:
        """What a command prints that is typed on this host; it must succeed."""
        return tool(*self.host.program, *words)

    def runs(self) -> list[RunDetails]:
        """All that its catalogue has."""
        with self.host.catalogue() as catalogue:
            return list(catalogue.runs(limit=None))

    def identity(self) -> str:
        """The name by which its backups lie on a target."""
        with self.host.catalogue() as catalogue:
            return catalogue.identity().name

    @property
    def mounts(self) -> Path:
        """Where its runs mount their snapshots."""
        return self.host.folder / "run" / "mnt"


@dataclass(frozen=True)
class Cluster:
    """The three, and their replicas' servers."""

    members: tuple[Member, ...]  # db1, db2, db3
    replicas: dict[str, SecondServer]
    key_file: Path  # of the one who may start their agents
    known_hosts: Path

    def behind(self, **seconds: int) -> None:
        """From now on these replicas apply everything so late; returns when that is what they tell."""
        for name, delay in seconds.items():
            self.replicas[name].sql(f"STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = {delay}; START SLAVE")
        until(lambda: all(_is_behind(self.replicas[name], delay) for name, delay in seconds.items()))


def _is_behind(replica: SecondServer, delay: int) -> bool:
    """Within a second or two, or for a late one, more than half of it."""
    lag = _lag(replica)
    return lag is not None and (lag > delay / 2 if delay else lag <= 1)


def _lag(replica: SecondServer) -> int | None:
    with (
        closing(pymysql.connect(unix_socket=str(replica.socket), user="root")) as connection,
        connection.cursor(pymysql.cursors.DictCursor) as cursor,
    ):
        cursor.execute("SHOW SLAVE STATUS")
        (told,) = cursor.fetchall()
    assert not told["Last_SQL_Error"] + told["Last_IO_Error"], told
    lag: int | None = told["Seconds_Behind_Master"]
    return lag


@contextmanager
def cluster(folder: Path, *, rate: str) -> Iterator[Cluster]:
    """All three answer, and both replicas follow; their copies are made at this rate. `folder` is in memory."""
    with ExitStack() as stack:
        stack.callback(tool, "mariadb", "--execute=DROP USER IF EXISTS repl@'127.0.0.1'")
        tool(
            "mariadb",
            f"--execute=CREATE USER repl@'127.0.0.1' IDENTIFIED BY '{_PASSWORD}';"
            "GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'",
        )
        replicas = {
            "db2": stack.enter_context(served(LINEAR, folder / "volume", "--server-id=2", *_SMALL)),
            "db3": stack.enter_context(second_server(folder / "plain", "--server-id=3", *_SMALL)),
        }
        stack.callback(until, lambda: not _at_work(folder))
        _seeded(list(replicas.values()))
        sockets = {"db1": SITE.socket, **{name: replica.socket for name, replica in replicas.items()}}
        members: list[Member] = []
        for name, socket in sockets.items():
            host = _host(folder / name, socket, vault=folder / "vault", rate=rate)
            keys = _keys(folder / "keys" / name, [one.ssh.key_file for one in members])
            members.append(Member(name, host, stack.enter_context(forced(host, keys))))
        known_hosts = folder / "known_hosts"
        known_hosts.write_text("".join(one.ssh.known_hosts.read_text() for one in members))
        yield Cluster(tuple(members), replicas, members[0].ssh.key_file, known_hosts)


def _at_work(folder: Path) -> list[str]:
    """Agents that still answer a control host that has gone, and runs."""
    argv = ["pgrep", "--list-full", "--full", f"backupd --config {folder}/db"]
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout.splitlines()


def _host(folder: Path, socket: Path, *, vault: Path, rate: str) -> AgentHost:
    folder.mkdir()
    vault.mkdir(exist_ok=True)
    host = AgentHost(folder)
    host.configuration.write_text(_CONFIGURATION.format(folder=folder, socket=socket, vault=vault, rate=rate))
    return host


def _keys(folder: Path, before: Sequence[Path]) -> Path:
    """A host key of its own will be made there; the control host's key is everywhere the same."""
    folder.mkdir(parents=True)
    for file in before[:1]:
        for one in (file, file.with_name(f"{file.name}.pub")):
            shutil.copy(one, folder)
    return folder


def _seeded(replicas: Sequence[SecondServer]) -> None:
    """They have what the source has, and follow it from there."""
    argv = ["mariadb-dump", "--master-data=1", "--gtid", "--databases", "sbtest"]  # it holds a global read lock
    dumped = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    for replica in replicas:
        replica.sql(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {_PORT}, MASTER_USER = 'repl',"
            f" MASTER_PASSWORD = '{_PASSWORD}'"
        )
        tool("mariadb", "--no-defaults", f"--socket={replica.socket}", stdin=dumped)
        replica.sql("SET GLOBAL read_only = 1; START SLAVE")
