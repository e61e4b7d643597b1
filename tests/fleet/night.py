"""A simulated night, with a control host and a standby that are killed again and again: what came of it, in figures.

    python -m tests.fleet.night [--full] [--seed N] [--kills N]

The database is stopped twice, too. What must hold is in `faults`; what is printed is measured.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backupd.fleet.owed_json import to_document
from backupd.fleet.records import Records
from backupd.vocabulary.errors import FleetDatabaseAway
from backupd.vocabulary.fleet import OVER, FleetBackup, FleetState
from backupd.vocabulary.units import format_size
from tests.fleet.night_world import FULL, NIGHT, SHORT, Size, World, drawn
from tests.fleet.postgres import PostgresServer, postgres

_TICKS = os.sysconf("SC_CLK_TCK")
_AWAY_SECONDS = 3.0


@dataclass
class Cost:
    """What control hosts took of this machine, those that were killed included."""

    processor_seconds: float = 0.0
    most_memory: int = 0  # bytes

    def add(self, pid: int) -> None:
        """One that is about to end."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            return
        self.processor_seconds += (int(fields[11]) + int(fields[12])) / _TICKS
        peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
        self.most_memory = max(self.most_memory, int(peak.split()[1]) * 1024)


@dataclass
class Controls:
    """Two control hosts, of which one acts."""

    world: World
    url: str
    log: Path
    pace: str = "quick"
    cost: Cost = field(default_factory=Cost)
    running: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self) -> None:
        """One more."""
        argv = [sys.executable, "-m", "tests.fleet.night_control", str(self.world.folder), self.url, self.pace]
        with self.log.open("ab") as said:
            self.running.append(subprocess.Popen(argv, stdout=said, stderr=said))

    def kill(self, which: int) -> None:
        """It is gone at once, and another is started."""
        process = self.running.pop(which)
        self.cost.add(process.pid)
        process.kill()
        process.wait()
        self.start()

    def end(self) -> None:
        """None is left; each ends when it is asked to."""
        for process in self.running:
            self.cost.add(process.pid)
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(20)
        self.running.clear()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a night came to."""

    size: Size
    kills: int
    away: int
    seconds: float
    lower_bound: float
    states: Counter[FleetState]
    tries: int
    violations: list[list[str]]
    lost: tuple[str, ...]  # runs that hosts have and the records have not
    made_up: tuple[str, ...]  # runs that the records have and no host has
    not_once: tuple[str, ...]  # clusters without exactly one good run
    cost: Cost

    @property
    def ratio(self) -> float:
        """How much longer than the lower bound it was."""
        return self.seconds / self.lower_bound

    def faults(self, *, most_ratio: float) -> list[str]:
        """What must not be."""
        violated = Counter(what for what, *_ in self.violations)
        found = [f"{what}: {count}" for what, count in violated.items()]
        if self.states != {FleetState.DONE: self.size.clusters}:
            found.append(f"not every cluster is done: {dict(self.states)}")
        found += [f"lost: {run}" for run in self.lost]
        found += [f"made up: {run}" for run in self.made_up]
        found += [f"not done once: {cluster}" for cluster in self.not_once]
        if self.ratio > most_ratio:
            found.append(f"the night took {self.ratio:.2f} of its lower bound, and {most_ratio} is the most")
        return found

    def lines(self) -> Iterator[str]:
        """For people."""
        seen = Counter(what for what, *_ in self.violations)
        yield f"{self.size.hosts} hosts, {self.size.clusters} clusters, targets with {self.size.slots} slots"
        yield f"control hosts killed {self.kills} times, the database away {self.away} times"
        yield f"done {self.states[FleetState.DONE]} of {self.size.clusters}, by {self.tries} runs"
        yield f"overlaps in a cluster: {seen['two runs in a cluster']}"
        yield f"slots exceeded: {seen['more runs than slots']}"
        yield f"runs lost: {len(self.lost)}, made up: {len(self.made_up)}"
        yield f"run twice: {seen['a cluster done twice'] + seen['a run id at two hosts'] + len(self.not_once)}"
        yield f"makespan {self.seconds:.1f} s, lower bound {self.lower_bound:.1f} s: {self.ratio:.3f}"
        cost = self.cost
        share = cost.processor_seconds / self.seconds
        yield f"control hosts: {cost.processor_seconds:.1f} s of processor ({share:.0%} of one core at this pace)"
        yield f"most memory of one: {format_size(cost.most_memory)}"


def simulated(size: Size, *, seed: int, kills: int, away: int, log: Path) -> Outcome:
    """The night of this seed, to its end."""
    with _folder() as folder, postgres() as server:
        world = _written(drawn(folder / "world", size, seed))
        controls = Controls(world, server.url, log, pace="steady" if size.mean_seconds > 20 else "quick")
        try:
            began = time.monotonic()
            world.begin()
            controls.start()
            controls.start()
            disturbances = _disturbances(random.Random(seed), size, kills, away)
            _until_over(world, server, controls, disturbances)
            seconds = time.monotonic() - began
        finally:
            controls.end()
        return _outcome(world, Records.open(server.url), size, controls.cost, kills, away, seconds)


def cost_at_real_pace(size: Size, *, seed: int, log: Path, seconds: float) -> tuple[float, int]:
    """The share of one core, and the memory, of a control host in the middle of a real night: nothing is killed."""
    with _folder() as folder, postgres() as server:
        slow = Size(size.clusters, size.hosts, size.slots, mean_seconds=3600.0)
        world = _written(drawn(folder / "world", slow, seed))
        controls = Controls(world, server.url, log, pace="real")
        try:
            world.begin()
            controls.start()
            running = sum(size.slots) * 0.8
            while len(world.runs()) < running:
                time.sleep(1)
            time.sleep(20)  # what came with the night's beginning is over
            before, after = Cost(), Cost()
            before.add(controls.running[0].pid)
            time.sleep(seconds)
            after.add(controls.running[0].pid)
        finally:
            controls.end()
    return (after.processor_seconds - before.processor_seconds) / seconds, after.most_memory


def _disturbances(dice: random.Random, size: Size, kills: int, away: int) -> list[tuple[float, str]]:
    """When what happens, in seconds: spread over about the length of the night."""
    length = size.clusters * size.mean_seconds / sum(size.slots)
    what = ["kill"] * kills + ["away"] * away
    return sorted((dice.uniform(0.02, 0.95) * length, one) for one in what)


def _until_over(
    world: World, server: PostgresServer, controls: Controls, disturbances: list[tuple[float, str]]
) -> None:
    began, dice = time.monotonic(), random.Random(len(disturbances))
    deadline = began + 120 + 4 * max(disturbances, default=(60.0, ""))[0]
    records: Records | None = None
    while True:
        if disturbances and time.monotonic() - began >= disturbances[0][0]:
            if disturbances.pop(0)[1] == "kill":
                controls.kill(dice.randrange(len(controls.running)))
            else:
                server.stop()
                time.sleep(_AWAY_SECONDS)
                server.start()
            continue
        try:
            records = records or Records.open(server.url)
            backups = records.night(NIGHT)
        except FleetDatabaseAway:
            backups = []
        if not disturbances and len(backups) == len(world.owed) and all(one.state in OVER for one in backups):
            return
        if time.monotonic() > deadline:
            waiting = [(one.owed.id, one.state, one.said) for one in backups if one.state not in OVER]
            raise RuntimeError(f"the night does not end: {waiting}\n{controls.log.read_text()[-4000:]}")
        time.sleep(0.1)


def _outcome(world: World, records: Records, size: Size, cost: Cost, kills: int, away: int, seconds: float) -> Outcome:
    backups = records.night(NIGHT)
    runs, known = world.runs(), {one.run_id for backup in backups for one in backup.tries}
    good = Counter(run_id.split("-")[1] for run_id, run in runs.items() if run["good"])
    return Outcome(
        size,
        kills,
        away,
        seconds,
        world.lower_bound(),
        Counter(backup.state for backup in backups),
        len(runs),
        world.violations(),
        tuple(sorted(runs.keys() - known)),
        tuple(sorted(known - runs.keys())),
        tuple(_not_once(backups, good)),
        cost,
    )


def _not_once(backups: Sequence[FleetBackup], good: Counter[str]) -> Iterator[str]:
    return (backup.owed.cluster for backup in backups if good[backup.owed.cluster] != 1)


def _written(world: World) -> World:
    (world.folder / "slots.json").write_text(json.dumps(world.slots))
    (world.folder / "owed.json").write_text(json.dumps([to_document(one) for one in world.owed]))
    return world


@contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="backupd-night-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> int:
    """Print the figures; status 1 where something must not be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "backupd-night.log")
    asked = parser.parse_args()
    size, kills = (FULL, 50) if asked.full else (SHORT, 10)
    kills = asked.kills if asked.kills is not None else kills
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    outcome = simulated(size, seed=asked.seed, kills=kills, away=2, log=asked.log)
    for line in outcome.lines():
        sys.stdout.write(f"{line}\n")
    faults = outcome.faults(most_ratio=1.15 if asked.full else 4.0)
    if asked.full:
        share, memory = cost_at_real_pace(size, seed=asked.seed, log=asked.log, seconds=60.0)
        sys.stdout.write(f"at a real night's pace: {share:.1%} of one core, {format_size(memory)}\n")
        faults += [f"it takes {share:.1%} of one core, and 10% is the most"] if share > 0.1 else []
        faults += ["it takes more than 300 MiB"] if max(memory, outcome.cost.most_memory) > 300 << 20 else []
    for fault in faults:
        sys.stdout.write(f"FAULT {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
