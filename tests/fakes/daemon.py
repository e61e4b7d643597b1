"""`backupd serve` with runs of a test's own: everything else is what the command does.

    python -m tests.fakes.daemon CONFIGURATION GATE

What is due waits for the file GATE (`stand_in`), or is the command on a host of fakes where GATE is a folder (`typed`).
"""

import logging
import os
import secrets
import sys
from pathlib import Path

from backupd import wiring
from backupd.cli.failure_answers import failure_answers
from backupd.cli.serve import pages_of
from backupd.operations import context
from backupd.service.daemon import DaemonSurroundings, serve
from backupd.service.launch import Detached
from backupd.service.systemd import Notify


def main(path: Path, gate: Path) -> None:
    """Serve until told to stop, with pages where there is a token for them."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    configuration = context.configuration(path)
    here = ("env", f"--chdir={Path.cwd()}", sys.executable, "-m")
    program: tuple[str, ...] = (*here, "tests.fakes.stand_in", str(configuration.catalogue.path), str(gate))
    if gate.is_dir():
        program = (*here, "tests.fakes.typed", str(gate), "--config", str(path))
    given = DaemonSurroundings(
        load=lambda: context.configuration(path),
        launcher=Detached(program, configuration.paths.log),
        notifier=wiring.notifier,
        answers=failure_answers,
        web=pages_of(configuration) if configuration.service.token_file else None,
        new_run_id=lambda: secrets.token_hex(4),
        notify=Notify(os.environ),
    )
    serve(configuration, given)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
