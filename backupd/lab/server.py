"""A server on the volume: made once, started in every lab.

Knows: its options, its accounts, its tables.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.host.process import run, spawned
from backupd.lab.options import ServerKind
from backupd.lab.servers import SOFTWARE, Software
from backupd.lab.site import LabSite
from backupd.vocabulary.errors import LabError

SCHEMA = "sbtest"
_INSTALL_SECONDS = 300.0
_START_SECONDS = 120.0
_STOP_SECONDS = 300.0
_QUICK_SECONDS = 60.0
_DIGITS = " UNION ALL ".join(f"SELECT {digit}" for digit in range(10))
_TEN_THOUSAND_ROWS = ", ".join(f"({_DIGITS}) AS digit{place}" for place in range(4))  # every server understands it

# The load's account needs no password: nobody else can reach the socket of a machine that lives for minutes.
_SCHEMA = """
CREATE DATABASE {schema};
USE {schema};
CREATE USER lab_load@localhost;
GRANT ALL ON {schema}.* TO lab_load@localhost;
CREATE TABLE {schema}.heartbeat (id BIGINT AUTO_INCREMENT PRIMARY KEY, at DOUBLE NOT NULL) ENGINE=InnoDB;
"""
_LOG_TABLE = """
CREATE TABLE {schema}.{table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, at DOUBLE NOT NULL, note VARCHAR(100))
    ENGINE={engine};
INSERT INTO {schema}.{table} (at, note) SELECT 0, REPEAT('x', 80) FROM {rows};
"""


def option_file(site: LabSite, kind: ServerKind) -> str:
    """The server's only option file."""
    network = f"port = {site.port}\nbind_address = 127.0.0.1" if site.port else "skip_networking"
    particular = "\n".join(SOFTWARE[kind].options)
    return f"""[mysqld]
user = root
datadir = {site.datadir}
socket = {site.socket}
pid_file = {site.runtime}/mysqld.pid
log_error = {site.server_log}
tmpdir = {site.server_temporary}
{network}
skip_name_resolve
server_id = 1
log_bin = mysql-bin
max_binlog_size = 100M
innodb_buffer_pool_size = 128M
{particular}
"""


def install(site: LabSite, kind: ServerKind) -> None:
    """An empty datadir exists in which root may log in by socket; no server runs.

    Raises:
        CommandError: the program that makes it is missing or failed.
    """
    software = SOFTWARE[kind]
    configured = _configured(site, kind)
    run(
        [*_in(site.runtime), software.install, configured, *software.install_options],
        timeout_seconds=_INSTALL_SECONDS,
    )


@contextmanager
def running(site: LabSite, kind: ServerKind, *, fast_and_loose: bool = False) -> Iterator[None]:
    """A server answers on the socket within the block; afterwards it was shut down cleanly.

    `fast_and_loose` gives up durability, for as long as nothing is worth keeping yet.

    Raises:
        LabError: it did not come up; the message carries the end of its log.
    """
    configured = _configured(site, kind)
    loose = ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF"] if fast_and_loose else []
    argv = [*_in(site.datadir), SOFTWARE[kind].program, configured, *loose]
    with spawned(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _wait_until_it_answers(site, process)
        yield
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise LabError(f"the lab's server did not stop within {_STOP_SECONDS:g} s") from late


def _configured(site: LabSite, kind: ServerKind) -> str:
    """The option that every program of the server's takes first; what it names is there."""
    site.socket.parent.mkdir(parents=True, exist_ok=True)
    site.server_configuration.write_text(option_file(site, kind), encoding="utf-8")
    return f"--defaults-file={site.server_configuration}"


def _in(folder: Path) -> list[str]:
    """Started there: a `mysql-bin.state` of the server's was once found in the folder that the lab was started in."""
    return ["env", f"--chdir={folder}"]


def execute(site: LabSite, statements: str) -> str:
    """Run statements as root; what they print, tab-separated and without headings.

    Raises:
        CommandError: one of them failed.
    """
    argv = ["mariadb", "--no-defaults", f"--socket={site.socket}", "--batch", "--skip-column-names"]
    return run(argv, timeout_seconds=_QUICK_SECONDS, stdin=statements).stdout


def fill(site: LabSite, kind: ServerKind, rows: int) -> None:
    """The schema, the accounts and N rows of sysbench's own table exist."""
    software = SOFTWARE[kind]
    log_tables = (
        _LOG_TABLE.format(schema=SCHEMA, table=table, engine=engine, rows=_TEN_THOUSAND_ROWS)
        for table, engine in software.log_tables.items()
    )
    execute(site, _SCHEMA.format(schema=SCHEMA) + "".join(log_tables) + backup_account(software))
    run([*sysbench_argv(site, rows), "prepare"], timeout_seconds=_START_SECONDS + rows / 1000)


def backup_account(software: Software) -> str:
    """What the documentation asks of an administrator, and nothing more, so that a missing grant shows here first."""
    from backupd.mysql.grants import grant_script  # here: it loads the database driver, a second in the machine

    create = f"CREATE USER backupd@localhost IDENTIFIED BY '{_new_password()}';\n"
    return create + grant_script("backupd", flavour=software.flavour)


def set_password(site: LabSite) -> None:
    """The backup account has a password that no other lab has, in a file for its owner only."""
    password = _new_password()
    execute(site, f"ALTER USER backupd@localhost IDENTIFIED BY '{password}';")
    site.password_file.parent.mkdir(parents=True, exist_ok=True)
    site.password_file.touch(mode=0o600)
    site.password_file.write_text(password + "\n", encoding="utf-8")


def sysbench_argv(site: LabSite, rows: int) -> list[str]:
    """sysbench's own write-only transaction on one table of N rows."""
    return [
        *("sysbench", "oltp_write_only", "--db-driver=mysql", "--mysql-user=lab_load", f"--mysql-db={SCHEMA}"),
        *(f"--mysql-socket={site.socket}", "--tables=1", f"--table-size={rows}"),
    ]


def _new_password() -> str:
    return os.urandom(16).hex()  # `secrets` would do the same, after loading OpenSSL: 60 ms in the machine


def point_clients_at(site: LabSite, file: Path) -> None:
    """A client started without options finds this server; whatever the file said before is gone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(f"[client-server]\nsocket = {site.socket}\n", encoding="utf-8")


def _wait_until_it_answers(site: LabSite, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not (site.socket.exists() and _answers(site)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError("the lab's server did not start", hint=f"its log ends:\n{_last_lines(site.server_log)}")
        time.sleep(0.05)


def _answers(site: LabSite) -> bool:
    argv = ["mariadb", "--no-defaults", f"--socket={site.socket}", "--execute=SELECT 1"]
    return run(argv, timeout_seconds=_QUICK_SECONDS, accept=(0, 1)).status == 0


def _last_lines(log: Path) -> str:
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    except FileNotFoundError:
        return "(no log)"
