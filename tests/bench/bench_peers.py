"""backupd beside its rivals: `make bench-peers`, a machine for each model of disks under each kind of load.

In a machine everyone has a turn in each round, on the same data under the same load. The tables show medians, and from
the least to the most that was seen, and which limits were kept; `--json FILE` keeps every round. See
`tests.bench.peers` for who takes part and how.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backupd.host.process import spawned
from backupd.lab.options import DEFAULT_ROWS, DiskModel
from backupd.vocabulary.errors import LabError
from tests.bench.peers.contenders import COMPRESSED_OUTSIDE, IF_ASKED, NAMES, NOTHING, READERS
from tests.bench.peers.figures import Reading, parts_table, processor_table, table
from tests.bench.peers.limits import judged, limits_table
from tests.bench.peers.outside import compressing_for
from tests.bench.peers.rounds import RATE_SHARE

ROUNDS = 5
DISKS = (DiskModel.HDD, DiskModel.SSD)
LOADS = ("closed", "rate")
_SECONDS_A_TURN = 500.0  # on average, at most
_START_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Boot:
    """What one machine found."""

    disks: str
    kind: str  # of load
    load: str  # closed, or transactions a second
    saturated: float  # transactions a second, when nobody holds the load back
    readings: tuple[Reading, ...]

    @property
    def title(self) -> str:
        """For the table."""
        rate = f"{self.load} transactions a second, {100 * RATE_SHARE:.0f} % of what it can do"
        kind = "closed loop" if self.kind == "closed" else rate
        return f"{self.disks}, {kind} ({self.saturated:.0f} a second undisturbed)"

    def to_values(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "disks": self.disks,
            "kind": self.kind,
            "load": self.load,
            "saturated": self.saturated,
            "readings": [reading.to_values() for reading in self.readings],
        }


def main(words: Sequence[str]) -> int:
    """Measure, and print a table for each machine; 0 unless a backup failed."""
    parser = argparse.ArgumentParser(prog="bench_peers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=DEFAULT_ROWS)
    parser.add_argument("--disks", choices=DISKS, action="append", help="may be given twice; both by default")
    parser.add_argument("--load", choices=LOADS, action="append", help="may be given twice; both by default")
    who = (*NAMES, *IF_ASKED)
    every = f"may be repeated; by default all but {' and '.join(map(repr, IF_ASKED))}"
    parser.add_argument("--only", choices=who, action="append", default=[], help=every)
    parser.add_argument("--readers", action="store_true", help="instead: who reads a snapshot of the volume, and how")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round, as JSON")
    told = parser.parse_args(words)
    names = [NOTHING, *READERS] if told.readers else told.only
    boots = []
    for disks in told.disks or DISKS:
        for kind in told.load or LOADS:
            boot = _boot(disks, kind, rounds=told.rounds, rows=told.rows, only=names)
            boots.append(boot)
            tables = (table(boot.readings), parts_table(boot.readings), processor_table(boot.readings))
            limits = limits_table(judged(disks, kind, boot.readings))
            told_of = (f"### {boot.title}", *tables, limits, faults(boot.readings))
            sys.stdout.write("".join(f"{part}\n\n" for part in told_of if part))
            sys.stdout.flush()
            if told.json:
                told.json.write_text(json.dumps([one.to_values() for one in boots], indent=1), encoding="utf-8")
    return int(any(reading.failed for boot in boots for reading in boot.readings))


def boot_from(disks: str, kind: str, lines: Sequence[str]) -> Boot:
    """What a machine printed: the load first, then a reading on each line.

    Raises:
        LabError: it printed none.
    """
    first, *rest = [json.loads(line) for line in lines] or [None]
    if first is None:
        raise LabError(f"the machine with {disks} disks printed nothing")
    readings = tuple(Reading.from_values(values) for values in rest)
    return Boot(disks, kind, first["load"], first["saturated"], readings)


def faults(readings: Sequence[Reading]) -> str:
    """A line for each round that failed, or that began before the server had come to rest."""
    lines = []
    for reading in readings:
        who = f"{reading.contender}, round {reading.round + 1}"
        if reading.failed:
            lines.append(f"{who}: {reading.failed}\n")
        elif not reading.calm:
            lines.append(f"{who}: the server had not come to rest before\n")
    return "".join(lines).rstrip()


def _boot(disks: str, kind: str, *, rounds: int, rows: int, only: Sequence[str]) -> Boot:
    deadline = _START_SECONDS + rounds * len(NAMES) * _SECONDS_A_TURN
    outside = bool(set(COMPRESSED_OUTSIDE).intersection(only))
    spare = 2 if outside else 1
    machine = ["--disks", disks, "--load", "none", "--rows", str(rows), "--spare-disks", str(spare)]
    wanted = [word for name in only for word in ("--only", name)]
    inside = ["python", "-m", "tests.bench.peers.rounds", "--load", kind, "--rounds", str(rounds), *wanted]
    with tempfile.TemporaryDirectory(prefix="backupd-bench-") as out:
        argv = [
            *(str(Path(sys.executable).with_name("backupd")), "lab", "run", *machine),
            *("--out", out, "--deadline", f"{deadline:.0f}", "--", *inside),
        ]
        lines = []
        with spawned(argv, stderr=None) as lab, compressing_for(lab.pid) if outside else nullcontext():
            for line in lab.stdout or ():
                lines.append(line.decode())
                sys.stderr.write(f"{disks}, {kind}: {lines[-1]}")
            status = lab.wait()
    if status not in (0, 1):
        raise LabError(f"the machine with {disks} disks under {kind} load ended with status {status}")
    return boot_from(disks, kind, lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
