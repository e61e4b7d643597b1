"""A program that is started as `backupd` is, and whose runs end when a test says so.

    python -m tests.fakes.stand_in CATALOGUE GATE run JOB --run-id ID

It makes its row as a run does, waits for a file named GATE, and fails then as a run without a server does; where the
file says "good", it ends well.
"""

import sys
import time
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.storage import Backup


def main(catalogue: Path, gate: Path, job: str, run_id: str) -> None:
    """Be a run."""
    with Catalogue.open(catalogue) as opened, opened.open_run(job, "db1", run_id=run_id) as run:
        while not gate.exists() and gate.parent.exists():  # nor longer than its test
            time.sleep(0.02)
        if gate.exists() and gate.read_text() == "good":
            run.complete((Backup("vault", "/vault/nightly", 1, 1, 1, "ab" * 32),))
            return
        raise ServerError("the server has gone away")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4], sys.argv[6])
    except ServerError as error:
        sys.exit(error.exit_status)
