"""A stranger's first task, held against the code: its table names every file in which a kind of target stands."""

import re
import subprocess

import pytest

from tests.docs.places import ROOT

PAGE = "docs/pages/development/three-tasks.md"
SAYS_NOTHING_OF_A_NEW_KIND = {  # they tell of clouds, whatever kinds of targets there are
    *(PAGE, "docs/pages/development/tests.md", "docs/pages/reference/configuration.md"),
    "tests/servers/azurite/package-lock.json",
    *("tests/docs/test_three_tasks.py", "tests/contract/test_blob_answers.py", "tests/docs/scenes/credentials.py"),
}


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_the_first_table_names_every_file_in_which_a_kind_of_target_stands(kind: str) -> None:
    found = set(_files_with(rf"\b{kind}\b|{kind.capitalize()}(Config|Target|Store)"))
    unnamed = {name for name in found - SAYS_NOTHING_OF_A_NEW_KIND if not _is_named(name)}
    assert len(found) > 10
    assert unnamed == set()


def _files_with(pattern: str) -> list[str]:
    argv = ["git", "grep", "-lE", pattern, "--", ":!CHANGELOG.md", ":!requirements*"]
    return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def _is_named(name: str) -> bool:
    """The file itself, or the folder that the table says a new module goes into."""
    table = (ROOT / PAGE).read_text(encoding="utf-8").partition("## Add a reason")[0]
    named = set(re.findall(r"`([\w./-]+)`", table))
    return name in named or f"{name.rpartition('/')[0]}/" in named
