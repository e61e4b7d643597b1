"""Which MEMORY tables a log's appliers leave alone: those of which it has nothing but rows, and no statement reads."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from backupd.mysql.binlog.memory_tables import _filter, left_alone
from backupd.mysql.seeding import Words
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.binlogs import ChangeKind, TableChange
from tests.binlog_segments import FIRST

FLEETING, STRANGE = Table("shop", "fleeting"), Table("shop", "a,b")


def change(kind: ChangeKind, table: str = "fleeting", rows: int = 0) -> TableChange:
    return TableChange("shop", table, kind, rows)


DELETED = change(ChangeKind.DELETE, rows=3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([DELETED], [FLEETING]),
        ([DELETED, change(ChangeKind.TRUNCATE), change(ChangeKind.INSERT)], [FLEETING]),
        ([DELETED, change(ChangeKind.ALTER, "orders")], [FLEETING]),
        ([change(ChangeKind.INSERT, rows=3)], []),  # none that it had is needed
        ([DELETED, change(ChangeKind.DROP)], []),
        ([DELETED, change(ChangeKind.DROP, "")], []),
        ([DELETED, change(ChangeKind.ALTER)], []),
        ([DELETED, change(ChangeKind.OTHER, "")], []),
        ([DELETED, change(ChangeKind.INSERT, "orders")], []),  # a statement, which may read it
        ([change(ChangeKind.UPDATE, "a,b", rows=1)], []),
    ],
)
def test_a_table_is_left_alone_where_nothing_but_its_rows_is_left_out(
    changes: Sequence[TableChange], expected: Sequence[Table]
) -> None:
    told = [FIRST, replace(FIRST, changes=tuple(changes))]
    assert list(left_alone(told, {FLEETING, STRANGE})) == expected
    assert left_alone([*told, replace(FIRST, all_changes=False)], {FLEETING, STRANGE}) == ()
    assert left_alone(told, set()) == ()


def test_each_flavour_has_a_filter_of_its_own() -> None:
    tables = [Table("shop", "a"), Table("shop", "b")]
    assert _filter(Words.MARIADB, tables) == "SET GLOBAL replicate_ignore_table = 'shop.a,shop.b'"
    assert _filter(Words.MYSQL, tables) == (
        "CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = (`shop`.`a`, `shop`.`b`)"
    )
