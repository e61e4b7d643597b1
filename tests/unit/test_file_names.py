"""What files are called, without a server that could be asked."""

import pytest

from backupd.mysql.file_names import file_name, sql_name


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("orders_2", "orders_2"),
        ("a-b", "a@002db"),
        ("a$b.c", "a@0024b@002ec"),
        ("表", "@8868"),
        ("bücher", "b@1ocher"),
        ("BÜCHER", "B@1OCHER"),
        ("bu\u0308cher", "bu@0308cher"),
        ("ñandú", "@0xand@1m"),
        ("Ж", "@M0"),
        ("Ⓐⓩ", "@@A@@z"),
        ("\uff21\uff5a", "@A@@z@"),
        ("con", "con@@@"),
        ("LPT9", "LPT9@@@"),
        ("con1", "con1"),
        ("clock$", "clock@0024"),
        ("@1o", "@00401o"),
    ],
)
def test_a_name_becomes_a_file_s_and_a_name_again(name: str, file: str) -> None:
    assert file_name(name) == file
    assert sql_name(file) == name


@pytest.mark.parametrize(
    "file", ["a-b", "caf@00e9s", "@00E9", "con", "a@@@", "a@", "@zz", "#sql-ib71-1", "@1o@", "\udcff"]
)
def test_what_no_server_names_so_is_told_as_the_servers_tell_it(file: str) -> None:
    assert sql_name(file) == f"#mysql50#{file}"
    assert file_name(sql_name(file)) == file
