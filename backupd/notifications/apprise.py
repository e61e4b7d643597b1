"""Whatever the package Apprise can reach, by its own addresses: one a line in a file that only we can read.

Knows: how it is asked, and what of a stranger's words stays live where a service takes text for Markdown. Refuses to
log what it logs, for that may hold an address. The package is an extra.
"""

import logging
import re

from backupd.config import AppriseConfig
from backupd.config.secrets import private_text
from backupd.notifications.words import body, title
from backupd.vocabulary.errors import NotificationError, PerhapsNotified, missing_package
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

# By it Discord, Google Chat, Mattermost, Rocket.Chat and Slack call everybody or one person, and hide an address behind
# other words, whatever format they are given. What is pasted into a shell or a server stays as it is: unit@job,
# backupd@here.lan, 'user'@'host', @@variable, a<b, <<EOF, [::1]:3306.
_LIVE = re.compile(
    r"""
      (?<![^\W_])(?<!@)@(?=\w)                             # a name by itself, also in _italics_
    | @(?=everyone|(?:here|all|channel)(?![\w-]|\.\w))      # Discord does not ask what is before it
    | <(?=[!@\#]|users/|/?\w[\w+.-]*:)                      # Slack's and Google's <…|…>, of any scheme; <t:0>, </say:0>
    | <(?=/?[a-z][a-z0-9]*(?:\s+[\w:-]+\s*=|\s*/?>))        # a tag
    | \](?=[(\[]|:(?!\d))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_WIDTH = "\u200b"


class Apprise:
    """The `NotificationChannel` of one `[notifications.NAME]` with `type = "apprise"`.

    Its services have deadlines of their own.
    """

    def __init__(self, config: AppriseConfig) -> None:
        self._config = config

    def deliver(self, notice: Notice) -> None:
        """See `NotificationChannel`; where one of several services fails, that is an error."""
        named = f"notifications.{self._config.name}"
        try:
            from apprise import Apprise as Services
            from apprise import NotifyFormat, OverflowMode
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
        for service in services:
            if "overflow_mode" not in vars(service):  # nor does its address say otherwise, by ?overflow=
                # One message, the sentence first: parts would be dozens by SMS, and seconds apart beyond our deadline.
                service.overflow_mode = OverflowMode.TRUNCATE
        told = services.notify(
            title=_inert(title(notice)),
            body=_inert(body(notice)),
            body_format=NotifyFormat.TEXT,
            notify_type=_GRAVITY[notice.kind],
        )
        if not told:
            kind = PerhapsNotified if told.success_count else NotificationError
            raise kind(f"{named}: apprise could not notify every service", hint="try its own command `apprise -v`")


def _inert(text: str) -> str:
    """The same to the eye; nobody is called by it, and no address is hidden. One that is shown may still be a link."""
    return _LIVE.sub(lambda found: found.group() + _NO_WIDTH, text)
