"""What the documentation has from the code is what the code says today."""

import re
from itertools import pairwise

import pytest

from backupd.mysql.grants import grant_script
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.servers import Flavour
from tests.docs import architecture, commands, examples, generate, promised
from tests.docs.places import PAGES, README, ROOT


def test_nothing_that_is_made_from_the_code_is_stale() -> None:
    stale = [str(path.relative_to(ROOT)) for path in generate.stale()]
    assert stale == [], "run `make docs-reference`"


def test_readme_is_short() -> None:
    assert len(README.read_bytes()) <= 8192


def test_the_reference_lists_every_exit_status() -> None:
    _, _, table = (PAGES / "reference/exit-statuses.md").read_text().partition("| status | meaning |")
    rows = re.findall(r"^\| *(\d+) *\| *(.+?) *\|$", table.partition("\n\n")[0], re.MULTILINE)
    assert {int(number): words for number, words in rows} == {status.value: status.meaning for status in ExitStatus}


def test_the_documentation_asks_for_exactly_the_grants_that_are_tested() -> None:
    page = (PAGES / "getting-started.md").read_text()
    asked = [line for flavour in Flavour for line in grant_script("backupd", flavour=flavour).splitlines()]
    assert re.findall(r"^GRANT .*;$", page, re.MULTILINE) == asked


@pytest.mark.parametrize(("contract", "folder"), [("layers", "backupd"), ("operations", "backupd/operations")])
def test_the_architecture_has_every_module_once_in_the_order_of_the_layers(contract: str, folder: str) -> None:
    house = architecture.house(contract)
    depth = {part.name: at for at, layer in enumerate(house.layers) for part in layer}
    page = (PAGES / "development/architecture.md").read_text().partition(f"<!-- generated: {contract} -->")[2]
    table = page.partition("| layer | modules |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| `(\w+)/?` \|", table, re.MULTILINE)
    there = {
        path.stem
        for path in (ROOT / folder).iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.name.startswith("_")
    }
    assert sorted(name for _, name in rows) == sorted(depth) == sorted(there)
    assert all(depth[above] <= depth[below] for (_, above), (_, below) in pairwise(rows))


@pytest.mark.parametrize("contract", ["layers", "operations"])
def test_no_import_leads_up(contract: str) -> None:
    assert [pair for pair in architecture.house(contract).imports if pair[0] > pair[1]] == []


def test_the_commands_of_the_reference_are_those_that_can_be_typed() -> None:
    headings = re.findall(r"^## (.+)$", (PAGES / "reference/commands.md").read_text(), re.MULTILINE)
    assert headings == [" ".join(path) for path, _ in commands.tree()]


def test_every_promise_names_tests_that_there_are_and_a_target_that_runs_them() -> None:
    rows = promised.promises()
    makefile = (ROOT / "Makefile").read_text()
    assert len(rows) > 40
    for promise, tests in rows:
        files = [test for test in tests if not test.startswith("make ")]
        assert all(any(ROOT.glob(test)) for test in files), promise
    for target in {target for _, tests in rows for test in tests for target in promised.targets(test)}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_phony_target_has_a_rule() -> None:
    """Else make says that there is nothing to be done, and ends with 0."""
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert phony is not None
    targets = phony[1].replace("\\", " ").split()
    assert len(targets) > 30
    assert [one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)] == []


EXAMPLES = [(path.name, one, text) for path, one, text in examples.wanted()]


@pytest.mark.parametrize(
    ("one", "text"), [pytest.param(one, text, id=f"{page}: {one.command}") for page, one, text in EXAMPLES]
)
def test_every_example_was_printed_by_the_command_that_it_shows(one: examples.Example, text: str) -> None:
    assert len(text.splitlines()) > 2, "run `make docs-examples`"
    if one.command.startswith("backupd "):
        assert text.startswith(f"```\n$ {one.command.removesuffix('…')}")


def test_an_example_is_cut_out_of_what_was_printed() -> None:
    printed = examples.parts(
        "noise\n\n$ backupd history\nRUN\ncopied 10 % (1 of 2)\nr1\nr0\n"
        "\n$ backupd show r1\nx\n## the mail\nSubject: y\n"
    )
    assert printed == {
        "backupd history": "$ backupd history\nRUN\nr1\nr0",
        "backupd show r1": "$ backupd show r1\nx",
        "the mail": "Subject: y",
    }
    for name, lines in {
        "demo: backupd history: 1 lines": "$ backupd history\nRUN\n…\n",
        "demo: backupd history: from r1": "$ backupd history\n…\nr1\nr0\n",
        "demo: backupd history: from r1: 1 line": "$ backupd history\n…\nr1\n…\n",
        "demo: backupd show …": "$ backupd show r1\nx\n",
        "demo: the mail": "Subject: y\n",
    }.items():
        assert examples.shown(examples.example(name), printed) == f"```\n{lines}```\n"
    with pytest.raises(ValueError, match="no example"):
        examples.example("nowhere: ls")
    for missing in ("demo: backupd log", "demo: backupd history: from r7"):
        with pytest.raises(LookupError):
            examples.shown(examples.example(missing), printed)


def test_no_two_sources_have_one_name() -> None:
    assert not {*examples.LAB} & {*examples.SCENES}
