"""Each walk of the page of promises is a page to follow, and its tests type every command of that page."""

import ast
import re

import pytest

from tests.docs import commands, promised
from tests.docs.places import PAGES, ROOT, typed

_LINK = re.compile(r"^(?P<walk>[^:]+): \[.+?\]\(\.\./(?P<page>[\w-]+\.md)(#(?P<anchor>[\w-]+))?\)$")
WALKS = [(found, tests) for promise, tests in promised.promises() if (found := _LINK.match(promise))]


def heading(page: str, anchor: str | None) -> str:
    """That this anchor leads to."""
    if anchor is None:
        return ""
    found: list[str] = re.findall(r"^## (.+)$", (PAGES / page).read_text(), re.MULTILINE)
    return next(one for one in found if re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") == anchor)


def mentioned(page: str, where: str) -> list[list[str]]:
    """Commands within its sentences."""
    text = (PAGES / page).read_text()
    section = text.partition(f"\n## {where}\n")[2].partition("\n## ")[0] if where else text
    return [found.split()[1:] for found in re.findall(r"`(backupd [a-z][^`]+)`", section)]


def words_in(tests: list[str]) -> set[str]:
    """Every text in the source of these tests, and each of its words."""
    trees = [ast.parse((ROOT / test).read_text()) for test in tests]
    texts = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {word for text in texts if isinstance(text, str) for word in (text, *text.split())}


def test_there_are_seven() -> None:
    assert [found["walk"] for found, _ in WALKS] == [
        *("first install", "a failure at three", "a table from yesterday", "the auditor", "moving storage"),
        *("upgrading a host", "a replaced disk"),
    ]


@pytest.mark.parametrize(("found", "tests"), WALKS, ids=[found["walk"] for found, _ in WALKS])
def test_what_a_page_says_its_test_types(found: re.Match[str], tests: list[str]) -> None:
    where = heading(found["page"], found["anchor"])
    paths = {tuple(path) for path, _ in commands.tree()}
    said = typed(found["page"], where)
    assert said
    said += mentioned(found["page"], where)
    if any(f'typed("{found["page"]}", "{where}")' in (ROOT / test).read_text() for test in tests):
        return  # it reads the page itself
    known = words_in(tests)
    for words in said:
        path = next(tuple(words[:count]) for count in (3, 2, 1) if tuple(words[:count]) in paths)
        options = {word for word in words[len(path) :] if word.startswith("--")}
        assert {*path, *options} <= known, words
