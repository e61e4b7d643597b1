"""Which files are a table's, and which ones every server needs."""

import pytest

from backupd.mysql.tablefiles import Table, TableFiles, file_name, tables_in
from backupd.vocabulary.errors import UsageError

EVERYBODY_S = [
    ".",
    "ibdata1",
    "ib_logfile0",
    "#innodb_redo",
    "#innodb_redo/#ib_redo5",
    "undo_001",
    "mysql.ibd",
    "general.ibd",
    "aria_log_control",
    "auto.cnf",
    "mysql",
    "mysql/user.MAD",
    "sys",
    "sys/sys_config.ibd",
    "performance_schema",
    "performance_schema/x.sdi",
    "undo",
    "undo/undo003",
]
ORDERS = ["shop/orders.ibd", "shop/orders.frm", "shop/orders.TRG"]
PARTED = ["shop/parted#P#p0.ibd", "shop/parted#p#p1#sp#s0.ibd", "shop/parted.frm", "shop/parted.par"]
OLD = ["shop/old.MYD", "shop/old.MYI", "shop/old_361.sdi"]
ODD = ["odd@002dname/caf@00e9s@0020to@0020let.ibd"]
NAMED_ALIKE = ["shop/fts_documents.ibd", "shop/fts_documents.frm"]
SHOP_S = [
    "shop",
    "shop/db.opt",
    "shop/audit.TRN",
    "shop/FTS_00000000000004a1_BEING_DELETED.ibd",
    "shop/fts_00000000000004a1_00000000000000b6_index_1.ibd",
]
OTHERS = ["other", "other/db.opt", "other/orders.ibd"]
ALL = [*EVERYBODY_S, *SHOP_S, *ORDERS, *PARTED, *OLD, *NAMED_ALIKE, "odd@002dname", *ODD, *OTHERS]


def files(*, lower_case: bool = False, below: str = "") -> TableFiles:
    return TableFiles((f"{below}{name}" for name in ALL), datadir=below.rstrip("/"), lower_case=lower_case)


def chosen(*tables: Table) -> list[str]:
    return [name for name, wanted in zip(ALL, files().selected(ALL, tables), strict=True) if wanted]


@pytest.mark.parametrize(
    ("table", "own"),
    [("orders", ORDERS), ("parted", PARTED), ("old", OLD), ("fts_documents", NAMED_ALIKE)],
    ids=["plain", "partitioned", "myisam", "named as InnoDB's own"],
)
def test_a_table_is_its_files_and_everybody_s(table: str, own: list[str]) -> None:
    assert set(chosen(Table("shop", table))) == {*EVERYBODY_S, *SHOP_S, *own}


def test_tables_of_two_schemas() -> None:
    assert set(chosen(Table("shop", "orders"), Table("other", "orders"))) == {*EVERYBODY_S, *SHOP_S, *ORDERS, *OTHERS}


@pytest.mark.parametrize("name", ["cafés to let", "caf@00e9s@0020to@0020let"])
def test_a_name_is_found_as_it_is_in_sql_and_as_its_file(name: str) -> None:
    schema = "odd-name" if " " in name else "odd@002dname"
    assert set(chosen(Table(schema, name))) == {*EVERYBODY_S, "odd@002dname", *ODD}


def test_a_datadir_may_lie_deeper() -> None:
    below = files(below="data/mysql/")
    names = ["data", "data/mysql", "data/mysql/ibdata1", "data/mysql/shop/orders.ibd", "data/mysql/other/orders.ibd"]
    assert list(below.selected(names, [Table("shop", "orders")])) == [True, True, True, True, False]


def test_capitals_count_only_where_the_server_says_so() -> None:
    files(lower_case=True).require([Table("Shop", "ORDERS")])
    with pytest.raises(UsageError, match="no table Shop"):
        files().require([Table("Shop", "ORDERS")])


def test_an_unknown_table_is_told_with_its_neighbours() -> None:
    with pytest.raises(UsageError, match=r"no table shop\.order in") as refused:
        files().require([Table("shop", "orders"), Table("shop", "order")])
    assert "shop.orders" in refused.value.hint


def test_system_tables_are_always_there_and_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError):
        files().require([Table("mysql", "user")])


@pytest.mark.parametrize(
    ("name", "file"), [("orders_2", "orders_2"), ("a-b", "a@002db"), ("a$b.c", "a@0024b@002ec"), ("表", "@8868")]
)
def test_a_name_becomes_a_file_s(name: str, file: str) -> None:
    assert file_name(name) == file


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("shop.orders", [("shop", "orders")]),
        ("shop.orders, shop.b,shop.orders", [("shop", "b"), ("shop", "orders")]),
        ("`a.b`.`c``,d`", [("a.b", "c`,d")]),
    ],
)
def test_tables_are_named_with_commas(text: str, found: list[tuple[str, str]]) -> None:
    assert tables_in(text) == tuple(Table(*names) for names in found)


@pytest.mark.parametrize("text", ["", "orders", "shop.", ".orders", "a.b.c", "shop.orders,", "a.b c.d,", "`a.b"])
def test_what_names_no_table_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a list of tables"):
        tables_in(text)
