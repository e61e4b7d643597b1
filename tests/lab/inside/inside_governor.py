"""A copy within a budget, beside a second load that comes and goes; and one whose budget and deadline cannot both hold.

The datadir has 1 GiB more than the server needs, so that the copy lasts for as long as the second load takes to come
and go. Which speed costs a server least is another on each host, so that a copy is itself again when it is as fast as
before. What was seen is printed as a figure, and kept in the machine's output folder for `data/pacing`.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from backupd.lab.guest import OUT
from backupd.lab.server import SCHEMA
from tests.lab.inside.host import GATE_OFF, SITE, Changes, Host, until

MIB = 1 << 20
FILLER_MIB = 1024
BUDGET = 1.5
OVER = 1.2  # times the budget: what the promise allows
ALONE_SECONDS, LOADED_SECONDS = 3.0, 7.0
REACTION_SECONDS = 2.0
BACK_SECONDS = 3.0  # in which the copy is as fast again as it was
SPAN_SECONDS = 2.0  # over which that is seen: it tries faster and slower speeds meanwhile
AS_FAST = 0.7  # of what it was, for the same reason
WITHIN_BUDGET: Changes = {**GATE_OFF, "jobs.nightly.limits.max_latency": BUDGET}
TOO_TIGHT: Changes = {
    **GATE_OFF,
    "jobs.nightly.limits.max_latency": 1.01,  # the server's own noise is more
    "jobs.nightly.copy.must_finish_by": "30s",
}


@dataclass(frozen=True)
class Look:
    """One line of a recording, as far as it is asked about."""

    at: float
    share: float
    off: bool
    base_seconds: float | None
    seen: dict[str, Any]


@dataclass(frozen=True)
class Paced:
    """A run within a budget, and when the second load came and went."""

    document: dict[str, Any]
    looks: Sequence[Look]  # the last one saw the last read
    came: float
    went: float

    def ratio(self, begin: float, end: float) -> float:
        """What a write took while the copy read, ÷ what it takes with the snapshot while nothing is read."""
        reading = [now for before, now in pairwise(self.looks) if begin <= now.at < end and not before.off]
        writes = sum(look.seen["writes"] for look in reading)
        base = median(look.base_seconds for look in reading if look.base_seconds is not None)
        return float(sum(look.seen["write_seconds"] for look in reading) / writes / base)

    def speed(self, begin: float) -> float:
        """Bytes a second that were read in the span from there on."""
        looks = (look for look in self.looks if begin <= look.at < begin + SPAN_SECONDS)
        return float(sum(look.seen["read_bytes"] for look in looks)) / SPAN_SECONDS

    def shares(self, begin: float, end: float) -> list[float]:
        return [look.share for look in self.looks if begin <= look.at < end]


@pytest.fixture(scope="module")
def filled() -> Iterator[None]:
    """Compressible, so that the disks and not the processor are what the copy waits for."""
    folder = next(SITE.mount_point.rglob(SCHEMA)).parent / "filler"
    folder.mkdir()
    block = bytes(range(256)) * 16
    with (folder / "filler").open("wb") as file:
        for number in range(FILLER_MIB):
            file.write((number.to_bytes(8, "big") + block[8:]) * 256)
    yield
    (folder / "filler").unlink()
    folder.rmdir()


@contextmanager
def second_load(host: Host) -> Iterator[None]:
    """Four writers that never pause, beside the machine's own load."""
    [[rows]] = host.sql("SELECT COUNT(*) FROM sbtest.sbtest1")
    argv = [
        *("sysbench", "oltp_write_only", "--db-driver=mysql", "--mysql-user=lab_load", f"--mysql-db={SCHEMA}"),
        *(f"--mysql-socket={SITE.socket}", "--tables=1", f"--table-size={rows}", "--threads=4", "--time=0", "run"),
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def recorded(file: Path) -> list[Look]:
    lines = file.read_text().splitlines()[1:] if file.exists() else []
    found = (json.loads(line) for line in lines if line.endswith("}"))
    return [Look(one["at"], one["share"], one["off"], one["base_seconds"], one["look"]) for one in found]


@pytest.fixture(scope="module")
def paced(filled: None, tmp_path_factory: pytest.TempPathFactory) -> Paced:
    folder = tmp_path_factory.mktemp("paced")
    host, file = Host(folder), OUT / "pace.jsonl"
    argv = ["--config", str(host.configured(WITHIN_BUDGET)), "run", "nightly", "--json"]
    recorder = [sys.executable, "-m", "tests.lab.inside.recorded_run", str(file), *argv]
    with subprocess.Popen(recorder, stdout=subprocess.PIPE, text=True) as run:
        until(lambda: bool(recorded(file)))
        began = recorded(file)[0].at
        until(lambda: time.time() > began + ALONE_SECONDS)
        with second_load(host):
            came = time.time()
            until(lambda: time.time() > came + LOADED_SECONDS)
        went = time.time()
        told = run.communicate()[0]
        assert run.returncode == 0
    host.nothing_left()
    looks = recorded(file)
    last = max(number for number, look in enumerate(looks) if look.seen["reads"])
    return Paced(json.loads(told), looks[: last + 1], came, went)


def test_a_latency_budget_holds_while_a_second_load_comes_and_goes(paced: Paced) -> None:
    seconds = [paced.came + REACTION_SECONDS + at for at in range(int(LOADED_SECONDS - REACTION_SECONDS))]
    ratios = [paced.ratio(at, at + 1) for at in seconds]
    print("times as long as while nothing is read:", [round(ratio, 2) for ratio in ratios])  # noqa: T201 - a figure
    assert min(paced.shares(paced.came, paced.went)) < 0.7, "the second load was not noticed"
    assert median(ratios) <= BUDGET * OVER, ratios


def test_the_copy_is_as_fast_as_before_once_the_second_load_has_gone(paced: Paced) -> None:
    begins = [look.at for look in paced.looks if paced.went <= look.at < paced.looks[-1].at - SPAN_SECONDS]
    assert begins, "the copy was over before the second load had gone"
    wanted = AS_FAST * paced.speed(paced.came - SPAN_SECONDS)
    back = next((begin for begin in begins if paced.speed(begin) >= wanted), None)
    assert back is not None, (wanted, [paced.speed(begin) for begin in begins])
    print(f"back after {back - paced.went:.1f} s")  # noqa: T201 - a figure
    assert back - paced.went <= BACK_SECONDS


def test_each_change_of_speed_is_in_the_record_with_its_reason(paced: Paced) -> None:
    changes = paced.document["pace"]
    assert {"any faster, the copy would exceed its budget"} <= {change["reason"] for change in changes}
    assert min(change["share"] for change in changes) < 0.7


def test_a_budget_and_a_deadline_that_cannot_both_hold_end_the_backup_and_leave_nothing(
    filled: None, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    with second_load(host):
        document = host.fails(TOO_TIGHT, status=7, says="cannot finish before its deadline within the job's limits")
    assert document["error"]["code"] == "aborted-impact"
    host.nothing_left()
