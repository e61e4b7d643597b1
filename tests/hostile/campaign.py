"""Every attack with every command, by everybody who may have made it: `python -m tests.hostile.campaign SEED [PART]`.

The corpus of another seed is another one. `PART` is the beginning of the names of those that are wanted.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.hostile.attacks import EVERY, Attack, Attacker
from tests.hostile.corpus import SEED, corpus
from tests.hostile.ground import Site, Sound, made_once
from tests.hostile.runner import Runner, runner


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(seed: int = SEED, part: str = "") -> int:
    """How many attacks have succeeded, each of which is told."""
    wrong = 0
    wanted = [attack for attack in corpus(seed) if attack.name.startswith(part)]
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, runner() as warm:
        sound = made_once(Path(folder) / "sound")
        for attack in wanted:
            for said in _tried(attack, sound, warm):
                wrong += 1
                tell(said)
    tell(
        f"seed {seed}: {wrong} faults of {len(wanted)} attacks by {len(Attacker)} attackers, with {len(EVERY)} commands"
    )
    return wrong


def _tried(attack: Attack, sound: Sound, warm: Runner) -> Iterator[str]:
    for attacker in Attacker:
        with tempfile.TemporaryDirectory(prefix="hostile-", dir="/dev/shm") as base:
            site = Site(Path(base), sound, attack, attacker)
            site.lay()
            for command in sorted(EVERY):
                site.run(warm, command)
            yield from (f"{attack} ({attacker}): {fault}" for fault in site.faults)


if __name__ == "__main__":
    seed, *parts = sys.argv[1:] or [str(SEED)]
    sys.exit(bool(main(int(seed), *parts)))
