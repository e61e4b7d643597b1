"""`make docs-reference`: writes anew all that the documentation has from the code, and says what was stale.

Knows: which page or block comes from where. `tests/docs/test_generated.py` says when this has to be run.
"""

from collections.abc import Iterator
from pathlib import Path

from backupd.mysql.grants import grant_script
from backupd.vocabulary.servers import Flavour
from tests.docs import architecture, commands, editor_schema, json_documents, measures, promised, settings, statuses
from tests.docs.places import PAGES, ROOT, documents, fenced, replaced

_NOTE = "<!-- Written by `make docs-reference` from the code: change it there. -->\n\n"


def written() -> Iterator[tuple[Path, str]]:
    """Each file that is made, or has made blocks, with the text that it should have."""
    house = architecture.house()
    for name, page in (
        ("commands", commands.page),
        ("configuration", settings.page),
        ("fleet", settings.fleet_page),
        ("exit-statuses", statuses.page),
        ("json", json_documents.page),
        ("metrics", measures.page),
    ):
        yield PAGES / "reference" / f"{name}.md", _NOTE + page()
    yield editor_schema.FILE, editor_schema.text()
    yield editor_schema.FLEET_FILE, editor_schema.fleet_text()
    yield PAGES / "images" / "architecture.svg", architecture.picture(house)
    blocks = {
        "layers": architecture.table(house),
        "operations": architecture.table(architecture.house("operations")),
        "promises by target": promised.table(),
        "account on mariadb": _account(Flavour.MARIADB),
        "account on mysql": _account(Flavour.MYSQL),
    }
    for path in documents():
        text = path.read_text()
        if "<!-- generated: " in text:
            yield path, replaced(text, "generated", blocks.__getitem__)


def stale() -> dict[Path, str]:
    """Files that are not what the code says, with the text that they should have."""
    return {path: text for path, text in written() if not path.exists() or path.read_text() != text}


def _account(flavour: Flavour) -> str:
    made = "CREATE USER 'backupd'@'localhost' IDENTIFIED BY '…';\n"
    return fenced(made + grant_script("backupd", flavour=flavour), "sql")


def main() -> None:
    """Write what is stale."""
    for path, text in stale().items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()
