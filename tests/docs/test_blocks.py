"""Whatever a page shows as printed has a source that prints it anew: no block stands there that could rot unseen.

Knows: which blocks of code are no output, and why: they are of a language, drawings, or lines to type.
"""

import re
import textwrap
from collections.abc import Iterator

import pytest

from tests.docs.places import PAGES, ROOT, documents

_LANGUAGES = {"toml", "sql", "yaml", "ini", "text"}  # what is written by hand; `text` is a drawing
_MEASURED = (PAGES / "development" / "benchmarks.md",)  # figures of `make bench-…`, dated
_PROGRAMS = (
    *(
        "age",
        "age-keygen",
        "ansible-playbook",
        "apt",
        "backupd",
        "cd",
        "chown",
        "cp",
        "dnf",
        "docker",
        "docker-compose",
    ),
    *("docker/build", "echo", "for", "install", "ln", "make", "mkdir", "mv", "pip", "python", "python3", "restorecon"),
    *("sed", "ssh-keygen", "systemctl", "umask", "useradd", "zstd"),
)
# After the prompt, variables and a folder, if any. Also a comment, a line that goes on, and one of authorized_keys.
_TYPED = re.compile(
    rf"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:/\S*/)?(?:{'|'.join(map(re.escape, _PROGRAMS))})(?: |$)|#|\s|command="
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_WRITTEN = re.compile(r"^ *<!-- (?P<kind>example|generated): .*?^ *<!-- /(?P=kind) -->$", re.MULTILINE | re.DOTALL)


def unexplained(page: str) -> Iterator[str]:
    """The first line of each block that is neither made by a program nor of a kind that no program makes."""
    for found in _FENCE.finditer(_WRITTEN.sub("", page)):
        lines = [line for line in textwrap.dedent(found["text"]).splitlines() if line]
        if found["language"] not in _LANGUAGES and not all(map(_TYPED.match, lines)):
            yield lines[0]


def test_every_output_that_a_page_prints_has_a_source() -> None:
    pages = [path for path in documents() if path not in _MEASURED]
    found = [(path.relative_to(ROOT), line) for path in pages for line in unexplained(path.read_text())]
    assert found == [], "mark it as `<!-- example: SOURCE: COMMAND -->` (tests/docs/examples.py), or name its language"


@pytest.mark.parametrize(
    ("block", "is_explained"),
    [
        ("```\n$ backupd history\nRUN  JOB\n```", False),
        ("```console\nBACKUPD OK - nightly\n```", False),
        ("1. Type\n\n   ```\n   attention: target vault\n   ```", False),
        ("```\nbackupd history   # what there is\nsystemctl start backupd\n```", True),
        ("```toml\n[jobs.nightly]\n```", True),
        ("<!-- example: demo: backupd history -->\n```\n$ backupd history\nRUN\n```\n<!-- /example -->", True),
    ],
)
def test_a_block_is_explained_by_its_mark_its_language_or_its_programs(block: str, is_explained: bool) -> None:
    assert (list(unexplained(f"{block}\n")) == []) == is_explained
