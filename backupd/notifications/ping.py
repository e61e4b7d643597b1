"""A ping to a watcher that raises the alarm when none comes: healthchecks.io, and what speaks as it does.

Knows: its protocol (healthchecks.io/docs/http_api): the address itself is "good", `/start` and `/fail` below it are
what they say, and the body is kept for people. One address watches one job: `jobs` says which.
"""

from urllib.parse import urlsplit

from backupd.config import PingConfig
from backupd.notifications import web
from backupd.notifications.words import body
from backupd.vocabulary.schedule import Notice, NoticeKind

_MOST_BYTES = 10_000  # of a body, that a healthchecks server of one's own keeps (PING_BODY_LIMIT)
_BELOW = {
    NoticeKind.STARTED: "/start",
    NoticeKind.FAILED: "/fail",
    NoticeKind.RETRYING: "/log",  # it is kept, and says neither that all is well nor that it is not
    NoticeKind.MISSED: "/fail",
    NoticeKind.ALARM: "/fail",
    NoticeKind.OVER: "/log",  # of one thing of several: a run tells that all is well
    NoticeKind.DIGEST: "/log",
}


class Ping:
    """The `NotificationChannel` of one `[notifications.NAME]` with `type = "ping"`."""

    def __init__(self, config: PingConfig, *, deadline_seconds: float = 10.0) -> None:
        self._config = config
        self._deadline_seconds = deadline_seconds

    def deliver(self, notice: Notice) -> None:
        """See `NotificationChannel`."""
        config = self._config
        parts = urlsplit(web.address_in(config.url, config.url_file, named=f"notifications.{config.name}"))
        address = parts._replace(path=parts.path.rstrip("/") + _below(notice)).geturl()
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        text = body(notice).encode()[:_MOST_BYTES]
        web.post(address, text, headers=headers, ca=config.ca, deadline_seconds=self._deadline_seconds)


def _below(notice: Notice) -> str:
    """Only a backup is "good": a watcher must take neither a test for one nor what a check or a fleet finds."""
    return _BELOW.get(notice.kind, "" if notice.backed_up else "/log")
