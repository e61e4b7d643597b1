"""Everybody is told by real servers on loopback, good and bad ones; what was to be secret is nowhere to be read."""

import json
import logging
import smtplib
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from backupd import wiring
from backupd.config import AppriseConfig, Configuration, MailConfig, NotificationConfig, PingConfig, WebhookConfig
from backupd.notifications import NotificationChannel
from backupd.notifications.apprise import Apprise
from backupd.notifications.fanout import Fanout, Subscriber
from backupd.notifications.mail import Mail
from backupd.notifications.ping import Ping
from backupd.notifications.webhook import Webhook
from backupd.report.notice_html import notice_page
from backupd.vocabulary.errors import BackupdError, ConfigurationError, NotificationError, PerhapsNotified
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.contract.certificates import Certificate, certificate
from tests.contract.peers import MailPeer, Manner, WebPeer, mail_server, page_of, web_server, words_of

CANARY = "c4n4ry-s3cr3t"
DEADLINE = 0.3  # seconds, for peers that never end
AT = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)


def notice(kind: NoticeKind = NoticeKind.FAILED, *, text: str = "the disk is full", job: str = "nightly") -> Notice:
    return Notice(kind, job, AT, "r1", text, {"hint": "make room"})


@pytest.fixture(scope="module")
def cert(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_side(cert: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert.chain)
    return context


@pytest.fixture
def secret(tmp_path: Path) -> Callable[..., Path]:
    """A file that only we can read."""

    def write(text: str = CANARY) -> Path:
        path = tmp_path / "secret"
        path.write_text(f"{text}\n")
        path.chmod(0o600)
        return path

    return write


def mail_config(port: int, **keys: Any) -> MailConfig:
    given = {
        "name": "dba",
        "type": "mail",
        "address": "127.0.0.1",
        "port": port,
        "security": "none",
        "sender": "backupd@example.com",
        "recipients": ["dba@example.com", "boss@example.com"],
    }
    return TypeAdapter(MailConfig).validate_python(given | keys)


def webhook_config(**keys: Any) -> WebhookConfig:
    return TypeAdapter(WebhookConfig).validate_python({"name": "chat", "type": "webhook"} | keys)


def ping_config(**keys: Any) -> PingConfig:
    return TypeAdapter(PingConfig).validate_python({"name": "watcher", "type": "ping"} | keys)


def undelivered(channel: NotificationChannel) -> BackupdError:
    """The error; it came before the channel's own deadline."""
    began = time.monotonic()
    with pytest.raises((NotificationError, ConfigurationError)) as caught:
        channel.deliver(notice())
    assert time.monotonic() - began < 8
    assert caught.value.hint
    return caught.value


# --- mail -------------------------------------------------------------------------------------------------------------


def test_a_mail_says_who_what_and_why() -> None:
    with mail_server(MailPeer()) as peer:
        Mail(mail_config(peer.port), notice_page).deliver(notice())
    (mail,) = peer.mails
    assert (mail["From"], mail["To"]) == ("backupd@example.com", "dba@example.com, boss@example.com")
    assert mail["Subject"].endswith(": nightly failed")
    assert mail["Auto-Submitted"] == "auto-generated"
    text = words_of(mail)
    assert text.startswith("the disk is full")
    assert "hint: make room" in text
    assert [part.get_content_type() for part in mail.walk()][1:] == ["text/plain", "text/html"]
    assert "make room" in page_of(mail)
    assert peer.recipients == ["dba@example.com", "boss@example.com"]


def test_a_file_name_that_is_no_text_is_spelt_out_rather_than_the_mail_lost() -> None:
    with mail_server(MailPeer()) as peer, web_server(WebPeer()) as listener:
        read = notice(text="caf\udce9.ibd cannot be read")
        Mail(mail_config(peer.port), notice_page).deliver(read)
        Webhook(webhook_config(url=f"http://127.0.0.1:{listener.port}/")).deliver(read)
    (mail,) = peer.mails
    assert words_of(mail).startswith("caf\\udce9.ibd cannot be read")
    ((_, _, document),) = listener.requests
    assert json.loads(document)["text"] == "caf\\udce9.ibd cannot be read"


def test_a_mail_goes_as_text_where_its_page_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_notice: Notice) -> str:
        raise FileNotFoundError(CANARY)  # as while a package is replaced

    with mail_server(MailPeer()) as peer:
        Mail(mail_config(peer.port), broken).deliver(notice())
    (mail,) = peer.mails
    assert (mail.get_content_type(), words_of(mail).startswith("the disk is full")) == ("text/plain", True)
    assert "notification dba has no page: FileNotFoundError" in caplog.text
    assert CANARY not in caplog.text


def test_no_header_can_be_slipped_into_a_mail() -> None:
    slipped = "full\r\nBcc: mallory@example.com\r\n\r\n.\r\nMAIL FROM:<mallory@example.com>"
    with mail_server(MailPeer()) as peer:
        Mail(mail_config(peer.port), notice_page).deliver(notice(text=slipped, job="a\r\nBcc: mallory@example.com"))
    (mail,) = peer.mails
    assert mail["Bcc"] is None
    assert peer.recipients == ["dba@example.com", "boss@example.com"]


def test_a_mail_goes_over_starttls_with_a_password(
    cert: Certificate, server_side: ssl.SSLContext, secret: Callable[..., Path]
) -> None:
    with mail_server(MailPeer(tls=server_side, password=CANARY)) as peer:
        keys = {"security": "starttls", "ca": cert.ca, "user": "backupd", "password_file": secret()}
        Mail(mail_config(peer.port, **keys), notice_page).deliver(notice())
    assert peer.secured
    assert len(peer.mails) == 1


def test_a_mail_goes_over_tls_from_the_first_byte(cert: Certificate, server_side: ssl.SSLContext) -> None:
    with mail_server(MailPeer(), context=server_side) as peer:
        Mail(mail_config(peer.port, security="tls", ca=cert.ca), notice_page).deliver(notice())
    assert len(peer.mails) == 1


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_server_whose_certificate_is_not_trusted_gets_nothing(
    server_side: ssl.SSLContext, security: str, secret: Callable[..., Path]
) -> None:
    over = server_side if security == "tls" else None
    with mail_server(MailPeer(tls=server_side, password=CANARY), context=over) as peer:
        keys = {"security": security, "user": "backupd", "password_file": secret()}
        error = undelivered(Mail(mail_config(peer.port, **keys), notice_page))
    assert "certificate that is not trusted" in error.message
    assert (peer.mails, peer.recipients) == ([], [])


def test_a_certificate_for_another_name_is_not_trusted(tmp_path: Path) -> None:
    other = certificate(tmp_path, for_name="mail.example.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other.chain)
    with mail_server(MailPeer(tls=context)) as peer:
        error = undelivered(Mail(mail_config(peer.port, security="starttls", ca=other.ca), notice_page))
    assert "certificate that is not trusted" in error.message
    assert peer.mails == []


def test_a_server_without_starttls_gets_no_password(secret: Callable[..., Path]) -> None:
    with mail_server(MailPeer(password=CANARY)) as peer:
        keys = {"security": "starttls", "user": "backupd", "password_file": secret()}
        error = undelivered(Mail(mail_config(peer.port, **keys), notice_page))
    assert "STARTTLS" in error.message
    assert peer.mails == []


def test_a_server_that_asks_for_no_login_is_told_and_no_hint_gives_up_encryption(
    cert: Certificate, server_side: ssl.SSLContext, secret: Callable[..., Path]
) -> None:
    with mail_server(MailPeer(tls=server_side)) as peer:
        keys = {"security": "starttls", "ca": cert.ca, "user": "backupd", "password_file": secret()}
        error = undelivered(Mail(mail_config(peer.port, **keys), notice_page))
    assert "AUTH" in error.message
    assert "user and password_file" in error.hint
    assert "security" not in error.hint


def test_a_wrong_password_is_told_and_not_shown(
    cert: Certificate, server_side: ssl.SSLContext, secret: Callable[..., Path]
) -> None:
    with mail_server(MailPeer(tls=server_side, password="another")) as peer:
        keys = {"security": "starttls", "ca": cert.ca, "user": "backupd", "password_file": secret()}
        error = undelivered(Mail(mail_config(peer.port, **keys), notice_page))
    assert "rejects the login: 535" in error.message
    assert CANARY not in f"{error!r} {error.message} {error.hint} {error.__cause__!r}"


def test_a_recipient_that_is_refused_is_named_and_the_others_get_the_mail() -> None:
    with mail_server(MailPeer(refused=("boss@example.com",))) as peer:
        error = undelivered(Mail(mail_config(peer.port), notice_page))
    assert "refused boss@example.com" in error.message
    assert isinstance(error, PerhapsNotified)
    assert len(peer.mails) == 1


def test_a_mail_whose_content_was_sent_may_have_been_taken_and_none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise smtplib.SMTPServerDisconnected("gone")

    for verb, perhaps in {"mail": False, "rcpt": False, "data": True}.items():
        with monkeypatch.context() as patched, mail_server(MailPeer()) as peer:
            patched.setattr(smtplib.SMTP, verb, lost)
            error = undelivered(Mail(mail_config(peer.port), notice_page))
        assert isinstance(error, PerhapsNotified) is perhaps, verb


JOSE = "jos\u00e9@example.com"


def test_a_server_with_smtputf8_takes_an_address_that_is_not_ascii() -> None:
    with mail_server(MailPeer(utf8=True)) as peer:
        Mail(mail_config(peer.port, recipients=["dba@example.com", JOSE]), notice_page).deliver(notice())
    assert (peer.recipients, len(peer.mails)) == (["dba@example.com", JOSE], 1)


def test_without_smtputf8_whom_it_bars_is_named_and_the_others_get_the_mail() -> None:
    with mail_server(MailPeer(refused=("boss@example.com",))) as peer:
        keys = {"recipients": ["dba@example.com", JOSE, "boss@example.com"]}
        error = undelivered(Mail(mail_config(peer.port, **keys), notice_page))
    assert f"refused boss@example.com and lacks SMTPUTF8, which it would need for {JOSE}" in error.message
    assert error.hint == "the other recipients got the mail"
    (mail,) = peer.mails
    assert mail["To"] == "dba@example.com, boss@example.com"


@pytest.mark.parametrize(
    ("keys", "hint"),
    [({"recipients": [JOSE]}, "an ASCII address of the same"), ({"sender": JOSE}, "an ASCII address as the sender")],
)
def test_a_mail_that_needs_smtputf8_for_everybody_is_told_with_the_address(keys: dict[str, Any], hint: str) -> None:
    with mail_server(MailPeer()) as peer:
        error = undelivered(Mail(mail_config(peer.port, **keys), notice_page))
    assert f"lacks SMTPUTF8, which it would need for {JOSE}" in error.message
    assert hint in error.hint
    assert (peer.mails, peer.recipients) == ([], [])


@pytest.mark.parametrize("manner", [Manner.SILENT, Manner.DRIPPING])
def test_a_mail_server_that_does_not_end_is_left(manner: Manner) -> None:
    with mail_server(MailPeer(manner=manner)) as peer:
        error = undelivered(Mail(mail_config(peer.port), notice_page, deadline_seconds=DEADLINE))
    assert "did not answer within 0.3 s" in error.message


@pytest.mark.parametrize("manner", [Manner.REFUSING, Manner.HANGING_UP])
def test_a_mail_server_that_does_not_want_us_is_told_of(manner: Manner) -> None:
    with mail_server(MailPeer(manner=manner)) as peer:
        error = undelivered(Mail(mail_config(peer.port), notice_page))
    assert f"mail server 127.0.0.1:{peer.port}" in error.message
    assert not isinstance(error, PerhapsNotified)


def test_nobody_listening_is_told_of() -> None:
    with mail_server(MailPeer()) as peer:
        pass
    error = undelivered(Mail(mail_config(peer.port), notice_page))
    assert "Connection refused" in error.message
    assert not isinstance(error, PerhapsNotified)


# --- the web ----------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_one_document_and_the_token(secret: Callable[..., Path]) -> None:
    with web_server(WebPeer()) as peer:
        config = webhook_config(url=f"http://127.0.0.1:{peer.port}/hook?room=1", token_file=secret())
        Webhook(config).deliver(notice())
    ((path, headers, body),) = peer.requests
    assert (path, headers["Authorization"]) == ("/hook?room=1", f"Bearer {CANARY}")
    document = json.loads(body)
    assert document.pop("machine")
    assert document == {
        "schema": 1,
        "kind": "failed",
        "job": "nightly",
        "target": "",
        "cluster": None,
        "at": "2026-11-21T02:30:00+00:00",
        "subject": "r1",
        "backed_up": False,
        "text": "the disk is full",
        "detail": {"hint": "make room"},
    }


def test_a_webhook_over_https_is_verified(cert: Certificate, server_side: ssl.SSLContext) -> None:
    with web_server(WebPeer(), context=server_side) as peer:
        url = f"https://localhost:{peer.port}/"
        Webhook(webhook_config(url=url, ca=cert.ca)).deliver(notice())
        error = undelivered(Webhook(webhook_config(url=url)))
    assert "certificate that is not trusted" in error.message
    assert len(peer.requests) == 1


def test_a_token_does_not_leave_the_machine_unencrypted(secret: Callable[..., Path]) -> None:
    error = undelivered(Webhook(webhook_config(url="http://192.0.2.1/hook", token_file=secret())))
    assert "unencrypted" in error.message


@pytest.mark.parametrize("status", [301, 307, 308, 401, 404, 500, 503])
def test_an_answer_that_is_no_success_is_told_and_nothing_followed(status: int, secret: Callable[..., Path]) -> None:
    with web_server(WebPeer()) as other:
        elsewhere = {"Location": f"http://127.0.0.1:{other.port}/"}
        with web_server(WebPeer(status=status, headers=elsewhere)) as peer:
            config = webhook_config(url=f"http://127.0.0.1:{peer.port}/{CANARY}", token_file=secret())
            error = undelivered(Webhook(config))
    assert f"http://127.0.0.1:{peer.port} answered {status}" in error.message
    assert CANARY not in f"{error!r} {error.message} {error.hint}"
    assert other.requests == []
    assert not isinstance(error, PerhapsNotified)
    assert len(peer.requests) == 1  # and never twice


@pytest.mark.parametrize("manner", [Manner.SILENT, Manner.DRIPPING])
def test_a_web_server_that_does_not_end_is_left(manner: Manner) -> None:
    with web_server(WebPeer(manner=manner)) as peer:
        config = webhook_config(url=f"http://127.0.0.1:{peer.port}/{CANARY}")
        error = undelivered(Webhook(config, deadline_seconds=DEADLINE))
    assert "did not answer within 0.3 s" in error.message
    assert CANARY not in error.message


def test_a_web_server_that_hangs_up_is_told_of() -> None:
    with web_server(WebPeer(manner=Manner.HANGING_UP)) as peer:
        error = undelivered(Webhook(webhook_config(url=f"http://127.0.0.1:{peer.port}/")))
    assert "cannot be reached" in error.message
    assert isinstance(error, PerhapsNotified)  # it was sent


def test_a_web_server_that_is_not_there_has_certainly_heard_nothing() -> None:
    with web_server(WebPeer()) as peer:
        pass
    error = undelivered(Webhook(webhook_config(url=f"http://127.0.0.1:{peer.port}/")))
    assert not isinstance(error, PerhapsNotified)


@pytest.mark.parametrize(
    ("text", "mode", "fact"),
    [
        (f"ftp://{CANARY}", 0o600, "the content of the file is not a web address (http or https)"),
        (f"https://user:{CANARY}@example.com/", 0o600, "the content of the file is not a web address (http or https)"),
        (f"https://example.com/{CANARY}", 0o644, "can be read or written by others"),
        ("", 0o600, "the file is empty"),
    ],
)
def test_an_address_in_a_file_that_cannot_be_used_is_told_and_not_shown(
    secret: Callable[..., Path], text: str, mode: int, fact: str
) -> None:
    path = secret(text)
    path.chmod(mode)
    error = undelivered(Webhook(webhook_config(url_file=path)))
    assert fact in error.message
    assert CANARY not in f"{error!r} {error.message} {error.hint} {error.__cause__!r}"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (NoticeKind.STARTED, "/ping/1/start?create=1"),
        (NoticeKind.SUCCEEDED, "/ping/1?create=1"),
        (NoticeKind.ATTENTION, "/ping/1?create=1"),
        (NoticeKind.RECOVERED, "/ping/1?create=1"),
        (NoticeKind.FAILED, "/ping/1/fail?create=1"),
        (NoticeKind.RETRYING, "/ping/1/log?create=1"),
        (NoticeKind.MISSED, "/ping/1/fail?create=1"),
    ],
)
def test_a_ping_says_by_its_address_what_became_of_a_run(
    secret: Callable[..., Path], kind: NoticeKind, path: str
) -> None:
    with web_server(WebPeer()) as peer:
        url = f"http://127.0.0.1:{peer.port}/ping/1/?create=1"
        Ping(ping_config(url_file=secret(url))).deliver(replace(notice(kind, text="ü" * 20_000), backed_up=True))
    ((asked, _, body),) = peer.requests
    assert asked == path
    assert len(body) == 10_000


@pytest.mark.parametrize("kind", NoticeKind)
def test_no_ping_is_good_where_no_backup_was_made(kind: NoticeKind) -> None:
    with web_server(WebPeer()) as peer:
        Ping(ping_config(url=f"http://127.0.0.1:{peer.port}/ping")).deliver(notice(kind))
    ((asked, _, _),) = peer.requests
    assert asked.removeprefix("/ping") in ("/start", "/fail", "/log")


# --- all of them together ---------------------------------------------------------------------------------------------


def subscriber(
    channel: NotificationChannel, name: str = "one", *, kinds: set[NoticeKind] | None = None, jobs: str = ""
) -> Subscriber:
    return Subscriber(name, frozenset(NoticeKind if kinds is None else kinds), frozenset(jobs.split()), channel)


class Bug:
    """A channel that fails as no channel should."""

    def deliver(self, notice: Notice) -> None:
        raise ValueError(CANARY)


def test_each_is_told_what_it_wants_to_hear_of() -> None:
    with web_server(WebPeer()) as peer:
        hook = Webhook(webhook_config(url=f"http://127.0.0.1:{peer.port}/"))
        fanout = Fanout([subscriber(hook, kinds={NoticeKind.FAILED}, jobs="nightly weekly")])
        fanout.tell(notice(NoticeKind.FAILED))
        fanout.tell(notice(NoticeKind.SUCCEEDED))
        fanout.tell(notice(NoticeKind.FAILED, job="other"))
    assert [json.loads(body)["kind"] for _, _, body in peer.requests] == ["failed"]


@pytest.mark.parametrize("cluster", ["orders", ""])
def test_who_watches_a_job_of_this_machine_hears_nothing_of_a_fleet_s_job_of_that_name(cluster: str) -> None:
    of_fleet = replace(notice(NoticeKind.FAILED), cluster=cluster)
    with web_server(WebPeer()) as own, web_server(WebPeer()) as all_there_is:
        addresses = [f"http://127.0.0.1:{peer.port}/ping" for peer in (own, all_there_is)]
        pings = [Ping(ping_config(url=address)) for address in addresses]
        fanout = Fanout([subscriber(pings[0], "own", jobs="nightly"), subscriber(pings[1], "all")])
        fanout.tell(of_fleet)
        fanout.tell(notice(NoticeKind.RETRYING))
    assert [path for path, _, _ in own.requests] == ["/ping/log"]
    assert [path for path, _, _ in all_there_is.requests] == ["/ping/fail", "/ping/log"]


def test_one_that_fails_and_one_that_hangs_keep_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    silent = WebPeer(manner=Manner.SILENT)
    with web_server(WebPeer()) as good, web_server(silent), web_server(WebPeer(status=500)) as bad:
        hooks = {
            name: Webhook(webhook_config(url=f"http://127.0.0.1:{peer.port}/{CANARY}"))
            for name, peer in {"hangs": silent, "fails": bad, "good": good}.items()
        }
        everybody = [*(subscriber(hook, name) for name, hook in hooks.items()), subscriber(Bug(), "bug")]
        began = time.monotonic()
        with caplog.at_level(logging.DEBUG):
            Fanout(everybody, within_seconds=3.0).tell(notice())  # which whoever is good has, on a busy machine, too
        assert time.monotonic() - began < 8
    assert len(good.requests) == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sorted(line.split()[1] for line in warnings) == ["bug", "fails", "hangs"]
    assert all("\n" not in line for line in warnings)
    assert CANARY not in caplog.text


def test_a_machine_without_room_for_one_more_thread_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    Fanout([subscriber(Bug(), "dba")]).tell(notice())
    assert "notification dba was not delivered" in caplog.text
    assert "can't start new thread" in caplog.text


def test_the_configuration_says_who_is_told() -> None:
    given: dict[str, NotificationConfig] = {
        "dba": mail_config(25, jobs=["nightly"]),
        "chat": webhook_config(url="https://chat.example.com/"),
    }
    dba, chat = wiring.notifier(Configuration(notifications=given)).subscribers
    assert (dba.name, dba.jobs, type(dba.channel)) == ("dba", frozenset({"nightly"}), Mail)
    assert (chat.name, chat.jobs, type(chat.channel)) == ("chat", frozenset(), Webhook)
    assert NoticeKind.STARTED not in dba.kinds


# --- apprise ----------------------------------------------------------------------------------------------------------


def apprise(urls_file: Path) -> Apprise:
    given = {"name": "elsewhere", "type": "apprise", "urls_file": urls_file}
    return Apprise(TypeAdapter(AppriseConfig).validate_python(given))


def test_apprise_tells_every_service_of_its_file(secret: Callable[..., Path]) -> None:
    with web_server(WebPeer()) as peer:
        urls = f"# ours\njson://127.0.0.1:{peer.port}/a\n\njson://127.0.0.1:{peer.port}/b\n"
        apprise(secret(urls)).deliver(notice())
    assert sorted(path for path, _, _ in peer.requests) == ["/a", "/b"]
    document = json.loads(peer.requests[0][2])
    assert (document["type"], document["title"].endswith("nightly failed")) == ("failure", True)


def test_a_service_of_apprise_that_fails_is_told_and_its_address_not_shown(
    secret: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), web_server(WebPeer(status=500)) as peer:
        error = undelivered(apprise(secret(f"json://user:{CANARY}@127.0.0.1:{peer.port}/{CANARY}")))
    assert "could not notify every service" in error.message
    assert not isinstance(error, PerhapsNotified)
    assert CANARY not in caplog.text + error.message


def test_where_one_service_of_apprise_has_it_and_another_fails_some_may_have_heard(secret: Callable[..., Path]) -> None:
    with web_server(WebPeer()) as good, web_server(WebPeer(status=500)) as bad:
        error = undelivered(apprise(secret(f"json://127.0.0.1:{good.port}/\njson://127.0.0.1:{bad.port}/")))
    assert isinstance(error, PerhapsNotified)
    assert len(good.requests) == 1


@pytest.mark.parametrize("line", [f"nonsense://{CANARY}", CANARY])
def test_a_line_that_apprise_does_not_know_is_told_by_its_number(secret: Callable[..., Path], line: str) -> None:
    error = undelivered(apprise(secret(f"# ours\n{line}\n")))
    assert "line 2 is not an address that apprise supports" in error.message
    assert CANARY not in error.message


def test_without_the_package_apprise_it_is_told_what_to_install(
    secret: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    error = undelivered(apprise(secret("json://127.0.0.1/")))
    assert (error.message, error.hint) == (
        "notifications.elsewhere: the package apprise is not installed",
        "in a checkout: pip install '.[apprise]'",
    )
