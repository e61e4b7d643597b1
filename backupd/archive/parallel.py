"""Work on several objects at once, while the main thread stays where a signal finds it.

Knows: that the first failure ends the others, and that no thread is left when it is told.
"""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from backupd.archive.readahead import Left
from backupd.host.daemon_thread import await_end, begin, goes_on
from backupd.host.signals import shielded

MOST_AT_ONCE = 4  # a few streams fill any disk or network; each takes the memory of two frames

Task = Callable[[Callable[[], None]], None]  # is given what it is to call now and then: it raises when nobody waits

_TICK_SECONDS = 0.1
_JOIN_SECONDS = 15.0  # longer than a thread waits for one of its own


def side_by_side(tasks: Sequence[Task], *, idle: Callable[[], None], at_once: int = MOST_AT_ONCE) -> None:
    """Every task is done. Raises what the first one that failed has raised; the others have ended then as well.

    `idle` is called in the calling thread several times a second.
    """
    waiting: SimpleQueue[Task] = SimpleQueue()
    for task in tasks:
        waiting.put(task)
    left = threading.Event()
    errors: list[BaseException] = []

    def require_wanted() -> None:
        if left.is_set():
            raise Left

    def work() -> None:
        try:
            while not left.is_set():
                waiting.get_nowait()(require_wanted)
        except (Empty, Left):
            pass
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: the calling thread raises it
            errors.append(error)
            left.set()

    threads = [
        threading.Thread(target=work, name=f"backupd works {number}", daemon=True)
        for number in range(1, min(len(tasks), at_once) + 1)
    ]
    try:
        for thread in threads:
            begin(thread)
        for thread in threads:
            while goes_on(thread, after_seconds=_TICK_SECONDS):
                idle()
    finally:
        left.set()
        with shielded():
            for thread in threads:
                await_end(thread, within_seconds=_JOIN_SECONDS)
    if errors:
        raise errors[0]
