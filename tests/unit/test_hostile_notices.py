"""What is told of a stranger's words, by mail or to a program, and on a terminal while something goes on."""

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email import policy
from email.parser import BytesParser

import pytest
from pydantic import TypeAdapter

from backupd.cli.probe_progress import probe_progress
from backupd.cli.progress import share_done
from backupd.config import MailConfig
from backupd.notifications.mail import message
from backupd.notifications.words import document, title
from backupd.report.notice_html import notice_page
from backupd.vocabulary.schedule import Notice, NoticeKind, NoticeTable
from tests.hostile_words import ARGUMENT, FORGED, HOSTILE, MARKUP, faults

ANY = HOSTILE + ARGUMENT  # with bytes that are no text, too
NOTICE = Notice(NoticeKind.FAILED, ANY, datetime.now(UTC), ANY, ANY, {"hint": ANY, ANY: ANY})
TABLE = NoticeTable(((ANY, ANY),), head=(ANY, ANY))
OF_ALL = replace(NOTICE, kind=NoticeKind.DIGEST, job="", detail={ANY: f"{ANY}\n{ANY}"}, tables={ANY: TABLE})
OF_TARGET = replace(NOTICE, kind=NoticeKind.ALARM, job="", target=ANY)
MAIL = {"type": "mail", "address": "mx.example", "sender": "b@example.com", "recipients": ["dba@example.com"]}


def test_a_page_is_linked_where_it_is_ours() -> None:
    page = "https://db1.example.com:9476/runs/r1"
    known = replace(NOTICE, detail={"page": page, "hint": page})
    assert re.findall(r'href="(.*?)"', notice_page(known)) == [page]
    assert "href" not in notice_page(replace(NOTICE, detail={"page": "javascript:alert(1)"}))


@pytest.mark.parametrize("notice", [NOTICE, OF_ALL, OF_TARGET], ids=lambda notice: notice.kind.value)
def test_a_mail_has_no_character_that_acts_and_no_line_that_passes_for_ours(notice: Notice) -> None:
    config = TypeAdapter(MailConfig).validate_python({**MAIL, "name": "dba"})
    sent = BytesParser(policy=policy.default).parsebytes(bytes(message(notice, config, notice_page)))
    assert sorted(key for key in sent if key.startswith(("X", "B"))) == []
    for value in sent.values():
        assert str(value).isprintable()
    text, page = (part.get_content().replace("\r\n", "\n") for part in sent.iter_parts())
    assert (faults(text), faults(page)) == ([], [])
    assert FORGED in text
    assert FORGED in page
    assert MARKUP not in page
    assert not re.search(r"(src|href)=|@import|url\(", page)


def test_a_document_is_ascii_and_its_words_are_plain() -> None:
    assert json.dumps(document(NOTICE)).isascii()
    assert faults(document(NOTICE)["text"].replace(f"\n{FORGED}", "")) == []
    assert title(NOTICE).isprintable()


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def shown() -> Iterator[Screen]:
    """stderr is a terminal; a display's own sequences are on it then, and none of a stranger's."""
    screen = Screen()
    with pytest.MonkeyPatch.context() as patch:  # here: what a fixture puts there, pytest takes away before the test
        patch.setattr(sys, "stderr", screen)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "400")
        yield screen
    text = screen.getvalue()
    assert "\\x1b]0;x\\x07" in text
    assert [sign for sign in ("\x1b]0", "\x07", "\x9b", "\u202e", "\u2028") if sign in text] == []
    assert "\x1b[" in text


def test_a_probe_s_display_shows_the_names_of_disks_plain() -> None:
    with shown(), probe_progress(quiet=False) as telling:
        telling.step(HOSTILE)
        telling.disks({HOSTILE: 1.0}, 1.0)


def test_a_bar_shows_its_words_plain_and_reads_no_markup_in_them() -> None:
    with shown() as screen, share_done(f"[red]{HOSTILE}") as told:
        told(1, 2)
    assert "[red]" in screen.getvalue()
