"""The load on a lab's server, and what its logs say afterwards.

Knows: sysbench's report line, the two log formats, how to read a rate or a stall from them.

`load.log` has a line for each second: `EPOCH TPS P95_MILLISECONDS ERRORS RECONNECTS`, where EPOCH is the wall clock at
the second's end. `heartbeat.log` has a line for each insert, 20 a second when nothing stalls: `EPOCH MILLISECONDS`,
where EPOCH is when the insert was due and MILLISECONDS is how long after that it was committed.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.host.process import spawned
from backupd.lab.options import Load
from backupd.lab.plan import Plan
from backupd.lab.servers import SOFTWARE
from backupd.lab.site import LabSite
from backupd.vocabulary.errors import LabError, UnexpectedOutput

THREADS = 4
WARM_UP_SECONDS = 1
_START_SECONDS = 60.0

_REPORT = re.compile(
    r"\[ \d+s \] thds: \d+ tps: (?P<tps>[\d.]+) .* lat \(ms,\d+%\): (?P<p95>[\d.]+) "
    r"err/s:? (?P<errors>[\d.]+) reconn/s:? (?P<reconnects>[\d.]+)"
)


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One second of load."""

    at: float  # epoch, the second's end
    tps: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One small insert."""

    at: float  # epoch, when it was due
    milliseconds: float


def parse_load(text: str) -> list[LoadSample]:
    """The samples of a `load.log`, oldest first. A last line that is still being written is left out.

    Raises:
        UnexpectedOutput: a line that is no sample; the message carries it.
    """
    return [LoadSample(*_numbers(line, 5)[:2]) for line in _whole_lines(text)]


def parse_heartbeats(text: str) -> list[Heartbeat]:
    """The inserts of a `heartbeat.log`, oldest first.

    Raises:
        UnexpectedOutput: a line that is no heartbeat.
    """
    return [Heartbeat(*_numbers(line, 2)) for line in _whole_lines(text)]


def rate_between(samples: Sequence[LoadSample], start: float, end: float) -> float | None:
    """Mean transactions a second between two moments (epoch); seconds that are partly inside count in part.

    None when no sample covers any of it.
    """
    previous = samples[0].at - 1 if samples else 0.0
    covered = transactions = 0.0
    for sample in samples:
        inside = max(0.0, min(end, sample.at) - max(start, previous))
        covered += inside
        transactions += inside * sample.tps
        previous = sample.at
    return transactions / covered if covered else None


def transactions_lost(samples: Sequence[LoadSample], start: float, end: float, *, undisturbed: float) -> float | None:
    """How many transactions fewer than at the undisturbed rate were done between two moments; None when unknown."""
    rate = rate_between(samples, start, end)
    return None if rate is None else (undisturbed - rate) * (end - start)


def longest_stall(beats: Sequence[Heartbeat], start: float, end: float) -> float | None:
    """The longest that a small insert took, in seconds, of those under way between two moments; None without any."""
    ends = [(beat.at, beat.at + beat.milliseconds / 1000) for beat in beats]
    stalls = [done - due for due, done in ends if due <= end and done >= start]
    return max(stalls, default=None)


def parse_report(line: str) -> tuple[float, float, float, float] | None:
    """tps, p95, errors and reconnects of one line of `sysbench --report-interval`; None for any other line."""
    found = _REPORT.search(line)
    if not found:
        return None
    return float(found["tps"]), float(found["p95"]), float(found["errors"]), float(found["reconnects"])


def run_arguments(load: Load) -> list[str]:
    """What sysbench is told besides where the server is: endless, and no error ends it."""
    rate = [f"--rate={load.rate}"] if load.kind == "rate" else []
    return [f"--threads={THREADS}", "--time=0", "--report-interval=1", "--mysql-ignore-errors=all", *rate, "run"]


@contextmanager
def generator(site: LabSite, plan: Plan) -> Iterator[Callable[[], None]]:
    """A process that loads the server, as soon as there is one, for the length of the block.

    Started before the server, because Python's own start takes seconds there. What is yielded waits until the load
    has run for a second.

    Raises:
        LabError: from that wait: the load did not come up; the hint carries what it said.
    """
    if plan.load.kind == "none":
        yield lambda: None
        return
    log = site.runtime / "load.err"
    wanted = [str(plan.load), str(plan.rows), ",".join(SOFTWARE[plan.server].log_tables)]
    argv = [sys.executable, "-P", "-m", "backupd.lab.generator", *wanted, *_generator_places(site)]
    with log.open("wb") as errors, spawned(argv, stdout=subprocess.DEVNULL, stderr=errors) as process:
        yield lambda: _wait_for_samples(site, process, log)


def _wait_for_samples(site: LabSite, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while _lines_of(site) < WARM_UP_SECONDS:
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise LabError("the load on the lab's server did not start", hint=f"its output: {said or '(nothing)'}")
        time.sleep(0.05)


def _generator_places(site: LabSite) -> list[str]:
    return [str(site.socket), str(site.load_log), str(site.heartbeat_log)]


def _lines_of(site: LabSite) -> int:
    try:
        return site.load_log.read_text(encoding="utf-8").count("\n")
    except FileNotFoundError:
        return 0


def _whole_lines(text: str) -> list[str]:
    return text[: text.rfind("\n") + 1].splitlines()


def _numbers(line: str, count: int) -> list[float]:
    try:
        numbers = [float(word) for word in line.split()]
    except ValueError as error:
        raise UnexpectedOutput(f"not a line of the lab's load: {line!r}") from error
    if len(numbers) != count:
        raise UnexpectedOutput(f"not a line of the lab's load: {line!r}")
    return numbers
