"""How long a server with 200,000 tables takes to answer what backupd asks of it: `make bench-tables`, as root.

The server is this host's MariaDB with a datadir of its own. Its tables are empty, InnoDB's, each in a file of its own.
It was started anew since they were made, so that it has none of them open when it is first asked: slower it never is.
Asked is through backupd's own functions, and by an account that has what the documentation asks for; but for what only
a restored server is asked, by root. Beside it stand the seconds of the same questions before there was any table.

Started as `python -m tests.bench.bench_tables [--tables N] [--folder DIR]`. The exit status is 1 where a limit is
missed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from backupd.config import LockStrategy
from backupd.lab import server
from backupd.lab.options import ServerKind
from backupd.lab.servers import SOFTWARE
from backupd.lab.site import LabSite, host_site
from backupd.mysql.proof import check_tables
from backupd.mysql.scratch import RunningServer
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Login, Session, connector
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.table_export import engine_of
from backupd.vocabulary.errors import LabError

TABLES = 200_000
ANSWER_SECONDS = 10.0  # at most, for each question

_KIND = ServerKind.MARIADB_10
_SCHEMA_TABLES = 10_000
_TOLD_EVERY = 20_000


def main(argv: Sequence[str]) -> int:
    """Make the tables, ask, and print how long each answer took.

    Raises:
        LabError: not root, or the server did not start.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_tables")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--folder", type=Path, help="where the datadir is made; a new one where temporary files go")
    asked = parser.parse_args(argv)
    if os.geteuid() != 0:
        raise LabError("a server of the lab's runs as root", hint="use sudo")
    with tempfile.TemporaryDirectory(prefix="backupd-bench-", dir=asked.folder) as made:
        site = _made(Path(made))
        server.install(site, _KIND)
        with server.running(site, _KIND, fast_and_loose=True):
            server.execute(site, server.backup_account(SOFTWARE[_KIND]))
            server.set_password(site)
            with _root(site) as session:
                make_tables(session, 1)
            without = _asked(site)
            with _root(site) as session:
                make_tables(session, asked.tables)
        with server.running(site, _KIND):
            return int(_print(_asked(site), without, tables=asked.tables))


def make_tables(session: Session, tables: int) -> None:
    """So many are there, counted over schemas of ten thousand; those that were there are left."""
    session.execute("SET SESSION sql_log_bin = 0")
    began = time.monotonic()
    for number in range(tables):
        table = _table(number)
        if number % _SCHEMA_TABLES == 0:
            session.execute(f"CREATE DATABASE IF NOT EXISTS {table.schema}")
        session.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY) ENGINE = InnoDB")
        if number and number % _TOLD_EVERY == 0:
            sys.stderr.write(f"{number} tables after {time.monotonic() - began:.0f} s\n")


def _table(number: int) -> Table:
    return Table(f"schema_{number // _SCHEMA_TABLES:03}", f"customer_orders_{number:07}")


def _made(folder: Path) -> LabSite:
    site = host_site(folder, out=folder, pid=os.getpid())
    for part in (site.runtime, site.server_temporary, site.datadir):
        part.mkdir(parents=True)
    return site


@contextmanager
def _root(site: LabSite) -> Iterator[Session]:
    with connector(Login("root", socket=site.socket))() as session:
        yield session


def _asked(site: LabSite) -> Mapping[str, float]:
    """Seconds of each question, in the order of a run, and then of a drill and an export."""
    login = Login("backupd", socket=site.socket, password=site.password_file.read_text(encoding="utf-8").strip())
    live = MysqlServer(connector(login))
    facts = live.facts()
    with _root(site) as restored:
        checked = cast(RunningServer, SimpleNamespace(session=restored, error_log=""))
        questions: dict[str, Callable[[], object]] = {
            "what kind of server it is": live.facts,
            "its privileges": lambda: live.missing_grants(LockStrategy.AUTO),
            "where its files are": lambda: live.data_paths(facts),
            "tables that are not crash-safe": lambda: live.unsafe_tables(facts),
            "what a lock would wait for": lambda: live.blockers(0),
            "what it replicates": live.replication,
            "how it stands in a cluster": live.membership,
            "its tablespaces": lambda: live.tablespaces(facts),
            "the tables to be checked": lambda: next(check_tables(checked)),
            "the engine of one table": lambda: engine_of(restored, _table(0)),
        }
        return {name: _seconds(question) for name, question in questions.items()}


def _seconds(question: Callable[[], object]) -> float:
    began = time.monotonic()
    question()
    return time.monotonic() - began


def _print(found: Mapping[str, float], without: Mapping[str, float], *, tables: int) -> bool:
    """Whether a limit was missed."""
    sys.stdout.write(f"{'':32}{tables:>10,} tables  {'one table':>12}\n")
    for name, seconds in found.items():
        word = "MISSED" if seconds > ANSWER_SECONDS else "kept"
        sys.stdout.write(f"{name:32}{seconds:15.2f} s  {without[name]:10.2f} s  of {ANSWER_SECONDS:g} s  {word}\n")
    return max(found.values()) > ANSWER_SECONDS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
