"""A replica that was cloned from a backup converges with its source, under load, by GTID and by file and offset."""

import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from backupd.lab.servers import SOFTWARE
from backupd.vocabulary.servers import Flavour
from tests.lab.inside.host import GATE_OFF, SERVER, SITE, Ended, Host, until

MYSQL = SOFTWARE[SERVER].flavour is Flavour.MYSQL
SOURCE = "127.0.0.1:3306"
PATIENCE_SECONDS = 150  # MySQL takes its time to start and to end in a machine that shares its processor
PASSWORD = secrets.token_hex(12)
CLONE = SITE.state / "clone"
SOCKET = SITE.runtime / "replica.sock"
LOG = SITE.runtime / "replica.err"

# This machine's own: how little memory there is, and what no server may guess or listen to.
OPTIONS = [
    *(f"--socket={SOCKET}", f"--log-error={LOG}", f"--pid-file={SITE.runtime}/replica.pid", "--user=root"),
    *("--skip-networking", "--innodb-buffer-pool-size=32M", "--loose-innodb-buffer-pool-size-max=128M"),
    *("--performance-schema=OFF", "--loose-wsrep-node-address=127.0.0.1", "--loose-mysqlx=OFF"),
    *("--loose-wsrep-node-incoming-address=127.0.0.1", *(["--secure-file-priv=NULL"] if MYSQL else [])),
]
TABLES = """
    SELECT CONCAT('`', TABLE_SCHEMA, '`.`', TABLE_NAME, '`') FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE'
    AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1
"""
STATUS = "SHOW REPLICA STATUS" if MYSQL else "SHOW SLAVE STATUS"
POSITION = "SHOW BINARY LOG STATUS" if MYSQL else "SHOW MASTER STATUS"
WAIT = "SOURCE_POS_WAIT" if MYSQL else "MASTER_POS_WAIT"


class Server:
    """One of the two, asked as root."""

    def __init__(self, socket: Path) -> None:
        self._connection = pymysql.connect(unix_socket=str(socket), user="root", autocommit=True)

    def ask(self, statement: str) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def row(self, statement: str) -> dict[str, Any]:
        with self._connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(statement)
            (found,) = cursor.fetchall()
            return dict(found)

    def checksums(self) -> dict[str, Any]:
        names = [name for (name,) in self.ask(TABLES)]
        return dict(self.ask(f"CHECKSUM TABLE {', '.join(names)}"))


@dataclass(frozen=True)
class Cloned:
    """A clone, as its command told it, and the server that runs on it."""

    ended: Ended
    server: Server

    @property
    def document(self) -> dict[str, Any]:
        return self.ended.document


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A backup was taken under load; the account that a replica needs exists. The file has its password."""
    host = Host(tmp_path_factory.mktemp("clone"))
    host.sql(
        f"CREATE USER repl@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'"
    )
    password_file = SITE.etc / "replication-password"
    password_file.touch(mode=0o600)
    password_file.write_text(f"{PASSWORD}\n")
    host.backupd("run", "nightly", changes=GATE_OFF)
    yield password_file
    host.sql("DROP USER repl@'127.0.0.1'")
    password_file.unlink()


@contextmanager
def cloned(host: Host, password_file: Path, *words: str) -> Iterator[Cloned]:
    """The newest backup, cloned while the load goes on, with a server on it that has not been told anything yet."""
    account = ("--source-user", "repl", "--source-password-file", str(password_file))
    try:
        ended = host.backupd(
            *("clone", "latest", "--to", str(CLONE), "--as-replica", "--source", SOURCE, *account, "--json", *words)
        )
        with running(Path(ended.document["option_file"])) as server:
            yield Cloned(ended, server)
    finally:
        shutil.rmtree(CLONE, ignore_errors=True)


@contextmanager
def running(option_file: Path) -> Iterator[Server]:
    process = subprocess.Popen([SOFTWARE[SERVER].program, f"--defaults-file={option_file}", *OPTIONS])
    try:
        until(lambda: process.poll() is not None or SOCKET.exists(), within_seconds=PATIENCE_SECONDS)
        assert process.poll() is None, LOG.read_text()
        yield Server(SOCKET)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def caught_up(source: Server, replica: Server) -> None:
    """The replica has applied what the source has written until now."""
    at = source.row(POSITION)
    waited = replica.ask(f"SELECT {WAIT}('{at['File']}', {at['Position']}, {PATIENCE_SECONDS})")
    assert waited[0][0] is not None, replica.row(STATUS)
    assert waited[0][0] >= 0, replica.row(STATUS)


@pytest.mark.parametrize("how", ["--gtid", "--file-position"])
def test_a_clone_converges_with_its_source_under_load(host: Host, backed_up: Path, how: str) -> None:
    with cloned(host, backed_up, how) as clone:
        replica, source = clone.server, Server(SITE.socket)
        position = clone.document["position"]
        assert clone.document["following"] == how.removeprefix("--")
        for statement in clone.document["left"]:
            replica.ask(statement)
        caught_up(source, replica)  # while the load goes on
        source.ask("FLUSH TABLES WITH READ LOCK")
        try:
            caught_up(source, replica)
            assert replica.checksums() == source.checksums()
            assert len(source.checksums()) >= 4
        finally:
            source.ask("UNLOCK TABLES")
        now = source.row(POSITION)
        assert (now["File"], now["Position"]) > (position["binlog_file"], position["binlog_offset"])


def test_a_clone_is_a_server_of_its_own_that_waits_for_a_person(host: Host, backed_up: Path) -> None:
    with cloned(host, backed_up, "--server-id", "4711") as clone:
        replica, source = clone.server, Server(SITE.socket)
        assert replica.ask("SELECT @@server_id, @@read_only") == ((4711, 1),)
        assert source.ask("SELECT @@server_id") == ((1,),)
        if MYSQL:
            assert replica.ask("SELECT @@server_uuid") != source.ask("SELECT @@server_uuid")
        status = {name.replace("Slave", "Replica"): value for name, value in replica.row(STATUS).items()}
        assert (status["Replica_IO_Running"], status["Replica_SQL_Running"]) == ("No", "No")
        binlogs = replica.ask("SHOW BINARY LOGS")
        assert [row[0] for row in binlogs] == ["mysql-bin.000001"]
        written = [Path(clone.document[name]).read_text() for name in ("option_file", "statements_file")]
        assert [text for text in (*written, clone.ended.stdout, clone.ended.stderr) if PASSWORD in text] == []
