"""What the daemon itself lacks: people are told so without the catalogue, which remembers what they heard of all else.

Knows: how long that may be a passing thing, the lock of another command or a daemon before this one that still has the
port. A daemon that is started anew tells it anew.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backupd.report.words import age, instant
from backupd.vocabulary.alarms import Severity
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.schedule import Notice, NoticeKind

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
AGAIN_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Lack:
    """What cannot be had, and what that means."""

    alarm: str  # its name, which a title has too
    means: str
    over: str  # what is said of its end
    severity: Severity
    detail: Mapping[str, str] = field(default_factory=dict)


CATALOGUE = Lack(
    "catalogue",
    "nothing can be started or recorded",
    "the catalogue is available again",
    Severity.CRITICAL,
    {"type now": "backupd catalogue check"},
)
WEB_PORT = Lack(
    "web-port", "there are no pages and no metrics", "pages and metrics are available again", Severity.WARNING
)


@dataclass(slots=True)
class DaemonTrouble:
    """How long something has been lacking, and what was told of it. One thread only."""

    lack: Lack
    tell: Callable[[Notice], None]
    now: Callable[[], datetime]
    clock: Callable[[], float] = time.monotonic
    said: str = ""  # of the look before; empty: there was none
    _since: tuple[datetime, float] | None = None
    _told_at: float | None = None

    def stands(self, error: BackupdError, jobs: Iterable[str]) -> None:
        """It cannot be had. People hear of it once it has lasted, and once a day from then on."""
        if error.message != self.said:
            log.error("%s: %s; hint: %s", self.lack.means, error.message, error.hint)
        self.said = error.message
        passed = self.clock()
        since, began = self._since or (self.now(), passed)
        self._since = since, began
        due = began + PATIENCE_SECONDS if self._told_at is None else self._told_at + AGAIN_SECONDS
        if passed < due:
            return
        self._told_at = passed
        lasts = f"seen for {age(passed - began)}, since {instant(since)}"
        text = f"{self.lack.means}: {error.message} ({lasts})"
        self._notice(NoticeKind.ALARM, text, jobs, {"hint": error.hint, **self.lack.detail})

    def over(self, jobs: Iterable[str]) -> None:
        """It can be had; whoever has heard of the trouble hears of its end."""
        if self.said:
            log.info("%s", self.lack.over)
        if self._told_at is not None:
            self._notice(NoticeKind.OVER, self.lack.over, jobs, {})
        self.said, self._since, self._told_at = "", None, None

    def _notice(self, kind: NoticeKind, text: str, jobs: Iterable[str], detail: dict[str, str]) -> None:
        assert self._since is not None
        subject = f"{self.lack.alarm} since {self._since[0].isoformat()}"
        graded = {"alarm": self.lack.alarm, "severity": self.lack.severity.value, **detail}
        self.tell(Notice(kind, "", self.now(), subject, text, graded, concerns=tuple(jobs)))
