"""Everybody who wants to hear of something is told at the same time, and nobody is waited for beyond a deadline.

Knows: who wants what, and that a failure is a line in the log.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from backupd.host.daemon_thread import begin
from backupd.notifications import NotificationChannel
from backupd.vocabulary.errors import BackupdError, NotificationError, PerhapsNotified
from backupd.vocabulary.schedule import Notice, NoticeKind

log = logging.getLogger(__name__)

LONGEST_SECONDS = 30.0  # that a run is kept waiting by all of them together, each time that it tells something
_PATIENCE = 3  # times as long, where no run waits: a channel whose own deadline is over by then says whom it reached


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A channel, and what is told there."""

    name: str
    kinds: frozenset[NoticeKind]
    jobs: frozenset[str]  # of this machine; all that there is to tell when empty
    channel: NotificationChannel

    def wants(self, notice: Notice) -> bool:
        """Whether it is to be told of this."""
        return notice.kind in self.kinds and (not self.jobs or not self.jobs.isdisjoint(_own_jobs(notice)))


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one notice on one channel."""

    name: str
    seconds: float
    error: BackupdError | None

    @property
    def may_be_heard(self) -> bool:
        """Somebody has it, or may have: another try could tell them twice."""
        return self.error is None or isinstance(self.error, PerhapsNotified)


class Fanout:
    """The `Notifier` over any number of channels."""

    def __init__(self, subscribers: Sequence[Subscriber], *, within_seconds: float = LONGEST_SECONDS) -> None:
        self.subscribers = tuple(subscribers)
        self._within_seconds = within_seconds

    def tell(self, notice: Notice) -> None:
        """See `Notifier`. Returns within the deadline of all."""
        self._told(notice, self._within_seconds)

    def tell_somebody(self, notice: Notice) -> None:
        """The same for whoever tries again where nobody was told, and has more time.

        Raises:
            NotificationError: there are some who want to hear of it, and it has certainly reached none of them.
        """
        told = self._told(notice, _PATIENCE * self._within_seconds)
        if told and not any(delivery.may_be_heard for delivery in told):
            raise NotificationError("no notification was delivered", hint="see the log for the reason of each")

    def _told(self, notice: Notice, within_seconds: float) -> list[Delivery]:
        """What became of it on each channel that wants it."""
        wanted = [subscriber for subscriber in self.subscribers if subscriber.wants(notice)]
        told = self._delivered(wanted, notice, within_seconds)
        for delivery in told:
            if delivery.error is not None:
                log.warning(
                    "notification %s was not delivered (%s, %s): %s; hint: %s",
                    *(delivery.name, notice.kind, _whose(notice), delivery.error.message, delivery.error.hint),
                )
        return told

    def deliver(self, subscribers: Sequence[Subscriber], notice: Notice) -> list[Delivery]:
        """What became of it on each of these, whatever they want to hear of, in their order."""
        return self._delivered(subscribers, notice, self._within_seconds)

    def _delivered(self, subscribers: Sequence[Subscriber], notice: Notice, within_seconds: float) -> list[Delivery]:
        answers: SimpleQueue[Delivery] = SimpleQueue()
        began = time.monotonic()
        for subscriber in subscribers:
            name = f"notification {subscriber.name}"
            thread = threading.Thread(target=_deliver, args=(subscriber, notice, answers), name=name, daemon=True)
            try:
                begin(thread)
            except RuntimeError as none:  # no room for one more thread
                error = NotificationError(str(none), hint="check the free memory (free -m) and the limits of its unit")
                answers.put(Delivery(subscriber.name, 0.0, error))
        known: dict[str, Delivery] = {}
        while len(known) < len(subscribers):
            try:
                delivery = answers.get(timeout=max(0.0, began + within_seconds - time.monotonic()))
            except Empty:
                break
            known[delivery.name] = delivery
        return [known.get(subscriber.name) or _late(subscriber, within_seconds) for subscriber in subscribers]


def _late(subscriber: Subscriber, within_seconds: float) -> Delivery:
    """It goes on beyond that, and may yet succeed."""
    error = PerhapsNotified(f"it did not finish within {within_seconds:g} s", hint="backupd stopped waiting")
    return Delivery(subscriber.name, within_seconds, error)


def _own_jobs(notice: Notice) -> tuple[str, ...]:
    """Of this machine, that it is of: a job of a fleet's cluster is none, whatever it is called."""
    return (notice.job, *notice.concerns) if notice.cluster is None else ()


def _whose(notice: Notice) -> str:
    if notice.cluster is not None:
        return f"cluster {notice.cluster}" if notice.cluster else "the fleet"
    if notice.job:
        return f"job {notice.job}"
    return f"target {notice.target}" if notice.target else "the whole machine"


def _deliver(subscriber: Subscriber, notice: Notice, answers: SimpleQueue[Delivery]) -> None:
    began = time.monotonic()
    error: BackupdError | None = None
    try:
        subscriber.channel.deliver(notice)
    except BackupdError as failed:
        error = failed
    except BaseException as bug:  # noqa: BLE001 - nothing is swallowed: it is told like any other failure
        # By its kind only: what it says may hold a secret.
        error = NotificationError(f"internal error: {type(bug).__name__}", hint="this is a bug; please report it")
    answers.put(Delivery(subscriber.name, time.monotonic() - began, error))
