"""A module is one thing that is read at one sitting: how long the files of backupd are."""

from statistics import median

from tests.docs.places import ROOT

LONGEST, MEDIAN = 400, 130  # lines


def test_no_module_is_longer_than_one_sitting_and_most_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "backupd").rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
    assert median(lengths.values()) <= MEDIAN


def test_only_the_wiring_lies_beside_the_layers() -> None:
    assert {path.name for path in (ROOT / "backupd").glob("*.py")} == {"__init__.py", "__main__.py", "wiring.py"}
