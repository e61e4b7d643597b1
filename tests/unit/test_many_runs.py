"""Where runs are many: what is asked of the catalogue is found by an index, and takes no longer than among a few."""

import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.selectors import parse_selector
from tests.many_runs import NEWEST, catalogue_of, catalogue_of_years, run_id_of

FEW = 1_000
ROOT = Path(__file__).parents[2]
WALKED = re.compile(r"SCAN (\w+)")
OF_EACH_RUN = {
    "runs",
    "samples",
    "phases",
    "locks",
    "backups",
    "throughput",
    "positions",
    "snapshots",
    "slots",
    "bench_cells",
    "bench_samples",
}

CONFIGURATION = """
[catalogue]
path = "{path}"
[hosts.db1]
socket = "{folder}/mysqld.sock"
user = "backupd"
[targets.vault]
type = "directory"
path = "{folder}"
[jobs.nightly]
host = "db1"
targets = ["vault"]
"""


def refused(catalogue: Catalogue, wanted: str) -> None:
    with pytest.raises(UsageError):
        catalogue.run(wanted)


def on_offsite(catalogue: Catalogue, wanted: str) -> RunDetails:
    return catalogue.run_with_backup(parse_selector(wanted, now=datetime.now(UTC)), target="offsite")


QUESTIONS: dict[str, Callable[[Catalogue], Any]] = {
    "history": lambda catalogue: catalogue.runs(),
    "history of a job": lambda catalogue: catalogue.runs(job="shop"),
    "history of a time": lambda catalogue: catalogue.runs(since=NEWEST.replace(day=18), until=NEWEST.replace(day=19)),
    "history of an outcome": lambda catalogue: catalogue.runs(job="shop", statuses=[RunStatus.FAILED], limit=5),
    "history of probes": lambda catalogue: catalogue.probes(limit=5),
    "history of a job's probes": lambda catalogue: catalogue.probes(job="shop", limit=1),
    "history of benches": lambda catalogue: catalogue.benches(limit=5),
    "history as figures": lambda catalogue: catalogue.costs(limit=50),
    "latest of which job": lambda catalogue: refused(catalogue, "latest"),
    "latest of a job": lambda catalogue: catalogue.run("latest:archive"),
    "latest probe": lambda catalogue: catalogue.probe("latest"),
    "latest bench": lambda catalogue: catalogue.bench("latest"),
    "the beginning of a bench's id": lambda catalogue: catalogue.bench(catalogue.benches(limit=1)[0].run_id[:-3]),
    "an id": lambda catalogue: catalogue.run(catalogue.runs(limit=1)[0].run_id),
    "the beginning of an id": lambda catalogue: catalogue.run(catalogue.runs(limit=1)[0].run_id[:-3]),
    "a backup that is there": lambda catalogue: on_offsite(catalogue, "latest-good:shop"),
    "a backup of then that is there": lambda catalogue: on_offsite(catalogue, "as-of=1s:shop"),
    "what is unfinished": lambda catalogue: catalogue.unfinished(),
    "the head of the chain": lambda catalogue: catalogue.audit_head(),
    "the last size": lambda catalogue: catalogue.last_stored_bytes("shop"),
}


@pytest.fixture(scope="module")
def few() -> Iterator[Path]:
    with catalogue_of(FEW) as path:
        yield path


@pytest.fixture(scope="module")
def many(shared_folder: Path) -> Path:
    return catalogue_of_years(shared_folder)


def plans(path: Path, question: Callable[[Catalogue], Any]) -> list[str]:
    """How SQLite finds the answer: the plan of every statement that is sent."""
    sent: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        sent.append((statement, parameters))

    with Catalogue.open(path) as catalogue:
        event.listen(Engine, "before_cursor_execute", note)
        try:
            question(catalogue)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    with direct(path, busy_timeout_seconds=1) as connection:
        asked = [(statement, parameters) for statement, parameters in sent if statement.lstrip().startswith("SELECT")]
        assert asked
        return [
            row[3]
            for statement, parameters in asked
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
        ]


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_walks_through_all_runs(few: Path, name: str) -> None:
    found = plans(few, QUESTIONS[name])
    walked = {match[1] for step in found if (match := WALKED.match(step))}
    assert walked & OF_EACH_RUN == set(), found


def test_the_head_of_the_chain_is_read_from_its_end(few: Path) -> None:
    """SQLite says SCAN where it goes along the key, and ends at the limit: there is nothing to sort."""
    assert plans(few, QUESTIONS["the head of the chain"]) == ["SCAN audit"]


def test_nobody_looks_for_a_proof_of_what_has_no_backups(few: Path) -> None:
    """Drills are walked back to each job's newest proof: all of them, for one that cannot have any."""
    assert "ix_drills_at" in " ".join(plans(few, lambda catalogue: catalogue.records(["nightly"], at=NEWEST)))
    assert "ix_drills_at" not in " ".join(plans(few, lambda catalogue: catalogue.records([""], at=NEWEST)))


def test_a_beginning_that_only_one_id_has_finds_it_and_others_are_told(few: Path) -> None:
    with Catalogue.open(few) as catalogue:
        last = run_id_of(FEW - 2, FEW)
        assert catalogue.run(last[:-1]).run_id == last
        with pytest.raises(UsageError, match=r"more than one run begins with 2026: (\S+, ){3}\S+$"):
            catalogue.run("2026")
        with pytest.raises(UsageError, match="no run 2026%"):
            catalogue.run("2026%")


@pytest.mark.thorough
def test_the_catalogue_that_is_measured_is_sound(few: Path) -> None:
    with Catalogue.open(few) as catalogue:
        assert catalogue.audit_trail().chain.first_fault is None
        of_each_kind = catalogue.runs(limit=None), catalogue.probes(limit=None), catalogue.benches(limit=None)
        assert [len(listed) for listed in of_each_kind] == [FEW - 8, 5, 3]
    with direct(few, busy_timeout_seconds=1) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


# --- how long it takes -----------------------------------------------------------------------------------------------


def ratio(more: Path, fewer: Path, question: Callable[[Catalogue], Any]) -> float:
    """Of this thread's processor time, at best, in turn: what else goes on in the machine is not meant."""
    with Catalogue.open(more) as many, Catalogue.open(fewer) as few:
        took: dict[Catalogue, list[float]] = {many: [], few: []}
        for catalogue in (many, few) * 20:
            began = time.thread_time()
            question(catalogue)
            took[catalogue].append(time.thread_time() - began)
    return min(took[many]) / min(took[few])


@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_a_question_takes_no_longer_among_a_hundred_times_as_many_runs(few: Path, many: Path) -> None:
    ratios = {name: ratio(many, few, ask) for name, ask in QUESTIONS.items()}
    assert {name: seen for name, seen in ratios.items() if seen >= 2} == {}


@pytest.mark.matrix
def test_the_history_of_a_hundred_thousand_runs_is_printed_as_fast_as_that_of_a_few(
    few: Path, many: Path, tmp_path: Path
) -> None:
    """The whole command, its start included. In processor time: what others do in the machine is not meant."""
    took: dict[Path, list[float]] = {few: [], many: []}
    for path in (few, many) * 5:
        configuration = tmp_path / "backupd.toml"
        configuration.write_text(CONFIGURATION.format(path=path, folder=tmp_path))
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = [str(Path(sys.executable).with_name("backupd")), "--config", str(configuration), "history"]
        printed = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(printed.splitlines()) == 51
        took[path].append(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
    assert min(took[many]) / min(took[few]) < 1.3


@pytest.mark.thorough
def test_the_history_loads_nothing_that_acts_on_a_host_and_no_schema(tmp_path: Path) -> None:
    """Which is how it answers as soon as it does."""
    told = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from backupd.cli.main import main; main()"
    configuration = tmp_path / "backupd.toml"
    with catalogue_of(1, samples_per_run=1) as path:
        configuration.write_text(CONFIGURATION.format(path=path, folder=tmp_path))
        argv = [sys.executable, "-c", told, "--config", str(configuration), "history"]
        printed = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
    loaded = set(printed.split())
    assert {"sqlalchemy", "backupd.operations.context", "backupd.config.unchecked"} <= loaded
    heavy = {"pymysql", "cryptography", "boto3", "asyncssh", "alembic", "fastapi", "jinja2", "apscheduler"}
    assert loaded & (heavy | {"prometheus_client", "backupd.wiring", "backupd.lab.run"}) == set()
    assert "backupd.config.schema" not in loaded


def test_of_many_runs_the_same_is_told_as_of_each() -> None:
    """Of few of them the ids are handed over, of more the query is asked again."""
    with catalogue_of(150, samples_per_run=1) as path, Catalogue.open(path) as catalogue:
        many = catalogue.runs(limit=None)
        assert len(many) > 100
        assert many[:50] == catalogue.runs(limit=50)
        assert many[:3] == [catalogue.runs(limit=number + 1)[number] for number in range(3)]
