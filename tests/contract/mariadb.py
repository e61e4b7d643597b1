"""A MariaDB server of the tests' own: a temporary folder, a socket in it, nobody else's files touched.

Fixtures here are prefixed `mysql_`; a test module imports those it uses.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.errors import ServerError
from backupd.mysql.session import Connect, Login, Session, connector

START_SECONDS = 30.0
PASSWORD = "correct horse"
LACKING_PATH = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


class MariadbServer:
    """One server process on one folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.datadir = folder / "data"
        self.socket = folder / "s"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", f"--datadir={self.datadir}", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", "--skip-name-resolve", *self._user()),
            ],
            check=True,
            capture_output=True,
            env={**os.environ, "PATH": LACKING_PATH},
        )

    def start(self) -> None:
        with (self.folder / "log").open("ab") as said:
            self._process = subprocess.Popen(
                [
                    *("mariadbd", "--no-defaults", f"--datadir={self.datadir}", f"--socket={self.socket}"),
                    *(f"--pid-file={self.folder}/pid", f"--log-bin={self.datadir}/bin", "--server-id=7"),
                    *("--skip-networking", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"),
                    *self._user(),
                    *self._options,
                ],
                stdout=said,
                stderr=said,
                env={**os.environ, "PATH": LACKING_PATH},
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
            root.execute(f"DROP USER IF EXISTS '{user}'@'localhost'")
            root.execute(f"CREATE USER '{user}'@'localhost' IDENTIFIED BY '{PASSWORD}'")
            for statement in filter(None, (line.strip() for line in grants.split(";"))):
                root.execute(statement)
        return self.connect(user, PASSWORD)

    def _answers(self) -> bool:
        try:
            self.session().close()
        except ServerError:
            return False
        return True

    @staticmethod
    def _user() -> tuple[str, ...]:
        return ("--user=root",) if os.geteuid() == 0 else ()


@contextmanager
def mariadb(*options: str) -> Iterator[MariadbServer]:
    """A new server with three tables, `t.innodb`, `t.myisam` and `t.aria`; gone at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="bk-"))  # short: a socket's path has no room for more than 107 characters
    server = MariadbServer(folder, *options)
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


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariadbServer]:
    with mariadb(
        "--performance-schema=ON",
        "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
        "--performance-schema-max-table-instances=200",
    ) as server:
        yield server
