"""How long a table of a backup takes to be back in a running server, and what that costs its clients.

`make bench-load-table`. Both servers are this host's MariaDB, on one disk. Clients ask for so many transactions a
second whatever else goes on; one that is not done within a second of its time is lost. Side by side, in every round:
nothing at all, for comparison; what it takes to copy the table's file plainly, durably; to copy the table by
`mariadb-dump | mariadb`, and within the server by INSERT … SELECT; and to have it back from a backup, by rows and by
tablespace. With these two everything counts from the start of the server on the restored files to the comparison with
the live table. That the backup is fetched is not part: `make bench-copy` shows that.

Started as `python -m tests.bench.bench_load_table [--mib N] [--load N] [--rounds N]`. The exit status is 1 where a
limit is missed.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.mysql.locks import ServerLock
from backupd.mysql.session import Session
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.into_server import into_server, load_recovered
from backupd.operations.run_holdings import RunHoldings
from backupd.vocabulary.servers import LoadingWay
from tests.contract.mariadb import MariadbServer, mariadb
from tests.contract.test_scratch import LIMITS, RUN, Image, copied, cut, manifest

TIMES_LONGER = 2.0  # than the copy, at most
LOST = 0.05  # of the transactions that were asked for, at most

_ORDERS = Table("shop", "orders")
_ROW = 250  # bytes that a row takes, about
_CLIENTS = 4
_LATE_SECONDS = 1.0  # a transaction is lost then
_NOTHING_SECONDS = 15.0
_NOTHING, _FILE, _DUMP, _SELECT = "nothing", "cp and fsync of the file", "mariadb-dump | mariadb", "INSERT … SELECT"
_ROWS, _TABLESPACE = "restored by rows", "restored by tablespace"


@dataclass
class Clients:
    """What was asked for and what was done, while they run."""

    done: int = 0
    lost: int = 0
    longest: float = 0.0  # seconds that one took, from when it was due

    @property
    def share_lost(self) -> float:
        """Of those that were asked for."""
        return self.lost / max(1, self.done + self.lost)


@dataclass
class Rounds:
    """What one way took in each round."""

    seconds: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)


def main(argv: Sequence[str]) -> int:
    """Make the table, copy it, load it, and print what each took."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_load_table")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--load", type=int, default=100, help="transactions a second")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(argv)
    options = ("--innodb-buffer-pool-size=512M", "--innodb-log-file-size=512M")  # the last that is said counts
    with tempfile.TemporaryDirectory(prefix="backupd-bench-") as made, mariadb(*options) as server:
        _fill(server, rows=(asked.mib << 20) // _ROW)
        image = _image(server, Path(made) / "image")
        file = image.datadir / "shop" / "orders.ibd"
        size = file.stat().st_size
        ways = _ways(server, Image(Path(made) / "again", image.manifest), file, Path(made))
        found = {name: Rounds() for name in ways}
        for number in range(asked.rounds):
            for name, act in ways.items():
                _tell(f"round {number + 1}: {name}")
                shutil.rmtree(Path(made) / "again", ignore_errors=True)
                shutil.copytree(image.folder / "data", Path(made) / "again" / "data")  # a server writes to it
                _once(server, act, asked.load, found[name])
    _print(
        f"a table of {size / (1 << 20):.0f} MiB, {asked.load} transactions a second asked for, {asked.rounds} rounds"
    )
    for name, rounds in found.items():
        _print(
            f"{name:26} {_spread(rounds.seconds, 's')}  lost {_spread(rounds.lost, '%')}  longest "
            f"{_spread(rounds.longest, 's')}"
        )
    return _judged(found)


def _ways(server: MariadbServer, image: Image, file: Path, made: Path) -> Mapping[str, Callable[[], None]]:
    return {
        _NOTHING: partial(time.sleep, _NOTHING_SECONDS),
        _FILE: partial(_copied, file, server.folder / "orders.copy"),
        _DUMP: partial(_piped, server),
        _SELECT: partial(_selected, server),
        _ROWS: partial(_restored, server, image, made, LoadingWay.ROWS),
        _TABLESPACE: partial(_restored, server, image, made, LoadingWay.TABLESPACE),
    }


def _once(server: MariadbServer, act: Callable[[], None], rate: int, into: Rounds) -> None:
    """From the same state each time: without what others have made, nothing to be written any more."""
    with server.connect()(answer_seconds=3600) as root:
        for schema in ("copy", "restored"):
            root.execute(f"DROP DATABASE IF EXISTS {schema}")
        root.execute("TRUNCATE shop.busy")
        root.execute("INSERT INTO shop.busy (v) SELECT REPEAT('x', 100) FROM shop.seq_1_to_1000")
    os.sync()
    with _clients(server, rate) as clients:
        began = time.monotonic()
        act()
        into.seconds.append(time.monotonic() - began)
    into.lost.append(100 * clients.share_lost)
    into.longest.append(clients.longest)
    _tell(f"{into.seconds[-1]:.1f} s, {into.lost[-1]:.2f}% lost, longest {clients.longest:.2f} s")


def _judged(found: Mapping[str, Rounds]) -> int:
    missed = False
    base = statistics.median(found[_NOTHING].lost) / 100
    for name, other in ((_TABLESPACE, _FILE), (_TABLESPACE, _DUMP), (_ROWS, _FILE), (_ROWS, _DUMP), (_ROWS, _SELECT)):
        ratio = statistics.median(found[name].seconds) / statistics.median(found[other].seconds)
        limit = TIMES_LONGER if other == _DUMP else None
        missed |= limit is not None and ratio > limit
        kept = "" if limit is None else f" (at most {limit:g}): {'MISSED' if ratio > limit else 'kept'}"
        _print(f"{name} takes {ratio:.2f} times {other}{kept}")
    for name in (_TABLESPACE, _ROWS):
        lost = statistics.median(found[name].lost) / 100 - base
        missed |= lost > LOST
        _print(f"{name} loses {lost:.1%} more than nothing (at most {LOST:.0%}): {'MISSED' if lost > LOST else 'kept'}")
    return int(missed)


def _spread(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):6.2f} {unit} ({min(values):.2f} to {max(values):.2f})".ljust(28)


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


def _image(server: MariadbServer, folder: Path) -> Image:
    """Nobody writes yet: the copy, which may take long, needs no lock."""
    with ServerLock(server.connect(), LIMITS).held(server.datadir) as held:
        pass
    copied(server, folder / "data")
    image = Image(folder, manifest(server, held.position, held.receipt))
    cut(image)
    return image


def _copied(file: Path, to: Path) -> None:
    with file.open("rb") as original, to.open("wb") as copy:
        shutil.copyfileobj(original, copy, 8 << 20)
        copy.flush()
        os.fsync(copy.fileno())
    to.unlink()


def _piped(server: MariadbServer) -> None:
    _at_leisure(server, "CREATE DATABASE copy")
    to = ["--no-defaults", f"--socket={server.socket}", "--user=root"]
    dumping = ["mariadb-dump", *to, "--single-transaction", "shop", "orders"]
    with subprocess.Popen(dumping, stdout=subprocess.PIPE) as dump:
        subprocess.run(["mariadb", *to, "copy"], stdin=dump.stdout, check=True)
    if dump.returncode:
        raise RuntimeError(f"mariadb-dump ended with {dump.returncode}")


def _selected(server: MariadbServer) -> None:
    _at_leisure(server, "CREATE DATABASE copy")
    _at_leisure(server, "CREATE TABLE copy.orders LIKE shop.orders")
    _at_leisure(server, "INSERT INTO copy.orders SELECT * FROM shop.orders")


def _restored(server: MariadbServer, image: Image, made: Path, way: LoadingWay) -> None:
    catalogue = made / f"{time.monotonic_ns()}.sqlite"
    with Catalogue.open(catalogue) as opened:
        with opened.open_run("nightly", "db1", run_id=RUN) as run:
            run.complete(())
        into = into_server("db1", server.connect(), "restored", [_ORDERS], by=way)
        began = time.monotonic()
        load_recovered(
            *(image.folder, image.manifest, [_ORDERS], into, RunHoldings(opened, RUN)),
            telling=lambda line: _tell(f"{time.monotonic() - began:7.1f} s  {line}"),
        )


def _at_leisure(server: MariadbServer, statement: str) -> None:
    with server.connect()(answer_seconds=3600) as session:
        session.execute(statement)


@contextmanager
def _clients(server: MariadbServer, rate: int) -> Iterator[Clients]:
    """Transactions at this rate for the length of the block, each at its time; those that are late are passed over."""
    told, over, adding = Clients(), threading.Event(), threading.Lock()
    every = _CLIENTS / rate

    def work(first: float) -> None:
        due = first
        with server.session() as session:
            while not over.wait(max(0.0, due - time.monotonic())):
                if time.monotonic() - due < _LATE_SECONDS:
                    session.execute("BEGIN")
                    session.execute("INSERT INTO shop.busy (v) VALUES (REPEAT('x', 100))")
                    session.execute(
                        "UPDATE shop.busy SET v = REPEAT('y', 100) WHERE id = %s", int(due * 1000) % 1000 + 1
                    )
                    session.execute("COMMIT")
                waited = time.monotonic() - due
                with adding:
                    told.longest = max(told.longest, waited)
                    told.done += waited < _LATE_SECONDS
                    told.lost += waited >= _LATE_SECONDS
                due += every

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=(began + every * n / _CLIENTS,)) for n in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield told
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _transaction(session: Session, *, row: int) -> None:
    session.execute("BEGIN")
    session.execute("INSERT INTO shop.busy (v) VALUES (REPEAT('x', 100))")
    session.execute("UPDATE shop.busy SET v = REPEAT('y', 100) WHERE id = %s", row)
    session.execute("COMMIT")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
