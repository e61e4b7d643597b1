"""Where the documentation lies, and how a block of a page that a program writes is replaced.

Knows: the marks. Refuses to know what is written between them.
"""

import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "pages"
README = ROOT / "README.md"

# <!-- generated: grants-mariadb --> … <!-- /generated -->, and the same with `example`.
_BLOCK = r"^(?P<indent> *)<!-- {kind}: (?P<name>.+?) -->\n(?P<text>.*?)^ *<!-- /{kind} -->$"


def documents() -> Iterator[Path]:
    """Every file that is written for people to read, README first."""
    yield README
    yield from sorted(PAGES.rglob("*.md"))


def blocks(text: str, kind: str) -> list[tuple[str, str]]:
    """The names and the texts of the blocks of this kind, in their order."""
    return [(found["name"], textwrap.dedent(found["text"])) for found in _pattern(kind).finditer(text)]


def replaced(text: str, kind: str, write: Callable[[str], str]) -> str:
    """The page with what `write` says for each name between its marks; all else as it was."""

    def whole(found: re.Match[str]) -> str:
        name = found["name"]
        block = f"<!-- {kind}: {name} -->\n{write(name).rstrip()}\n<!-- /{kind} -->"
        return textwrap.indent(block, found["indent"])

    return _pattern(kind).sub(whole, text)


def typed(page: str, heading: str = "") -> list[list[str]]:
    """What a reader of this section types after `backupd`, in its order; without a heading, of the page."""
    lines = [line.removeprefix("$ ") for code in code_of(page, heading) for line in code.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("backupd ")]


def code_of(page: str, heading: str = "") -> list[str]:
    """The blocks of code of this section; without a heading, of the page."""
    text = (PAGES / page).read_text()
    if heading:
        (text,) = (section for section in re.split(r"^## ", text, flags=re.M) if section.startswith(f"{heading}\n"))
    return re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def fenced(text: str, language: str = "") -> str:
    """As a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile(_BLOCK.format(kind=kind), re.MULTILINE | re.DOTALL)
