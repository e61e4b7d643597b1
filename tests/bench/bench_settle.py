"""What waiting for the penalty to settle is worth: `make bench-settle`, a machine for each mode and round.

The same job under the same load: the copy starts when the probe says so (on), when the kernel's own counters say so
(passive), at once (off), or when the penalty has settled though that takes longer than the copy (on, patient); and no
job at all (nothing): the noise. Every run is judged over the same length of time from its start, so that a mode that
ends earlier gets the undisturbed rest that it has earned.

Started as `python -m tests.bench.bench_settle [--load LOAD] [--copy-rate RATE] [--only MODE] [--rounds N] [--keep DIR]`
it starts the machines, as many at a time as there are processors (two at the most); with `--inside MODE` it is what
runs in one of them. `--copy-rate` is the job's `copy.max_rate`: by it a copy of ten seconds becomes one of minutes.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from backupd.lab import load
from backupd.lab.load import Heartbeat, LoadSample
from backupd.vocabulary.errors import LabError

ROWS = 60_000
ROUNDS = 3
SETTLE = {  # what the job's table `settle` says
    "on": "probe = true",
    "passive": "probe = false",
    "off": "enabled = false",
    "on, patient": 'patience = 100\nmax_wait = "90s"',
}
NOTHING = "nothing"
MODES = (NOTHING, *SETTLE)
WARM_UP_SECONDS = 15.0  # a server that has just started gets faster for a while
UNDISTURBED_SECONDS = 20.0  # before the run, and again at the window's end: the rate between them drifts
WINDOW_SECONDS = 160.0  # from the run's start; by its last twenty seconds every mode's snapshot must be gone
_MACHINES_AT_A_TIME = 2
_DEADLINE_SECONDS = 900.0
_SLOW_MS = 100.0
_SLOWEST_SECONDS = 10.0  # the stretch that `slowest` is a mean over


@dataclass(frozen=True, slots=True)
class Situation:
    """What all modes are tried in."""

    load: str = "closed"
    copy_rate: str = ""  # the job's `copy.max_rate`; empty: as fast as it goes
    window: float = WINDOW_SECONDS  # that every run is judged over
    nothing: float = 30.0  # seconds that are judged where there is no run, in place of a snapshot's life


@dataclass(frozen=True, slots=True)
class SettleMoments:
    """Of one run, by the wall clock inside the machine."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Price:
    """What one run cost the server and its operator."""

    lost: float  # transactions, until the snapshot was gone
    lost_in_window: float  # transactions, in the situation's window
    p99_ms: float  # of the heartbeat's inserts, until the snapshot was gone
    p99_in_window_ms: float
    slow: float  # inserts of the heartbeat that took more than 100 ms, in the window
    slowest: float  # the worst ten seconds' rate, as a share of the undisturbed one
    stall_ms: float
    waited: float  # seconds, at the gate
    copied: float  # seconds
    wall: float  # seconds, of the whole run
    undisturbed: float  # transactions a second, mean of before and after the run


def main(words: Sequence[str]) -> int:
    """Measure in machines of their own and print a table; inside one, take the one backup."""
    parser = argparse.ArgumentParser(prog="bench_settle")
    parser.add_argument("--inside", choices=MODES)
    parser.add_argument("--load", default="closed")
    parser.add_argument("--copy-rate", default="")
    parser.add_argument("--window", type=float, default=WINDOW_SECONDS, help="seconds that each run is judged over")
    parser.add_argument(
        "--nothing", type=float, default=30.0, help="seconds in place of a snapshot's life without a run"
    )
    parser.add_argument("--only", action="append", choices=MODES, help="repeatable; all modes without it")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--keep", type=Path, help="a folder for the logs and catalogues")
    told = parser.parse_args(words)
    situation = Situation(told.load, told.copy_rate, told.window, told.nothing)
    if told.inside:
        return _inside(told.inside, situation)
    modes = [mode for mode in MODES if mode in (told.only or MODES)]
    with tempfile.TemporaryDirectory(prefix="backupd-bench-") as temporary:
        prices = _all_prices(told.keep or Path(temporary), situation, modes, told.rounds)
    _print(table(prices, window=situation.window))
    return 0


# --- inside a machine ------------------------------------------------------------------------------------------------


def _inside(mode: str, situation: Situation) -> int:
    """One backup, or none, between two stretches without; the moments go to stdout."""
    if mode != NOTHING:
        _configure(SETTLE[mode], situation.copy_rate)
    time.sleep(WARM_UP_SECONDS + UNDISTURBED_SECONDS)
    began = time.time()
    argv = ["true"] if mode == NOTHING else ["backupd", "--quiet", "run", "nightly"]
    status = subprocess.run(argv, check=False, stdout=sys.stderr).returncode
    ended = time.time()
    time.sleep(max(0.0, began + situation.window - ended) + 1.5)  # the load's last line is written a second later
    _print(json.dumps({"began": began, "ended": ended}))
    return 0 if status in (0, 3) else status


def _configure(settle: str, copy_rate: str) -> None:
    from backupd.lab.site import guest_site

    with guest_site().configuration.open("a", encoding="utf-8") as file:
        file.write(f"\n[jobs.nightly.settle]\n{settle}\n")
        if copy_rate:
            file.write(f'\n[jobs.nightly.copy]\nmax_rate = "{copy_rate}"\n')


# --- outside ---------------------------------------------------------------------------------------------------------


def _all_prices(folder: Path, situation: Situation, modes: Sequence[str], rounds: int) -> dict[str, list[Price]]:
    """Modes in turn, round after round; each machine has a processor of its own."""
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    cpus = sorted(os.sched_getaffinity(0))[-_MACHINES_AT_A_TIME:]
    for cpu in cpus:
        free.put(cpu)

    def measured(number: int, mode: str) -> Price:
        cpu = free.get()
        try:
            price = _one(folder / f"{mode.replace(', ', '-')}-{number}", mode, situation, cpu)
        finally:
            free.put(cpu)
        _print(f"round {number + 1}, {mode}: {price}")
        return price

    with ThreadPoolExecutor(len(cpus)) as pool:
        turns = [(mode, pool.submit(measured, number, mode)) for number in range(rounds) for mode in modes]
        try:
            return {mode: [turn.result() for which, turn in turns if which == mode] for mode in modes}
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure: no further machine is started


def _one(out: Path, mode: str, situation: Situation, cpu: int) -> Price:
    deadline = f"{_DEADLINE_SECONDS + situation.window:.0f}"
    machine = ["--rows", str(ROWS), "--load", situation.load, "--out", str(out), "--deadline", deadline]
    inside = ["python", "-m", "tests.bench.bench_settle", "--inside", mode, "--window", f"{situation.window:g}"]
    inside += ["--copy-rate", situation.copy_rate] if situation.copy_rate else []
    argv = ["taskset", "--cpu-list", str(cpu), str(_backupd()), "lab", "run", *machine, "--", *inside]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"a run with settling {mode} ended with status {done.returncode}", hint=done.stderr[-3000:])
    moments = SettleMoments(**json.loads(done.stdout.splitlines()[-1]))
    if mode == NOTHING:
        gone, waited, copied = moments.began + situation.nothing, 0.0, 0.0
    else:
        gone, waited, copied = _phases(out, moments)
    samples = load.parse_load((out / "load.log").read_text(encoding="utf-8"))
    beats = load.parse_heartbeats((out / "heartbeat.log").read_text(encoding="utf-8"))
    return price(samples, beats, moments, window=situation.window, gone=gone, waited=waited, copied=copied)


def _backupd() -> Path:
    return Path(sys.executable).with_name("backupd")


def _phases(out: Path, moments: SettleMoments) -> tuple[float, float, float]:
    """When the snapshot was gone, and how many seconds the run waited and copied."""
    from backupd.catalogue.store import Catalogue
    from backupd.vocabulary.records import Phase

    with Catalogue.open(out / "catalogue.sqlite") as catalogue:
        run = catalogue.run("latest")
    return moments.ended - run.phases[Phase.VERIFY], run.phases[Phase.SETTLE], run.phases[Phase.COPY]


def price(
    samples: Sequence[LoadSample],
    beats: Sequence[Heartbeat],
    moments: SettleMoments,
    *,
    window: float = WINDOW_SECONDS,
    gone: float,
    waited: float,
    copied: float,
) -> Price:
    """What both logs say of one run.

    Raises:
        LabError: the logs do not cover it.
    """
    began, over = moments.began, moments.began + window
    if gone > over - UNDISTURBED_SECONDS:
        raise LabError(f"the snapshot lived too long for the {window:.0f} s that every run is judged over")
    before = load.rate_between(samples, began - UNDISTURBED_SECONDS, began)
    after = load.rate_between(samples, over - UNDISTURBED_SECONDS, over)
    if not before or not after or samples[-1].at < over - 1:
        raise LabError("the load's log does not cover the run")
    drift = (after - before) / window  # a second; the middles of the two stretches lie that far apart

    def expected(at: float) -> float:
        return before + drift * (at - began + UNDISTURBED_SECONDS / 2)

    def lost(end: float) -> float:
        return load.transactions_lost(samples, began, end, undisturbed=expected((began + end) / 2)) or 0.0

    undisturbed = (before + after) / 2
    starts = range(int(gone - began - _SLOWEST_SECONDS) + 1)
    rates = [load.rate_between(samples, began + at, began + at + _SLOWEST_SECONDS) or 0.0 for at in starts]
    return Price(
        lost=lost(gone),
        lost_in_window=lost(over),
        p99_ms=p99(beats, began, gone),
        p99_in_window_ms=p99(beats, began, over),
        slow=sum(began <= beat.at <= over and beat.milliseconds > _SLOW_MS for beat in beats),
        slowest=min(rates, default=undisturbed) / undisturbed,
        stall_ms=1000 * (load.longest_stall(beats, began, gone) or 0.0),
        waited=waited,
        copied=copied,
        wall=moments.ended - began,
        undisturbed=undisturbed,
    )


def p99(beats: Sequence[Heartbeat], start: float, end: float) -> float:
    """Milliseconds that 99 of 100 inserts due between two moments took at most; 0 without any."""
    taken = sorted(beat.milliseconds for beat in beats if start <= beat.at <= end)
    return taken[min(len(taken) - 1, int(0.99 * len(taken)))] if taken else 0.0


# --- the table -------------------------------------------------------------------------------------------------------

_COLUMNS: dict[str, Callable[[Price], float]] = {  # {} is the window
    "lost": lambda price: price.lost,
    "lost in {} s": lambda price: price.lost_in_window,
    "p99 ms": lambda price: price.p99_ms,
    "p99 in {} s": lambda price: price.p99_in_window_ms,
    f"over {_SLOW_MS:.0f} ms": lambda price: price.slow,
    "slowest 10 s %": lambda price: 100 * price.slowest,
    "stall ms": lambda price: price.stall_ms,
    "waited s": lambda price: price.waited,
    "copied s": lambda price: price.copied,
    "wall s": lambda price: price.wall,
    "undisturbed tps": lambda price: price.undisturbed,
}


def table(prices: dict[str, list[Price]], *, window: float = WINDOW_SECONDS) -> str:
    """A Markdown table: for each mode the median, and from the least to the most that was seen."""
    names = " | ".join(_COLUMNS).replace("{}", f"{window:.0f}")
    lines = [f"| settle | {names} |", f"|---{'|---' * len(_COLUMNS)}|"]
    for mode, seen in prices.items():
        cells = [_cell([value(price) for price in seen]) for value in _COLUMNS.values()]
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
