"""No link of the documentation leads nowhere, no page is in no menu, no file that is named is gone; without network."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]

from tests.docs.places import PAGES, README, ROOT, documents

DOCUMENTS = [*documents(), ROOT / "CHANGELOG.md"]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
_FILE = re.compile(
    r"`((?:backupd|tests|configs|docker|docs|migrations|\.ci)/[\w./*-]*|(?:CHANGELOG|README)\.md|pyproject\.toml)`"
)


@cache
def anchors(path: Path) -> frozenset[str]:
    """What a link into this page may name, as Python-Markdown makes it of headings."""
    used: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", _FENCED.sub("", path.read_text()), re.MULTILINE):
        unique(slugify(re.sub(r"[`*]", "", heading), "-"), used)
    return frozenset(used)


def links(path: Path) -> Iterator[str]:
    """Every target of a link or a picture, code left out."""
    yield from _LINK.findall(_CODE.sub("``", _FENCED.sub("", path.read_text())))


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for link in links(path):
        name, _, anchor = link.partition("#")
        assert not name.startswith(("http:", "//")), link
        if name.startswith("https:"):
            continue
        found = (path.parent / name).resolve() if name else path
        assert found.exists(), link
        if anchor:
            assert anchor in anchors(found), link
        if path != README and path.parent != ROOT:
            assert found.is_relative_to(PAGES), f"{link} is not among the pages that are built"


@pytest.mark.parametrize("path", DOCUMENTS[:-1], ids=NAMES[:-1])
def test_every_file_that_is_named_is_there(path: Path) -> None:
    gone = [name for name in _FILE.findall(_FENCED.sub("", path.read_text())) if not any(ROOT.glob(name.rstrip("/")))]
    assert gone == []


def test_every_page_is_in_the_menu_once() -> None:
    menu = yaml.safe_load((ROOT / "docs/mkdocs.yml").read_text())["nav"]

    def pages(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, list):
            for inner in entry:
                yield from pages(inner)
        elif isinstance(entry, dict):
            for inner in entry.values():
                yield from pages(inner)

    assert sorted(pages(menu)) == sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))


def test_readme_leads_to_every_page() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(README)}
    assert {path for path in PAGES.rglob("*.md") if path.name != "index.md"} <= linked


def test_every_picture_is_shown_and_none_comes_from_elsewhere() -> None:
    shown = {(path.parent / link).resolve() for path in DOCUMENTS for link in links(path)}
    assert [str(path) for path in (PAGES / "images").iterdir() if path not in shown] == []
    assert "font: false" in (ROOT / "docs/mkdocs.yml").read_text()
