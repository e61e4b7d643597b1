"""Telling people without waiting for them: a mail server that does not answer must not keep the clock waiting.

Knows: the order, and that what could not be told before the end is at least in the log.
"""

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from backupd.notifications import Notifier
from backupd.vocabulary.schedule import Notice

log = logging.getLogger(__name__)

_LAST_WORD_SECONDS = 0.5


@dataclass(slots=True)
class Telling:
    """Whoever calls it does not wait until the notice is told, by whatever the notifier is then."""

    notifier: Notifier
    waiting: "queue.Queue[Notice | None]" = field(default_factory=queue.Queue)

    def __call__(self, notice: Notice) -> None:
        """It is told after those before it."""
        self.waiting.put(notice)

    @property
    def is_done(self) -> bool:
        """All of them have been told, or it is in the log why not."""
        return not self.waiting.unfinished_tasks


@contextmanager
def told_by_a_thread(notifier: Notifier) -> Iterator[Telling]:
    """What is given is told one after the other; nobody waits for it.

    What has not been told when the block ends has half a second, and then is told by the log alone.
    """
    telling = Telling(notifier)
    thread = threading.Thread(target=_tell, args=(telling,), name="telling", daemon=True)
    thread.start()
    try:
        yield telling
    finally:
        telling.waiting.put(None)
        thread.join(_LAST_WORD_SECONDS)
        if thread.is_alive():
            log.warning("the daemon stops before all notifications were sent: see `backupd schedule list`")


def _tell(telling: Telling) -> None:
    while (notice := telling.waiting.get()) is not None:
        telling.notifier.tell(notice)
        telling.waiting.task_done()
