"""A MariaDB server of the tests' own: a temporary folder, a socket in it, nobody else's files touched.

Fixtures here are prefixed `mysql_`; a test module imports those it uses.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.session import Connect, Login, Session, StatementError, connector
from backupd.vocabulary.errors import ServerError

START_SECONDS = 120.0  # patience with a busy machine: one that has ended is told at once
PASSWORD = "correct horse"
_PATH = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"

# Options that decide how the files of a new datadir are.
_OF_FILES = (
    *("--aria-block-size=", "--aria-log-dir-path=", "--innodb-checksum-algorithm=", "--innodb-data-file-path="),
    *("--innodb-page-size=", "--innodb-undo-tablespaces=", "--lower-case-table-names="),
)


class MariadbServer:
    """One server process on one folder."""

    _redo = "--innodb-log-file-size=16M"

    def __init__(self, folder: Path, *options: str, program: str = "mariadbd") -> None:
        """`program` may be another release's: its files are made by the installed one, and its logs by itself."""
        self.folder = folder
        self.program = program
        self.datadir = folder / "data"
        self.socket = folder / "s"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", f"--datadir={self.datadir}", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", "--skip-name-resolve", *self._user()),
                *(option for option in self._options if option.startswith(_OF_FILES)),
            ],
            check=True,
            capture_output=True,
            env=self._environment(),
        )

    def argv_of_datadir(self) -> tuple[str, ...]:
        """The program, and on what it works."""
        return (self.program, "--no-defaults", f"--datadir={self.datadir}", *self._user())

    def start(self, *more: str) -> None:
        """With these options as well, this time."""
        with (self.folder / "log").open("ab") as said:
            self._process = subprocess.Popen(
                [
                    *(*self.argv_of_datadir(), f"--socket={self.socket}"),
                    *(f"--pid-file={self.folder}/pid", f"--log-bin={self.datadir}/bin", "--server-id=7"),
                    *("--skip-networking", "--innodb-buffer-pool-size=32M", self._redo),
                    *(*self._options, *more),
                ],
                stdout=said,
                stderr=said,
                env=self._environment(),
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server does nothing for the length of the block: what is copied meanwhile is an atomic image."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            wait_until(self._stands_still)  # a thread that is in the middle of a write ends it first
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def login(self, user: str = "root", password: str = "") -> Login:
        return Login(user, socket=self.socket, password=password)

    def connect(self, user: str = "root", password: str = "") -> Connect:
        return connector(self.login(user, password))

    def session(self) -> Session:
        """As root."""
        return self.connect()()

    def account(self, user: str, grants: str = "") -> Connect:
        """An account of this name with these statements' grants and no other."""
        with self.session() as root:
            root.execute("SET SESSION sql_log_bin = 0")  # a replica with events of its own cannot follow by GTID
            root.execute(f"DROP USER IF EXISTS '{user}'@'localhost'")
            root.execute(f"CREATE USER '{user}'@'localhost' IDENTIFIED BY '{PASSWORD}'")
            for statement in filter(None, (line.strip() for line in grants.split(";"))):
                root.execute(statement)
        return self.connect(user, PASSWORD)

    def _stands_still(self) -> bool:
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)

    def _answers(self) -> bool:
        try:
            self.session().close()
        except ServerError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "TMPDIR": str(self.folder)}  # not everybody may write to /tmp

    @staticmethod
    def _user() -> tuple[str, ...]:
        return ("--user=root",) if os.geteuid() == 0 else ()


@contextmanager
def mariadb(*options: str, program: str = "mariadbd") -> Iterator[MariadbServer]:
    """A new server with three tables, `t.innodb`, `t.myisam` and `t.aria`; gone at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="bk-"))  # short: a socket's path has no room for more than 107 characters
    server = MariadbServer(folder, *options, program=program)
    try:
        server.install()
        server.start()
        with server.session() as root:
            root.execute("CREATE DATABASE t")
            for engine in ("innodb", "myisam", "aria"):
                root.execute(f"CREATE TABLE t.{engine} (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT) ENGINE = {engine}")
                root.execute(f"INSERT INTO t.{engine} (v) VALUES ('one'), ('two')")
        yield server
    finally:
        server.stop(signal.SIGKILL)
        shutil.rmtree(folder)


def lock_sessions(mariadb: MariadbServer) -> list[int]:
    """Those who hold a server-wide lock, as the server's own books have it."""
    with mariadb.session() as session:
        rows = session.query(
            "SELECT DISTINCT PROCESSLIST_ID AS id FROM performance_schema.metadata_locks"
            " JOIN performance_schema.threads ON OWNER_THREAD_ID = THREAD_ID"
            " WHERE OBJECT_TYPE = 'BACKUP' AND LOCK_DURATION = 'EXPLICIT' AND LOCK_STATUS = 'GRANTED'"
        )
    return [int(row["id"] or 0) for row in rows]


@contextmanager
def running(mariadb: MariadbServer, statement: str) -> Iterator[None]:
    """Somebody else runs this statement for the length of the block; the block begins when the server says so."""
    other = mariadb.session()

    def run() -> None:
        with pytest.raises(StatementError):  # it is killed at the end
            other.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with mariadb.session() as session:
            age = "SELECT TIME_MS FROM information_schema.PROCESSLIST WHERE ID = %s AND COMMAND = 'Query'"
            wait_until(lambda: float(session.value(age, other.connection_id) or 0) > 100)
            yield
            session.kill(other.connection_id)
            gone = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s"
            wait_until(lambda: session.value(gone, other.connection_id) == "0")  # its locks go with it, not before
    finally:
        thread.join()
        other.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # a look may open a catalogue, or every segment


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariadbServer]:
    with mariadb(
        "--performance-schema=ON",
        "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
        "--performance-schema-max-table-instances=200",
    ) as server:
        yield server
