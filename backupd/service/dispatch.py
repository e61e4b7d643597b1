"""What is due is started once, or is missed and told: the decisions of the daemon, one `look` at a time.

Knows: which slots were decided, and carries out what `lateness` says of the others, and `retries` of those that failed.
A slot's row is written before anything is started: whoever else goes by the same catalogue, and whatever the machine's
clock does, each try of a slot is started at most once, and a slot ends as started or as missed.

What waits is not written down. It stays due, and is looked at again, until it starts or is too late.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from backupd.catalogue.schedule_records import Key
from backupd.config import Configuration
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.policy.fallback import FallbackRule
from backupd.policy.lateness import SUPERSEDED, Missed, Start, Wait, due_slots, lateness
from backupd.policy.retries import Again, NotAgain, still_planned
from backupd.policy.timetable import Timetable
from backupd.service.fallback import fallback_rule, tell_once_alone
from backupd.service.launch import Child, name_of
from backupd.service.retries import first_cause, rules_of
from backupd.service.running_slots import RUNS, Ended, Going
from backupd.service.schedules import KeptSchedule, replaced_by, schedules
from backupd.service.site import Site
from backupd.service.slot_endings import meaning, tells_itself
from backupd.service.timetables import timetables
from backupd.vocabulary.errors import CommandError, ExitStatus
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, Pause, Slot, SlotState

log = logging.getLogger(__name__)

_LATE_SECONDS = 60.0  # from here on it is worth a word why
_RECOVER_AGAIN = timedelta(minutes=10)
_PAUSED = "the job was paused"
_LEFT = "left to the fleet: its control host is reachable again"
_NOT_RUNNING = "the daemon was not running when it was due"
_NOT_LOOKING = "the machine was asleep, its clock was changed or the catalogue was unavailable when it was due"


@dataclass(slots=True)
class Dispatch:
    """Everything that is scheduled on this machine. One thread only."""

    site: Site
    going: Going
    tell: Callable[[Notice], None]
    new_run_id: Callable[[], str]
    began: datetime
    answers: Callable[[Configuration], FailureAnswers]
    _schedules: list[KeptSchedule] = field(default_factory=list)
    _paused: Mapping[str, Pause] = field(default_factory=dict)
    _waiting: Mapping[str, str] = field(default_factory=dict)  # why a job's next try, which is due, has not started
    _recovering: Child | None = None
    _recovered: tuple[frozenset[str], datetime] | None = None  # what it was last started for, and when

    def go_by(self, site: Site) -> None:
        """From now on these schedules count; slots that were decided stay decided.

        A schedule that no daemon has gone by before owes nothing from the time before now. One that has changed owes
        what was due by the timetable before it and was not decided, the newest of that; where the daemon was down,
        whatever was due meanwhile is due still.

        Raises:
            CatalogueError, ConfigurationError: nothing has changed then.
        """
        now, wanted = site.now(), timetables(site.configuration)
        replaced = replaced_by(wanted, site.catalogue.gone_by())
        owed = self._owed(schedules(site, replaced, now, before=self._schedules), now)
        found = site.catalogue.go_by(wanted, since=now, owed=owed)
        self._schedules = schedules(site, found, now, before=self._schedules)
        self.site = self.going.site = site

    @property
    def timetables(self) -> Sequence[Timetable]:
        """By which the clock is to ring."""
        return [schedule.timetable for schedule in self._schedules]

    def adopt(self) -> None:
        """What earlier daemons have started is watched until it ends.

        Raises:
            CatalogueError: the catalogue cannot be read.
        """
        for slot in self.going.adopt():
            log.info("%s: started by an earlier daemon, watching it now", _named(slot))

    def look(self, *, starting: bool = True) -> None:
        """What has ended is written down, what may start starts, what is too late is missed; the dead are cleaned up.

        Without `starting` only what has ended is: all else is as undecided as if no daemon ran.

        Raises:
            CatalogueError: the catalogue cannot be used; the next look does what this one has not done.
        """
        for ended in self.going.ended():
            self._tell_end(ended)
        if not starting:
            return
        now = self.site.now()
        self._try_again(now)
        if late := [schedule for schedule in self._schedules if schedule.is_due(now)]:
            self._paused = self.site.catalogue.pauses()
            for due_at, schedule in self._newest(late, now):
                self._decide(schedule, due_at, now)
        self._clean_up(now)

    @property
    def restless(self) -> bool:
        """Something waits or goes on that rings no bell when it can go on or ends."""
        return bool(self.going.slots() or self._waiting) or any(schedule.why for schedule in self._schedules)

    @property
    def status(self) -> str:
        """What goes on, or else what comes next, in a sentence."""
        if going := self.going.slots():
            return f"running: {', '.join(f'{slot.activity} of {slot.job}' for slot in going)}"
        coming = [(schedule.next_due, schedule) for schedule in self._schedules if schedule.next_due is not None]
        if not coming:
            return "nothing is scheduled"
        due_at, schedule = min(coming, key=lambda pair: (pair[0], pair[1].job))
        return f"next: {schedule.activity} of {schedule.job} at {to_the_minute(due_at)}"

    # --- what is due -------------------------------------------------------------------------------------------------

    def _newest(self, late: Iterable[KeptSchedule], now: datetime) -> list[tuple[datetime, KeptSchedule]]:
        """The newest slot of each, the oldest first; what each has before that is missed from now on."""
        found: list[tuple[datetime, KeptSchedule]] = []
        for schedule in late:
            due = due_slots(schedule.timetable, since=schedule.decided, now=now)
            if due.unlisted:
                log.warning(
                    "%s of job %s: %d older slots were missed as well", schedule.activity, schedule.job, due.unlisted
                )
            if due.older and not self._leave(schedule, due.older, now):
                self._miss(schedule, due.older, f"{SUPERSEDED}: {self._why(schedule, due.older[-1])}", now)
            if due.newest is not None:
                found.append((due.newest, schedule))
        return sorted(found, key=lambda pair: (pair[0], pair[1].job, pair[1].activity))

    def _decide(self, schedule: KeptSchedule, due_at: datetime, now: datetime) -> None:
        """It starts, waits or is missed."""
        if self._leave(schedule, [due_at], now):
            return
        config = schedule.config
        within, blackouts = config.start_within_seconds, config.blackout
        match lateness(due_at, now, start_within_seconds=within, blackouts=blackouts, zone=schedule.zone):
            case Missed(reason):
                why = f": {self._why(schedule, due_at)}" if schedule.why or _is_late(due_at, now) else ""
                self._miss(schedule, [due_at], f"{reason}{why}", now)
            case Wait(until):
                self._wait(schedule, f"a blackout lasted until {to_the_minute(until)}")
            case Start() if schedule.job in self._paused:
                self._wait(schedule, _PAUSED)
            case Start():
                if obstacle := self.going.obstacle(schedule.job, schedule.activity):
                    self._wait(schedule, obstacle)
                else:
                    self._start(schedule, due_at, now)

    def _owed(self, replaced: Iterable[KeptSchedule], now: datetime) -> Mapping[Key, datetime]:
        """What is due still by timetables that others are about to replace: the newest of each."""
        late = [schedule for schedule in replaced if schedule.is_due(now)]
        self._paused = self.site.catalogue.pauses() if late else self._paused
        return {schedule.key: due_at for due_at, schedule in self._newest(late, now)}

    def _wait(self, schedule: KeptSchedule, why: str) -> None:
        if schedule.why != why:
            log.info("%s of job %s waits: %s", schedule.activity, schedule.job, why)
        schedule.why = why

    def _start(self, schedule: KeptSchedule, due_at: datetime, now: datetime) -> None:
        run_id = self.new_run_id() if schedule.activity in RUNS else ""
        rule = self._fallback(schedule)
        late = self._why(schedule, due_at) if _is_late(due_at, now) else ""
        reason = late or (rule.words(now) if rule is not None else "")
        slot = Slot(schedule.job, schedule.activity, due_at, SlotState.STARTED, now, run_id, reason)
        taken = self.site.catalogue.take_slot(slot)
        schedule.decide_up_to(due_at)
        if not taken:
            log.info("%s: already handled by another daemon", _named(slot))
            return
        said = f"; {reason}" if reason else ""
        log.info("%s: started%s%s", _named(slot), f" as run {run_id}" if run_id else "", said)
        self._begin(slot)
        if rule is not None:
            tell_once_alone(self.site.catalogue, slot, rule, now, self.tell)

    def _begin(self, slot: Slot) -> None:
        try:
            self.going.start(slot)
        except CommandError as error:
            self.site.catalogue.slot_ended(slot, exit_status=error.exit_status)
            log.error("%s: could not be started: %s", _named(slot), error.message)
            self._alarm(slot, f"could not be started: {error.message}")

    def _miss(self, schedule: KeptSchedule, due: Sequence[datetime], reason: str, now: datetime) -> None:
        """Written down once, told once; nobody is told that a job which a person has paused did nothing."""
        slots = [Slot(schedule.job, schedule.activity, at, SlotState.MISSED, now, reason=reason) for at in due]
        missed = self.site.catalogue.pass_slots(slots)
        schedule.decide_up_to(due[-1])
        if not missed:
            return
        more = f" (and {len(missed) - 1} before it)" if len(missed) > 1 else ""
        log.warning("%s: missed%s: %s", _named(missed[-1]), more, reason)
        if schedule.job not in self._paused:
            self._notice(NoticeKind.MISSED, missed[-1], f"was missed{more}: {reason}")

    def _leave(self, schedule: KeptSchedule, due: Sequence[datetime], now: datetime) -> bool:
        """The fleet does it, where its control host is there: nothing is owed here, and nothing is missed."""
        rule = self._fallback(schedule)
        if rule is None or not rule.leaves_to_fleet(now):
            return False
        why = rule.words(now)
        slots = [Slot(schedule.job, schedule.activity, at, SlotState.LEFT, now, reason=why) for at in due]
        for slot in self.site.catalogue.pass_slots(slots)[-1:]:
            log.info("%s: %s", _named(slot), why)
        schedule.decide_up_to(due[-1])
        return True

    def _fallback(self, schedule: KeptSchedule) -> FallbackRule | None:
        return fallback_rule(schedule.job, schedule.config, self.site.catalogue)

    def _why(self, schedule: KeptSchedule, due_at: datetime) -> str:
        """Why the slot did not start when it was due."""
        if schedule.job in self._paused:
            return _PAUSED
        return schedule.why or (_NOT_RUNNING if due_at < self.began else _NOT_LOOKING)

    # --- what is tried again -----------------------------------------------------------------------------------------

    def _try_again(self, now: datetime) -> None:
        """What has failed for a cause that passes is started once more when its time has come, or has failed."""
        waiting: dict[str, str] = {}
        for slot in self.site.catalogue.slots(state=SlotState.RETRYING, limit=None):
            verdict = self._verdict(slot, now)
            if isinstance(verdict, NotAgain):
                self._give_up(slot, verdict.reason)
            elif slot.retry_at is not None and slot.retry_at <= now:
                if obstacle := self._in_the_way(slot, now):
                    waiting[slot.job] = obstacle
                    if self._waiting.get(slot.job) != obstacle:
                        log.info("%s: try %d waits: %s", _named(slot), slot.number + 1, obstacle)
                else:
                    self._start_again(slot, now)
        self._waiting = waiting

    def _in_the_way(self, slot: Slot, now: datetime) -> str:
        """Why its next try does not start now; empty: it may."""
        if slot.job in self.site.catalogue.pauses():
            return _PAUSED
        config = self.site.configuration.jobs[slot.job].schedules.backup
        rule = fallback_rule(slot.job, config, self.site.catalogue)
        if rule is not None and rule.leaves_to_fleet(now):
            return _LEFT
        return self.going.obstacle(slot.job, slot.activity) or ""

    def _verdict(self, slot: Slot, now: datetime) -> Again | NotAgain:
        known = self.site.configuration.jobs.get(slot.job)
        schedule = next((one for one in self._schedules if (one.job, one.activity) == (slot.job, slot.activity)), None)
        if known is None or known.schedules.backup is None or schedule is None or slot.retry_at is None:
            return NotAgain("the job has no schedule for it any more")
        return still_planned(
            rules_of(known.schedules.backup, schedule.zone),
            slot.due_at,
            number=slot.number,
            retry_at=slot.retry_at,
            now=now,
            next_due=schedule.timetable.after(slot.due_at),
        )

    def _start_again(self, slot: Slot, now: datetime) -> None:
        again = replace(
            slot,
            state=SlotState.STARTED,
            decided_at=now,
            run_id=self.new_run_id(),
            ended_at=None,
            exit_status=None,
            tried=(*slot.tried, slot.run_id),
            retry_at=None,
        )
        if not self.site.catalogue.take_retry(slot, again):
            log.info("%s: already handled by another daemon", _named(slot))
            return
        tries = self.site.configuration.jobs[slot.job].schedules.backup
        log.info(
            "%s: started as run %s, try %d of %d",
            *(_named(again), again.run_id, again.number, 1 if tries is None else tries.retries + 1),
        )
        self._begin(again)

    def _give_up(self, slot: Slot, reason: str) -> None:
        """It was told as one that is tried again; now it has failed, and that is told."""
        if not self.site.catalogue.end_retry(slot):
            return
        log.warning("%s: not tried again: %s", _named(slot), reason)
        run = self.going.run_of(slot)
        said = "" if run is None or run.error is None else f": {on_one_line(run.error.first_line)}"
        first = first_cause(self.site.catalogue, slot)
        before = f"; the first try failed: {on_one_line(first)}" if first else ""
        self._alarm(slot, f"failed{said}{before}; it is not tried again: {reason}")

    # --- what has ended ----------------------------------------------------------------------------------------------

    def _tell_end(self, ended: Ended) -> None:
        """A run and a drill tell people themselves what became of them; of all else, we do."""
        slot, status = ended.slot, ended.exit_status
        shown = "with unknown exit status" if status is None else f"with exit status {status} ({meaning(status)})"
        if ended.retry_at is not None:
            log.warning("%s: ended %s; next try at %s", _named(slot), shown, to_the_minute(ended.retry_at))
            return
        log.log(logging.INFO if status == ExitStatus.OK else logging.WARNING, "%s: ended %s", _named(slot), shown)
        silent = slot.activity is Activity.BACKUP and ended.run is None
        harmless = status in (ExitStatus.OK, ExitStatus.CANCELLED)
        if silent or not (harmless or tells_itself(slot.activity, status)):
            before = " before it was recorded" if silent else ""
            self._alarm(slot, f"ended {shown}{before}{self._where_it_says(slot) if status is None else ''}")

    def _where_it_says(self, slot: Slot) -> str:
        name = name_of(slot)
        return f": see {self.site.configuration.paths.log / name}.out.log or `journalctl -u backupd-run-{name}`"

    def _alarm(self, slot: Slot, what: str) -> None:
        self._notice(NoticeKind.FAILED, slot, what)

    def _notice(self, kind: NoticeKind, slot: Slot, what: str) -> None:
        answers = self.answers(self.site.configuration).of_slot(slot, catalogue=self.site.catalogue)
        detail = {"activity": slot.activity.value, "due_at": slot.due_at.isoformat(), **answers}
        text = f"the {slot.activity} of job {slot.job} that was due at {to_the_minute(slot.due_at)} {what}"
        subject = slot.run_id or f"{slot.activity} {slot.due_at.isoformat()}"
        self.tell(Notice(kind, slot.job, self.site.now(), subject, text, detail))

    # --- what has died -----------------------------------------------------------------------------------------------

    def _clean_up(self, now: datetime) -> None:
        """`backupd recover` is at work where a run died or left something; not again at once where it was no help."""
        if self._recovering is not None and self._recovering.ended():
            log.info("recover: ended with exit status %s", self._recovering.exit_status)
            self._recovering = None
        if self._recovering is not None:
            return
        died, left = self.going.dead_runs(), self.going.leftovers()
        if not (dead := {*died, *left.values()}):
            return
        if self._recovered is not None:
            before, at = self._recovered
            if before.issuperset(dead) and timedelta() <= now - at < _RECOVER_AGAIN:
                return
        if died:
            log.warning("run %s has died: backupd recover cleans it up", ", ".join(died))
        for what, run_id in left.items():
            log.warning("%s of run %s was not released: backupd recover tries again", what, run_id)
        self._recovered = frozenset(dead), now
        try:
            self._recovering = self.going.launcher.recover()
        except CommandError as error:
            log.error("backupd recover could not be started: %s", error.message)


def _is_late(due_at: datetime, now: datetime) -> bool:
    return (now - due_at).total_seconds() > _LATE_SECONDS


def _named(slot: Slot) -> str:
    return f"{slot.activity} of job {slot.job}, due at {to_the_minute(slot.due_at)}"
