"""How fast `backupd binlog search` is, and in how much memory: `make bench-binlog-search`, on this host, some minutes.

A real MariaDB writes a binlog of small transactions (a row inserted, a row updated, now and then a row deleted) of
16 MiB; the archive has it again and again, each time as another file of the server's, until it is as large as was
asked for. One of the files drops a table besides. Twice the same archive: once as it is, and once as if each segment
had changed too many tables to tell, so that every search has to read all of it.

Two searches, each in a process of its own, whose memory with all its children's is looked at twenty times a second:

- for the dropped table, where segments tell what they change: nearly all of them are passed by;
- for what is nowhere, where none tells: all is fetched, decompressed, compared with its digest and sifted.

Started as `python -m tests.bench.bench_binlog_search [--gib N] [--folder DIR]`. The exit status is 1 where a limit is
missed: 10 GiB within 5 minutes, and 150 MiB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backupd import wiring
from backupd.mysql.binlog.events import EventStream
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.operations import context
from backupd.operations.binlog.cutting import CutPiece
from backupd.operations.ownership import ownership_of
from backupd.vocabulary.binlogs import SegmentOrigin
from backupd.vocabulary.errors import LabError
from tests.bench.memory import Memory
from tests.binlog_archives import Archiver, WrittenBinlogs, without_changes, written_binlogs
from tests.contract.mariadb import mariadb

MIB_PER_SECOND = 10 * 1024 / 300
MEMORY_MIB = 150

_SEGMENT_MIB = 16
_TRANSACTIONS = 39_000  # make about as much
_TOLD, _UNTOLD = "told", "untold"
_CONFIGURATION = """\
[catalogue]
path = "{folder}/catalogue.db"
[paths]
run = "{folder}/run"
staging = "{folder}/staging"
log = "{folder}/log"
[hosts.db1]
socket = "{folder}/nobody.sock"
user = "backupd"
[targets.vault]
type = "directory"
path = "{folder}/vault"
[jobs.told]
host = "db1"
targets = ["vault"]
[jobs.told.binlog]
[jobs.untold]
host = "db1"
targets = ["vault"]
[jobs.untold.binlog]
"""
_LOAD = f"""
FOR i IN 1..{_TRANSACTIONS // 2} DO
    INSERT INTO t.orders (customer, item, price) VALUES (i, CONCAT('item ', i), i / 100);
    IF i % 10 = 0 THEN DELETE FROM t.orders WHERE id = i DIV 2;
    ELSE UPDATE t.orders SET price = price + 1 WHERE id = i DIV 2 + 1; END IF;
END FOR
"""


@dataclass(frozen=True, slots=True)
class OneSearch:
    """What one search took."""

    seconds: float
    mib: float  # of memory, at the most
    read: int  # segments
    found: int


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(prog="bench_binlog_search")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args(arguments)
    written = _written()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=asked.folder) as name:
        folder = Path(name)
        (folder / "vault").mkdir()
        (folder / "backupd.toml").write_text(_CONFIGURATION.format(folder=folder))
        pieces = list(_pieces(written, int(asked.gib * 1024) // _SEGMENT_MIB))
        size = sum(piece.end - piece.start for piece in pieces)
        _archive(folder, written.origin, pieces)
        _say(f"{size >> 20} MiB in {len(pieces)} segments, {len(os.sched_getaffinity(0))} processors")
        rare = _search(folder, _TOLD, "--table", "t.rare", "--kind", "drop")
        whole = _search(folder, _UNTOLD, "--table", "t.rare", "--kind", "truncate")
    if (rare.found, whole.read) != (1, len(pieces)):
        raise LabError(f"{rare.found} found instead of 1, {whole.read} read instead of {len(pieces)}")
    events, seconds = _decoded(written)
    _say(f"a transaction that is read as a whole takes {seconds / events * 1e6:.2f} µs for each of its events")
    return _print(rare, whole, size=size, events=len(pieces) * events)


def _written() -> WrittenBinlogs:
    """Two binlogs: one of the load alone, and one of the same load in which a table is dropped."""
    with mariadb("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0") as server, server.session() as root:
        root.execute(
            "CREATE TABLE t.orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, item VARCHAR(100),"
            " price DECIMAL(10, 2), at TIMESTAMP DEFAULT NOW())"
        )
        root.execute("CREATE TABLE t.rare (id INT PRIMARY KEY)")
        root.execute("SET SESSION binlog_format = ROW")
        root.execute("FLUSH BINARY LOGS")
        root.execute(f"BEGIN NOT ATOMIC {_LOAD}; END")
        root.execute("FLUSH BINARY LOGS")
        root.execute("TRUNCATE TABLE t.orders")
        root.execute(f"BEGIN NOT ATOMIC {_LOAD}; END")
        root.execute("DROP TABLE t.rare")
        found = written_binlogs(server)
    return replace(found, files=found.files[1:3])


def _pieces(written: WrittenBinlogs, count: int) -> Iterator[CutPiece]:
    """So many binlogs, of which the one in the middle drops the table; a segment each."""
    one, other = (_whole(written.origin, file, data) for file, data in written.files)
    for number in range(1, count + 1):
        yield replace(other if number == count // 2 + 1 else one, file=f"bin.{number:06}")


def _whole(origin: SegmentOrigin, file: str, data: bytes) -> CutPiece:
    (piece, *rest) = WrittenBinlogs(origin, ((file, data), ("bin.999999", b""))).pieces(1 << 30)
    if rest:
        raise LabError("a binlog became several segments")
    return piece


def _archive(folder: Path, origin: SegmentOrigin, pieces: Sequence[CutPiece]) -> None:
    configuration = context.configuration(folder / "backupd.toml")
    with context.own_catalogue(configuration) as catalogue:
        name = catalogue.identity().name
        target = wiring.target(configuration, "vault", name)
        ownership = ownership_of(catalogue, wiring.host_tools(configuration, name))
        ownership.take(target)
        for job, changed in ((_TOLD, pieces), (_UNTOLD, map(without_changes, pieces))):
            Archiver(catalogue, target, ownership.signer(), job=job).archive(origin, changed)


def _search(folder: Path, job: str, *options: str) -> OneSearch:
    argv = [sys.executable, "-m", "backupd", "--config", str(folder / "backupd.toml"), "binlog", "search", job]
    with Memory() as memory, memory.of(job) as took:
        began = time.monotonic()
        ours = _resident()
        done = subprocess.run([*argv, *options, "--json"], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
    if done.returncode:
        raise LabError(f"the search failed: {done.stderr[-1000:]}")
    answer = json.loads(done.stdout)
    return OneSearch(seconds, took().mib - ours, answer["read"], len(answer["transactions"]))


def _decoded(written: WrittenBinlogs) -> tuple[int, float]:
    """How many events the first binlog has, and how many seconds it takes to read all of its transactions here."""
    file, data = written.files[0]
    reader, count = TransactionReader(written.origin.flavour, file), 0
    began = time.monotonic()
    for event in EventStream(file).feed(data):
        reader.feed(event)
        count += 1
    return count, time.monotonic() - began


def _print(rare: OneSearch, whole: OneSearch, *, size: int, events: int) -> int:
    missed = False
    for name, one in (("a rare table, told by the segments", rare), ("all of it is read", whole)):
        rate = (size >> 20) / one.seconds
        _say(f"{name}: {one.read} segments read, {one.seconds:.1f} s, {rate:.0f} MiB/s, {one.mib:.0f} MiB of memory")
        missed |= rate < MIB_PER_SECOND or one.mib > MEMORY_MIB
    _say(f"{events} events of {size / events:.0f} bytes, {whole.seconds / events * 1e6:.2f} µs each")
    _say(f"at least {MIB_PER_SECOND:.1f} MiB/s, at most {MEMORY_MIB} MiB: {'MISSED' if missed else 'kept'}")
    return int(missed)


def _resident() -> float:
    """MiB that are resident now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
