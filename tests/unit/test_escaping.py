"""Nothing of a stranger's words acts: not on a terminal, not in a log, not as a name."""

import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.vocabulary.escaping import PlainFormatter, indented, is_one_line, on_one_line, plain

ANY = st.text(st.characters())  # lone surrogates too


@given(ANY)
def test_on_one_line_is_printable_and_can_be_written_anywhere(text: str) -> None:
    assert on_one_line(text).isprintable()
    on_one_line(text).encode("utf-8")


@given(ANY)
def test_plain_keeps_line_feeds_and_nothing_else_that_is_not_seen(text: str) -> None:
    assert plain(text).count("\n") == text.count("\n")
    assert plain(text).replace("\n", "").isprintable()


@given(ANY)
def test_no_line_but_the_first_begins_where_ours_do(text: str) -> None:
    first, *others = indented(text).splitlines() or [""]
    assert all(line.startswith("    ") for line in others)
    assert first == plain(text.split("\n")[0])


@pytest.mark.parametrize("text", ["", "nightly", "käse 表 😀", "C:\\x1b", "a b", "100 %"])
def test_what_is_plain_already_stays_as_it_is(text: str) -> None:
    assert on_one_line(text) == plain(text) == indented(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("a\r\nb", "a\\r\\nb"),
        ("a\x00\x7f\x9bb", "a\\x00\\x7f\\x9bb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("caf\udce9", "caf\\udce9"),
        ("a\u2028b\x85", "a\\u2028b\\x85"),
    ],
)
def test_what_acts_is_shown_as_python_escapes_it(text: str, shown: str) -> None:
    assert on_one_line(text) == shown


@given(ANY)
def test_a_name_has_no_control_character_and_no_line_s_end(text: str) -> None:
    if is_one_line(text):
        assert len(text.splitlines()) <= 1
        assert not any(unicodedata.category(letter) in {"Cc", "Zl", "Zp"} for letter in text)


@pytest.mark.parametrize("name", ["näme", "caf\udce9", "a\N{NO-BREAK SPACE}b", "\N{ZERO WIDTH NON-JOINER}"])
def test_what_real_hosts_call_things_can_be_a_name(name: str) -> None:
    assert is_one_line(name)


def test_a_log_line_of_a_stranger_cannot_pass_for_ours() -> None:
    said = "refused\n2026-11-23 ERROR all is lost\x1b[2J"
    record = logging.LogRecord("x", logging.ERROR, "x", 0, "server: %s", (said,), None)
    shown = PlainFormatter("%(levelname)s %(message)s").format(record)
    assert shown == "ERROR server: refused\n    2026-11-23 ERROR all is lost\\x1b[2J"


def test_a_traceback_is_shown_plain() -> None:
    bug = ValueError("\x1b[2J\nhint: run this")
    record = logging.LogRecord("x", logging.ERROR, "x", 0, "a bug", (), (type(bug), bug, None))
    shown = PlainFormatter("%(message)s").format(record)
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if not line.startswith("    ")] == ["a bug"]
