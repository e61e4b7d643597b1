"""The points of every command, from runs of them without a fault.

Knows: what each command needs before it, and that a recovery comes by other doors for every way in which a run died: it
is recorded after each of several deaths, and each of these is a situation of its own.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import backupd
from backupd.vocabulary.errors import ExitStatus
from tests.fire.choosing import Situation
from tests.fire.points import Fault, How, Passed, Point, When, from_lines, parsed
from tests.fire.world import COMMANDS, STOPPED_AFTER, TAKES

if TYPE_CHECKING:
    from tests.fire.trying import Machine

_DEATHS = 5  # of each command that takes a backup, from its beginning to its end
_DEATHS_OF_OTHERS = {"copy": 2, "prune": 2, "restore": 2, "drill": 2, "clone": 2, "receive": 2}

Points = dict[Situation, list[Passed]]


@dataclass(frozen=True, slots=True)
class _Records:
    """The files, one for each situation."""

    folder: Path

    def read(self) -> Points:
        """What was recorded by now."""
        found: Points = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            told = next(iter(parsed(lines)))["situation"]
            found[Situation(told[0], told[1], told[2] and Fault.parse(told[2]))] = merged(from_lines(lines))
        return found

    def keep(self, situation: Situation, record: Path) -> None:
        """One more."""
        death = str(situation.death) if situation.death is not None else None
        head = json.dumps({"situation": [situation.command, situation.died, death]})
        names = (self.folder / f"{situation.command}-{number:02}.jsonl" for number in count())
        file = next(name for name in names if not name.exists())
        file.write_text(f"{head}\n{record.read_text(encoding='utf-8')}", encoding="utf-8")


def code() -> str:
    """Which backupd this is, by its modules: another one has other points."""
    package = Path(backupd.__file__).parent
    found = hashlib.sha256()
    for module in sorted(package.rglob("*.py")):
        found.update(f"{module.relative_to(package)}\0".encode() + module.read_bytes())
    return found.hexdigest()[:12]


def points_of(out: Path) -> Points:
    """What OUT has by now of this backupd's points, by situation."""
    return _Records(out / f"points-{code()}").read()


def recorded(machine: "Machine", out: Path) -> Points:
    """By situation. What OUT has of this backupd already is not recorded again; backups that others need are taken."""
    records = _Records(out / f"points-{code()}")
    records.folder.mkdir(exist_ok=True)
    machine.taken()  # the very first run also makes the catalogue, a key, folders
    for command in sorted(TAKES):
        machine.taken(command)
    for command in sorted(COMMANDS, key=lambda name: name == "recover"):  # it needs the points of all others
        situations = [Situation(command)] if command != "recover" else _deaths(records.read())
        for situation in situations:
            if situation not in records.read():
                records.keep(situation, _record(machine, situation, out / "modules"))
    return records.read()


def merged(passed: Iterable[Passed]) -> list[Passed]:
    """Of several records: each point once."""
    return list({one.point: one for one in passed}.values())


def _record(machine: "Machine", situation: Situation, modules: Path) -> Path:
    """The command was run in that situation; the file is overwritten by the next record."""
    command, record = situation.command, machine.commands.folder / "record"
    kept = machine.taken() if command not in TAKES else ""
    record.unlink(missing_ok=True)
    words = machine.words(command, machine.next_id(), kept)
    with machine.replicating(command, situation.died):
        machine.die(situation)
        outcome = machine.commands.done(
            words,
            record=record,
            modules=modules,
            configuration=machine.configuration(command),
            stopped_after=STOPPED_AFTER.get(command),
        )
    if outcome.ended.status not in (0, 3, ExitStatus.TERMINATED if command in STOPPED_AFTER else 0):
        raise RuntimeError(f"{' '.join(words)} without a fault ended with {outcome.ended}")
    return record


def _deaths(points: Points) -> Iterator[Situation]:
    """In runs of every kind and in other commands, early and late: doors count once, however often they are passed."""
    for command, deaths in sorted({**dict.fromkeys(TAKES, _DEATHS), **_DEATHS_OF_OTHERS}.items()):
        firsts = _firsts(points[Situation(command)])
        for number in range(deaths):
            point = firsts[int((number + 0.9) * len(firsts) / deaths)]
            yield Situation("recover", command, Fault(How.DIE, point))


def _firsts(passed: Sequence[Passed]) -> list[Point]:
    return [one.point for one in passed if one.point.ordinal == 1 and one.point.when is When.BEFORE]
