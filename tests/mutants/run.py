"""The code itself is mutated, and the tests have to notice: `make mutants`, or `make mutants ONLY=retention`.

Prints what was killed, module by module, and each mutant that is alive and unexplained. Fails where less than
nine in ten of a module's mutants were killed, where a survivor has no reason in `survivors.toml`, and where a reason
there is of a mutant that is none.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence

from tests.mutants.modules import MUTATED, Mutated
from tests.mutants.survivors import FILE, Survivor, explained, unexplained
from tests.mutants.tool import Change, Mutant, changes_of, mutants_of

LEAST = 0.9  # of a module's mutants


def main(words: Sequence[str]) -> int:
    """The table; 1 where a module or a survivor is not as it has to be."""
    asked = _parser().parse_args(words)
    chosen = [mutated for mutated in MUTATED if mutated.name in asked.only.split() or not asked.only]
    if not chosen:
        sys.stdout.write(f"{asked.only}: there is only {', '.join(mutated.name for mutated in MUTATED)}\n")
        return 2
    entries = explained(FILE.read_text())
    rows, faults = [], []
    for mutated in chosen:
        began = time.monotonic()
        found = mutants_of(mutated, side_by_side=asked.side_by_side, survivors=asked.survivors)
        alive = changes_of(mutated, [mutant for mutant in found if not mutant.is_dead])
        rows += [row(module, found) for module in mutated.modules]
        faults += judged(mutated, found, alive, entries)
        sys.stdout.write(f"{mutated.name}: {len(found)} mutants in {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()
    sys.stdout.writelines(f"{line}\n" for line in (*table(rows), *faults))
    return 1 if faults else 0


def judged(
    mutated: Mutated, found: Sequence[Mutant], alive: dict[Mutant, Change], entries: Sequence[Survivor]
) -> list[str]:
    """What is not as it has to be, in lines for a person."""
    without, stale = unexplained(alive, [entry for entry in entries if entry.module in mutated.modules])
    return [
        *(
            f"{module}: less than {LEAST:.0%} of its mutants were killed"
            for module in mutated.modules
            if killed_share(module, found) < LEAST
        ),
        *(
            f"{mutant.module}: {mutant.function}: survived ({mutant.key.rpartition('_')[2]}):\n"
            f"  - {alive[mutant].was}\n  + {alive[mutant].now}"
            for mutant in without
        ),
        *(f"{FILE.name}: no such survivor: {entry.module}: {entry.function}: {entry.change.now}" for entry in stale),
    ]


def killed_share(module: str, found: Iterable[Mutant]) -> float:
    """0 to 1, of all mutants of this module."""
    dead = [mutant.is_dead for mutant in found if mutant.module == module]
    return sum(dead) / len(dead) if dead else 0.0


def row(module: str, found: Iterable[Mutant]) -> tuple[str, ...]:
    """Of the table."""
    of_it = [mutant for mutant in found if mutant.module == module]
    alive = sum(not mutant.is_dead for mutant in of_it)
    late = sum(mutant.status == "timeout" for mutant in of_it)
    share = f"{killed_share(module, of_it):.1%}"
    return (module, str(len(of_it)), str(len(of_it) - alive), str(late), str(alive), share)


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """As the documentation has it."""
    head = ("module", "mutants", "killed", "of them timed out", "survived", "killed")
    return [
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(cells) + " |" for cells in rows),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help=f"some of {', '.join(mutated.name for mutated in MUTATED)}")
    parser.add_argument("--survivors", action="store_true", help="try again only those that survived last time")
    parser.add_argument("--side-by-side", type=int, default=os.cpu_count(), help="how many mutants at a time")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
