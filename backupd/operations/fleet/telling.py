"""People are told what they are owed, beside the control host's tick: a mail server that hangs holds up no backup.

Knows: that a notice is owed until somebody who wants it has heard of it, or nobody has for a day. A control host that
is killed meanwhile has told it perhaps; the next one tells it again.
"""

import logging
import threading
from time import monotonic
from typing import Final

from backupd.fleet.owed_notices import OwedNotices
from backupd.host.scoped_thread import ScopedThread
from backupd.operations.fleet.fleet_notices import Tell
from backupd.vocabulary.errors import FleetDatabaseError, NotificationError
from backupd.vocabulary.schedule import Notice

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0  # from one look at what is owed to the next
_FIRST_WAIT_SECONDS: Final = 60.0  # after a first try that nobody has heard of; then longer and longer
_LONGEST_WAIT_SECONDS: Final = 3600.0
_IN_VAIN_SECONDS: Final = 86400.0  # and it is in the log only
_END_SECONDS: Final = 30.0  # that the end waits for what is owed: the next control host tells the rest


class OwedTelling(ScopedThread):
    """Whatever is owed is told within the block, one after the other; at its end what is owed by then, if that is soon.

    What one notice raises, or the database, is logged, and tried again: backups go on whoever can be told of them.
    """

    def __init__(self, notices: OwedNotices, tell: Tell) -> None:
        self._notices, self._tell = notices, tell
        self._told: set[str] = set()  # though the database, on a full disk, could not take that: not told at each look
        self._in_vain: dict[str, tuple[float, float]] = {}  # since when, and when again; by the monotonic clock
        self._ended = threading.Event()
        super().__init__("telling", self._until_ended, stop=self._ended.set, end_seconds=_END_SECONDS)

    def _until_ended(self) -> None:
        while True:
            last = self._ended.is_set()
            try:
                self._tell_owed()
            except FleetDatabaseError as error:
                log.warning("%s", error)
            if last:
                return
            self._ended.wait(_LOOK_SECONDS)

    def _tell_owed(self) -> None:
        for about, notice in self._notices.waiting():
            if about in self._told or self._is_over(about, notice):
                self._told.add(about)
                self._notices.told(about)
                self._told.discard(about)

    def _is_over(self, about: str, notice: Notice) -> bool:
        """People have heard of it, or it was tried for long enough."""
        now = monotonic()
        since, again_at = self._in_vain.get(about, (now, now))
        if now < again_at:
            return False
        try:
            self._tell(notice)
        except Exception as error:  # whatever it is, neither the next notice nor a backup waits for its end
            if now - since < _IN_VAIN_SECONDS:
                wait = min(max(now - since, _FIRST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
                self._in_vain[about] = since, now + wait
                bug = None if isinstance(error, NotificationError) else error
                log.warning("nobody was told: %s: %s; trying again in %.0f s", notice.text, error, wait, exc_info=bug)
                return False
            log.error("nobody could be told for a day: %s: %s", notice.text, error)
        self._in_vain.pop(about, None)
        return True
