"""What is done in each machine of `make test-matrix`: backups under load, their drills, and the evidence of each.

Knows: the order, and what counts as wrong. Started in the machine as `python -m tests.bench.matrix_cell`; its last line
on stdout is its result as JSON, on stderr it says how far it is.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from backupd.lab.site import LabSite, guest_site
from backupd.mysql.session import Login, Session
from backupd.vocabulary.records import Check
from tests.bench import consistency
from tests.bench.evidence import judged
from tests.bench.replay import State, locked_state

BACKUPS = 2
MORE_LOAD_SECONDS = 3.0  # between a backup's end and the later state that its replay has to reach
_COMMAND_SECONDS = 300.0

# The gate as it is, but in seconds.
_QUICK_GATE = """
[jobs.nightly.settle]
probe = true
duty = 0.5
baseline_windows = 2
"""


@dataclass(frozen=True, slots=True)
class MatrixCellResult:
    """What one machine has to say. `wrong` is empty when everything was right."""

    version: str  # the server's, as it says itself
    backups: int = 0  # good ones, of two
    drills: int = 0  # proven ones
    proofs: int = 0  # backups of which every piece of evidence was right
    wrong: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> "MatrixCellResult":
        """What `to_json` wrote."""
        raw = json.loads(text)
        return cls(**{**raw, "wrong": tuple(raw["wrong"])})

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @property
    def right(self) -> bool:
        """Whether everything was done, and nothing was wrong."""
        return not self.wrong and (self.backups, self.drills, self.proofs) == (BACKUPS,) * 3


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup, and what the server held some seconds later."""

    run_id: str
    later: State


def main() -> int:
    """Do it all and print the result; 0 when everything was right."""
    site = guest_site()
    with site.configuration.open("a", encoding="utf-8") as file:
        file.write(_QUICK_GATE)
    login = Login("root", socket=site.socket)
    with closing(Session.open(login)) as session:
        version = session.value("SELECT VERSION()") or ""
        wrong: list[str] = []
        with consistency.workload(login):
            taken = list(_backups(session, wrong))
            drills = [_typed("drill", one.run_id, "--json", wrong=wrong) is not None for one in taken]
            proofs = [not _told(one.run_id, _evidence(site, one), wrong) for one in taken]
        _told("the server itself", consistency.check(session), wrong)
    result = MatrixCellResult(version, len(taken), sum(drills), sum(proofs), tuple(wrong))
    sys.stdout.write(f"{result.to_json()}\n")
    return 0 if result.right else 1


def _backups(session: Session, wrong: list[str]) -> Iterator[Taken]:
    for _ in range(BACKUPS):
        told = _typed("run", "nightly", "--json", wrong=wrong)
        time.sleep(MORE_LOAD_SECONDS)
        if told is not None:
            yield Taken(json.loads(told)["run_id"], locked_state(session))


def _evidence(site: LabSite, one: Taken) -> tuple[Check, ...]:
    _say(f"evidence of {one.run_id}")
    return judged(one.run_id, site.state / f"evidence-{one.run_id}", site.datadir, one.later)


def _told(subject: str, checks: Sequence[Check], wrong: list[str]) -> list[str]:
    """What was not right of it, added to `wrong`."""
    found = [
        f"{subject}: {check.name}: expected {check.expected}, found {check.found}" for check in checks if not check.ok
    ]
    wrong += found
    return found


def _typed(*words: str, wrong: list[str]) -> str | None:
    """What a command printed; None when it did not end with 0, which is then told in `wrong`."""
    began = time.monotonic()
    done = subprocess.run(["backupd", *words], capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
    sys.stderr.write(done.stderr)
    _say(f"backupd {' '.join(words)}: status {done.returncode} after {time.monotonic() - began:.1f} s")
    if done.returncode == 0:
        return done.stdout
    wrong.append(f"backupd {words[0]}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return None


def _say(what: str) -> None:
    sys.stderr.write(f"cell: {what}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
