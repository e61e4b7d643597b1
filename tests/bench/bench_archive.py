"""How far a binlog archive is behind its server, and what it costs the server: `make bench-archive`, on this host.

A real MariaDB, its archive by `backupd binlog receive` with the default segments (16 MiB, 5 s), a target in a folder.

- **Behind**: clients commit at a rate and note when each commit was acknowledged. The folder of the target is looked at
  50 times a second: a transaction is there with the first segment that reaches as far as its GTID.
- **Cost**: four writers, each a process that commits one row after another as fast as the server lets it, and nothing
  waits for a disk: writers and server take every processor, and whatever else runs takes it from them. So there is no
  limit of it; what the client program alone costs stands beside it. What an archive costs a server that waits for its
  disks is measured in the lab: `bench_archive_lab`.

Started as `python -m tests.bench.bench_archive [--seconds N] [--rounds N] [--round-seconds N]`. The exit status is 1
where a limit is missed: median 3 s, 99 % within 10 s.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pymysql

from backupd.vocabulary.errors import LabError
from backupd.vocabulary.servers import Flavour
from tests.archive_site import Site
from tests.bench.archive_cost import Ways, caught_up, client_alone, one_round, processor_seconds, say, tell
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.moments.clients import CLIENTS, Load
from tests.moments.tables import DATABASE, Create

MEDIAN_SECONDS, P99_SECONDS = 3.0, 10.0
RATES = (20, 200)
WRITERS = 4

_LOOK_SECONDS = 0.02
_WARM_UP_SECONDS = 2.0
_DURABLE = ("--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
_UNSYNCED = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0")
_TABLE = f"{DATABASE}.written"


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(prog="bench_archive")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--round-seconds", type=float, default=15.0, help="of each of a round's five parts")
    asked = parser.parse_args(arguments)
    say(f"{len(os.sched_getaffinity(0))} processors, load average {os.getloadavg()[0]:.1f}")
    with _site(*_DURABLE) as site:
        missed = _behind_at_each_rate(site, asked.seconds)
    say(f"at most {MEDIAN_SECONDS:g} s at the median, {P99_SECONDS:g} s for 99 %: {'MISSED' if missed else 'kept'}")
    if asked.rounds:
        with _site(*_UNSYNCED) as site:
            _cost(site, asked.rounds, asked.round_seconds)
    return int(missed)


@contextmanager
def _site(*options: str) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, mariadb(*options) as server:
        with server.session() as root:
            root.execute(f"CREATE DATABASE {DATABASE}")
        yield Site(Path(folder), server, keys="")


# --- how far it is behind ---------------------------------------------------------------------------------------------


@dataclass
class _Watch:
    """When the target was first seen to reach so far."""

    folder: Path
    seen: list[tuple[int, datetime]] = field(default_factory=list)  # the last transaction's number
    _known: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def reached(self, number: int) -> datetime | None:
        """When this transaction was there."""
        return next((at for last, at in self.seen if last >= number), None)

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            now = datetime.now(UTC)
            for path in sorted(self.folder.glob("*/nightly/binlog/*.binlog")):
                if path.name not in self._known:
                    self._known.add(path.name)
                    with path.open("rb") as file:
                        self.seen.append((_number(json.loads(file.readline())["gtid_end"]), now))


def _number(gtid: str) -> int:
    """Of the only domain."""
    return int(gtid.rpartition("-")[2] or 0)


def _behind_at_each_rate(site: Site, seconds: float) -> bool:
    missed = False
    with site.archiving() as receiver:
        load = _load(site.server)
        for rate in RATES:
            used, began = processor_seconds(receiver.pid), time.monotonic()
            missed |= _behind(rate, _seen(site, load, rate, seconds))
            share = (processor_seconds(receiver.pid) - used) / (time.monotonic() - began)
            say(f"      the archive took {share:.3f} of a processor")
    return missed


def _load(server: MariadbServer) -> Load:
    load = Load(server, Flavour.MARIADB, seed=17)
    for table in ("common", "flat", *(f"own{number}" for number in range(CLIENTS))):
        load.run(Create(table))
    return load


def _seen(site: Site, load: Load, rate: int, seconds: float) -> list[float]:
    """Of each transaction, how many seconds after its acknowledgement it was on the target."""
    load.per_second, load.attempts = rate, []
    load.over.clear()
    watch = _Watch(site.vault)
    with watch.watching():
        with load.running():
            time.sleep(seconds)
        wanted = [attempt for attempt in load.attempts if attempt.acknowledged is not None]
        last = max(_number(attempt.gtid) for attempt in wanted)
        wait_until(lambda: watch.reached(last) is not None)
    behind = []
    for attempt in wanted:
        reached = watch.reached(_number(attempt.gtid))
        if reached is None or attempt.acknowledged is None:
            raise LabError(f"{attempt.gtid} is not on the target")
        behind.append((reached - attempt.acknowledged).total_seconds())
    return behind


def _behind(rate: int, seconds: Sequence[float]) -> bool:
    *_, p99 = statistics.quantiles(seconds, n=100)
    median = statistics.median(seconds)
    say(
        f"{rate:4} transactions a second: {len(seconds):6} of them on the target after {median:.2f} s (median),"
        f" {p99:.2f} s (99 %), {max(seconds):.2f} s (all)"
    )
    return median > MEDIAN_SECONDS or p99 > P99_SECONDS


# --- what it costs ----------------------------------------------------------------------------------------------------


def _cost(site: Site, rounds: int, seconds: float) -> None:
    ways = Ways(
        rate=lambda: _written(site, seconds) / seconds,
        client=lambda: client_alone(site.server.login(), site.base / "raw"),
        archive=lambda: _archive(site),
        catch_up=lambda: caught_up(site.stored, _executed(site)),
    )
    found = [one_round(ways) for _ in range(rounds)]
    tell(f"{WRITERS} writers in a closed loop that waits for no disk", found)


@contextmanager
def _archive(site: Site) -> Iterator[int]:
    """It has what was written without it, if it had begun before."""
    begun = any(site.vault.glob("*/nightly/binlog/*.binlog"))
    with site.archiving() as receiver:
        if begun:
            caught_up(site.stored, _executed(site))
        yield receiver.pid


def _executed(site: Site) -> str:
    with site.server.session() as root:
        return str(root.value("SELECT @@gtid_binlog_pos"))


def _written(site: Site, seconds: float) -> int:
    """How many transactions the writers have committed in so many seconds, after some to warm up."""
    with site.server.session() as root:
        root.execute(f"CREATE OR REPLACE TABLE {_TABLE} (id INT PRIMARY KEY AUTO_INCREMENT, n INT, v VARCHAR(200))")
    with ProcessPoolExecutor(WRITERS) as pool:
        return sum(pool.map(_writes, [str(site.server.socket)] * WRITERS, [seconds] * WRITERS))


def _writes(socket: str, seconds: float) -> int:
    count, begin = 0, time.monotonic() + _WARM_UP_SECONDS
    with pymysql.connect(unix_socket=socket, user="root", autocommit=True).cursor() as cursor:
        while (now := time.monotonic()) < begin + seconds:
            cursor.execute(f"INSERT INTO {_TABLE} (n, v) VALUES (1, REPEAT('x', 100))")
            count += now >= begin
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
