"""A mail through a server that takes it: as text, and as a page for whoever's program shows one.

Knows: SMTP with STARTTLS, TLS or neither, a password, a deadline over all of it. What a server or a disk has said
is in the body only, so that no header can be slipped in.
"""

import contextlib
import logging
import smtplib
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Any

from jinja2 import TemplateError

from backupd.config import MailConfig, MailSecurity
from backupd.config.secrets import line_in
from backupd.notifications.connection import ended_after, tls, undelivered
from backupd.notifications.words import body, title
from backupd.vocabulary.errors import NotificationError, PerhapsNotified
from backupd.vocabulary.schedule import Notice

log = logging.getLogger(__name__)

_PORTS = {MailSecurity.STARTTLS: 587, MailSecurity.TLS: 465, MailSecurity.NONE: 25}

Page = Callable[[Notice], str]  # the text of an HTML file that loads nothing


class _Client(smtplib.SMTP):
    """It remembers whether it began to send a mail's content, which the server may have taken from then on."""

    has_sent_data = False

    def data(self, msg: Any) -> tuple[int, bytes]:
        """See `smtplib.SMTP`: by it `send_message` sends the content, once there is somebody to get it."""
        self.has_sent_data = True
        return super().data(msg)


class _ClientOfTls(_Client, smtplib.SMTP_SSL):
    """The same over TLS from the first byte."""


class Mail:
    """The `NotificationChannel` of one `[notifications.NAME]` with `type = "mail"`."""

    def __init__(self, config: MailConfig, page: Page, *, deadline_seconds: float = 30.0) -> None:
        self._config = config
        self._page = page
        self._deadline_seconds = deadline_seconds

    def deliver(self, notice: Notice) -> None:
        """See `NotificationChannel`; where the server takes it for some recipients only, that is an error."""
        config, deadline = self._config, self._deadline_seconds
        client = _client(config, deadline)
        port = config.port or _PORTS[config.security]
        where = f"mail server {config.address}:{port}"
        began = time.monotonic()
        try:
            with ended_after(deadline, lambda: client.sock):
                client.connect(config.address, port)
                self._log_in(client)
                barred = _barred(client, config, where)
                reached = tuple(one for one in config.recipients if one not in barred)
                refused = client.send_message(message(notice, replace(config, recipients=reached), self._page))
                with contextlib.suppress(smtplib.SMTPException, OSError):  # it has been taken: how we part is the same
                    client.quit()
        except (smtplib.SMTPException, OSError) as error:
            if isinstance(error, smtplib.SMTPException) and not isinstance(error, smtplib.SMTPServerDisconnected):
                raise _refused(where, error) from None
            took, sent = time.monotonic() - began, client.has_sent_data
            raise undelivered(where, error, took=took, deadline=deadline, sent=sent) from None
        finally:
            client.close()
        lacking = [f"refused {', '.join(refused)}"] if refused else []
        lacking += [_lacks_utf8(barred)] if barred else []
        if lacking:
            raise PerhapsNotified(f"{where} {' and '.join(lacking)}", hint="the other recipients got the mail")

    def _log_in(self, client: smtplib.SMTP) -> None:
        config = self._config
        if config.security is MailSecurity.STARTTLS:
            client.starttls(context=tls(config.ca))
        if config.user is not None and config.password_file is not None:
            password = line_in(config.password_file, named=f"notifications.{config.name}.password_file")
            client.login(config.user, password)


def message(notice: Notice, config: MailConfig, page: Page) -> EmailMessage:
    """The mail. `Auto-Submitted` keeps other programs from answering it (RFC 3834)."""
    mail = EmailMessage()
    mail["Subject"] = title(notice)
    mail["From"] = config.sender
    mail["To"] = ", ".join(config.recipients)
    mail["Date"] = format_datetime(notice.at)
    mail["Message-ID"] = make_msgid(domain=config.sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(body(notice))
    try:
        shown = page(notice)
    except (TemplateError, OSError) as error:  # an upgrade stopped half-way: whoever is to be woken is woken by text
        log.warning("notification %s has no page: %s; it is sent as text only", config.name, type(error).__name__)
    else:
        mail.add_alternative(shown, subtype="html")
    return mail


def _barred(client: smtplib.SMTP, config: MailConfig, where: str) -> tuple[str, ...]:
    """The recipients whom this server cannot reach: beyond ASCII it needs SMTPUTF8 (RFC 6531), or refuses them all.

    Raises:
        NotificationError: it cannot take the mail for anybody.
    """
    client.ehlo_or_helo_if_needed()
    barred = tuple(one for one in config.recipients if not one.isascii())
    if client.has_extn("smtputf8"):
        return ()
    if not config.sender.isascii():
        raise NotificationError(f"{where} {_lacks_utf8((config.sender,))}", hint="use an ASCII address as the sender")
    if len(barred) == len(config.recipients):
        raise NotificationError(f"{where} {_lacks_utf8(barred)}", hint="use an ASCII address of the same mailbox")
    return barred


def _lacks_utf8(addresses: tuple[str, ...]) -> str:
    return f"lacks SMTPUTF8, which it would need for {', '.join(addresses)}"


def _client(config: MailConfig, seconds: float) -> _Client:
    """Not connected yet, so that its socket can be seen while it connects. The name of ours is given, never asked for:
    smtplib would ask a name server, without a deadline."""
    ours = socket.gethostname()
    if config.security is MailSecurity.TLS:
        client: _Client = _ClientOfTls(timeout=seconds, local_hostname=ours, context=tls(config.ca))
    else:
        client = _Client(timeout=seconds, local_hostname=ours)
    # What the certificate is compared with; the constructor sets it only where it connects at once (Python 3.11).
    vars(client)["_host"] = config.address
    return client


def _refused(where: str, error: smtplib.SMTPException) -> NotificationError:
    """The server's number without its words: they may repeat what it was told."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return NotificationError(f"{where} rejects the login: {error.smtp_code}", hint="check user and password_file")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return NotificationError(f"{where} refused every recipient", hint="does it accept mail without a login?")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        hint = 'try security = "tls", or another port; "none" sends the mail unencrypted'
        if "AUTH" in str(error):
            hint = "remove user and password_file if it asks for no login; otherwise check the port"
        return NotificationError(f"{where} does not support what is needed: {error}", hint=hint)
    code = f" with {error.smtp_code}" if isinstance(error, smtplib.SMTPResponseException) else ""
    return NotificationError(f"{where} did not accept the mail{code}", hint="check its own log")
