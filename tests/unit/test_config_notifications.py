"""What goes together in a table `[notifications.NAME]`, and that no fault shows what may be a secret."""

import json
from pathlib import Path

import pytest

from backupd.config import MailConfig, PingConfig, load
from backupd.config.effective import as_toml, as_values
from backupd.config.reading import understood
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.schedule import NoticeKind
from tests.unit.config_texts import MINIMAL

CANARY = "c4n4ry"
MAIL = 'type = "mail"\nsender = "backupd@example.com"\nrecipients = ["dba@example.com"]\n'


def written(folder: Path, table: str) -> Path:
    path = folder / "backupd.toml"
    path.write_text(f"[notifications.mail]\n{table}\n{MINIMAL}")
    return path


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ('type = "smoke"', 'notifications.mail.type: "smoke" is not one of mail, webhook, ping, apprise'),
        ('type = "mail"\nsender = "a@b.c"', "notifications.mail.recipients: is missing"),
        (f"{MAIL}recipient = 1", "notifications.mail.recipient: unknown key"),
        (f'{MAIL}port = "25"', 'notifications.mail.port: "25" is not a whole number'),
        (MAIL.replace('["dba@example.com"]', "[]"), "notifications.mail.recipients: lists no recipient"),
        (MAIL.replace("backupd@", "backupd@a@"), "notifications.mail.sender: "),
        (MAIL.replace("dba@example.com", "dba@example.com\\nBcc: x@y.z"), "notifications.mail.recipients[0]: "),
        (f'{MAIL}user = "me"', "notifications.mail: has only one of user and password_file"),
        (
            f'{MAIL}user = "me"\npassword_file = "/p"\nsecurity = "none"',
            'notifications.mail.security: cannot be "none" with',
        ),
        (f'{MAIL}on = ["fialed"]', 'notifications.mail.on[0]: "fialed" is none of started'),
        (f'{MAIL}jobs = ["nightl"]', 'notifications.mail.jobs[0]: there is no job "nightl"'),
        (f'{MAIL}password = "{CANARY}"', "notifications.mail.password: unknown key"),
        ('type = "webhook"', "notifications.mail: needs either url or url_file"),
        ('type = "ping"\nurl = "http://a"\nurl_file = "/a"', "notifications.mail: needs either url or url_file"),
        (f'type = "ping"\nurl = "gopher://{CANARY}"', "notifications.mail.url: not a web address (http or https)"),
        (f'type = "ping"\nurl = "https://me:{CANARY}@a/"', "notifications.mail.url: not a web address (http or https)"),
        (
            f'type = "ping"\nurl = "https://a:99999/{CANARY}"',
            "notifications.mail.url: not a web address (http or https)",
        ),
        (
            f'type = "ping"\nurl = "https://a/{CANARY}\\r\\nX: y"',
            "notifications.mail.url: not a web address (http or https)",
        ),
        (f'type = "ping"\nurl = ["{CANARY}"]', "notifications.mail.url: not a text in quotes"),
        (
            f'type = "webhook"\nurl = "https://a/"\ntoken_file = "{CANARY}"',
            "notifications.mail.token_file: not an abso",
        ),
    ],
)
def test_what_cannot_be_is_told_by_its_key_and_never_shows_a_secret(tmp_path: Path, table: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(written(tmp_path, table))
    assert fault in caught.value.message
    assert CANARY not in f"{caught.value.message} {caught.value.hint}"


def test_a_mail_tells_of_alarms_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    told = load(written(tmp_path, MAIL)).notifications["mail"]
    assert isinstance(told, MailConfig)
    assert {NoticeKind.STARTED, NoticeKind.SUCCEEDED}.isdisjoint(told.on)
    assert {NoticeKind.FAILED, NoticeKind.MISSED, NoticeKind.ALARM, NoticeKind.OVER} <= set(told.on)


def test_a_ping_tells_of_every_beginning_and_end(tmp_path: Path) -> None:
    told = load(written(tmp_path, 'type = "ping"\nurl = "https://hc.example.com/ping/1"')).notifications["mail"]
    assert isinstance(told, PingConfig)
    assert {NoticeKind.STARTED, NoticeKind.SUCCEEDED, NoticeKind.FAILED} <= set(told.on)


def test_what_is_shown_of_notifications_is_read_back_as_the_same(tmp_path: Path) -> None:
    given = load(written(tmp_path, f'{MAIL}on = ["failed"]\nsecurity = "tls"\nport = 465'))
    shown = tmp_path / "shown.toml"
    shown.write_text(as_toml(given))
    assert load(shown) == given


def test_of_an_address_only_the_machine_is_shown(tmp_path: Path) -> None:
    given = load(
        written(tmp_path, f'type = "webhook"\nurl = "https://hooks.example.com:8443/services/{CANARY}?{CANARY}"')
    )
    shown = as_toml(given)
    assert CANARY not in shown + json.dumps(as_values(given, tmp_path))
    assert '\n# url = "https://hooks.example.com:8443/…"  # not shown in full: it may hold a secret\n' in f"{shown}\n"
    assert as_values(given, tmp_path)["notifications"]["mail"]["url"] == "https://hooks.example.com:8443/…"
    with pytest.raises(ConfigurationError, match=r"notifications\.mail: needs either url or url_file"):
        understood(shown, tmp_path)
    uncommented = shown.replace("# url = ", "url = ")
    with pytest.raises(ConfigurationError, match=r"notifications\.mail\.url: not a web address"):
        understood(uncommented, tmp_path)
    assert understood(uncommented.replace("/…", f"/services/{CANARY}?{CANARY}"), tmp_path) == given
    whole = load(written(tmp_path, 'type = "webhook"\nurl = "https://hooks.example.com/"'))
    assert understood(as_toml(whole), tmp_path) == whole
