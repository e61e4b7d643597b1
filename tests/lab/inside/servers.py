"""A server beside the lab's own, with its data wherever a test wants it.

Knows: how to make one in a second or two, once its system tables have been made. Refuses to know volumes.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.inside.host import SITE, Changes, tool, until

_TEMPLATE = SITE.state / "template"  # a datadir that no server runs on, copied for each
_WORDS = ("--user=root", "--loose-innodb-buffer-pool-size-max=512M", "--innodb-log-file-size=16M")
_WRITES = """BEGIN NOT ATOMIC
    WHILE TRUE DO
        INSERT INTO theirs.rows (said) VALUES (REPEAT('x', 200));
        DO SLEEP(0.02);
    END WHILE;
END"""


@dataclass(frozen=True)
class SecondServer:
    """Where it answers, to root alone."""

    datadir: Path
    socket: Path

    def asked_by(self, job: str) -> Changes:
        """A job of this server's on a host `second`; of the lab's own job everything else stays as it is."""
        return {
            "hosts.second.socket": str(self.socket),
            "hosts.second.user": "root",
            f"jobs.{job}.host": "second",
            f"jobs.{job}.targets": ["store"],
            f"jobs.{job}.canary": True,
        }

    def sql(self, statement: str) -> list[list[str]]:
        """Ask it as root."""
        return [line.split("\t") for line in tool(*self._client, f"--execute={statement}").splitlines()]

    @contextmanager
    def written_to(self) -> Iterator[None]:
        """Somebody commits row after row while the block lasts."""
        self.sql("CREATE DATABASE theirs; CREATE TABLE theirs.rows (n INT AUTO_INCREMENT PRIMARY KEY, said TEXT)")
        with subprocess.Popen(
            [*self._client, "--delimiter=//", f"--execute={_WRITES}"], stderr=subprocess.DEVNULL
        ) as client:
            try:
                until(lambda: int(self.sql("SELECT COUNT(*) FROM theirs.rows")[0][0]) > 0)
                yield
                assert client.poll() is None, "the writer has ended"
            finally:
                client.kill()

    @property
    def _client(self) -> tuple[str, ...]:
        return ("mariadb", "--no-defaults", f"--socket={self.socket}", "--batch", "--skip-column-names")


def empty_datadir() -> Path:
    """System tables and nothing else, of a server that was shut down."""
    if not _TEMPLATE.exists():
        quiet = ("--skip-test-db", "--auth-root-authentication-method=socket")
        tool("mariadb-install-db", "--no-defaults", *_WORDS, f"--datadir={_TEMPLATE}", *quiet)
    return _TEMPLATE


@contextmanager
def second_server(datadir: Path, *options: str) -> Iterator[SecondServer]:
    """A server with its binlog on, for the length of the block. Its datadir is made, or is an empty file system."""
    datadir.mkdir(exist_ok=True)
    tool("cp", "--archive", f"{empty_datadir()}/.", str(datadir))
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "server.sock"
        places = (f"--datadir={datadir}", f"--socket={socket}", f"--pid-file={folder}/server.pid")
        argv = ["mariadbd", "--no-defaults", *_WORDS, *places, "--skip-networking", "--log-bin=binlog", *options]
        with subprocess.Popen(argv, cwd=datadir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                until(socket.exists)
                yield SecondServer(datadir, socket)
            finally:
                process.kill()
