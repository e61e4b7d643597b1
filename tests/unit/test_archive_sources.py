"""Which files are stored: nothing that crash recovery needs is ever left out."""

import os
import socket
from pathlib import Path, PurePosixPath

import pytest

from backupd.archive.sources import Exclusions, list_members
from backupd.vocabulary.errors import SnapshotError

USUAL = Exclusions(
    datadir=PurePosixPath("mysql"),
    binlog=PurePosixPath("mysql/binlog"),
    relay_log=PurePosixPath("mysql/db1-relay-bin"),
    named_binlog="binlog.000007",
)
WITH_BINLOGS = Exclusions(USUAL.datadir, USUAL.binlog, USUAL.relay_log, USUAL.named_binlog, include_binlogs=True)

KEPT = [
    "mysql",
    "mysql/ibdata1",
    "mysql/ib_logfile0",
    "mysql/#innodb_redo",
    "mysql/#innodb_redo/#ib_redo10",
    "mysql/#innodb_redo/#ib_redo11.tmp",
    "mysql/#innodb_redo/#ib_redo11_tmp2",
    "mysql/#innodb_redo/#ib_redo_tmp",
    "mysql/#innodb_redo/ib_redo11_tmp",
    "mysql/#innodb_redo/x#ib_redo11_tmp",
    "mysql/#innodb_redo/#ib_redo\u0661_tmp",  # a digit, but none that a server would write
    "mysql/#innodb_redo/ibtmp1",
    "mysql/#ib_redo11_tmp",
    "mysql/shop/#ib_redo11_tmp",
    "mysql/@0023innodb_redo/#ib_redo11_tmp",  # of a database of that name
    "mysql/#ib_16384_0.dblwr",
    "mysql/#ib_16384_1.bdblwr",
    "mysql/#innodb_temp",  # the server makes what is in it, but not everywhere the folder
    "mysql/undo_001",
    "mysql/aria_log_control",
    "mysql/aria_log.00000001",
    "mysql/shop/#sql-alter-2f1-5.ibd",
    "mysql/shop/#sql2-2f1-5.frm",
    "mysql/shop/ibtmp1",  # a table may be called anything
    "mysql/shop/a.pid",
    "mysql/shop/binlog.000001",
    "mysql/shop/lost+found",
    "mysql/binlog",
    "mysql/binlog.frm",
    "mysql/binlog.000001.ibd",
    "mysql/binlog.state",
    "mysql/xbinlog.000001",
    "mysql/relay-log.info",
    "mysql/master.info",
    "mysql/multi-master.info",
    "mysql/auto.cnf",
    "binlog.000001",
]
LEFT_OUT = [
    ".backupd-probe-20260102T030405Z",
    ".backupd-probe-20260102T030405Z/test_file.0",
    "lost+found",
    "mysql/ibtmp1",
    "mysql/#innodb_temp/temp_1.ibt",
    "mysql/#innodb_redo/#ib_redo11_tmp",
    "mysql/#innodb_redo/#ib_redo4294967296_tmp",
    "redo/#innodb_redo/#ib_redo0_tmp",  # innodb_log_group_home_dir
    "mysql/db1.pid",
    "mysql/mysql.sock.lock",
    "mysql/db1-relay-bin.000003",
    "mysql/db1-relay-bin-europe.000003",
    "mysql/db1-relay-bin.index",
]
BINLOGS = ["mysql/binlog.000001", "mysql/binlog.000006", "mysql/binlog.1000000", "mysql/binlog.000006.idx"]
NAMED = ["mysql/binlog.000007", "mysql/binlog.000007.idx", "mysql/binlog.index"]


@pytest.mark.parametrize("path", KEPT)
@pytest.mark.parametrize("exclusions", [USUAL, WITH_BINLOGS, Exclusions(PurePosixPath("mysql"))], ids=str)
def test_what_a_server_needs_is_kept(path: str, exclusions: Exclusions) -> None:
    assert not exclusions.left_out(PurePosixPath(path))


@pytest.mark.parametrize("path", [*LEFT_OUT, *BINLOGS, *NAMED])
def test_what_no_restored_server_needs_is_left_out(path: str) -> None:
    assert USUAL.left_out(PurePosixPath(path))


@pytest.mark.parametrize("path", BINLOGS)
def test_earlier_binlogs_are_kept_when_asked_for(path: str) -> None:
    assert not WITH_BINLOGS.left_out(PurePosixPath(path))


@pytest.mark.parametrize("path", [*LEFT_OUT, *NAMED])
def test_named_binlog_and_index_are_an_object_of_their_own_in_any_case(path: str) -> None:
    assert WITH_BINLOGS.left_out(PurePosixPath(path))


def test_relay_log_pattern_does_not_take_a_binlog_of_a_similar_name() -> None:
    exclusions = Exclusions(
        datadir=PurePosixPath(),
        binlog=PurePosixPath("db1-bin"),
        relay_log=PurePosixPath("db1"),
        include_binlogs=True,
    )
    assert not exclusions.left_out(PurePosixPath("db1-bin.000001"))


def test_datadir_may_be_the_root() -> None:
    exclusions = Exclusions(datadir=PurePosixPath(), binlog=PurePosixPath("binlog"))
    assert exclusions.left_out(PurePosixPath("ibtmp1"))
    assert exclusions.left_out(PurePosixPath("binlog.000001"))
    assert not exclusions.left_out(PurePosixPath("#innodb_redo/#ib_redo1"))
    assert exclusions.left_out(PurePosixPath("#innodb_redo/#ib_redo2_tmp"))


def test_a_folder_of_ours_in_which_the_servers_binlog_is_belongs_to_the_server() -> None:
    """A restored server lives there, if it does what `restore` prints."""
    exclusions = Exclusions(PurePosixPath("mysql"), binlog=PurePosixPath(".backupd-binlog/bin"))
    assert not exclusions.left_out(PurePosixPath(".backupd-binlog"))
    assert not exclusions.left_out(PurePosixPath(".backupd-binlog/bin.state"))
    assert exclusions.left_out(PurePosixPath(".backupd-r1/test_file.0"))
    assert USUAL.left_out(PurePosixPath(".backupd-binlog/bin.state"))


def listed(root: Path, exclusions: Exclusions = USUAL) -> list[str]:
    return [os.fsdecode(entry.name) for entry in list_members(root, exclusions).entries]


def test_listing_is_sorted_and_has_folders_files_and_links(tmp_path: Path) -> None:
    (tmp_path / "mysql" / "shop").mkdir(parents=True)
    (tmp_path / "mysql" / "shop" / "a.ibd").write_bytes(bytes(100_000))
    (tmp_path / "mysql" / "ibtmp1").write_bytes(b"x")
    (tmp_path / "mysql" / "alias").symlink_to("shop/a.ibd")
    (tmp_path / ".backupd-run").mkdir()
    (tmp_path / ".backupd-run" / "test_file.0").write_bytes(b"x")
    assert listed(tmp_path) == [".", "mysql", "mysql/alias", "mysql/shop", "mysql/shop/a.ibd"]
    assert list_members(tmp_path, USUAL).files == 2


def test_sockets_and_pipes_hold_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is at most 107 bytes long
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("mysql.sock")
        assert listed(tmp_path) == ["."]


def test_holes_are_not_counted(tmp_path: Path) -> None:
    with (tmp_path / "ibdata1").open("wb") as file:
        file.truncate(1 << 40)
    assert list_members(tmp_path, USUAL).size < 1 << 20


@pytest.mark.parametrize("link", ["/etc/passwd", "../outside", "x/../../..", "./../outside"])
def test_link_out_of_the_tree_is_refused_because_a_restored_server_would_follow_it(tmp_path: Path, link: str) -> None:
    (tmp_path / "alias").symlink_to(link)
    with pytest.raises(SnapshotError, match="alias points outside") as refused:
        list_members(tmp_path, USUAL)
    assert "live files" in refused.value.hint


def test_folder_that_cannot_be_read_is_a_snapshot_error(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="could not be read"):
        list_members(tmp_path / "unmounted", USUAL)
