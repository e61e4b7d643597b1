"""Which branches the tests take: `make coverage`.

Prints the share of each area's branches, and with `--missing` each function that has one which nobody took. Fails where
an area is below its limit, where an exception leaves nothing out, and where a test failed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tests.branches.areas import AREAS, TESTS, WALKS
from tests.branches.counting import FILE, Counted, counted, exempted, share, without
from tests.docs.places import ROOT
from tests.share import VARIABLE, Share

LEAST = 0.95  # of an area's branches

_PASSED, _NONE_CHOSEN = 0, 5  # pytest's statuses
_SCRATCH = ROOT / ".cache" / "branches"
_REPORT = _SCRATCH / "report.json"
_SETTINGS = """\
[run]
branch = true
parallel = true
source_pkgs = backupd
relative_files = true
data_file = {data}
patch =
    subprocess
    _exit
disable_warnings =
    no-data-collected
    module-not-measured
    module-not-imported
"""


def main(words: Sequence[str]) -> int:
    """The table; 1 where something is not as it has to be."""
    asked = _parser().parse_args(words)
    failed = not asked.again and measure(asked.tests or TESTS, workers=asked.workers, anew=not asked.add)
    found = list(counted(json.loads(_REPORT.read_text())))
    kept, stale = without(found, exempted(FILE.read_text()))
    faults = [f"{FILE.name}: leaves nothing out: {one.file}: {one.function}" for one in stale]
    faults += [
        f"{area.name}: less than {LEAST:.0%} of its branches were taken"
        for area in AREAS
        if share(one for one in kept if area.has(one.file)) < LEAST
    ]
    faults += ["a test failed: see above"] if failed else []
    sys.stdout.writelines(f"{line}\n" for line in (*table(found, kept), *faults))
    if asked.missing:
        sys.stdout.writelines(f"{line}\n" for line in missing(kept))
    return 1 if faults else 0


def measure(tests: Sequence[str], *, workers: int, anew: bool) -> bool:
    """Run the tests and leave coverage.py's report, of what ran before too unless `anew`; whether a test failed."""
    _SCRATCH.mkdir(parents=True, exist_ok=True)
    for old in _SCRATCH.glob("data*") if anew else ():
        old.unlink()
    settings = _SCRATCH / "settings"
    settings.write_text(_SETTINGS.format(data=_SCRATCH / "data"))
    coverage = [sys.executable, "-m", "coverage"]
    rc = f"--rcfile={settings}"
    pytest = [*coverage, "run", rc, "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-q", "-m"]
    few = {**os.environ, VARIABLE: Share.QUICK}  # of a property's examples: further ones take the same branches
    ended = [
        subprocess.run([*pytest, marked, *chosen], cwd=ROOT, env=few, check=False).returncode
        for marked, chosen in (("not exhaustive", tests), ("exhaustive", walks_of(tests)))
        if chosen
    ]
    counted_files = ",".join(f"{within}*" for area in AREAS for within in area.within)
    subprocess.run([*coverage, "combine", "--quiet", "--keep", rc], cwd=ROOT, check=True)
    subprocess.run(
        [*coverage, "json", "--quiet", "--keep-combined", rc, f"--include={counted_files}", "-o", str(_REPORT)],
        cwd=ROOT,
        check=True,
    )
    return _PASSED not in ended or not {_PASSED, _NONE_CHOSEN}.issuperset(ended)


def walks_of(tests: Sequence[str]) -> list[str]:
    """Those of the long modules that are among these."""
    return [walk for walk in WALKS if walk.startswith(tuple(tests))]


def table(found: Sequence[Counted], kept: Sequence[Counted]) -> list[str]:
    """As the documentation has it."""
    rows = []
    for area in AREAS:
        all_of_it = [one for one in found if area.has(one.file)]
        counts = [one for one in kept if area.has(one.file)]
        cells = (
            area.name,
            str(sum(one.branches for one in all_of_it)),
            f"{share(all_of_it):.1%}",
            str(len(all_of_it) - len(counts)),
            f"{share(counts):.1%}",
        )
        rows.append("| " + " | ".join(cells) + " |")
    head = ("area", "branches", "taken", "functions excepted", "taken of the others")
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *rows]


def missing(kept: Sequence[Counted]) -> list[str]:
    """Each function that has a branch or a line which nobody took, by area and file."""
    return [
        f"{one.file}: {one.function or '(module)'}: {one.taken}/{one.branches}"
        f" branches {' '.join(f'{begin}→{end}' for begin, end in one.missing)} lines {' '.join(map(str, one.lines))}"
        for area in AREAS
        for one in sorted(kept, key=lambda one: (one.file, one.function))
        if area.has(one.file) and not one.is_whole
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make coverage", description=__doc__)
    parser.add_argument("--missing", action="store_true", help="name each function with a branch that nobody took")
    parser.add_argument("--again", action="store_true", help="judge the report of the last run")
    parser.add_argument("--add", action="store_true", help="count what earlier runs took as well")
    parser.add_argument("tests", nargs="*", help="run these tests instead of all, a part at a time with --add")
    parser.add_argument("--workers", type=int, default=3, help="how many tests at a time")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
