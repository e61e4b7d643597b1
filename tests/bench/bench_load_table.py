"""How long a table of a backup takes to be back in a running server, and what that costs its clients.

`make bench-load-table`. Both servers are this host's MariaDB, on one disk. Clients ask for so many transactions a
second, one after the other, whatever else goes on; what was not done at the end was lost. Beside it stands what it
takes to copy the same table by `mariadb-dump | mariadb`, under the same load. That the backup is fetched is not part:
`make bench-copy` shows that.

Started as `python -m tests.bench.bench_load_table [--mib N] [--load N]`. The exit status is 1 where a limit is missed.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.into_server import into_server, load_recovered
from backupd.operations.run_holdings import RunHoldings
from tests.contract.mariadb import MariadbServer, mariadb
from tests.contract.test_scratch import RUN, taken

TIMES_LONGER = 2.0  # than the copy, at most
LOST = 0.05  # of the transactions that were asked for, at most

_ORDERS = Table("shop", "orders")
_ROW = 250  # bytes that a row takes, about


@dataclass
class Clients:
    """What was asked for and what was done, while they run."""

    asked: int = 0
    done: int = 0

    @property
    def lost(self) -> float:
        """The share that was not done."""
        return 1 - self.done / self.asked if self.asked else 0.0


def main(argv: Sequence[str]) -> int:
    """Make the table, copy it, load it, and print what each took."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_load_table")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--load", type=int, default=100, help="transactions a second")
    asked = parser.parse_args(argv)
    pool = "--innodb-buffer-pool-size=512M"  # the last that is said counts
    with tempfile.TemporaryDirectory(prefix="backupd-bench-") as made, mariadb(pool) as server:
        _fill(server, rows=(asked.mib << 20) // _ROW)
        image = taken(server, Path(made))
        size = sum(path.stat().st_size for path in (image.datadir / "shop").glob("orders.*"))
        with server.session() as root, _clients(server, asked.load) as beside_copy:
            began = time.monotonic()
            root.execute("CREATE DATABASE copy")
            _piped(server)
            copying = time.monotonic() - began
        with Catalogue.open(Path(made) / "catalogue.sqlite") as catalogue, _clients(server, asked.load) as beside_load:
            with catalogue.open_run("nightly", "db1", run_id=RUN) as run:
                run.complete(())
            began = time.monotonic()
            into = into_server("db1", server.connect(), "restored", [_ORDERS])
            load_recovered(image.folder, image.manifest, [_ORDERS], into, RunHoldings(catalogue, RUN), telling=_tell)
            loading = time.monotonic() - began
    _print(f"a table of {size / (1 << 20):.0f} MiB, {asked.load} transactions a second asked for")
    _print(f"copied by mariadb-dump | mariadb    {copying:8.1f} s   {beside_copy.lost:6.1%} of transactions lost")
    _print(f"loaded, compared and published     {loading:8.1f} s   {beside_load.lost:6.1%} of transactions lost")
    ratio = loading / copying
    slow, dear = ratio > TIMES_LONGER, beside_load.lost > LOST
    _print(f"ratio {ratio:.2f} (at most {TIMES_LONGER:g}): {'MISSED' if slow else 'kept'}")
    _print(f"lost {beside_load.lost:.1%} (at most {LOST:.0%}): {'MISSED' if dear else 'kept'}")
    return int(slow or dear)


def _fill(server: MariadbServer, *, rows: int) -> None:
    with server.session() as root:
        root.execute("CREATE DATABASE shop")
        root.execute("CREATE TABLE shop.busy (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100)) ENGINE=InnoDB")
        root.execute(
            "CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, total DECIMAL(9,2),"
            " placed TIMESTAMP, note VARCHAR(255), KEY (customer)) ENGINE=InnoDB"
        )
    for start in range(1, rows + 1, 100_000):
        end = min(start + 99_999, rows)
        _at_leisure(
            server,
            "INSERT INTO shop.orders SELECT seq, seq % 9973, seq / 7, '2026-11-20 12:00:00',"
            f" REPEAT(CHAR(97 + seq % 26), 150 + seq % 50) FROM shop.seq_{start}_to_{end}",
        )
    _at_leisure(server, "FLUSH TABLES shop.orders FOR EXPORT")


def _piped(server: MariadbServer) -> None:
    to = ["--no-defaults", f"--socket={server.socket}", "--user=root"]
    dumping = ["mariadb-dump", *to, "--single-transaction", "shop", "orders"]
    with subprocess.Popen(dumping, stdout=subprocess.PIPE) as dump:
        subprocess.run(["mariadb", *to, "copy"], stdin=dump.stdout, check=True)
    if dump.returncode:
        raise RuntimeError(f"mariadb-dump ended with {dump.returncode}")


def _at_leisure(server: MariadbServer, statement: str) -> None:
    with server.connect()(answer_seconds=3600) as session:
        session.execute(statement)


@contextmanager
def _clients(server: MariadbServer, rate: int) -> Iterator[Clients]:
    """Transactions at this rate for the length of the block: one that is late is followed by the next at once."""
    told, over = Clients(), threading.Event()
    began = time.monotonic()

    def work() -> None:
        with server.session() as session:
            while not over.is_set():
                session.execute("INSERT INTO shop.busy (v) VALUES (REPEAT('x', 100))")
                told.done += 1
                over.wait(max(0.0, began + told.done / rate - time.monotonic()))

    client = threading.Thread(target=work)
    client.start()
    try:
        yield told
    finally:
        told.asked = int((time.monotonic() - began) * rate)
        told.done = min(told.done, told.asked)
        over.set()
        client.join()
        told.done = min(told.done, told.asked)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
