"""The story of a backup that a night owes, from its window to its end, as an engine carries it.

    wait for the window · ask the members, choose · in a slot of each target: start, watch · judge · again, or record

Every step may be cut off and done again, by this process or by the next. A run is known by its id, which its host
starts once. What may be running is never replaced: a host that stopped answering within a run is waited for, and where
nobody knows what became of its run, nothing begins in its cluster before the host has told it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from backupd.fleet import HostAway, HostRefuses, Later, StorySteps
from backupd.fleet.records import Records
from backupd.operations.fleet.choosing import Chooser
from backupd.operations.fleet.results import keep_result
from backupd.operations.fleet.watching import Watch
from backupd.policy.fleet_tries import TriesOver, TryAgain, judged
from backupd.policy.night_times import earliest_beginning
from backupd.vocabulary.fleet import OVER, FleetBackup, FleetState, FleetTry, OwedBackup, try_id
from backupd.vocabulary.records import RunStatus

_RESULT_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class NightStories:
    """The contract's `Stories`."""

    chooser: Chooser
    tell_end: Callable[[FleetBackup], None]  # people will be told once: there is no backup, or it takes far too long

    @property
    def records(self) -> Records:
        """What is remembered of all."""
        return self.chooser.records

    def backup(self, owed: OwedBackup, so_far: object, steps: StorySteps) -> Later | None:
        """See `Stories`."""
        past: Any = so_far or _so_far((), owed.not_before)
        tries = [_try_from(answer) for answer in past["tries"]]
        not_before, turn, said = datetime.fromisoformat(past["not_before"]), past["turn"], past["said"]
        while True:
            turn += 1
            choosing = self._choosing(owed, tries, not_before, looked=turn - 1, said=said)
            chosen: Any = steps.step(f"choose {len(tries) + 1}.{turn}", choosing)
            if chosen.get("again_at"):
                at = datetime.fromisoformat(chosen["again_at"])
                return Later(at, _so_far(tries, at, turn, chosen["said"]))
            if chosen["ended"]:
                why = chosen["said"] if chosen.get("whole") else _after(tries, chosen["said"])
                end = TriesOver(FleetState(chosen["ended"]), why)
                break
            answer: Any = steps.attempt(chosen["host"], len(tries) + 1, turn)
            if "not_begun" in answer:
                not_before = datetime.fromisoformat(answer["again_at"])
                continue
            tries.append(_try_from(answer))
            judgement = _judgement_from(steps.step(f"judge {len(tries)}", self._judging(owed, tries)))
            if isinstance(judgement, TriesOver):
                end = judgement
                break
            not_before, turn, said = judgement.at, 0, ""
        self._end(owed, tries, end, steps)
        return None

    def attempt(self, owed: OwedBackup, host: str, number: int, steps: StorySteps) -> object:
        """See `Stories`."""
        begun: Any = steps.step("begin", lambda: self._begin(owed, host, number))
        if "not_begun" in begun:
            return begun
        one = FleetTry(host, try_id(owed, number), datetime.fromisoformat(begun["began_at"]))
        return steps.step("run", lambda: self._run(owed, one))

    # Steps of a backup.

    def _choosing(
        self, owed: OwedBackup, tries: Sequence[FleetTry], not_before: datetime, *, looked: int, said: str
    ) -> Callable[[], object]:
        """Which host, when to look again, or which end."""
        made = tuple(tries)

        def tell(what: str) -> None:
            known = self.records.backup(owed.id)
            now = datetime.now(UTC)
            waiting = FleetBackup(owed, FleetState.WAITING, made, now, said=what or _after(made, ""))
            if known is None or (known.state not in OVER and replace(known, changed_at=now) != waiting):
                self.records.keep(waiting)

        def act() -> object:
            known = self.records.backup(owed.id)
            if known is not None and known.state in OVER:  # it waited for so long that the control host ended it
                return {"host": "", "ended": known.state.value, "said": known.said, "whole": True}
            tell(said)
            chosen = self.chooser.chosen(owed, made, not_before, looked=looked, said=said)
            if chosen.host:
                tell(f"it waits for a slot of {', '.join(owed.targets)}, then {chosen.said}")
            elif chosen.again_at is not None:
                tell(chosen.said)
            again_at = chosen.again_at.isoformat() if chosen.again_at else None
            return {"host": chosen.host, "again_at": again_at, "ended": chosen.ended, "said": chosen.said}

        return act

    def _judging(self, owed: OwedBackup, tries: Sequence[FleetTry]) -> Callable[[], object]:
        made = tuple(tries)

        def act() -> object:
            wanted = self.chooser.wishes.cancelled(owed) is not None
            rule = self.chooser.terms(owed.cluster).tries
            judgement = judged(owed, made, rule, datetime.now(UTC), cancel_wanted=wanted)
            if isinstance(judgement, TryAgain):
                return {"again_at": judgement.at.isoformat(), "said": judgement.said}
            return {"state": judgement.state.value, "said": judgement.said}

        return act

    def _end(self, owed: OwedBackup, tries: Sequence[FleetTry], end: TriesOver, steps: StorySteps) -> None:
        backup = FleetBackup(owed, end.state, tuple(tries), said=end.said)
        steps.step("record", lambda: self._record(backup))
        if tries:
            steps.step("fetch", lambda: self._fetch(owed, tries[-1]))
        if end.state in (FleetState.FAILED, FleetState.MISSED):
            steps.step("tell", lambda: self.tell_end(backup))

    def _record(self, backup: FleetBackup) -> None:
        """What the last try told of itself stays; the rest is as it ended."""
        known = self.records.backup(backup.owed.id) or backup
        good = backup.state is FleetState.DONE
        self.records.keep(
            replace(
                backup,
                changed_at=datetime.now(UTC),
                copied_bytes=known.copied_bytes,
                stored_bytes=known.stored_bytes if good else None,
                lost_transactions=known.lost_transactions,
            )
        )

    def _fetch(self, owed: OwedBackup, last: FleetTry) -> object:
        """What the host's catalogue has of the run is in our records, if the host tells it."""
        agent = self.chooser.agents.agent(last.host)
        for number in range(_RESULT_TRIES):
            try:
                keep_result(self.records, owed, last, agent.result(last.run_id))
            except HostRefuses:
                return False
            except HostAway:
                if number + 1 < _RESULT_TRIES:
                    time.sleep(self.chooser.patience.poll_seconds)
            else:
                return True
        return False

    # Steps of an attempt.

    def _begin(self, owed: OwedBackup, host: str, number: int) -> object:
        """It may begin now, and this host is still the one to do it: its slot may have taken hours to come."""
        now = datetime.now(UTC)
        if self.chooser.wishes.cancelled(owed) is not None or self.chooser.wishes.paused(owed) is not None:
            return _not_begun("it was cancelled or paused", now)
        begin = earliest_beginning(owed, now)
        if begin is None or begin > now:
            return _not_begun("its window is closed", begin or now)
        known = self.records.backup(owed.id)
        tries = known.tries[: number - 1] if known else ()
        found = self.chooser.fit(owed, tries)
        if host not in (one.host for one in found.fit):
            return _not_begun(found.said, now)
        if (known := self.records.backup(owed.id)) is not None and known.state in OVER:
            return _not_begun(known.said, now)
        began_at = datetime.now(UTC)
        one = FleetTry(host, try_id(owed, number), began_at)
        self.records.keep(FleetBackup(owed, FleetState.RUNNING, (*tries, one), began_at, said=f"{host} starts it"))
        return {"began_at": began_at.isoformat()}

    def _run(self, owed: OwedBackup, one: FleetTry) -> object:
        """From its start to its end. Whatever cut it off before, the host has started the run at most once."""
        return _answer(Watch(self.chooser, owed, one).until_end())


def _not_begun(said: str, again_at: datetime) -> Mapping[str, str]:
    return {"not_begun": said, "again_at": again_at.isoformat()}


def _so_far(tries: Sequence[FleetTry], not_before: datetime, turn: int = 0, said: str = "") -> Mapping[str, object]:
    """How far a story is: its tries, and how often it has looked for a member since, from when on, and why in vain."""
    made = [_answer(one) for one in tries]
    return {"tries": made, "not_before": not_before.isoformat(), "turn": turn, "said": said}


def _after(tries: Sequence[FleetTry], said: str) -> str:
    """Why it waits, or ended while it waited; of one that was tried, also what came of that."""
    return "; ".join(part for part in (tries[-1].said if tries else "", said) if part)


def _answer(one: FleetTry) -> Mapping[str, object]:
    return {
        "host": one.host,
        "run_id": one.run_id,
        "began_at": one.began_at.isoformat(),
        "ended_at": one.ended_at.isoformat() if one.ended_at else None,
        "status": one.status,
        "said": one.said,
    }


def _try_from(answer: Mapping[str, Any]) -> FleetTry:
    return FleetTry(
        answer["host"],
        answer["run_id"],
        datetime.fromisoformat(answer["began_at"]),
        datetime.fromisoformat(answer["ended_at"]) if answer["ended_at"] else None,
        RunStatus(answer["status"]) if answer["status"] else None,
        answer["said"],
    )


def _judgement_from(answer: Any) -> TryAgain | TriesOver:
    if "again_at" in answer:
        return TryAgain(datetime.fromisoformat(answer["again_at"]), answer["said"])
    return TriesOver(FleetState(answer["state"]), answer["said"])
