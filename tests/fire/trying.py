"""One fault after another in a machine that is at hand: what is prepared for it, what is seen, and the judgement.

Knows: the order. Refuses to know how a machine comes to be there, and which faults are chosen.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backupd.vocabulary.errors import ExitStatus
from tests.fire import inventory, world
from tests.fire.beating import Beat, held_seconds, longest, noise, parsed
from tests.fire.choosing import Case, Situation
from tests.fire.commands import Commands, Outcome
from tests.fire.foreign import Foreign
from tests.fire.judging import GOOD, Copy, Observed, Row, violations
from tests.fire.recording import code
from tests.fire.world import AFTER_A_DEATH, COMMANDS, JOBS, KEEP_LESS, STOPPED_AFTER, TAKES, World
from tests.lab.inside.host import tool

_BEAT_SECONDS = 10.0
_MOST_BACKUPS = 8
_RECEIVERS = 4  # in turn, until one has caught up; each is given twice as long as the one before, on a busy machine


@dataclass(slots=True)
class Machine:
    """Where faults are tried, and what is known of it."""

    world: World
    commands: Commands
    server: inventory.Server
    others: Foreign
    beats: Path
    code: str = field(default_factory=code)
    count: int = 0
    acknowledged: set[Copy] = field(default_factory=set)

    def taken(self, command: str = "run") -> str:
        """The id of a good backup that was just taken."""
        run_id = self.next_id()
        with self.replicating(command):
            outcome = self.commands.done(self.words(command, run_id))
        if outcome.ended.status not in (0, 3):
            raise RuntimeError(f"a run without a fault ended with {outcome.ended}")
        self.acknowledged = self.good()  # its job's retention came after it
        return run_id

    def next_id(self) -> str:
        """Of a run, which no other has."""
        self.count += 1
        return f"fire-{self.count:05d}"

    def words(self, command: str, run_id: str, kept: str = "") -> tuple[str, ...]:
        """What is typed."""
        named = {"RUN": run_id, "KEPT": kept, "FOLDER": str(self.world.restored / run_id)}
        named["SCRUB"] = str(self.world.scrub)
        return tuple(named.get(word, word) for word in COMMANDS[command])

    def die(self, situation: Situation) -> None:
        """The command that a recovery is to come after has died, where it is one."""
        if situation.death is None:
            return
        kept = max((run_id for run_id, target in self.good() if target == "store"), default="")
        words = self.words(situation.died, self.next_id(), kept)
        self.commands.done(
            words,
            fault=situation.death,
            configuration=self.configuration(situation.died),
            stopped_after=STOPPED_AFTER.get(situation.died),
        )
        self.acknowledged = self.good()

    def configuration(self, command: str) -> Path | None:
        """Where that is another than usual."""
        return self.world.keeping_less if command == "prune" else None

    def good(self) -> set[Copy]:
        """The copies that the catalogue calls good."""
        return {(row.run_id, target) for row in inventory.runs(self.world).values() for target in row.copies}

    @staticmethod
    @contextmanager
    def replicating(*commands: str) -> Iterator[None]:
        """The server is a replica for the length of the block, where one of these commands wants one."""
        if "replica" not in commands:
            yield
            return
        tool("mariadb", f"--execute={world.REPLICATES}")
        try:
            yield
        finally:
            tool("mariadb", f"--execute={world.REPLICATES_NOT}")

    def beaten(self) -> list[Beat]:
        """What the writer felt so far."""
        return parsed(self.beats.read_text(encoding="utf-8"))


def tried(machine: Machine, case: Case) -> dict[str, object]:
    """The fault has happened, `recover` has been called once, and all of it is judged: a result."""
    with machine.replicating(case.situation.command, case.situation.died):
        return _tried(machine, case)


def _tried(machine: Machine, case: Case) -> dict[str, object]:
    began = time.monotonic()
    before = _seen(machine)  # what a run leaves that dies in preparation, `recover` has to clear away too
    kept = _prepared(machine, case)
    acknowledged = frozenset(machine.acknowledged)
    run_id = machine.next_id()
    configuration = machine.configuration(case.situation.command)
    words = machine.words(case.situation.command, run_id, kept)
    stopped_after = STOPPED_AFTER.get(case.situation.command)
    outcome = machine.commands.done(words, fault=case.fault, configuration=configuration, stopped_after=stopped_after)
    lock_seconds, noise_seconds = _lock_seconds(machine, outcome)
    by_itself = None if _may_have_left(outcome) else _seen(machine).things
    stall = longest(machine.beaten(), outcome.began, time.monotonic())
    recovered = machine.commands.done(("recover",))
    if case.situation.command == "prune":  # what an interrupted one has begun, the next one ends
        machine.commands.done(machine.words("prune", run_id), configuration=configuration)
    archive = _gone_on(machine) if "receive" in (case.situation.command, case.situation.died) else ""
    after, rows = _seen(machine), inventory.runs(machine.world)
    observed = Observed(
        command=case.situation.command,
        ended=outcome.ended,
        recovered=recovered.ended,
        before=before.things,
        by_itself=by_itself,
        after={**after.things, "suspended devices": frozenset(inventory.suspended())},
        foreign_before=before.foreign,
        foreign_after=after.foreign,
        lock_seconds=lock_seconds,
        noise_seconds=noise_seconds,
        budget_seconds=world.HOLD_BUDGET_SECONDS,
        stall_seconds=stall,
        most_stall_seconds=world.WAIT_SECONDS + world.HOLD_BUDGET_SECONDS,
        killed=outcome.killed + recovered.killed,
        run_id=run_id if case.situation.command in TAKES else None,
        rows=rows,
        acknowledged=_to_stay(acknowledged, case.situation.command, rows),
        whole=_read_back(machine, case, rows, acknowledged),
        lacking=_lacking(machine, acknowledged, rows),
        archive=archive,
    )
    broken = violations(observed)
    machine.acknowledged = machine.good()
    fired = outcome.event("fired")
    return {
        "seed": case.seed,
        "code": machine.code,
        "command": case.situation.command,
        "fault": str(case.fault),
        "death": str(case.situation.death) if case.situation.death is not None else None,
        "died": case.situation.died,
        "fired": fired is not None,
        "locked": bool(fired and fired["locked"]),
        "status": outcome.ended.status,
        "seconds": round(outcome.ended.seconds, 2),
        "recover_status": recovered.ended.status,
        "recover_seconds": round(recovered.ended.seconds, 2),
        "lock_seconds": None if lock_seconds is None else round(lock_seconds, 3),
        "noise_seconds": round(noise_seconds, 3),
        "stall_seconds": round(stall, 3),
        "machine_seconds": round(time.monotonic() - began, 2),
        "violations": [{"kind": one.kind, "text": one.text} for one in broken],
        "said": outcome.ended.errors[-1500:] if broken else "",
        "recover_said": recovered.ended.errors[-1500:] + recovered.output[-500:] if broken else "",
    }


@dataclass(frozen=True, slots=True)
class _Seen:
    things: Mapping[str, frozenset[str]]
    foreign: Mapping[str, str]


def _seen(machine: Machine) -> _Seen:
    volumes = inventory.volumes()
    things = inventory.things(machine.world, machine.server, volumes, others=machine.commands.others)
    marks = machine.others.marks(volumes=volumes, mounts=things["mounts"], ask=machine.server.ask)
    return _Seen(things, marks)


def _prepared(machine: Machine, case: Case) -> str:
    """What the command needs is there: a backup to copy or remove, a dead run. The id of a good backup."""
    if len(machine.acknowledged) > _MOST_BACKUPS and case.situation.command not in AFTER_A_DEATH:
        machine.commands.done(("prune",))
        machine.acknowledged = machine.good()
    machine.die(case.situation)
    if case.situation.command == "prune":
        while len(_of_nightly(machine)) <= KEEP_LESS + 1:  # one of them may be the last that was proven, and stay
            machine.taken()
    if case.situation.command == "copy":
        return machine.taken()
    return _of_nightly(machine)[-1] if _of_nightly(machine) else machine.taken()


def _of_nightly(machine: Machine) -> list[str]:
    """The good backups of that job on its target, oldest first."""
    folders = machine.world.targets["store"].glob("*/nightly/*/manifest.json")
    there = {path.parent.name for path in folders}
    return sorted(run_id for run_id, target in machine.acknowledged if target == "store" and run_id in there)


def _may_have_left(outcome: Outcome) -> bool:
    """It died, or says what could not be released or ended, or that it lost the catalogue in which it says so."""
    ended = outcome.ended
    said = any(words in ended.errors for words in ("clean-up incomplete", "the lock file ", "left running: process"))
    return said or ended.status in (None, ExitStatus.CATALOGUE, ExitStatus.CLEANUP)


def _to_stay(acknowledged: frozenset[Copy], command: str, rows: Mapping[str, Row]) -> frozenset[Copy]:
    """Those that this command may not remove: of the job whose rule it carries out the newest on each target."""
    job = JOBS.get(command)
    ruled = {copy for copy in acknowledged if copy[0] in rows and rows[copy[0]].job == job}
    newest = {max(copy for copy in ruled if copy[1] == target) for target in {target for _, target in ruled}}
    return acknowledged - ruled | newest


def _read_back(
    machine: Machine, case: Case, rows: Mapping[str, Row], acknowledged: frozenset[Copy]
) -> dict[Copy, bool]:
    """By `backupd verify`: whatever is good now and was not before, and one more, of those that the fault was near."""
    good = {(run_id, target) for run_id, row in rows.items() for target in row.copies}
    chosen = {run_id for run_id, _ in good - acknowledged}
    if case.situation.command not in TAKES:
        chosen |= {run_id for run_id in _of_nightly(machine)[-2:] if rows[run_id].status in GOOD}
    whole: dict[Copy, bool] = {}
    for run_id in chosen:
        status = machine.commands.done(("verify", run_id)).ended.status
        whole |= {(run_id, target): status == 0 for target in rows[run_id].copies}
    return whole


def _lacking(machine: Machine, acknowledged: frozenset[Copy], rows: Mapping[str, Row]) -> dict[Copy, str]:
    """Of every copy that was good and that the catalogue still has, what does not lie on its target as it should."""
    still = {copy for copy in acknowledged if copy[0] in rows and copy[1] in rows[copy[0]].copies}
    found = {(run_id, target): inventory.lacking(machine.world.targets[target], run_id) for run_id, target in still}
    return {copy: lacks for copy, lacks in found.items() if lacks}


def _gone_on(machine: Machine) -> str:
    """What is wrong with the binlog's archive once a receiver has gone on: it has to have all that was written."""
    end, until, words = machine.server.written(), ("", 0), machine.words("receive", "")
    for turn in range(_RECEIVERS):
        received = machine.commands.done(words, stopped_after=STOPPED_AFTER["receive"] * 2**turn)
        status = json.loads(machine.commands.done(("binlog", "status", "archived", "--json")).output)
        [told] = status["jobs"]
        ends = [one["until"] for one in told["targets"] if one["until"] is not None]
        until = min(((one["file"], one["offset"]) for one in ends), default=until)
        if until >= end:
            break
    else:
        return f"it has come to {until} of {end}; {received.ended.errors[-300:]}"
    if told["gaps"]:
        return f"a gap: {told['gaps'][0]['reason']}"
    verified = machine.commands.done(("binlog", "verify", "archived")).ended
    return f"`binlog verify` ends with {verified.status}: {verified.errors[-300:]}" if verified.status else ""


def _lock_seconds(machine: Machine, outcome: Outcome) -> tuple[float | None, float]:
    """From a grant to the next acknowledged write, of the longest lock, and the noise in that; None: none was held.

    A lock that is still there is waited for.
    """
    grants = [granted["at"] for granted in outcome.named("granted")]
    if not grants:
        return None, 0.0
    deadline = time.monotonic() + _BEAT_SECONDS
    while held_seconds(beats := machine.beaten(), grants[-1]) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    held = [held_seconds(beats, at) for at in grants]
    return max(_BEAT_SECONDS if one is None else one for one in held), noise(beats, grants[0])
