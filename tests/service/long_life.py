"""A daemon's long life: hundreds of runs, drills, prunings and page loads in one process, and what it has by then.

    python -m tests.service.long_life [--runs N] [--jobs N] [--folder /dev/shm]

Everything is as `backupd serve` does it: each run, drill and pruning is a process of its own, started by a schedule of
every minute; only servers and LVM are fakes (`tests.fakes.typed`). What must hold is in `faults`; what is printed is
measured. It begins with a catalogue as it is after years, so that lists are full, and with them what SQLite keeps of
the file in memory. Looks are taken while nothing is at work, the first one once retention removes as much as is stored:
from then on nothing may grow but what is stored.
"""

import argparse
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import httpx

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.units import format_size
from tests.many_runs import make_catalogue

Found = TypeVar("Found")

ROOT = Path(__file__).parents[2]
RUNS, JOBS, KEPT, LOOKS = 300, 10, 3, 7
MOST = 1.05  # of what it was
_YEARS = 2000  # runs that it has already: lists are full, and so is what SQLite keeps of the file in memory (2 MB each)
_LOADS, _ROUNDS = 40, 12  # of each page before the first look; of each at each look
_MOST_WAL = 16 << 20  # bytes
_PATIENCE_SECONDS = 600.0  # for one more run on a busy machine
_LATE_SECOND = 45  # of a minute: from here on there is no time for a look
_TOKEN = "a-token-of-32-characters-or-more"
_SITE = """
[catalogue]
path = "{folder}/catalogue.sqlite"
[paths]
run = "{folder}/run"
staging = "{folder}/staging"
log = "{folder}/log"
[service]
zone = "UTC"
port = 0
token_file = "{folder}/token"
max_runs = {jobs}
[targets.vault]
type = "directory"
path = "{folder}/vault"
"""
_JOB = """
[hosts.db{number}]
socket = "{folder}/none.sock"
user = "backupd"
[jobs.job{number}]
host = "db{number}"
targets = ["vault"]
every = "1m"
[jobs.job{number}.settle]
windows = 1
baseline_windows = 1
[jobs.job{number}.retention]
keep_last = {kept}
[jobs.job{number}.schedules]
backup.cron = "* * * * *"
drill.cron = "* * * * *"
prune.cron = "* * * * *"
"""
PAGES = (
    *("/", "/history", "/history?job=job1", "/schedule", "/targets", "/runs/{newest}", "/runs/{oldest}"),
    *("/api/jobs", "/api/runs", "/metrics"),
)


@dataclass(frozen=True, slots=True)
class Process:
    """What one process has; memory is resident, in bytes."""

    memory: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at one time; sizes in bytes, times in seconds."""

    runs: int
    drills: int
    prunings: int
    loads: int
    daemon: Process
    pages: Process
    temporary: int
    catalogue: int
    wal: int  # of the catalogue, which SQLite writes anew from its beginning once it has 4 MB
    stored: int
    page: float  # of the processor, for one answer of each page: the least of several rounds
    waited: float  # the fastest answers of all pages together, as a reader sees it
    answered: int  # what these pages had to show

    @property
    def least(self) -> int:
        """How many runs had their drill and their pruning."""
        return min(self.runs, self.drills, self.prunings)


@dataclass
class Life:
    """What one daemon's life was, look by look."""

    looks: list[Look] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)  # what did not end well

    def lines(self) -> Iterator[str]:
        """A table to be printed."""
        yield "runs drills prunes loads | daemon: MiB fds threads | pages: the same | temporary catalogue WAL | pages"
        for look in self.looks:
            daemon, pages = look.daemon, look.pages
            yield (
                f"{look.runs:4} {look.drills:6} {look.prunings:6} {look.loads:5}"
                f" | {daemon.memory / (1 << 20):6.1f} {daemon.descriptors:3} {daemon.threads:3}"
                f" | {pages.memory / (1 << 20):6.1f} {pages.descriptors:3} {pages.threads:3}"
                f" | {format_size(look.temporary)} {format_size(look.catalogue)} {format_size(look.wal)}"
                f" | {format_size(look.answered)} in {look.page * 1000:.1f} ms, {look.waited * 1000:.1f} ms"
            )
        yield f"of each run the catalogue keeps {', '.join(format_size(round(one)) for one in self.kept_of_each())}"

    def kept_of_each(self, *, every: int = 1) -> list[float]:
        """Bytes of the catalogue for a run with its drill and pruning, from a look to the one that is so many later."""
        pairs = pairwise(self.looks[::every])
        grown = [(after.catalogue - before.catalogue, after.least - before.least) for before, after in pairs]
        return [grew / max(1, runs) for grew, runs in grown]

    def faults(self) -> list[str]:
        """What had grown at the end beyond what was stored, in words."""
        first, last = self.looks[0], self.looks[-1]
        found = list(self.trouble)
        shown = max(1.0, last.answered / first.answered)  # what was stored is on the pages
        # By halves: of fifty runs the file grows by seventy pages, and by five more or less as its tables fill theirs.
        kept = self.kept_of_each(every=len(self.looks) // 2)
        for name, before, after in (
            ("the daemon's memory", first.daemon.memory, last.daemon.memory),
            ("the memory of the pages' process", first.pages.memory, last.pages.memory),
            ("temporary space", first.temporary, last.temporary),
            ("the processor's time for all pages (ms)", shown * first.page * 1000, last.page * 1000),
            ("what the catalogue keeps of a run", kept[0], kept[-1]),
        ):
            if after > MOST * before:
                found.append(f"{name}: {after:,.1f} after {before:,.1f}")
        if last.wal > _MOST_WAL:
            found.append(f"the catalogue's WAL has {format_size(last.wal)}: nobody writes it anew")
        for name, now, then in (("daemon", last.daemon, first.daemon), ("pages' process", last.pages, first.pages)):
            if now.descriptors > then.descriptors:
                found.append(f"the {name} has {now.descriptors} descriptors after {then.descriptors}")
            if now.threads > then.threads:
                found.append(f"the {name} has {now.threads} threads after {then.threads}")
        return found


def lived(runs: int, folder: Path, *, jobs: int = JOBS, tell: Callable[[str], object] = lambda _line: None) -> Life:
    """A daemon lives in this folder for so many runs, after those before the first look."""
    life = Life()
    with _Machine.made(folder, jobs) as machine:
        machine.wait_for((KEPT + 1) * jobs)
        life.looks.append(machine.look())
        begun = life.looks[0].least
        for number in range(1, LOOKS):
            machine.wait_for(begun + number * runs // (LOOKS - 1))
            life.looks.append(machine.look())
            tell(list(life.lines())[-2])
        life.trouble += machine.trouble()
    return life


@dataclass
class _Machine:
    """The daemon, and what is asked of it."""

    folder: Path
    daemon: "subprocess.Popen[bytes]"
    catalogue: sqlite3.Connection
    client: httpx.Client
    loads: int = 0
    answered: int = 0  # bytes
    since: str = ""  # the instant of the first look

    @classmethod
    @contextmanager
    def made(cls, folder: Path, jobs: int) -> "Iterator[_Machine]":
        """One in this folder, for the length of the block."""
        texts = [_SITE.format(folder=folder, jobs=jobs)]
        texts += [_JOB.format(folder=folder, number=number, kept=KEPT) for number in range(jobs)]
        (folder / "backupd.toml").write_text("".join(texts))
        (folder / "token").write_text(_TOKEN)
        (folder / "token").chmod(0o600)
        (folder / "tmp").mkdir()
        Catalogue.open(folder / "catalogue.sqlite").close()
        make_catalogue(folder / "catalogue.sqlite", _YEARS, samples_per_run=2)
        argv = [sys.executable, "-m", "tests.fakes.daemon", str(folder / "backupd.toml"), str(folder)]
        log = folder / "daemon.log"
        with log.open("wb") as said:
            environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
            process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=said, stderr=said)
        try:
            address = _until(lambda: re.search(r"http://[0-9.]+:\d+", log.read_text()))[0]
            with (
                direct(folder / "catalogue.sqlite", busy_timeout_seconds=10) as catalogue,
                httpx.Client(base_url=address, auth=("anybody", _TOKEN), timeout=60) as client,
            ):
                yield cls(folder, process, catalogue, client)
        finally:
            process.terminate()
            process.wait(30)

    def wait_for(self, wanted: int) -> None:
        """So many runs, drills and prunings ended well, pages were loaded all the while, and nothing is at work."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        known = -1
        while True:
            done = min(len(self._good()), self._well("drill"), self._well("prune"))
            if done > known:
                known, deadline = done, time.monotonic() + _PATIENCE_SECONDS
            if done >= wanted and self.loads >= _LOADS * len(PAGES) and not self._at_work():
                return
            assert time.monotonic() < deadline, f"{done} runs with their drills and prunings, and no more"
            for page in PAGES if self._good() else ():
                self._load(page)
            time.sleep(0.5)

    def look(self) -> Look:
        """What there is now."""
        pages = _only_child(self.daemon.pid, "backupd.service.web")
        rounds, taken = [], []
        for _ in range(_ROUNDS):
            before, self.answered = _processor_seconds(pages), 0
            rounds.append([self._load(page) for page in PAGES])
            taken.append(_processor_seconds(pages) - before)
        self.since = self.since or datetime.now(UTC).isoformat()
        return Look(
            *(len(self._good()), self._well("drill"), self._well("prune"), self.loads),
            *(_process(self.daemon.pid), _process(pages)),
            temporary=sum(_size(self.folder / name) for name in ("tmp", "run", "staging")),
            catalogue=(self.folder / "catalogue.sqlite").stat().st_size,
            wal=(self.folder / "catalogue.sqlite-wal").stat().st_size,
            stored=_size(self.folder / "vault"),
            page=min(taken),
            waited=sum(map(min, zip(*rounds, strict=True))),
            answered=self.answered,
        )

    def trouble(self) -> list[str]:
        """What ended otherwise than well. What a busy machine came too late for is none: it is done a minute later."""
        query = "SELECT activity, job, exit_status FROM slots WHERE decided_at > ? AND exit_status <> 0"
        return ["{} of {} ended with status {}".format(*row) for row in self.catalogue.execute(query, (self.since,))]

    def _load(self, page: str) -> float:
        good = self._good() if "{" in page else []
        path = page.format(newest=good[0], oldest=good[-1]) if good else page
        began = time.perf_counter()
        answer = self.client.get(path)
        took = time.perf_counter() - began
        assert answer.status_code == 200, f"{path}: {answer.text}"
        self.loads += 1
        self.answered += len(answer.content)
        return took

    def _good(self) -> list[str]:
        """The newest first."""
        which = "job LIKE 'job%' AND status IN ('success', 'attention')"
        query = f"SELECT run_id FROM runs WHERE {which} ORDER BY started_at DESC"
        return [str(run_id) for (run_id,) in self.catalogue.execute(query)]

    def _well(self, activity: str) -> int:
        return self._count(f"state = 'ended' AND exit_status = 0 AND activity = '{activity}'")

    def _count(self, slots: str) -> int:
        return int(self.catalogue.execute(f"SELECT count(*) FROM slots WHERE {slots}").fetchone()[0])

    def _at_work(self) -> bool:
        """Something is, or will be before a look is over."""
        return time.time() % 60 > _LATE_SECOND or self._count("state = 'started'") > 0


def _process(pid: int) -> Process:
    status = Path(f"/proc/{pid}/status").read_text()
    memory, threads = (re.findall(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[0] for name in ("VmRSS", "Threads"))
    return Process(int(memory) * 1024, len(list(Path(f"/proc/{pid}/fd").iterdir())), int(threads))


def _processor_seconds(pid: int) -> float:
    """That the threads of this process have had by now."""
    told = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(text.split()[0]) for text in told) / 1e9


def _only_child(pid: int, module: str) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    children += [one for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]
    (found,) = {int(one) for one in children if module in Path(f"/proc/{one}/cmdline").read_text()}
    return found


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _until(look: Callable[[], Found | None]) -> Found:
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.05)
    return found


def main() -> int:
    """Print the figures; 1 where something had grown."""
    parser = argparse.ArgumentParser(description="A daemon's long life.")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--folder", help="where all of it lies; in memory, syncs cost nothing")
    asked = parser.parse_args()
    say = sys.stdout.write
    with tempfile.TemporaryDirectory(prefix="backupd-life-", dir=asked.folder) as folder:
        life = lived(asked.runs, Path(folder), jobs=asked.jobs, tell=lambda line: say(f"{line}\n"))
    faults = life.faults()
    say("\n".join([*life.lines(), *faults, *([] if faults else ["nothing has grown beyond what was stored"]), ""]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
