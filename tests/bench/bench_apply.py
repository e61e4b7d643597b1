"""How fast what a server logged is applied to restored files: piped into a client's session, or as relay logs.

`make bench-apply`. This host's MariaDB takes a load of small transactions from several clients, each with a table of
its own and all with one in common. Then its log is applied to a copy of its files from before the load: by
`mariadb-binlog | mariadb` in one session, and as relay logs with as many appliers as are named. Time counts from a
server that answers to one that has everything; of relay logs writing them is part of it. Afterwards every table must
have the source's rows.

Started as `python -m tests.bench.bench_apply [--transactions N] [--clients N] [--rounds N] [--appliers N …]`. The exit
status is 1 where rows differ.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from backupd.mysql.binlog.applying import apply
from backupd.mysql.binlog.relay_logs import laid_down
from backupd.mysql.scratch import ScratchServer
from backupd.vocabulary.servers import LockReceipt, Position
from tests.contract.mariadb import MariadbServer, mariadb
from tests.contract.test_applying import Rows, Witness, place, rows_of
from tests.contract.test_scratch import manifest

_SESSION = "one session, without a binlog"
_WITH_BINLOG = "one session, with a binlog"


def main(argv: Sequence[str]) -> int:
    """Make the load, apply it in each way in each round, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_apply")
    parser.add_argument("--transactions", type=int, default=40_000, help="in all")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--appliers", type=int, nargs="*", default=[0, 2, 4])
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="backupd-bench-") as made, mariadb("--gtid-strict-mode=ON") as server:
        witness, load_seconds, end, rows = _loaded(server, Path(made) / "source", asked.clients, asked.transactions)
        taken: dict[str, list[float]] = {}
        same = True
        for number in range(asked.rounds):
            relay = {f"relay logs, {appliers or 'no further'} appliers": appliers for appliers in asked.appliers}
            for name in (_SESSION, _WITH_BINLOG, *relay):
                _tell(f"round {number + 1}: {name}")
                seconds, found = _applied(witness, Path(made) / "copy", end, relay.get(name), name == _WITH_BINLOG)
                taken.setdefault(name, []).append(seconds)
                same &= found == rows
    _print(f"{asked.transactions} transactions of {asked.clients} clients, {len(os.sched_getaffinity(0))} processors")
    _table(taken, asked.transactions, load_seconds)
    _print("every table has the source's rows" if same else "ROWS DIFFER")
    return int(not same)


def _loaded(
    server: MariadbServer, folder: Path, clients: int, transactions: int
) -> tuple[Witness, float, Position, Rows]:
    with server.session() as session:
        for number in range(clients):
            session.execute(f"CREATE TABLE t.own{number} (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200), n INT)")
        session.execute("CREATE TABLE t.common (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200), KEY (v))")
        position = place(session)
    witness = Witness(folder, replace(manifest(server, position, LockReceipt("none", 1, 0, 0, "none")), canary=None))
    server.stop()
    shutil.copytree(server.datadir, folder / "data")
    os.truncate(folder / "data" / str(position.binlog_file), position.binlog_offset or 0)
    server.start()
    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda number: _client(server, number, transactions // clients), range(clients)))
    seconds = time.monotonic() - began
    with server.session() as session:
        end, rows = place(session), rows_of(session)
    server.stop()
    witness.binlogs = server.datadir
    return witness, seconds, end, rows


def _client(server: MariadbServer, number: int, transactions: int) -> None:
    """Of ten transactions eight write to the client's own table, one of them twice, and two to the common one."""
    with server.session() as session:
        for turn in range(transactions):
            match turn % 10:
                case 3 | 7:
                    session.execute(f"INSERT INTO t.common (v) VALUES ('{number} {turn}')")
                case 5:
                    session.execute(f"UPDATE t.own{number} SET n = {turn} WHERE id = {turn // 2}")
                case _:
                    session.execute(f"INSERT INTO t.own{number} (v, n) VALUES (REPEAT('x', 100), {turn})")


def _applied(witness: Witness, to: Path, end: Position, appliers: int | None, binlog: bool) -> tuple[float, Rows]:
    """Seconds, and what every table has then; without a number of appliers by a client's session."""
    shutil.rmtree(to, ignore_errors=True)
    copy = witness.restored(to)
    began = time.monotonic()
    with laid_down(witness.pieces(end, at_once=1 << 20), copy) as logs:
        laid = time.monotonic() - began
        with ScratchServer(to, witness.manifest, start_seconds=120, applying=True).running() as server:
            if appliers is None:
                seconds = _piped(witness, end, server.session.value("SELECT @@socket") or "", binlog)
            else:
                seconds = laid + apply(server, logs, start=witness.start, end=end, appliers=appliers).seconds
            return seconds, rows_of(server.session)


def _piped(witness: Witness, end: Position, socket: str, binlog: bool) -> float:
    """Seconds. With a binlog of its own the server knows the GTIDs afterwards, without one it is faster."""
    files = [path for path in sorted(witness.binlogs.glob("bin.0*")) if str(witness.start.binlog_file) <= path.name]
    files = [path for path in files if path.name <= str(end.binlog_file)]
    bounds = [f"--start-position={witness.start.binlog_offset}", f"--stop-position={end.binlog_offset}"]
    if not binlog:
        bounds.append("--disable-log-bin")
    began = time.monotonic()
    with subprocess.Popen(["mariadb-binlog", "--no-defaults", *bounds, *files], stdout=subprocess.PIPE) as told:
        client = ["mariadb", "--no-defaults", "--binary-mode", f"--socket={socket}", "--user=root"]
        subprocess.run(client, stdin=told.stdout, check=True)
    if told.returncode != 0:
        raise RuntimeError(f"mariadb-binlog ended with status {told.returncode}")
    return time.monotonic() - began


def _table(taken: Mapping[str, Sequence[float]], transactions: int, load_seconds: float) -> None:
    base = statistics.median(taken[_SESSION])
    _print(f"{'':34}{'median s':>10}{'from':>8}{'to':>8}{'tx/s':>9}{'× session':>11}{'× load':>8}")
    for name, seconds in taken.items():
        median = statistics.median(seconds)
        spread = f"{median:10.2f}{min(seconds):8.2f}{max(seconds):8.2f}"
        _print(f"{name:34}{spread}{transactions / median:9.0f}{base / median:11.2f}{load_seconds / median:8.2f}")
    _print(f"the clients took {load_seconds:.1f} s for it: {transactions / load_seconds:.0f} transactions a second")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
