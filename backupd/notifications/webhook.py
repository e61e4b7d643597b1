"""A JSON document to a program that listens: `words.document`, by POST, with a bearer token where there is one."""

import json

from backupd.config import WebhookConfig
from backupd.config.exposure import leaves_in_clear
from backupd.config.secrets import line_in
from backupd.notifications import web
from backupd.notifications.words import document
from backupd.vocabulary.errors import NotificationError
from backupd.vocabulary.schedule import Notice


class Webhook:
    """The `NotificationChannel` of one `[notifications.NAME]` with `type = "webhook"`."""

    def __init__(self, config: WebhookConfig, *, deadline_seconds: float = 10.0) -> None:
        self._config = config
        self._deadline_seconds = deadline_seconds

    def deliver(self, notice: Notice) -> None:
        """See `NotificationChannel`."""
        config, named = self._config, f"notifications.{self._config.name}"
        address = web.address_in(config.url, config.url_file, named=named)
        headers = {"Content-Type": "application/json"}
        if config.token_file is not None:
            if leaves_in_clear(address):
                raise NotificationError(f"{named}: its token would be sent unencrypted over http", hint="use https")
            token = line_in(config.token_file, named=f"{named}.token_file", content="the token")
            headers["Authorization"] = f"Bearer {_in_a_header(token, named)}"
        body = json.dumps(document(notice)).encode()
        web.post(address, body, headers=headers, ca=config.ca, deadline_seconds=self._deadline_seconds)


def _in_a_header(token: str, named: str) -> str:
    if not all("!" <= letter <= "~" for letter in token):
        raise NotificationError(f"{named}.token_file: a token is printable ASCII without blanks", hint="write it again")
    return token
