"""A simulated fleet, drawn from a seed: hosts in clusters, targets with slots, how long each backup takes, what fails.

One in twelve runs fails, one start in thirty is not heard of by who asked for it, one host in fifteen is away for a
while, and one cluster in six has a member that is too far behind. Seconds are those of the test's own clock: an hour of
a real night is about twenty of them.
"""

import json
import random
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from backupd.vocabulary.fleet import OwedBackup

NIGHT = date(2026, 11, 26)
_FAILING, _UNHEARD, _AWAY, _BEHIND, _TWO_TARGETS = 1 / 12, 1 / 30, 1 / 15, 1 / 6, 1 / 10


@dataclass(frozen=True, slots=True)
class Size:
    """How large a fleet, and how long its backups take on average, in seconds."""

    clusters: int
    hosts: int
    slots: tuple[int, ...]
    mean_seconds: float


SHORT = Size(clusters=30, hosts=88, slots=(2, 3, 4, 5), mean_seconds=5.0)
FULL = Size(clusters=170, hosts=500, slots=(2, 3, 4, 5, 7, 8), mean_seconds=40.0)


@dataclass(frozen=True, slots=True)
class World:
    """The folder that the simulated hosts share, and what the night owes."""

    folder: Path
    owed: tuple[OwedBackup, ...]
    slots: dict[str, int]

    def begin(self) -> None:
        """The night begins: hosts are away from then on, as they were drawn."""
        (self.folder / "began").write_text(str(time.time()))

    def runs(self) -> "dict[str, dict[str, object]]":
        """All that any host has started, by id."""
        found = [line for file in self.folder.glob("*.runs") for line in file.read_text().splitlines()]
        return dict(json.loads(line) for line in found)

    def violations(self) -> list[list[str]]:
        """What hosts saw that must never happen."""
        file = self.folder / "violations"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def lower_bound(self) -> float:
        """Seconds in which these runs could be done at the very least: by each target's slots, and by each cluster."""
        of_target = dict.fromkeys(self.slots, 0.0)
        of_cluster: dict[str, float] = {}
        for file in self.folder.glob("*.runs"):
            for line in file.read_text().splitlines():
                _, run = json.loads(line)
                seconds = run["ends"] - run["begun"]
                of_cluster[file.stem] = of_cluster.get(file.stem, 0.0) + seconds
                for target in run["targets"]:
                    of_target[target] += seconds
        return max(*(of_target[name] / self.slots[name] for name in self.slots), *of_cluster.values())


def drawn(folder: Path, size: Size, seed: int) -> World:
    """The fleet of this seed."""
    dice = random.Random(seed)
    slots = {f"nas{number}": count for number, count in enumerate(size.slots, 1)}
    (folder / "hosts").mkdir(parents=True)
    backups = []
    for number, members in enumerate(_members(dice, size)):
        cluster = f"c{number:03}"
        targets = _targets(dice, slots)
        seconds = min(max(dice.lognormvariate(0.0, 0.6), 0.3), 4.0) * size.mean_seconds / 1.2
        names = tuple(f"{cluster}-db{member}" for member in range(1, members + 1))
        behind = names[-1] if members > 2 and dice.random() < _BEHIND else ""
        for name in names:
            role = "source" if name == names[0] and members > 1 else "replica"
            facts = {
                **{"seed": seed, "cluster": cluster, "targets": targets, "slots": slots, "seconds": seconds},
                **{"role": role, "lag": None if role == "source" else round(dice.uniform(0, 20), 1)},
                **{"failing": _FAILING, "unheard": _UNHEARD, "away": _away(dice, size)},
            }
            if name == behind:
                facts["lag"] = 4000.0
            (folder / "hosts" / f"{name}.json").write_text(json.dumps(facts))
        backups.append((cluster, names, targets, seconds))
    return World(folder, _owed(backups), slots)


def _members(dice: random.Random, size: Size) -> list[int]:
    """How many each cluster has: so many hosts in all."""
    counts = [2] * size.clusters
    for _ in range(size.hosts - 2 * size.clusters):
        counts[dice.choice([at for at, count in enumerate(counts) if count < 5])] += 1
    return counts


def _targets(dice: random.Random, slots: dict[str, int]) -> list[str]:
    """More on those that take more."""
    first = dice.choices(list(slots), list(slots.values()))[0]
    second = dice.choice([name for name in slots if name != first])
    return sorted({first, second}) if dice.random() < _TWO_TARGETS else [first]


def _away(dice: random.Random, size: Size) -> list[tuple[float, float]]:
    """When it does not answer, in seconds from the night's beginning."""
    if dice.random() >= _AWAY:
        return []
    begin = dice.uniform(0, 3 * size.mean_seconds)
    return [(begin, begin + dice.uniform(0.2, 1.0) * size.mean_seconds)]


def _owed(backups: "list[tuple[str, tuple[str, ...], list[str], float]]") -> tuple[OwedBackup, ...]:
    now = datetime.now(UTC)
    ordered = sorted(backups, key=lambda one: -one[3])
    return tuple(
        OwedBackup(
            *(NIGHT, cluster, "nightly", names, tuple(targets), now, now + timedelta(hours=3), priority),
            expected_seconds=seconds,
            expected_bytes=1 << 30,
        )
        for priority, (cluster, names, targets, seconds) in enumerate(ordered, 1)
    )
