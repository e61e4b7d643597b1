"""Faults one after the other, in a lab's machine: `python -m tests.fire.inside --out FOLDER --seeds 0:20`.

Each has its line of JSON in FOLDER/faults.jsonl as soon as it was judged, so that what ends a machine loses one fault
at the most. A machine in which `recover` failed is given up: so it would after every later fault.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.fire import foreign, inventory, world
from tests.fire.choosing import Case, Situation, chosen, every
from tests.fire.commands import Commands, children, load
from tests.fire.foreign import Foreign
from tests.fire.planted import PLANTS
from tests.fire.points import Fault, How
from tests.fire.recording import Points, recorded
from tests.fire.trying import Machine, tried
from tests.fire.world import COMMANDS, SHARES, SITE
from tests.lab.inside.host import tool, until

RESULTS = "faults.jsonl"
_ACCOUNTS = (
    f"CREATE USER IF NOT EXISTS {inventory.ACCOUNT}@localhost; GRANT ALL ON *.* TO {inventory.ACCOUNT}@localhost;"
    " GRANT SUPER, REPLICATION SLAVE ADMIN,"
    " REPLICATION SLAVE ON *.* TO backupd@localhost"  # table locks, a preflush; a replica's applier; a receiver
)


@contextmanager
def machine_at_hand(
    out: Path, luck: random.Random, plant: str | None = None, *, recording: bool = True
) -> Iterator[tuple[Machine, Points]]:
    """A machine with good backups in it and foreign things beside them; with `recording` the points of every command.

    OUT keeps what was recorded for the next machine.
    """
    tool("mariadb", f"--execute={_ACCOUNTS}")
    with ExitStack() as owed:
        made = owed.enter_context(world.made(SITE.state / "fire"))
        beats = SITE.runtime / "beats"
        words = [sys.executable, "-m", "tests.fire.beating", str(SITE.socket), str(beats)]
        owed.callback(owed.enter_context(subprocess.Popen(words)).kill)
        until(lambda: beats.exists() and bool(beats.read_text()))
        scratch = SITE.runtime / "fire"
        scratch.mkdir()
        commands = Commands(scratch, made.configuration, others=children())
        nobody = Foreign((), (), {}, (), (), (), ())
        machine = Machine(made, commands, inventory.Server.at_hand(), nobody, beats)
        load(_modules(out))
        before = frozenset(machine.server.variables())
        points = recorded(machine, out) if recording else {}
        if not recording:
            machine.taken()
        machine.server.pass_over_what_changes(before)
        [owner] = {path.name for root in made.targets.values() for path in root.glob("*-*")}
        machine.others = owed.enter_context(foreign.planted(made, luck, owner))
        machine.commands = Commands(scratch, made.configuration, PLANTS[plant] if plant else None, children())
        machine.acknowledged = machine.good()
        yield machine, points


def _modules(out: Path) -> Sequence[str]:
    file = out / "modules"
    return file.read_text().splitlines() if file.exists() else ()


def _cases(asked: argparse.Namespace, points: Points) -> Iterator[Case]:
    if asked.fault is not None:
        yield _named(asked.command, asked.fault, asked.died, asked.death)
        return
    if asked.every is not None:
        yield from every(points, frozenset(map(How, asked.every.split(","))), asked.names)
        return
    for seed in asked.seeds:
        yield chosen(seed, points, SHARES)


def _named(command: str, fault: str, died: str = "", death: str = "") -> Case:
    return Case(-1, Situation(command, died, Fault.parse(death) if death else None), Fault.parse(fault))


def main(words: Sequence[str]) -> int:
    """0: all were tried, or the time was over, or the machine had to be given up; the results tell the rest."""
    parser = argparse.ArgumentParser(prog="python -m tests.fire.inside")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=lambda text: range(*map(int, text.split(":"))), default=range(0))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--command", choices=sorted(COMMANDS), default="run")
    parser.add_argument("--fault")
    parser.add_argument("--death", default="")
    parser.add_argument("--died", default="")
    parser.add_argument("--every")
    parser.add_argument("--names", default="")
    asked = parser.parse_args(words)
    began = time.monotonic()
    asked.out.mkdir(parents=True, exist_ok=True)
    tell: Callable[[str], object] = lambda text: print(text, flush=True)  # noqa: T201, E731 - the machine's output
    with machine_at_hand(asked.out, random.Random(asked.seeds.start), asked.plant, recording=asked.fault is None) as (
        machine,
        points,
    ):
        tell(f"ready after {time.monotonic() - began:.0f} s")
        known = _known(asked.out)
        for case in _cases(asked, points):
            if case.seed in known or (asked.every is not None and str(case.fault) in known):
                continue
            if time.monotonic() - began > asked.seconds:
                break
            result = tried(machine, case)
            with (asked.out / RESULTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            tell(_line(result))
            if result["recover_status"] != 0:
                tell("what is left resists: the rest is tried in a new machine")
                break
    return 0


def _violations(result: Mapping[str, object]) -> Sequence[Mapping[str, str]]:
    found = result["violations"]
    assert isinstance(found, list)
    return found


def _line(result: Mapping[str, object]) -> str:
    told = f"{result['seed']} {result['command']} {result['fault']}: status {result['status']}"
    met = "" if result["fired"] else ", not met"
    broken = "".join(f"\n  {one['kind']}: {one['text']}" for one in _violations(result))
    return f"{told}{met}, {result['machine_seconds']} s{broken}"


def _known(out: Path) -> set[int | str]:
    """Seeds and faults that were tried already."""
    file = out / RESULTS
    if not file.exists():
        return set()
    results = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {one["seed"] for one in results if one["seed"] >= 0} | {one["fault"] for one in results}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
