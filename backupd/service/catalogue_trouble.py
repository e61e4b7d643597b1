"""That the catalogue cannot be used: people are told so without it, which remembers what they have heard of all else.

Knows: how long that may be the passing lock of another command. A daemon that is started anew tells it anew.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from backupd.report.words import age, instant
from backupd.vocabulary.alarms import Severity
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.schedule import Notice, NoticeKind

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
AGAIN_SECONDS = 86400.0


@dataclass(slots=True)
class CatalogueTrouble:
    """What there is of it, and what was told. One thread only."""

    tell: Callable[[Notice], None]
    now: Callable[[], datetime]
    clock: Callable[[], float] = time.monotonic
    said: str = ""  # of the look before; empty: there was none
    _since: tuple[datetime, float] | None = None
    _told_at: float | None = None

    def stands(self, error: CatalogueError, jobs: Iterable[str]) -> None:
        """It cannot be used. People hear of it once it has lasted, and once a day from then on."""
        if error.message != self.said:
            log.error("nothing can be started or recorded: %s; hint: %s", error.message, error.hint)
        self.said = error.message
        passed = self.clock()
        since, began = self._since or (self.now(), passed)
        self._since = since, began
        due = began + PATIENCE_SECONDS if self._told_at is None else self._told_at + AGAIN_SECONDS
        if passed < due:
            return
        self._told_at = passed
        lasts = f"seen for {age(passed - began)}, since {instant(since)}"
        text = f"nothing can be started or recorded: {error.message} ({lasts})"
        self._notice(NoticeKind.ALARM, text, jobs, {"hint": error.hint, "type now": "backupd catalogue check"})

    def over(self, jobs: Iterable[str]) -> None:
        """It can be used; whoever has heard of the trouble hears of its end."""
        if self.said:
            log.info("the catalogue is available again")
        if self._told_at is not None:
            self._notice(NoticeKind.OVER, "the catalogue is available again", jobs, {})
        self.said, self._since, self._told_at = "", None, None

    def _notice(self, kind: NoticeKind, text: str, jobs: Iterable[str], detail: dict[str, str]) -> None:
        assert self._since is not None
        subject = f"catalogue since {self._since[0].isoformat()}"
        graded = {"alarm": "catalogue", "severity": Severity.CRITICAL.value, **detail}
        self.tell(Notice(kind, "", self.now(), subject, text, graded, concerns=tuple(jobs)))
