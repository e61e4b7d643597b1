"""Telling people without waiting for them: a mail server that does not answer must not keep the clock waiting.

Knows: the order, and that what could not be told before the end is at least in the log.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backupd.notifications import Notifier
from backupd.vocabulary.schedule import Notice

log = logging.getLogger(__name__)

_LAST_WORD_SECONDS = 0.5


@contextmanager
def told_by_a_thread(notifier: Callable[[], Notifier]) -> Iterator[Callable[[Notice], None]]:
    """What is given is told one after the other, by whatever the notifier is then; nobody waits for it.

    What has not been told when the block ends has half a second, and then is told by the log alone.
    """
    waiting: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
    thread = threading.Thread(target=_tell, args=(notifier, waiting), name="telling", daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join(_LAST_WORD_SECONDS)
        if thread.is_alive():
            log.warning("the daemon stops before all notifications were sent: see `backupd schedule list`")


def _tell(notifier: Callable[[], Notifier], waiting: "queue.SimpleQueue[Notice | None]") -> None:
    while (notice := waiting.get()) is not None:
        notifier().tell(notice)
