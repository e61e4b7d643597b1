"""A control host at work: each night is planned when it begins, what is owed is submitted, and stories go on.

What is owed is in the records before the engine hears of it: a control host that was killed in between submits it
again, and what a person adds by hand is found there. All else that must not be lost is in the engine's log and at the
hosts.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from time import monotonic
from typing import Final

from backupd.fleet import Engine
from backupd.fleet.records import Records
from backupd.operations.fleet.fleet_notices import Tell
from backupd.operations.fleet.stories import NightStories
from backupd.operations.fleet.telling import OwedTelling
from backupd.policy.fleet_plan import NightPlan
from backupd.policy.fleet_tries import silent_until
from backupd.report.words import many
from backupd.vocabulary.errors import Busy, FleetDatabaseAway
from backupd.vocabulary.fleet import OVER, Control, FleetBackup, FleetState
from backupd.vocabulary.instants import to_the_minute

log = logging.getLogger(__name__)

_LONGEST_WAIT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 60.0  # from one look at what has broken off, or takes too long, to the next
_PLAN_AGAIN_SECONDS: Final = 300.0  # after a plan that came to nothing: for each one all hosts are asked
_MISSED_AFTER: Final = timedelta(minutes=5)  # a story whose turn it is tells it by itself


@dataclass(frozen=True, slots=True)
class Nights:
    """Which night is now, and what one owes; the plan is asked for once a night, and may take minutes."""

    now: Callable[[datetime], date]
    plan: Callable[[date], NightPlan]
    tell_unplanned: Callable[[date, Exception], None]  # people: there is no plan yet, and why
    is_planned: threading.Event = field(default_factory=threading.Event)  # while the night that is now has its plan
    keep_contact: Callable[[], None] = lambda: None  # with all hosts, which go on alone where nobody asks; no waiting


class ControlHost:
    """One that serves, or waits until it may."""

    def __init__(
        self,
        engine: Engine,
        stories: NightStories,
        nights: Nights,
        say: Callable[[str], None],
        *,
        tell: Tell,
        tick_seconds: float = 5.0,
    ) -> None:
        """`tell` may take a minute and a half for a notice, and raises where nobody has heard of it: it comes again."""
        self._engine = engine
        self._stories = stories
        self._nights = nights
        self._say = say
        self._tell = tell
        self._tick_seconds = tick_seconds
        self._since = datetime.now(UTC)
        self._submitted: set[str] = set()
        self._given_up: set[str] = set()
        self._looked_at: float | None = None  # at what has taken too long, by the monotonic clock
        self._said: set[date] = set()  # nights that a wrong clock has planned
        self._planner = ThreadPoolExecutor(1, "plan")
        self._planning: tuple[date, Future[NightPlan]] | None = None
        self._plan_again_at = 0.0  # by the monotonic clock

    @property
    def _records(self) -> Records:
        return self._stories.records

    def serve(self, until: threading.Event) -> None:
        """Return when `until` is set. Until then it works, or waits for the database or for another to end.

        Raises:
            FleetDatabaseError: the database has become another backupd's.
        """
        said, wait = "", self._tick_seconds
        while not until.is_set():
            try:
                self._records.require_own_schema()  # a standby may have waited for months
                self._stories.chooser.wishes.read()  # stories go on at once, and must not miss a pause
                with self._engine.serving(self._stories):
                    self._say("this control host is active")
                    self._work(until)
                    return
            except (Busy, FleetDatabaseAway) as error:
                if error.message != said:
                    said, wait = error.message, self._tick_seconds
                    self._say(f"{error.message}; this one waits")
                until.wait(wait)
                wait = self._tick_seconds if isinstance(error, Busy) else min(wait * 2, _LONGEST_WAIT_SECONDS)

    def _work(self, until: threading.Event) -> None:
        self._since = datetime.now(UTC)
        with OwedTelling(self._records.notices, self._tell) as telling:
            while True:
                telling.require_working()
                try:
                    self._tick()
                except FleetDatabaseAway as error:
                    log.warning("%s", error)
                if until.wait(self._tick_seconds):
                    return

    def _tick(self) -> None:
        now = datetime.now(UTC)
        self._records.at_work(Control(socket.gethostname(), os.getpid(), self._since, now))
        self._stories.chooser.wishes.read()
        self._records.cancel_waiting(now)
        self._plan_if_due(self._nights.now(now))
        if new := [one for one in self._records.going_ids() if one not in self._submitted]:
            backups = [backup for one in new if (backup := self._records.backup(one)) is not None]
            self._engine.submit([backup.owed for backup in backups])
            self._submitted.update(new)
        if self._looked_at is None or monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = monotonic()
            self._give_up_broken()
            self._tell_late(now)
        if self._planning is None:  # else all hosts are asked for the plan
            self._nights.keep_contact()  # last: hosts leave their backups to a control host that gets as far as this

    def _plan_if_due(self, night: date) -> None:
        """Also where a clock that was ahead has planned a night that is yet to come."""
        planned = self._records.planned_nights(since=night)
        for one in planned:
            if one > night and one not in self._said:
                self._said.add(one)
                self._say(f"the night of {one} was planned before its time: was the clock of a control host ahead?")
        if night in planned:
            self._nights.is_planned.set()
            return
        self._nights.is_planned.clear()
        if (plan := self._planned(night)) is not None:
            self._owe(night, plan)
            self._nights.is_planned.set()

    def _planned(self, night: date) -> NightPlan | None:
        """The plan, once it is made; None until then. It is made beside: hosts that do not answer may take minutes, in
        which this control host goes on working, and what people want counts.

        Whatever keeps it from being made is told, and it is tried again: the night before goes on, and a control host
        that ended would begin by asking all hosts, over and over.
        """
        if self._planning is None and monotonic() < self._plan_again_at:
            return None
        if self._planning is None or self._planning[0] != night:
            self._planning = night, self._planner.submit(self._nights.plan, night)
        made = self._planning[1]
        if not wait_for([made], self._tick_seconds).done:
            return None
        self._planning = None
        if isinstance(error := made.exception(), Exception) and not isinstance(error, FleetDatabaseAway):
            self._plan_again_at = monotonic() + _PLAN_AGAIN_SECONDS
            self._nights.tell_unplanned(night, error)
            return None
        return made.result()

    def _owe(self, night: date, plan: NightPlan) -> None:
        now = datetime.now(UTC)
        waiting = [FleetBackup(one, FleetState.WAITING, changed_at=now) for one in plan.owed]
        broken = [FleetBackup(one.owed, FleetState.FAILED, changed_at=now, said=one.said) for one in plan.broken]
        for one, backup in zip(plan.broken, broken, strict=True):
            log.error("%s could not be planned", one.owed.id, exc_info=one.error)
            self._stories.tell_end(backup)  # first: a night that was planned is not looked at again
        if self._records.plan_night(night, [*waiting, *broken]):
            owed = len(waiting) + len(broken)
            self._say(f"{many(owed, 'backup')} {'is' if owed == 1 else 'are'} due in the night of {night}")

    def _give_up_broken(self) -> None:
        """What ended by a fault of backupd is told, rather than shown as waiting for ever."""
        for backup_id, error in self._engine.broken().items():
            if backup_id in self._given_up:
                continue
            backup = self._records.backup(backup_id)
            if backup is not None and backup.state not in OVER:
                log.error("backup %s stopped because of an internal error: %s", backup_id, error)
                said = f"backupd failed, which is a bug in it: {error}"
                failed = replace(backup, state=FleetState.FAILED, said=said, changed_at=datetime.now(UTC))
                self._stories.tell_end(failed)  # first: of what has failed nobody asks again whether it was told
                self._records.keep(failed)
            self._given_up.add(backup_id)

    def _tell_late(self, now: datetime) -> None:
        """What waits behind a run that does not end is missed like any other, and such a run is told of."""
        for backup in self._records.going():
            owed = backup.owed
            if backup.state is FleetState.WAITING and now > owed.not_after + _MISSED_AFTER:
                said = backup.said or "its window closed before its turn came"
                if self._records.miss_waiting(owed.id, said, now):
                    self._stories.tell_end(replace(backup, state=FleetState.MISSED, said=said))
            elif backup.state is FleetState.RUNNING and backup.tries:
                last = backup.tries[-1]
                if last.status is None and now > silent_until(owed, last.began_at):
                    since = to_the_minute(last.began_at)
                    said = f"run {last.run_id} on {last.host} has been running since {since}, far longer than expected"
                    self._stories.tell_end(replace(backup, said=said))
