"""Whatever the package Apprise can reach, by its own addresses: one a line in a file that only we can read.

Knows: how it is asked. Refuses to log what it logs, for that may hold an address. The package is an extra.
"""

import logging

from backupd.config import AppriseConfig
from backupd.config.secrets import private_text
from backupd.notifications.words import body, title
from backupd.vocabulary.errors import NotificationError, missing_package
from backupd.vocabulary.schedule import Notice, NoticeKind

_GRAVITY = {
    NoticeKind.STARTED: "info",
    NoticeKind.SUCCEEDED: "success",
    NoticeKind.RECOVERED: "success",
    NoticeKind.ATTENTION: "warning",
    NoticeKind.ALARM: "warning",
    NoticeKind.OVER: "success",
    NoticeKind.DIGEST: "info",
    NoticeKind.RETRYING: "warning",
    NoticeKind.MISSED: "failure",
    NoticeKind.FAILED: "failure",
}


class Apprise:
    """The `Channel` of one `[notifications.NAME]` with `type = "apprise"`. Its services have deadlines of their own."""

    def __init__(self, config: AppriseConfig) -> None:
        self._config = config

    def deliver(self, notice: Notice) -> None:
        """See `Channel`; where one of several services fails, all count as undelivered."""
        named = f"notifications.{self._config.name}"
        try:
            from apprise import Apprise as Services
            from apprise import NotifyType
        except ImportError as error:
            raise NotificationError(
                f"{named}: the package apprise is not installed", hint=missing_package("apprise", packaged=False)
            ) from error
        for talker in ("apprise", "urllib3"):  # the second shows the paths that it asks for (2.8.0, at DEBUG)
            logging.getLogger(talker).setLevel(logging.CRITICAL)
        services = Services()
        text = private_text(f"{named}.urls_file", self._config.urls_file, content="the addresses")
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.startswith("#") and not services.add(line.strip()):
                raise NotificationError(
                    f"{named}.urls_file: line {number} is not an address that apprise supports",
                    hint="write one per line, such as ntfy://…",
                )
        gravity = NotifyType(_GRAVITY[notice.kind])
        if not services.notify(title=title(notice), body=body(notice), notify_type=gravity):
            raise NotificationError(
                f"{named}: apprise could not notify every service", hint="try its own command `apprise -v`"
            )
