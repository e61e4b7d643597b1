"""Power cuts by the hundred: `python -m tests.power.campaign SEED COUNT --out DIR [--kernel KERNEL] [--plant FAULT]`.

Each recording of a machine at work serves for some cuts; where a campaign was ended it goes on with the same command,
by what `DIR` has. Prints each violation with the command that repeats it, and totals; the exit status is 1 where there
is one, and 2 where the machine failed rather than backupd.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.power.planted import FAULTS

CHECKOUT = Path(__file__).parents[2]
CUTS_A_RECORDING = 48
_MACHINE_SECONDS = 400.0  # after which it begins no further cut
_DEADLINE_SECONDS = 600
_TRIES = 2  # of a machine that looks at nothing
_KERNELS = {"uml": ("uml",), "uml-installed": ("uml-installed",), "both": ("uml", "uml-installed")}


@dataclass(frozen=True, slots=True)
class Part:
    """Cuts of one recording, on one kernel."""

    folder: Path
    kernel: str
    seed: str
    indexes: tuple[int, ...]

    def results(self) -> list[dict[str, Any]]:
        """Of the cuts that were looked at, each once."""
        file = self.folder / "results.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found = {result["index"]: result for result in map(json.loads, lines)}
        return [found[index] for index in self.indexes if index in found]

    def missing(self) -> list[int]:
        """The cuts that nobody has looked at."""
        done = {result["index"] for result in self.results()}
        return [index for index in self.indexes if index not in done]

    def argv(self, missing: Sequence[int], plant: str) -> list[str]:
        """The machine that looks at them, as far as it comes."""
        machine = ["--rows", "1000", "--load", "none", "--disks", "ssd", "--kernel", self.kernel]
        machine += ["--out", str(self.folder), "--deadline", str(_DEADLINE_SECONDS)]
        words = ["--seed", self.seed, "--cuts", ",".join(map(str, missing)), "--seconds", str(_MACHINE_SECONDS)]
        inside = [str(Path(sys.executable)), "-m", "tests.power.inside", *words, *(["--plant", plant] if plant else [])]
        backupd = str(Path(sys.executable).with_name("backupd"))
        return [backupd, "lab", "run", *machine, "--", "env", f"--chdir={CHECKOUT}", *inside]


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.power.campaign")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, help="cuts on each kernel")
    parser.add_argument("--out", type=Path, required=True, help="what a campaign goes on by")
    parser.add_argument("--kernel", choices=_KERNELS, default="uml")
    parser.add_argument("--plant", choices=FAULTS, default="", help="a fault that is to be found")
    parser.add_argument("--only", type=int, help="this cut alone, again")
    asked = parser.parse_args(words)
    every = list(parts(asked.out, asked.seed, asked.count, _KERNELS[asked.kernel], only=asked.only))
    failed = [part for part in every if not _work(part, asked.plant, again=asked.only is not None)]
    results = [(part, result) for part in every for result in part.results()]
    for part, result in results:
        _tell(part, result, asked)
    sys.stdout.write(totals([result for _, result in results]))
    for part in failed:
        sys.stdout.write(f"the machine failed: see {part.folder}/machine.log\n")
    return 2 if failed else int(any(result["violations"] for _, result in results))


def parts(out: Path, seed: int, count: int, kernels: Sequence[str], *, only: int | None = None) -> Iterator[Part]:
    """What a campaign consists of."""
    for kernel in kernels:
        for first in range(0, count, CUTS_A_RECORDING):
            indexes = range(first, min(first + CUTS_A_RECORDING, count))
            chosen = tuple(index for index in indexes if only in (None, index))
            if chosen:
                name = f"{seed}-{first // CUTS_A_RECORDING}"
                yield Part(out.resolve() / kernel / name, kernel, name, chosen)


def _work(part: Part, plant: str, *, again: bool) -> bool:
    """Whether each of its cuts was looked at. A recording of which nothing is wrong is removed then: it is large."""
    part.folder.mkdir(parents=True, exist_ok=True)
    if again:
        _forget(part)
    tries = 0
    while (missing := part.missing()) and tries < _TRIES:
        with (part.folder / "machine.log").open("ab") as log:
            subprocess.run(part.argv(missing, plant), stdout=log, stderr=log, check=False)
        tries = 0 if len(part.missing()) < len(missing) else tries + 1
        sys.stdout.write(f"{part.kernel} {part.seed}: {len(part.results())} of {len(part.indexes)} cuts\n")
        sys.stdout.flush()
    if not again and not part.missing() and not any(result["violations"] for result in part.results()):
        for large in ("recording", "after-the-cut", "recorded"):
            (part.folder / large).unlink(missing_ok=True)
        shutil.rmtree(part.folder / "backups", ignore_errors=True)
    return not part.missing()


def _forget(part: Part) -> None:
    file = part.folder / "results.jsonl"
    if file.exists():
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line for line in lines if json.loads(line)["index"] not in part.indexes))


def _tell(part: Part, result: Mapping[str, Any], asked: argparse.Namespace) -> None:
    for violation in result["violations"]:
        where = f"cut {result['index']} of {result['seed']} on {part.kernel}, in {result['phase']} ({result['mode']})"
        plant = f" --plant {asked.plant}" if asked.plant else ""
        command = f"python -m tests.power.campaign {asked.seed} {asked.count} --out {asked.out} --kernel {part.kernel}"
        sys.stdout.write(f"{where}: {violation}\n  again: {command}{plant} --only {result['index']}\n")


def totals(results: Sequence[Mapping[str, Any]]) -> str:
    """So many cuts by phase and by what the caches got out, and what was broken."""
    phases = Counter(result["phase"] for result in results)
    modes = Counter(result["mode"] for result in results)
    broken = Counter(violation.partition(":")[0] for result in results for violation in result["violations"])
    late = sum(bool(result["late"]) for result in results)
    unfinished = sum(bool(result["unfinished"]) for result in results)
    lost = sum(result["lost_bytes"] for result in results)
    seconds = sum(result["seconds"] for result in results) / max(1, len(results))
    lines = [
        f"{len(results)} power cuts, {seconds:.1f} s each; {lost / (1 << 20):.1f} MiB of writes forgotten",
        "in " + ", ".join(f"{phase} {count}" for phase, count in sorted(phases.items())),
        "caches got out " + ", ".join(f"{mode} {count}" for mode, count in sorted(modes.items())),
        f"in {late} of them `recover` had to be typed again two minutes later, for what was on the target",
        f"in {unfinished} of them an unfinished segment or owner record waits for later ones",
        "violations: " + (", ".join(f"{name} {count}" for name, count in sorted(broken.items())) or "none"),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
