"""One run at its host: started, looked at until it has ended, cancelled where a person wants that.

Knows: what each silence means. To ask for a start again is safe: a run id is started once. Once a start was asked for,
whoever asked, the host may be at work, and what is no answer about that run is silence: it does not answer, it refuses
to be asked, it has forgotten the run. Only a host that has told nothing of the run can refuse to start it. A host that
is silent keeps its cluster and its slots until it is given up: it may be the control host that is cut off, from all of
its hosts at once, and whoever had their slots would come on top of every run that goes on.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backupd.fleet import Agent, HostAway, HostRefuses
from backupd.operations.fleet.choosing import Chooser
from backupd.policy.fleet_tries import silent_until
from backupd.policy.member_choice import MOST_CLOCK_SECONDS
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry, OwedBackup, RunState, StartOrder
from backupd.vocabulary.records import GOOD, RunStatus

_CANCEL_SECONDS: Final = 300.0  # that a silent host is asked to end a run; then whoever wanted that has decided
_ENDING_SECONDS: Final = 1800.0  # the same of a host that says that it goes on: it may have to give much back
_SHORT_SILENCE_SECONDS: Final = 900.0  # ends no run, however long it takes: a reboot, or a switch's, is over by then
_LONGEST_SILENCE_SECONDS: Final = 86400.0  # ends every run, whatever its host had told that it takes


class Watch:
    """A try, as its host tells of it."""

    def __init__(self, chooser: Chooser, owed: OwedBackup, one: FleetTry) -> None:
        self._chooser = chooser
        self._owed = owed
        self._told: RunState | None = None
        self._absent = False  # its host said that it has no such run
        self._heard_at = time.monotonic()  # of its host: that the run goes on
        self._unwanted_since: float | None = None  # it is to be cancelled
        known = chooser.records.backup(owed.id)
        tries = known.tries if known else ()
        self._try = next((earlier for earlier in tries if earlier.run_id == one.run_id), one)
        self._before = tuple(earlier for earlier in tries if earlier.run_id != one.run_id)

    def until_end(self) -> FleetTry:
        """How it ended; without a status, that nobody knows.

        Raises:
            FleetDatabaseAway: the database does not answer. The run goes on; watch it again.
        """
        if self._try.status is not None:  # it was written down before the one who watched it was killed
            return self._try
        agent = self._chooser.agents.agent(self._try.host)
        while (ended := self._looked(agent)) is None:
            time.sleep(self._chooser.patience.poll_seconds)
        self._keep(ended)
        return ended

    def _looked(self, agent: Agent) -> FleetTry | None:
        """Once; how it ended, if it has."""
        note = self._chooser.wishes.cancelled(self._owed)
        if note is None:
            self._unwanted_since = None
        elif self._unwanted_since is None:
            self._unwanted_since = time.monotonic()
        begins = not self._try.asked or self._absent
        if begins and note is not None:
            return self._ended(RunStatus.CANCELLED, note)
        try:
            state = self._started(agent) if begins else self._asked(agent, cancel=note is not None)
        except HostRefuses as error:
            if begins and error.refusal is not None:  # else what answered there was no agent, or not to the end
                return self._ended(RunStatus.REFUSED, error.message)
            return self._unheard(error.message)
        except HostAway as error:
            return self._unheard(error.message)
        if state.status is None:
            self._absent = not self._try.taken
            return self._unheard(f"{self._try.host} knows nothing of run {self._try.run_id}" if self._try.taken else "")
        if state.status is RunStatus.RUNNING:
            self._heard_at = time.monotonic()
            if self._unwanted_since is not None and self._heard_at - self._unwanted_since > _ENDING_SECONDS:
                return replace(
                    self._try, said=f"{self._try.host} was asked to end run {self._try.run_id}, and does not"
                )
            self._show(state)
            return None
        if self._is_of_an_earlier_request(state):
            return self._ended(
                RunStatus.FAILED, f"{self._try.host} made run {self._try.run_id} before it was asked for"
            )
        self._told = state
        said = "" if state.status in GOOD else _why(state)
        return replace(self._try, ended_at=state.ended_at or datetime.now(UTC), status=state.status, said=said)

    def _is_of_an_earlier_request(self, state: RunState) -> bool:
        """A person asked, and what the host tells of had begun before that: records that were restored from a dump, or
        have lost commits, give an id twice. What a night owes has one id, and whenever its run began, that is its run.
        """
        if not self._owed.asked_for or state.started_at is None:
            return False
        return state.started_at < self._owed.not_before - timedelta(seconds=MOST_CLOCK_SECONDS)

    def _started(self, agent: Agent) -> RunState:
        """The host is asked to start it, which is remembered before the host can hear of it."""
        self._absent = False
        if not self._try.asked:
            self._try = replace(self._try, asked=True)
            self._keep(self._try)
        return agent.start(StartOrder(self._owed.job, self._try.run_id, self._owed.max_rate))

    def _asked(self, agent: Agent, *, cancel: bool) -> RunState:
        return agent.cancel(self._try.run_id) if cancel else agent.status(self._try.run_id)

    def _ended(self, status: RunStatus, said: str) -> FleetTry:
        return replace(self._try, ended_at=datetime.now(UTC), status=status, said=said)

    def _unheard(self, why: str) -> FleetTry | None:
        """The host said nothing of use."""
        unwanted = self._unwanted_since
        if unwanted is not None and time.monotonic() - max(unwanted, self._heard_at) > _CANCEL_SECONDS:
            said = (
                f"{self._try.host} did not answer when asked to end run {self._try.run_id}, which may still be running"
            )
            return replace(self._try, said=said)
        silence = time.monotonic() - self._heard_at
        late = datetime.now(UTC) > silent_until(self._owed, self._try.began_at)
        if (late and silence > _SHORT_SILENCE_SECONDS) or silence > _LONGEST_SILENCE_SECONDS:
            said = f"{self._try.host} stopped answering during run {self._try.run_id}, which may still be running"
            return replace(self._try, said=said)
        if why != self._try.said:
            self._try = replace(self._try, said=why)
            self._keep(self._try)
        return None

    def _show(self, state: RunState) -> None:
        if state != self._told or self._try.said or not self._try.taken:
            self._told = state
            self._try = replace(self._try, said="", taken=True)
            self._keep(self._try)

    def _keep(self, one: FleetTry) -> None:
        """The try is remembered as it is now."""
        told = self._told
        backup = FleetBackup(self._owed, FleetState.RUNNING, (*self._before, one), datetime.now(UTC), said=one.said)
        if told is not None:
            backup = replace(
                backup,
                phase=told.phase,
                copied_bytes=told.copied_bytes,
                stored_bytes=told.stored_bytes,
                lost_transactions=told.lost_transactions,
            )
        self._chooser.records.keep(backup)


def _why(state: RunState) -> str:
    if state.error is not None:
        return state.error.first_line
    return f"the run ended as {state.status}"
