"""An agent by whatever way its documents go there and back: each verb is one request, and its answer is checked.

Knows: which protocol is spoken with a host, and what an answer means to who asked. Refuses to know how a request gets
there: that is the exchange's, and raises `HostAway` or `HostRefuses` by itself.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from backupd import __version__
from backupd.fleet import HostAway, HostRefuses
from backupd.policy import agent_protocol as protocol
from backupd.policy.agent_belief import believed_description, believed_details, believed_state
from backupd.policy.agent_protocol import Answer, Answered, Ask, Request
from backupd.vocabulary.errors import Cancelled, VerificationError
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.fleet import PROTOCOLS, HostDescription, RunState, StartOrder
from backupd.vocabulary.records import RunDetails, RunError

log = logging.getLogger(__name__)

Exchange = Callable[[bytes], bytes]  # a request there, its answer back

_Kind = TypeVar("_Kind", bound=Answer)
_PASSING = frozenset({"catalogue-unavailable"})  # codes of what may recover by itself
_LONGEST_SAID = 200  # characters of a stranger's words in a sentence of ours


class AskingAgent:
    """The contract's `Agent` of one host."""

    def __init__(self, host: str, exchange: Exchange, *, speaks: range = PROTOCOLS) -> None:
        self._host = host
        self._exchange = exchange
        self._speaks = speaks

    def describe(self, sees_to: Sequence[str] = ()) -> HostDescription:
        """The host, its jobs and their servers; how far its clock is ahead is counted here, to half of the way."""
        with self._only_of_this_host():
            began = datetime.now(UTC)
            described = self._asked(Request(Ask.DESCRIBE, sees_to=tuple(sees_to)), HostDescription)
            ended = datetime.now(UTC)
            ahead = _outside(described.clock, began, ended)
            return replace(believed_description(described, ended), clock_ahead_seconds=ahead)

    def start(self, order: StartOrder) -> RunState:
        """The run was started, or had been: a run id is started once, however often it is asked for."""
        return self._state(Request(Ask.START, order.job, order.run_id, order.max_rate))

    def status(self, run_id: str) -> RunState:
        """How far it is."""
        return self._state(Request(Ask.STATUS, run_id=run_id))

    def cancel(self, run_id: str) -> RunState:
        """It is asked to end."""
        return self._state(Request(Ask.CANCEL, run_id=run_id))

    def result(self, run_id: str) -> RunDetails:
        """All that the host's catalogue has of a run that has ended; of long curves some points."""
        with self._only_of_this_host():
            return believed_details(self._asked(Request(Ask.RESULT, run_id=run_id), RunDetails), datetime.now(UTC))

    def _state(self, request: Request) -> RunState:
        with self._only_of_this_host():
            return believed_state(self._asked(request, RunState), datetime.now(UTC))

    @contextmanager
    def _only_of_this_host(self) -> Iterator[None]:
        """Whatever else is raised within the block is this host's refusal.

        An address, a key exchange and an answer are a stranger's, and what libraries raise over them is not all known:
        let through, it would end the night of every other host.
        """
        try:
            yield
        except (HostAway, HostRefuses, Cancelled):
            raise
        except Exception as error:
            log.exception("asking %s failed", self._host)
            said = on_one_line(f"{type(error).__name__}: {error}")[:_LONGEST_SAID]
            raise HostRefuses(
                f"{self._host} could not be asked: {said}",
                hint="see its address and its sshd; if both are right this is a bug in backupd, and the log has more",
            ) from error

    def _asked(self, request: Request, kind: type[_Kind]) -> _Kind:
        """In our newest protocol first; where the host does not speak it, in the newest that both do."""
        answered = self._told(request, self._speaks[-1])
        if answered.error is not None and self._speaks[-1] not in range(answered.speaks[0], answered.speaks[1] + 1):
            common = protocol.common_protocol(answered.speaks, self._speaks)
            if common is None:
                fact, hint = protocol.no_common_protocol(self._host, answered, version=__version__, ours=self._speaks)
                raise HostRefuses(fact, hint=hint, refusal=answered.error)
            answered = self._told(request, common)
        if answered.error is not None:
            raise self._refused(answered.error)
        assert isinstance(answered.answer, kind)  # by the ask
        return answered.answer

    def _told(self, request: Request, spoken: int) -> Answered:
        text = self._exchange(protocol.request_text(request, protocol=spoken, version=__version__))
        try:
            return protocol.parse_answer(text, request)
        except VerificationError as error:  # `Unreadable` is one
            raise HostRefuses(f"{self._host}: {error.message}", hint=error.hint) from error

    def _refused(self, error: RunError) -> HostAway | HostRefuses:
        said, hint = on_one_line(error.message)[:_LONGEST_SAID], on_one_line(error.hint)[:_LONGEST_SAID]
        if error.code in _PASSING:
            return HostAway(f"{self._host}: {said}", hint=hint)
        return HostRefuses(f"{self._host}: {said}", hint=hint, refusal=error)


def _outside(clock: datetime, began: datetime, ended: datetime) -> float:
    """How far a clock that was read between these instants is ahead; 0 where it may well be right."""
    if clock < began:
        return (clock - began).total_seconds()
    return max(0.0, (clock - ended).total_seconds())
