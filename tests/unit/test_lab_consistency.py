"""What the lab's checker makes of counters, of binlog files and of checksums: above all, what it calls wrong."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from backupd.vocabulary.errors import LabError
from backupd.vocabulary.servers import Flavour, Position
from tests.bench.consistency import counters_check, schema
from tests.bench.replay import binlogs_between, same_tables


@pytest.mark.parametrize(
    "values",
    [
        [[5] * 8, [4] * 8],  # copied between the two
        [[5] * 8, [5] * 7 + [4]],  # torn within a table
        [[5] * 8, [5] * 7],  # a row is missing
        [[], []],
        [[0] * 8, [0] * 8],  # nobody counted: nothing is proved
    ],
)
def test_counters_that_differ_or_prove_nothing_are_wrong(values: Sequence[Sequence[int]]) -> None:
    assert not counters_check("myisam", values).ok


def test_counters_that_are_equal_are_right_and_told() -> None:
    check = counters_check("aria", [[7] * 8, [7] * 8])
    assert check.ok
    assert (check.name, check.found) == ("aria counters", "7 and 7")


@pytest.mark.parametrize(("flavour", "aria"), [(Flavour.MARIADB, True), (Flavour.MYSQL, False)])
def test_only_mariadb_is_asked_for_aria(flavour: Flavour, aria: bool) -> None:
    text = "; ".join(schema(flavour))
    assert "ENGINE=MyISAM" in text
    assert ("Aria" in text) is aria


def test_a_table_that_differs_is_named_and_so_is_one_that_is_missing_or_too_many() -> None:
    check = same_tables({"a.same": "1", "a.other": "2", "a.gone": "3"}, {"a.same": "1", "a.other": "9", "a.more": "4"})
    assert not check.ok
    assert check.found == "3 differ: a.gone, a.more, a.other"


def test_equal_tables_are_right_but_no_tables_prove_nothing() -> None:
    assert same_tables({"a.t": "1"}, {"a.t": "1"}).ok
    assert not same_tables({}, {}).ok


def at(file: str | None) -> Position:
    return Position(binlog_file=file, binlog_offset=4 if file else None, gtid=None, replicas=())


def test_all_binlogs_from_one_position_to_the_other_are_read_in_order(tmp_path: Path) -> None:
    for number in (8, 9, 10, 11):
        (tmp_path / f"bin.{number:06d}").touch()
    found = [path.name for path in binlogs_between(tmp_path, at("bin.000009"), at("bin.000011"))]
    assert found == ["bin.000009", "bin.000010", "bin.000011"]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (None, "bin.000001"),
        ("bin.000001", None),
        ("bin.000002", "bin.000001"),
        ("other.000001", "bin.000001"),
        ("bin.000001", "bin.000003"),  # the second was purged
    ],
)
def test_binlogs_that_are_not_all_there_are_an_error(tmp_path: Path, first: str | None, last: str | None) -> None:
    for number in (1, 3):
        (tmp_path / f"bin.{number:06d}").touch()
    with pytest.raises(LabError):
        list(binlogs_between(tmp_path, at(first), at(last)))
