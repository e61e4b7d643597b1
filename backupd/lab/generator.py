"""The process that keeps a lab's server busy: sysbench, a heartbeat, and a writer of rows that no transaction protects.

Knows: how to go on when the server is locked, read-only or away. Started as `python -m backupd.lab.generator LOAD
ROWS TABLE,… SOCKET LOAD_LOG HEARTBEAT_LOG`; it ends when it is killed.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pymysql

from backupd.host.process import spawned
from backupd.lab.load import parse_report, run_arguments
from backupd.lab.options import Load
from backupd.lab.server import SCHEMA

HEARTBEATS_A_SECOND = 20
LOG_ROWS_A_SECOND = 4
_PATIENCE_SECONDS = 0.2

Execute = Callable[[str, tuple[float]], object]


def sysbench(load: Load, rows: int, socket: Path, log: Path) -> None:
    """Run sysbench for ever and stamp each of its reports with the wall clock; when it ends it is started again."""
    argv = [
        *("sysbench", "oltp_write_only", "--db-driver=mysql", "--mysql-user=lab_load", f"--mysql-db={SCHEMA}"),
        *(f"--mysql-socket={socket}", "--tables=1", f"--table-size={rows}", *run_arguments(load)),
    ]
    with log.open("a", encoding="utf-8", buffering=1) as out:
        while True:
            with spawned(argv, stderr=None) as process:
                for line in process.stdout or ():
                    report = parse_report(line.decode("utf-8", "replace"))
                    if report:
                        out.write(" ".join(f"{number:.3f}" for number in (time.time(), *report)) + "\n")
                    else:
                        sys.stderr.buffer.write(line)
                        sys.stderr.flush()
            time.sleep(_PATIENCE_SECONDS)


def heartbeat(socket: Path, log: Path) -> None:
    """Insert a row 20 times a second and log how long after its time each was committed."""
    with log.open("a", encoding="utf-8", buffering=1) as out:

        def beat(execute: Execute, due: float) -> None:
            execute("INSERT INTO heartbeat (at) VALUES (%s)", (due,))
            out.write(f"{due:.3f} {(time.time() - due) * 1000:.1f}\n")

        regularly(HEARTBEATS_A_SECOND, socket, beat)


def write_logs(tables: list[str], socket: Path) -> None:
    """Insert into the tables that no transaction protects, a few times a second."""

    def write(execute: Execute, due: float) -> None:
        for table in tables:
            execute(f"INSERT INTO {table} (at, note) VALUES (%s, REPEAT('x', 80))", (due,))  # noqa: S608 - our own

    regularly(LOG_ROWS_A_SECOND, socket, write)


def regularly(times_a_second: int, socket: Path, work: Callable[[Execute, float], None]) -> None:
    """Call `work` at a steady pace with a way to execute SQL and the time at which it was due, for ever.

    Beats that a stall swallowed are left out, not caught up with: a stall is one late beat.
    A server that is away is tried again; the beat keeps its due time, so an outage counts as a stall.
    """
    due = time.time()
    connection: pymysql.connections.Connection[pymysql.cursors.Cursor] | None = None
    while True:
        try:
            if connection is None:
                connection = pymysql.connect(unix_socket=str(socket), user="lab_load", database=SCHEMA, autocommit=True)
            work(connection.cursor().execute, due)
        except (pymysql.MySQLError, OSError) as error:
            print(f"{time.time():.3f} {error}", file=sys.stderr, flush=True)  # noqa: T201 - the process's own log
            if connection is not None and connection.open:
                connection.close()
            connection = None
            time.sleep(_PATIENCE_SECONDS)
            continue
        now = time.time()
        due = max(due + 1 / times_a_second, now)
        time.sleep(max(0.0, due - now))


def main(words: list[str]) -> None:
    """Never returns: three writers, the two small ones beside sysbench."""
    load, rows, tables, socket, load_log, heartbeat_log = words
    place = Path(socket)
    while not place.exists():
        time.sleep(_PATIENCE_SECONDS / 4)
    threading.Thread(target=heartbeat, args=(place, Path(heartbeat_log)), daemon=True).start()
    threading.Thread(target=write_logs, args=(tables.split(","), place), daemon=True).start()
    sysbench(Load.parse(load), int(rows), place, Path(load_log))


if __name__ == "__main__":
    main(sys.argv[1:])
