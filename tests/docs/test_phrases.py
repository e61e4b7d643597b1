"""No foreign phrase comes back: not in a message, a help text, a docstring, a page, an example or a document.

Knows: where a person reads backupd's words, and which phrases the field has better words for. A text is searched as it
is read, across the lines of a source that it is spread over. Only the glossary's last table may quote a phrase.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.places import PAGES, ROOT, documents

FOREIGN = (
    "(1 times)",
    "LVM gave no report",
    "NFS is well",
    "a pause of before",
    "a pin of before",
    "as long as pays",
    "asks no server",
    "backup is given up",
    "backup was given up",
    "begin anew",
    "begins anew",
    "begun then",
    "by default made from",
    "by no drill",
    "cannot be looked at",
    "cannot be understood",
    "come to its end",
    "configuration of before",
    "control host is at work",
    "control host is there again",
    "does not come to its end",
    "does not know us",
    "ended without a word",
    "everybody's writes",
    "follow nobody",
    "follows nobody",
    "for as long as it is let",
    "free some room",
    "gave back",
    "given back",
    "given up to spare",
    "gives back what it holds",
    "gives everything back",
    "goes by file and offset",
    "goes by its own",
    "goes by its schedule",
    "goes by the schedule",
    "goes by these schedule",
    "hardly apart",
    "goes there",
    "has begun",
    "is at work on it",
    "is no block device",
    "is no folder",
    "is no set of",
    "is no time",
    "is no url",
    "is not understood",
    "is nothing that a server has",
    "is over before waiting",
    "is taken for unmounted",
    "kept for ever",
    "leave --",
    "leave out --",
    "lie too far apart",
    "lies there alone",
    "look at the kernel",
    "make room there",
    "names a folder and is none",
    "neither proven nor doubted",
    "night that it is",
    "no client should be fed",
    "no known key",
    "no proper schema",
    "no reason was told",
    "no room left on",
    "nobody can tell who made",
    "nobody is there",
    "nobody waits any longer",
    "none has been at work",
    "none of MariaDB's",
    "none that LVM takes",
    "none that a disk takes",
    "nothing owed",
    "of no use",
    "one alarm less",
    "one of before",
    "paused no more",
    "printed what backupd does not know",
    "receiver is at work",
    "says that it stored",
    "schedules of before",
    "see the kernel's log",
    "segments stay that",
    "signed by nobody",
    "somebody wrote",
    "stands after its name",
    "stands in the way",
    "starts nothing more",
    "that a run of JOB stands on",
    "that a run stands on",
    "the server does not tell",
    "those of before",
    "unless told",
    "waiting would pay",
    "waits no more",
    "wanted attention",
    "wants a look",
    "wants attention",
    "was begun",
    "was due yet",
    "what it held was given",
    "well again",
    "when it suits",
    "which a target lacks",
    "whom a file belongs to",
    "without a word",
)
_GLOSSARY = "## Phrases that do not come back"
_BROKEN = re.compile(r"[\"']\s*\n\s*[rf]*[\"']")  # a literal goes on in the next line
_COMMENT = re.compile(r"\n\s*#+ ?")


def read() -> Iterator[Path]:
    """Every file with words for a person."""
    yield from documents()
    yield ROOT / "CHANGELOG.md"
    for folder, kinds in {
        "backupd": (".py", ".html", ".js", ".sh"),
        "configs": (".toml", ".yml", ".json", ".conf", ".service", ".timer"),
        "docker": ("", ".yml", ".yaml", ".Dockerfile"),
    }.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in kinds and "vendor" not in path.parts:
                yield path


def as_read(path: Path) -> str:
    """Its text in one line, in small letters."""
    text = path.read_text().partition(_GLOSSARY)[0]
    return re.sub(r"\s+", " ", _COMMENT.sub(" ", _BROKEN.sub("", text))).lower()


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): as_read(path) for path in read()}


@pytest.mark.parametrize("phrase", FOREIGN)
def test_no_foreign_phrase_has_come_back(phrase: str, texts: dict[str, str]) -> None:
    assert [name for name, text in texts.items() if phrase.lower() in text] == []


def test_every_phrase_of_the_glossary_is_looked_for() -> None:
    _, _, table = (PAGES / "glossary.md").read_text().partition(_GLOSSARY)
    _, *foreign = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    assert foreign
    assert [cell for cell in foreign if not any(phrase.lower() in cell.lower() for phrase in FOREIGN)] == []


def test_a_phrase_is_found_across_the_lines_of_a_source(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(
        'fail(\n    "the gate was given up to"\n    f" spare the server"\n)\n# it ended without\n# a word\n'
    )
    assert "given up to spare" in as_read(source)
    assert "ended without a word" in as_read(source)


def test_every_place_with_words_is_read(texts: dict[str, str]) -> None:
    places = {"backupd", "configs", "docker", "docs", "CHANGELOG.md", "README.md"}
    assert places == {name.partition("/")[0] for name in texts}
