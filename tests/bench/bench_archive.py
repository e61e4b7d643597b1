"""How far a binlog archive is behind its server, and what it costs the server: `make bench-archive`, on this host.

A real MariaDB, its archive by `backupd binlog receive` with the default segments (16 MiB, 5 s), a target in a folder.

- **Behind**: clients commit at a rate and note when each commit was acknowledged. The folder of the target is looked at
  50 times a second: a transaction is there with the first segment that reaches as far as its GTID.
- **Cost**: four writers, each a process that commits one row after another as fast as the server lets it. In each round
  without an archive, with one, and without one again: what the second lost beside the two others, and as noise what the
  third lost beside the first. With `sync_binlog = 1`, as a server has to have it that is to lose nothing; and without
  any waiting for disks, where writers and server take every processor and the archive's share is lost: that is told,
  and no limit of it.

Started as `python -m tests.bench.bench_archive [--seconds N] [--rounds N] [--round-seconds N]`. The exit status is 1
where a limit is missed: median 3 s, 99 % within 10 s, 1 % of the transactions lost.
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
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.moments.clients import CLIENTS, Load
from tests.moments.tables import DATABASE, Create

MEDIAN_SECONDS, P99_SECONDS, LOST_PERCENT = 3.0, 10.0, 1.0
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-seconds", type=float, default=6.0, help="of each of a round's three parts")
    asked = parser.parse_args(arguments)
    _say(f"{len(os.sched_getaffinity(0))} processors, load average {os.getloadavg()[0]:.1f}")
    with _site(*_DURABLE) as site:
        missed = _behind_at_each_rate(site, asked.seconds)
        missed |= _cost("sync_binlog = 1", site, asked.rounds, asked.round_seconds)
    with _site(*_UNSYNCED) as site:
        _cost("nothing is synced", site, asked.rounds, asked.round_seconds)
    _say(
        f"at most {MEDIAN_SECONDS:g} s at the median, {P99_SECONDS:g} s for 99 %, {LOST_PERCENT:g} % lost:"
        f" {'MISSED' if missed else 'kept'}"
    )
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
            used, began = _processor_seconds(receiver.pid), time.monotonic()
            missed |= _behind(rate, _seen(site, load, rate, seconds))
            share = (_processor_seconds(receiver.pid) - used) / (time.monotonic() - began)
            _say(f"      the archive took {share:.3f} of a processor")
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
    _say(
        f"{rate:4} transactions a second: {len(seconds):6} of them on the target after {median:.2f} s (median),"
        f" {p99:.2f} s (99 %), {max(seconds):.2f} s (all)"
    )
    return median > MEDIAN_SECONDS or p99 > P99_SECONDS


# --- what it costs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Round:
    """Transactions a second without an archive, with one, and without one; what the archive took of a processor."""

    before: float
    archived: float
    after: float
    processor_seconds: float  # of each second

    @property
    def lost(self) -> float:
        """Per cent."""
        return 100 * (1 - 2 * self.archived / (self.before + self.after))

    @property
    def noise(self) -> float:
        """The same, of what there was no reason to lose."""
        return 100 * (1 - self.after / self.before)


def _round(site: Site, seconds: float) -> _Round:
    before = _written(site, seconds)
    with site.archiving() as receiver:
        used, began = _processor_seconds(receiver.pid), time.monotonic()
        archived = _written(site, seconds)
        share = (_processor_seconds(receiver.pid) - used) / (time.monotonic() - began)
    return _Round(before / seconds, archived / seconds, _written(site, seconds) / seconds, share)


def _processor_seconds(pid: int) -> float:
    """What a process and its children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [
        int(child) for each in Path(f"/proc/{pid}/task").glob("*/children") for child in each.read_text().split()
    ]
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(_processor_seconds, children))


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


def _cost(name: str, site: Site, rounds: int, seconds: float) -> bool:
    found = [_round(site, seconds) for _ in range(rounds)]
    _say(f"{WRITERS} writers in a closed loop, {name}, {rounds} rounds: median (from - to)")
    _say(f"    transactions a second     {_spread([one.before for one in found], '7.0f')}")
    _say(f"    with an archive           {_spread([one.archived for one in found], '7.0f')}")
    _say(f"    without one again         {_spread([one.after for one in found], '7.0f')}")
    _say(f"    lost with one, %          {_spread([one.lost for one in found], '7.1f')}")
    _say(f"    noise: without one, %     {_spread([one.noise for one in found], '7.1f')}")
    _say(f"    the archive's processors  {_spread([one.processor_seconds for one in found], '7.2f')}")
    return statistics.median(one.lost for one in found) > LOST_PERCENT


def _spread(values: Sequence[float], form: str) -> str:
    median, least, most = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} - {most})"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
