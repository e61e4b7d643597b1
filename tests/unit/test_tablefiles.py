"""Which files are a table's, and which ones every server needs."""

import pytest

from backupd.mysql.tablefiles import Table, TableFiles, tables_in
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
ODD = ["odd@002dname/caf@0ps@0020to@0020let.ibd"]
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


def test_a_table_is_found_by_its_name_in_sql() -> None:
    assert set(chosen(Table("odd-name", "cafés to let"))) == {*EVERYBODY_S, "odd@002dname", *ODD}


def test_who_asks_by_the_name_of_the_file_is_told_the_name_in_sql() -> None:
    with pytest.raises(UsageError, match="no table") as refused:
        files().require([Table("odd@002dname", "caf@0ps@0020to@0020let")])
    assert refused.value.hint.startswith("it has odd-name.cafés to let")


def test_an_accent_that_is_a_character_of_its_own_makes_another_name() -> None:
    with pytest.raises(UsageError, match="no table"):
        files().require([Table("odd-name", "cafe\u0301s to let")])


def test_a_name_that_does_not_print_is_told_as_its_file_s() -> None:
    with pytest.raises(UsageError, match="no table") as refused:
        TableFiles(["t/a@001b.ibd"], datadir="", lower_case=False).require([Table("t", "a")])
    assert refused.value.hint == "it has t.a@001b"


def test_a_datadir_may_lie_deeper() -> None:
    below = files(below="data/mysql/")
    names = ["data", "data/mysql", "data/mysql/ibdata1", "data/mysql/shop/orders.ibd", "data/mysql/other/orders.ibd"]
    assert list(below.selected(names, [Table("shop", "orders")])) == [True, True, True, True, False]


def test_capitals_count_only_where_the_server_says_so() -> None:
    files(lower_case=True).require([Table("Shop", "ORDERS")])
    with pytest.raises(UsageError, match="no table Shop"):
        files().require([Table("Shop", "ORDERS")])


def test_what_was_left_with_capitals_is_not_taken_for_the_table_of_a_server_that_makes_them_small() -> None:
    names = ["Shop/T.ibd", "Shop/gone.ibd", "shop/t.ibd"]
    found = TableFiles(names, datadir="", lower_case=True)
    found.require([Table("Shop", "T")])
    assert found.of(Table("Shop", "T"), names) == ("shop/t.ibd",)
    assert list(found.own(names, [Table("SHOP", "t")])) == [False, False, True]
    assert list(found.selected([*names, "Shop", "shop"], [Table("Shop", "T")])) == [False, False, True, False, True]
    assert found.of(Table("Shop", "gone"), names) == ("Shop/gone.ibd",)
    TableFiles(["B@1ocher/t.ibd", "b@1ocher/t.ibd"], datadir="", lower_case=True).require([Table("Bücher", "t")])


def test_where_a_server_may_have_both_none_is_chosen() -> None:
    found = TableFiles(["t/@10a0.ibd", "t/@2d00.ibd"], datadir="", lower_case=True)
    found.require([Table("t", "ⴀ")])
    with pytest.raises(UsageError, match="with capitals and without"):
        found.require([Table("t", "Ⴀ")])


@pytest.mark.parametrize(
    ("asked", "kept"),
    [("BÜCHER", "b@1ocher"), ("ΟΔΟΣ", "@6z@6o@6z@7j"), ("İ", "i"), ("Ⴀ", "@10a0")],
    ids=["a shortened letter", "a final sigma", "a dotted i", "a capital younger than the servers' table"],
)
def test_capitals_are_made_small_as_the_server_does_it(asked: str, kept: str) -> None:
    TableFiles([f"t/{kept}.ibd"], datadir="", lower_case=True).require([Table("t", asked)])


def test_an_unknown_table_is_told_with_its_neighbours() -> None:
    with pytest.raises(UsageError, match=r"no table shop\.order in") as refused:
        files().require([Table("shop", "orders"), Table("shop", "order")])
    assert "shop.orders" in refused.value.hint


def test_system_tables_are_always_there_and_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError):
        files().require([Table("mysql", "user")])


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
