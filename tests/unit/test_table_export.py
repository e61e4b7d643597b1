"""What an archive has planted in a copy is neither written through nor read through when tables are exported."""

import os
import stat
from pathlib import Path

import pytest

from backupd.host.filesystem import opened_plain, read_plain
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.table_export import FOLDER, _new_folder, _no_import, _Place, export
from backupd.operations.restore.unfinished import unfinished_in
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.storage import MARKER
from tests.unit.test_directory_target import device_or_pipe, seen_opened
from tests.unit.test_seeding import MARIADB, MYSQL


def test_a_planted_folder_for_the_tables_is_not_used(tmp_path: Path) -> None:
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy.mkdir()
    (copy / FOLDER).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="tables cannot be made: File exists"):
        export(copy, MARIADB, [])
    assert list(elsewhere.iterdir()) == []
    assert (copy / FOLDER).is_symlink()


def test_who_renames_the_folder_while_a_server_runs_gets_nothing_of_ours(tmp_path: Path) -> None:
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    for folder in (copy, elsewhere):
        folder.mkdir()
    with _new_folder(copy / FOLDER) as home:
        (copy / FOLDER).rename(copy / "moved")
        (copy / FOLDER).symlink_to(elsewhere)
        with _Place(copy, home, "fresh").new("shop", "orders.sql") as file:
            file.write(b"CREATE")
    assert list(elsewhere.iterdir()) == []
    assert (copy / "moved" / "shop" / "orders.sql").read_text() == "CREATE"


def test_no_file_of_the_export_is_written_through_a_link_or_twice(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's")
    with _new_folder(tmp_path / FOLDER) as home:
        place = _Place(tmp_path, home, "fresh")
        (tmp_path / FOLDER / "shop").mkdir()
        (tmp_path / FOLDER / "shop" / "orders.sql").symlink_to(tmp_path / "secret")
        with pytest.raises(FileExistsError), place.new("shop", "orders.sql"):
            raise AssertionError("opened")
        (tmp_path / FOLDER / "else").symlink_to(tmp_path)
        with pytest.raises(NotADirectoryError), place.new("else", "planted.sql"):
            raise AssertionError("opened")
    assert (tmp_path / "secret").read_text() == "root's"


def test_a_failed_export_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyError), _new_folder(tmp_path / FOLDER):
        (tmp_path / FOLDER / "half").write_text("")
        raise KeyError
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("kind", ["link", "link on the way", "fifo", "folder", "device", "dots"])
def test_a_file_of_a_copy_is_read_if_it_is_one(tmp_path: Path, kind: str) -> None:
    copy = tmp_path / "copy"
    (copy / "t").mkdir(parents=True)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.ibd").write_text("another's")
    file = copy / "t" / "x.ibd"
    match kind:
        case "link":
            file.symlink_to(tmp_path / "t" / "x.ibd")
        case "link on the way":
            (copy / "t").rmdir()
            (copy / "t").symlink_to(tmp_path / "t")
        case "fifo":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "device":
            try:
                os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, 5))
            except PermissionError:
                os.mkfifo(file)  # who is not root makes no device
        case "dots":
            file = copy / "t" / ".." / ".." / "t" / "x.ibd"
    with pytest.raises(OSError, match=r".+"), opened_plain(file, beneath=copy):
        raise AssertionError("opened")


def test_what_is_no_file_in_a_copy_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device_or_pipe(tmp_path / "x")
    (tmp_path / "y").write_text("a file")
    opened = seen_opened(monkeypatch)
    with pytest.raises(OSError, match="not the file that should be there"):
        read_plain(tmp_path / "x", beneath=tmp_path, at_most=4)
    device_or_pipe(tmp_path / MARKER)
    assert unfinished_in(tmp_path) is None
    assert opened == []
    assert read_plain(tmp_path / "y", beneath=tmp_path, at_most=6) == b"a file"
    assert list(map(stat.S_ISREG, opened)) == [True]


def test_a_plain_file_is_read_as_far_as_it_may_go(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("four")
    assert read_plain(tmp_path / "x", beneath=tmp_path, at_most=4) == b"four"
    assert read_plain(tmp_path / "x", beneath=tmp_path, at_most=4, owners=(os.geteuid(),)) == b"four"
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_plain(tmp_path / "x", beneath=tmp_path, at_most=3)
    with pytest.raises(OSError, match="not the file that should be there"):
        read_plain(tmp_path / "x", beneath=tmp_path, at_most=4, owners=(os.geteuid() + 1,))


@pytest.mark.parametrize("engine", ["MyISAM", "CSV", "ARCHIVE"])
def test_a_table_that_mysql_does_not_find_by_its_files_is_led_into_a_running_server(engine: str) -> None:
    """MySQL 9.7.4 has no .frm: with the files in place and FLUSH TABLES the table did not exist."""
    table, definition = Table("shop", "old"), f"CREATE TABLE `old` (\n  `a` int\n) ENGINE={engine}"
    attention = _no_import(MYSQL, table, engine, definition, [Path("old.MYD"), Path("old_361.sdi")])
    assert attention is not None
    assert f"MySQL does not find a table of {engine} by its files" in attention
    assert "--tables shop.old --into HOST --as NAME" in attention
    assert _no_import(MARIADB, table, engine, definition, [Path("old.frm"), Path("old.MYD")]) is None
