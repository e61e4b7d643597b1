"""How soon a command that only reads answers: `make bench-start`, on this host, half a minute.

`backupd history`, `show` and `--help` by turns with a Python that does nothing, over a catalogue of 400 runs. Seconds
are those of the wall clock, and of processors beside them: on a host that does other things as well they say more.

The exit status is 1 where `history` takes longer than its limit.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.many_runs import make_catalogue

ROUNDS = 11
RUNS = 400
HISTORY_SECONDS = 0.35

_CONFIGURATION = """
catalogue.path = "{folder}/catalogue.sqlite"
paths = {{ run = "{folder}/run", staging = "{folder}/staging", log = "{folder}/log" }}
hosts.db = {{ socket = "{folder}/none.sock", user = "backup" }}
targets.vault = {{ type = "directory", path = "{folder}" }}
jobs.nightly = {{ host = "db", targets = ["vault"] }}
"""


def main() -> int:
    """Measure, print, and say whether the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_catalogue(folder / "catalogue.sqlite", RUNS)
        configuration = folder / "backupd.toml"
        configuration.write_text(_CONFIGURATION.format(folder=folder))
        backupd = [sys.executable, "-m", "backupd", "--config", str(configuration)]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "backupd history": [*backupd, "history"],
            "backupd show": [*backupd, "show", "latest:nightly"],
            "backupd --help": [*backupd, "--help"],
        }
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for command, argv in commands.items():
                took[command].append(_timed(argv))
    print(f"{RUNS} runs, {rounds} rounds, {os.cpu_count()} processors")  # noqa: T201
    print("                 seconds: median (from - to)   processors' s   ratio   limit")  # noqa: T201
    nothing = median(wall for wall, _ in took["python -c pass"][1:])
    for command, (_, *times) in took.items():  # the first compiles
        wall, cpu = [one for one, _ in times], [one for _, one in times]
        limit = f"{HISTORY_SECONDS:8.2f}" if command == "backupd history" else ""
        spread = f"{median(wall):10.3f}   ({min(wall):.3f} - {max(wall):.3f})"
        print(f"{command:16} {spread} {median(cpu):12.3f} {median(wall) / nothing:10.1f}{limit}")  # noqa: T201
    return int(median(wall for wall, _ in took["backupd history"][1:]) > HISTORY_SECONDS)


def _timed(argv: list[str]) -> tuple[float, float]:
    """Seconds by the wall clock, and of processors."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
