"""Faults in machines from outside, as many as one likes: `make campaign OF=faults SEED=0 COUNT=1500`.

Knows: that a machine is used for some minutes and then another one is booted, where the results lie, what they sum up
to. A campaign that was interrupted goes on with the seeds that have no result yet; another kernel, or another folder,
is another campaign.
"""

import argparse
import itertools
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backupd.lab.guest import OUT as OUTSIDE
from backupd.lab.options import Kernel, ServerKind
from tests.fire.choosing import failpoints
from tests.fire.inside import RESULTS
from tests.fire.planted import PLANTS
from tests.fire.points import Fault
from tests.fire.recording import points_of

CHECKOUT = Path(__file__).parents[2]
OUT = CHECKOUT / ".cache" / "campaigns"
ROWS = 200
_BOOT_SECONDS = 240.0  # a machine's start, its end, and a recording of every command
_FRUITLESS = 3  # machines in a row without a result


def results(out: Path) -> list[dict[str, Any]]:
    """Every result so far, in the order in which they came."""
    file = out / RESULTS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def told(found: Iterable[Mapping[str, Any]], repeat: str, *, recorded: int) -> str:
    """The totals, then each broken promise with the command that does that again; `repeat` is its beginning.

    `recorded` failpoints are those of which this backupd's faults are chosen.
    """
    met = [one for one in found if one["fired"]]
    broken = [(one, violation) for one in found if one["violations"] for violation in one["violations"]]
    points = {
        (one["command"], Fault.parse(one["fault"]).point.name, Fault.parse(one["fault"]).point.when) for one in met
    }
    held = [one["lock_seconds"] for one in met if one["lock_seconds"] is not None]
    hows = Counter(str(Fault.parse(one["fault"]).how) for one in met)
    codes = {one.get("code", "an earlier one") for one in met}
    lines = [
        f"{len(met)} faults at {len(points)} failpoints, {sum(one['locked'] for one in met)} of them under the lock",
        f"recorded failpoints: {recorded}; versions of the code under fire: {len(codes)}",
        f"by kind: {', '.join(f'{how} {count}' for how, count in hows.most_common())}",
        f"longest lock, from its grant to the next acknowledged write: {max(held, default=0.0):.2f} s",
        f"longest stall of a writer: {max((one['stall_seconds'] for one in met), default=0.0):.2f} s",
        f"{sum(one['machine_seconds'] for one in met) / max(1, len(met)):.1f} s of a machine for each",
        f"broken promises: {len(broken)}",
    ]
    for one, violation in broken:
        lines.append(f"  {violation['kind']}: {violation['text']}\n    {again(one, repeat)}")
    return "\n".join(lines)


def again(one: Mapping[str, Any], repeat: str) -> str:
    """The command that has this one fault happen once more."""
    words = [f"COMMAND={one['command']}", f"FAULT={shlex.quote(one['fault'])}"]
    if one["death"] is not None:
        words += [f"DEATH={shlex.quote(one['death'])}", f"DIED={one['died']}"]
    return " ".join([repeat, *words])


def machine_argv(asked: argparse.Namespace, out: Path, seeds: range) -> list[str]:
    """What starts a machine and tries these in it."""
    lab = [
        *("--rows", str(ROWS), "--load", asked.load, "--disks", "ssd", "--server", asked.server),
        *("--kernel", asked.kernel, "--out", str(out)),
        *("--deadline", str(int(asked.seconds + _BOOT_SECONDS))),
    ]
    inside = ["--out", str(OUTSIDE), "--seeds", f"{seeds.start}:{seeds.stop}", "--seconds", str(asked.seconds)]
    inside += [
        word
        for name in ("plant", "fault", "death", "every", "names")
        if (value := getattr(asked, name))
        for word in (f"--{name}", value)
    ]
    inside += ["--command", asked.command, "--died", asked.died]
    backupd = str(Path(sys.executable).with_name("backupd"))
    command = ["env", f"--chdir={CHECKOUT}", "python", "-m", "tests.fire.inside", *inside]
    return [*asked.beside, backupd, "lab", "run", *lab, "--", *command]


def run(asked: argparse.Namespace) -> int:
    """Machines until everything has its result; 1 where a promise was broken, 2 where the machines give no results."""
    name = f"faults-{asked.kernel}-{asked.server}" + (f"-{asked.plant}" if asked.plant else "")
    out: Path = asked.out or OUT / name
    out.mkdir(parents=True, exist_ok=True)
    seeds, fruitless, before = range(asked.seed, asked.seed + asked.count), 0, results(out)
    known = len(before)
    for machines in itertools.count(1):
        left = set(seeds) - {one["seed"] for one in before}
        if asked.fault is None and asked.every is None and not left:
            break
        subprocess.run(machine_argv(asked, out, range(min(left, default=0), seeds.stop)), check=False)
        after = results(out)
        fruitless, before = (fruitless + 1 if len(after) == len(before) else 0), after
        if asked.fault is not None or machines == asked.machines or fruitless == (1 if asked.every else _FRUITLESS):
            break
    if asked.fault is not None:
        found = before[known:]
    elif asked.every is not None:
        found = [one for one in before if one["seed"] < 0]
    else:
        found = [one for one in before if one["seed"] in seeds]
    repeat = f"make campaign OF=faults KERNEL={asked.kernel}" + (f" PLANT={asked.plant}" if asked.plant else "")
    sys.stdout.write(told(found, repeat, recorded=len(failpoints(points_of(out)))) + "\n")
    if not found or fruitless == _FRUITLESS:
        return 2
    return 1 if any(one["violations"] for one in found) else 0


def main(words: Sequence[str]) -> int:
    """See `run`."""
    parser = argparse.ArgumentParser(prog="python -m tests.fire.campaign")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--kernel", default=Kernel.UML.value, choices=[Kernel.UML.value, Kernel.UML_INSTALLED.value])
    parser.add_argument("--server", default=ServerKind.MARIADB_10.value, choices=[kind.value for kind in ServerKind])
    parser.add_argument(
        "--load", default="none", help="of the server beside it: none, closed, or transactions a second"
    )
    parser.add_argument("--beside", type=shlex.split, default=[], help="words before the machine's command: nice -n 19")
    parser.add_argument("--seconds", type=float, default=300.0, help="that each machine is used for")
    parser.add_argument("--machines", type=int, default=0, help="at most; 0: as many as it takes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a fault of backupd itself, which has to be found")
    parser.add_argument("--fault", help="only this one")
    parser.add_argument("--command", default="run")
    parser.add_argument("--death", default="", help="of the command before a recovery")
    parser.add_argument("--died", default="", help="which command that was")
    parser.add_argument("--every", help="no seeds: these kinds of faults at every point that has them: hang,kill")
    parser.add_argument("--names", default="", help="with --every: only at points whose name begins so: 'file write'")
    return run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
