"""What the real package Apprise sends to chats and to a mail server: no chat is asked, requests to them are kept."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from pydantic import TypeAdapter

from backupd.config import AppriseConfig
from backupd.notifications.apprise import Apprise
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.contract.peers import MailPeer, mail_server, page_of, words_of

SERVICES = {
    "discord": "discord://123456789012345678/abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz012345",
    "telegram": "tgram://123456789:abcdefghijklmnopqrstuvwxyz123456789/12315544",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general",
    "mattermost": "mmost://chat.example.com/3ccdd113474722377935511fc85d3dd4",
    "rocket": "rocket://abcdefghi/jklmnopqrstuv@chat.example.com/#dba",
    "google": "gchat://workspace/key/token",
}
LIMITS = {"discord": 2_000, "telegram": 4_096}  # characters, that the service itself takes
CALLS = (
    "@everyone @HERE @channel @all <@123456789012345678> <@&12> <!channel> <!subteam^S1|x> <#C1> <users/all> @boss"
    " a@everyone-else a@here. 'a'@all, x_@boss_ x-@here-a (@all.x"
)
LINKS = (
    "<http://evil.example|log in> [log in](http://evil.example) ![](http://evil.example/p.png) [a][b]\n[b]: http://x"
    "\n[c]:http://x <mailto:a@evil.example|log in> <slack://evil|log in>"
)
MARKUP = "<img src=http://evil.example/p.png> <a href='http://evil.example'>log in</a> <b>"
PASTED = (
    "systemctl status backupd-binlog@nightly; GRANT ALL ON *.* TO 'b'@'localhost'; SELECT @@port; a < b; b@example.com",
    "user@all-hosts 'b'@'allhost' root@alldb1 backupd@hereford.example backupd@here.lan:/b backupd@channels.service",
    "cat <<EOF; SELECT a<b; mysql <dump.sql; diff <(cat a) b; mysql -h [::1]:3306",
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of each message, which every service takes."""
    texts: list[str] = []

    def taken(_session: requests.Session, *, url: str, **keys: Any) -> requests.Response:
        texts.append(_shown(json.loads(keys["data"])))
        answer = requests.Response()
        answer.status_code = 200
        answer._content = b"ok" if "slack" in url else b'{"ok": true, "result": {}}'
        return answer

    monkeypatch.setattr(requests.Session, "request", taken)
    return texts


def _shown(document: dict[str, Any]) -> str:
    if "attachments" in document and "blocks" not in json.dumps(document):
        return "\n".join(document["attachments"][0][key] for key in ("title", "text"))
    return str(document.get("content") or document.get("text"))


@pytest.fixture
def deliver(tmp_path: Path) -> Callable[[str, Notice], None]:
    def to(address: str, notice: Notice) -> None:
        urls = tmp_path / "urls"
        urls.touch(mode=0o600)
        urls.write_text(address)
        given = {"name": "chat", "type": "apprise", "urls_file": urls}
        Apprise(TypeAdapter(AppriseConfig).validate_python(given)).deliver(notice)

    return to


def failure(text: str, job: str = "nightly", **detail: str) -> Notice:
    return Notice(NoticeKind.FAILED, job, datetime(2026, 11, 21, tzinfo=UTC), "r1", text, detail)


LONG = failure("the lock was not granted", more="backupd show r1", log="\n".join(["<" + "x" * 399] * 20))


@pytest.mark.parametrize("name", LIMITS)
def test_a_failure_is_no_longer_than_its_service_takes_and_begins_with_its_sentence(
    name: str, sent: list[str], deliver: Callable[[str, Notice], None]
) -> None:
    deliver(SERVICES[name], LONG)
    (text,) = sent
    assert len(text) <= LIMITS[name]
    assert "the lock was not granted" in text
    assert "more: backupd show r1" in text


def test_what_an_address_says_of_long_messages_counts(sent: list[str], deliver: Callable[[str, Notice], None]) -> None:
    deliver(f"{SERVICES['discord']}?overflow=split", LONG)
    assert len(sent) > 1
    assert max(map(len, sent)) <= LIMITS["discord"]
    sent.clear()
    deliver(f"{SERVICES['discord']}?overflow=upstream", LONG)
    assert [len(text) > LIMITS["discord"] for text in sent] == [True]


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("hostile", [CALLS, LINKS, MARKUP], ids=["calls", "links", "markup"])
def test_nobody_is_called_and_no_address_is_hidden_by_a_stranger_s_words(
    name: str, hostile: str, sent: list[str], deliver: Callable[[str, Notice], None]
) -> None:
    deliver(SERVICES[name], failure(hostile, job=hostile.replace("\n", " "), hint=hostile))
    (text,) = sent
    text = text.replace("\\", "")  # which Markdown needs not to read what follows as its own
    calls = ["@everyone", "@here", "@channel", "@all", "@boss", "<@", "<!", "<#", "<users"]
    live = [*calls, "<http", "<mailto", "<slack", "](", "][", "]:", "<img", "<a", "</a"]
    assert [sign for sign in live if sign in text.lower()] == []


@pytest.mark.parametrize("name", ["discord", "mattermost"])
@pytest.mark.parametrize("pasted", PASTED, ids=["account", "address", "shell"])
def test_what_is_pasted_into_a_shell_or_a_server_stays_as_it_is(
    name: str, pasted: str, sent: list[str], deliver: Callable[[str, Notice], None]
) -> None:
    deliver(SERVICES[name], failure(pasted))
    assert pasted in sent[0]


def test_a_mail_by_apprise_has_its_lines_and_no_markup_of_a_stranger(deliver: Callable[[str, Notice], None]) -> None:
    with mail_server(MailPeer()) as peer:
        address = f"mailto://127.0.0.1:{peer.port}/?from=b@example.com&to=dba@example.com&smtp=127.0.0.1"
        deliver(address, failure(MARKUP, hint="make room"))
    (mail,) = peer.mails
    parts = [part.get_content_type() for part in mail.walk() if not part.is_multipart()]
    page = page_of(mail) if "text/html" in parts else ""
    assert [sign for sign in ("<img", "<a ", "<b>") if sign in page] == []
    assert "hint: make room\n" in f"{words_of(mail)}\n"
