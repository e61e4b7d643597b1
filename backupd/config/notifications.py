"""`[notifications.NAME]`: the ways of telling somebody, one table for each kind."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from backupd.config.fields import AbsolutePath, MailAddress, MailAddresses, SecretFile, Text, WebAddress, WholeNumber
from backupd.config.table import TABLE, OwnName
from backupd.vocabulary.schedule import NoticeKind


class NotificationKind(StrEnum):
    """Ways of telling somebody."""

    MAIL = "mail"
    WEBHOOK = "webhook"
    PING = "ping"
    APPRISE = "apprise"


class MailSecurity(StrEnum):
    """How the way to a mail server is secured."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


_ALARMS = (
    NoticeKind.FAILED,
    NoticeKind.MISSED,
    NoticeKind.ATTENTION,
    NoticeKind.RECOVERED,
    NoticeKind.ALARM,
    NoticeKind.OVER,
    NoticeKind.DIGEST,
)
_ENDINGS = (
    NoticeKind.STARTED,
    NoticeKind.SUCCEEDED,
    NoticeKind.ATTENTION,
    NoticeKind.RECOVERED,
    NoticeKind.FAILED,
    NoticeKind.MISSED,
)


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class MailConfig:
    """`[notifications.NAME]` with `type = "mail"`: a mail, through a server that takes it."""

    name: OwnName
    type: Literal[NotificationKind.MAIL]
    on: tuple[NoticeKind, ...] = _ALARMS
    jobs: tuple[Text, ...] = ()  # every one when empty; the same below
    address: Text = "localhost"
    port: Annotated[WholeNumber, Field(ge=1, le=65535)] | None = None  # None: 587, 465 with tls, 25 with none
    security: MailSecurity = MailSecurity.STARTTLS
    ca: AbsolutePath | None = None
    user: Text | None = None  # None: the server asks nobody
    password_file: SecretFile | None = None
    sender: MailAddress
    recipients: MailAddresses


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class WebhookConfig:
    """`[notifications.NAME]` with `type = "webhook"`: one JSON document, to a program that listens."""

    name: OwnName
    type: Literal[NotificationKind.WEBHOOK]
    on: tuple[NoticeKind, ...] = _ALARMS
    jobs: tuple[Text, ...] = ()
    url: WebAddress | None = None
    url_file: SecretFile | None = None
    token_file: SecretFile | None = None
    ca: AbsolutePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class PingConfig:
    """`[notifications.NAME]` with `type = "ping"`: to a watcher that misses what does not come, as healthchecks.io."""

    name: OwnName
    type: Literal[NotificationKind.PING]
    on: tuple[NoticeKind, ...] = _ENDINGS
    jobs: tuple[Text, ...] = ()
    url: WebAddress | None = None
    url_file: SecretFile | None = None
    ca: AbsolutePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class AppriseConfig:
    """`[notifications.NAME]` with `type = "apprise"`: whatever that package can reach."""

    name: OwnName
    type: Literal[NotificationKind.APPRISE]
    on: tuple[NoticeKind, ...] = _ALARMS
    jobs: tuple[Text, ...] = ()
    urls_file: SecretFile


NotificationConfig = MailConfig | WebhookConfig | PingConfig | AppriseConfig
