"""`make test-matrix`: every server on every volume, a machine for each cell, two of them at a time; and the table.

Knows: which cells are due, where their results are kept, when these are void. Refuses to know what a cell does
(`lab.matrix_cell`).

A result is kept under a digest of backupd's sources: a second start goes on with what is missing or was wrong, and a
changed source begins anew. A cell that failed keeps everything that it said, and its catalogue and logs.
"""

import argparse
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from backupd.lab.plan import write_at_once
from tests.bench.cells import MatrixCell, all_cells, pairwise
from tests.bench.matrix_cell import BACKUPS, MatrixCellResult

ROWS = 2000
LOAD = 20  # transactions a second
DEADLINE_SECONDS = 600.0
MACHINES_AT_A_TIME = 2
KEPT = Path(".cache/matrix")
_SHOWN_LINES = 30  # of what a failed cell said


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """A cell that was done; `result` None means that it did not come to one."""

    result: MatrixCellResult | None
    status: int
    seconds: float

    @property
    def right(self) -> bool:
        """Whether nothing was wrong in it, and everything was done."""
        return self.status == 0 and self.result is not None and self.result.right

    def to_json(self) -> str:
        """As it is kept."""
        told = json.loads(self.result.to_json()) if self.result else None
        return json.dumps({"result": told, "status": self.status, "seconds": self.seconds}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "CellOutcome":
        """What `to_json` wrote."""
        raw = json.loads(text)
        result = MatrixCellResult.from_json(json.dumps(raw["result"])) if raw["result"] else None
        return cls(result, raw["status"], raw["seconds"])


class Kept:
    """The results of one state of the sources; those of other states are gone."""

    def __init__(self, root: Path, digest: str) -> None:
        self._folder = root / digest
        for other in root.glob("*"):
            if other != self._folder:
                shutil.rmtree(other)
        self._folder.mkdir(parents=True, exist_ok=True)

    def outcome(self, cell: MatrixCell) -> CellOutcome | None:
        """What became of the cell; None when it was never done to its end."""
        try:
            return CellOutcome.from_json(self._result(cell).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def put(self, cell: MatrixCell, outcome: CellOutcome) -> None:
        """The outcome is kept; of a cell that was right nothing else is."""
        write_at_once(self._result(cell), outcome.to_json())
        if outcome.right:
            shutil.rmtree(self.out(cell), ignore_errors=True)

    def forget(self, cell: MatrixCell) -> None:
        """As if it had never been done."""
        self._result(cell).unlink(missing_ok=True)
        shutil.rmtree(self.out(cell), ignore_errors=True)

    def out(self, cell: MatrixCell) -> Path:
        """The folder for the machine's catalogue and logs."""
        return self._folder / cell.name

    def said(self, cell: MatrixCell) -> Path:
        """The file for everything that it prints."""
        return self._folder / f"{cell.name}.log"

    def _result(self, cell: MatrixCell) -> Path:
        return self._folder / f"{cell.name}.json"


def sources_digest() -> str:
    """Changes whenever any source of backupd's does."""
    digest = hashlib.sha256()
    package, benches = Path(str(resources.files("backupd"))), Path(__file__).parent
    for path in sorted((*package.rglob("*"), *benches.rglob("*"))):
        if path.suffix in (".py", ".sh"):
            digest.update(f"{path.relative_to(package.parent)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def main(words: Sequence[str]) -> int:
    """Do the cells that are due, print the table; 0 when nothing was wrong in any."""
    parser = argparse.ArgumentParser(prog="matrix")
    parser.add_argument("--full", action="store_true", help="every cell; else every pair of values meets in one")
    parser.add_argument("--again", action="store_true", help="what was done already, too")
    parser.add_argument("--only", default="", metavar="TEXT", help="of the cells those whose name holds this")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the folder for results")
    told = parser.parse_args(words)
    cells = [cell for cell in (all_cells() if told.full else pairwise(all_cells())) if told.only in cell.name]
    if not cells:
        parser.error(f"no cell's name holds {told.only!r}; they are like mysql-9-linear-xfs-thin")
    kept = Kept(told.kept.resolve(), sources_digest())
    done = {cell: kept.outcome(cell) for cell in cells}
    due = [cell for cell, outcome in done.items() if told.again or outcome is None or not outcome.right]
    _say(f"{len(cells)} cells, {len(due)} of them to do")
    for cell in due:
        kept.forget(cell)
    _all_done(due, kept)
    outcomes = {cell: outcome for cell in cells if (outcome := kept.outcome(cell))}
    _print(table(outcomes))
    return 0 if len(outcomes) == len(cells) and all(outcome.right for outcome in outcomes.values()) else 1


def _all_done(cells: Sequence[MatrixCell], kept: Kept) -> None:
    """Every one of them has an outcome, right or wrong. Each machine has a processor of its own."""
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    cpus = sorted(os.sched_getaffinity(0))[-MACHINES_AT_A_TIME:]
    for cpu in cpus:
        free.put(cpu)

    def done(cell: MatrixCell) -> None:
        cpu = free.get()
        try:
            outcome = _done(cell, kept, cpu)
        finally:
            free.put(cpu)
        kept.put(cell, outcome)
        _say("\n".join(told(cell, outcome, kept)))

    with ThreadPoolExecutor(len(cpus)) as pool:
        turns = [pool.submit(done, cell) for cell in cells]
        try:
            for turn in turns:
                turn.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _done(cell: MatrixCell, kept: Kept, cpu: int) -> CellOutcome:
    machine = ["--rows", str(ROWS), "--disks", "ssd", "--load", str(LOAD), "--deadline", f"{DEADLINE_SECONDS:.0f}"]
    backupd = str(Path(sys.executable).with_name("backupd"))
    lab = [backupd, "lab", "run", *machine, *cell.machine(), "--out", str(kept.out(cell))]
    inside = ["python", "-m", "tests.bench.matrix_cell"]
    began = time.monotonic()
    with kept.said(cell).open("wb") as said:
        argv = ["taskset", "--cpu-list", str(cpu), *lab, "--", *inside]
        ended = subprocess.run(argv, stdout=subprocess.PIPE, stderr=said, check=False)
        said.write(ended.stdout)
    seconds = time.monotonic() - began
    return CellOutcome(result_of(ended.stdout.decode("utf-8", "replace")), ended.returncode, seconds)


def result_of(printed: str) -> MatrixCellResult | None:
    """The result on the last line; None where there is none."""
    lines = printed.splitlines()
    try:
        return MatrixCellResult.from_json(lines[-1]) if lines else None
    except (ValueError, KeyError, TypeError):
        return None


def told(cell: MatrixCell, outcome: CellOutcome, kept: Kept) -> Iterator[str]:
    """A line for what became of a cell; where it was wrong, with what was, and where the rest is."""
    yield f"{cell.name}: {_verdict(outcome)} after {outcome.seconds:.0f} s"
    if outcome.right:
        return
    yield from (f"  wrong: {what}" for what in (outcome.result.wrong if outcome.result else ()))
    said = kept.said(cell)
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines() if said.exists() else []
    yield from (f"  | {line}" for line in lines[-_SHOWN_LINES:])
    yield f"  all of it: {said}; catalogue and logs: {kept.out(cell)}"


_COLUMNS: dict[str, Callable[[MatrixCell, CellOutcome], str]] = {
    "server": lambda cell, outcome: f"{cell.server} ({outcome.result.version})" if outcome.result else cell.server,
    "layout": lambda cell, _: cell.layout,
    "file system": lambda cell, _: cell.filesystem,
    "volume": lambda cell, _: cell.volume,
    "backups": lambda _, outcome: _of_all(outcome.result.backups if outcome.result else 0),
    "drills proven": lambda _, outcome: _of_all(outcome.result.drills if outcome.result else 0),
    "replays right": lambda _, outcome: _of_all(outcome.result.proofs if outcome.result else 0),
    "seconds": lambda _, outcome: f"{outcome.seconds:.0f}",
    "verdict": lambda _, outcome: _verdict(outcome),
}


def table(outcomes: dict[MatrixCell, CellOutcome]) -> str:
    """Markdown: a line for each cell, and one that counts them."""
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for cell, outcome in outcomes.items():
        lines.append(f"| {' | '.join(value(cell, outcome) for value in _COLUMNS.values())} |")
    wrong = sum(not outcome.right for outcome in outcomes.values())
    return "\n".join([*lines, "", f"{len(outcomes)} cells, {wrong} wrong"])


def _of_all(count: int) -> str:
    return f"{count} of {BACKUPS}"


def _verdict(outcome: CellOutcome) -> str:
    if outcome.right:
        return "right"
    wrong = len(outcome.result.wrong) if outcome.result else 0
    return f"{wrong} wrong" if wrong else f"failed with status {outcome.status}"


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
