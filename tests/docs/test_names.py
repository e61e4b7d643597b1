"""One word, one thing: no two modules define a class or a type alias of the same public name.

Knows: what is defined at the top of each module. Names of modules may recur, for the folder says which is meant; so may
those of functions, which are read beside their module's.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.docs.places import ROOT


@pytest.mark.thorough
def test_no_two_modules_define_a_class_or_an_alias_of_one_name() -> None:
    found = twice({where: names(text) for where, text in sources()})
    assert not found, "\n".join(found)


def test_what_is_defined_in_two_modules_is_reported_with_both() -> None:
    assert twice(
        {
            "a.py": names("class Row: ..."),
            "b.py": names("Row = dict[str, str]"),
            "c.py": names("Row: TypeAlias = 'Column'"),
            "d.py": names("if TYPE_CHECKING:\n    class Row: ..."),
        }
    ) == ["Row is defined in a.py, b.py, c.py, d.py"]


def test_constants_variables_private_names_and_what_is_imported_are_no_definitions() -> None:
    text = "ROW = 1\n_Row = str\nrow = 2\nT = TypeVar('T')\nfrom a import Row\ndef f():\n    class Row: ...\n"
    assert list(names(text)) == []


def sources() -> Iterator[tuple[str, str]]:
    """Each module of backupd: its path, and its text."""
    for path in sorted((ROOT / "backupd").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()


def twice(defined: Mapping[str, Iterable[str]]) -> list[str]:
    """A sentence for each name that several modules define."""
    modules: dict[str, list[str]] = defaultdict(list)
    for module, found in defined.items():
        for name in sorted(set(found)):
            modules[name].append(module)
    return [f"{name} is defined in {', '.join(where)}" for name, where in sorted(modules.items()) if len(where) > 1]


def names(text: str) -> Iterator[str]:
    """The public names of the classes and type aliases that this module defines."""
    return (name for name in _defined(ast.parse(text).body) if name[0].isupper() and not name.isupper())


def _defined(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=body, orelse=otherwise) | ast.Try(body=body, orelse=otherwise):
                yield from _defined([*body, *otherwise])
            case _:
                pass
