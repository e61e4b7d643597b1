"""Binlogs as a power cut leaves them: where the last whole transaction ends, and what recovery has to read."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.mysql.binlogs import committed_end, listed, needed_by_recovery
from backupd.vocabulary.errors import ServerError

FORMAT, ROTATE, XID, TABLE_MAP, ROWS, INTVAR = 15, 4, 16, 19, 23, 5
GTID_LIST, CHECKPOINT, GTID, ENCRYPTED, QUERY = 163, 161, 162, 164, 2
DDL = 1


def event(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), 0, 0) + body


def gtid(flags: int = 0) -> bytes:
    return event(GTID, struct.pack("<QIB", 7, 0, flags) + bytes(6))


def query(said: bytes, *, checksum: bytes = b"") -> bytes:
    status, schema = b"\x01\x02\x03", b"shop"
    head = struct.pack("<IIBHH", 1, 0, len(schema), 0, len(status))
    return event(QUERY, head + status + schema + b"\0" + said + checksum)


def checkpoint(name: str) -> bytes:
    return event(CHECKPOINT, struct.pack("<I", len(name)) + name.encode() + b"sum!")


TRANSACTION = gtid() + query(b"INSERT INTO t VALUES (1)") + event(TABLE_MAP) + event(ROWS) + event(XID, bytes(8))
START = event(FORMAT, bytes(80)) + event(GTID_LIST, bytes(8)) + checkpoint("bin.000001")


def binlog(folder: Path, *events: bytes, name: str = "bin.000001") -> Path:
    path = folder / name
    path.write_bytes(b"\xfebin" + b"".join(events))
    return path


@pytest.mark.parametrize(
    ("whole", "tail"),
    [
        ((START,), ()),
        ((START, TRANSACTION), ()),
        ((START, TRANSACTION, TRANSACTION), (gtid(),)),
        ((START, TRANSACTION), (gtid(), event(TABLE_MAP), event(ROWS))),
        ((START, TRANSACTION), (TRANSACTION[:-1],)),
        ((START, TRANSACTION), (b"\x01\x02",)),
        ((START, TRANSACTION), (bytes(500),)),
        ((START, TRANSACTION, gtid(DDL), query(b"CREATE TABLE x (n INT)")), ()),
        ((START, TRANSACTION), (gtid(DDL),)),
        ((START, TRANSACTION), (gtid(DDL), event(INTVAR))),
        ((START, gtid(), query(b"INSERT INTO memory VALUES (1)"), query(b"COMMIT")), ()),
        ((START, gtid(), query(b"INSERT INTO memory VALUES (1)"), query(b"COMMIT", checksum=b"\1\2\3\4")), ()),
        ((START, TRANSACTION), (gtid(), query(b"INSERT INTO t VALUES ('COMMIT')"))),
        ((START, TRANSACTION, event(ROTATE)), ()),
    ],
)
def test_the_position_is_behind_the_last_whole_transaction(
    tmp_path: Path, whole: tuple[bytes, ...], tail: tuple[bytes, ...]
) -> None:
    assert committed_end(binlog(tmp_path, *whole, *tail)) == 4 + len(b"".join(whole))


def test_an_empty_binlog_ends_where_it_begins(tmp_path: Path) -> None:
    assert committed_end(binlog(tmp_path)) == 4


@pytest.mark.parametrize(
    ("newest", "needed"),
    [
        ((checkpoint("bin.000003"),), ("bin.000003",)),
        ((checkpoint("bin.000002"), TRANSACTION), ("bin.000002", "bin.000003")),
        ((checkpoint("./bin.000001"), TRANSACTION), ("bin.000001", "bin.000002", "bin.000003")),
        ((checkpoint("bin.000001"), checkpoint("bin.000002")), ("bin.000002", "bin.000003")),
        ((checkpoint("bin.000002"), TRANSACTION, checkpoint("bin.000003")), ("bin.000003",)),
        ((checkpoint("bin.000000"),), ("bin.000003",)),
        ((), ("bin.000003",)),
    ],
)
def test_recovery_needs_the_binlogs_back_to_the_checkpoint(
    tmp_path: Path, newest: tuple[bytes, ...], needed: tuple[str, ...]
) -> None:
    binlog(tmp_path, event(FORMAT, bytes(80)), *newest, name="bin.000003")
    assert needed_by_recovery(tmp_path, ("bin.000001", "bin.000002", "bin.000003")) == needed
    of_an_earlier_log_bin = ("bin.000001", "bin.000002", "bin.000003")
    assert needed_by_recovery(tmp_path, (*of_an_earlier_log_bin, "bin.000001", "bin.000002", "bin.000003")) == needed


def test_an_encrypted_binlog_tells_nothing(tmp_path: Path) -> None:
    encrypted = binlog(tmp_path, event(FORMAT, bytes(80)), event(ENCRYPTED, bytes(20)), b"\x93" * 200)
    with pytest.raises(ServerError, match=r"bin\.000001 is encrypted"):
        committed_end(encrypted)
    with pytest.raises(ServerError, match=r"bin\.000001 is encrypted"):
        needed_by_recovery(tmp_path, ("bin.000001",))


def test_a_file_that_is_no_binlog_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bin.000001").write_bytes(b"?")
    with pytest.raises(ServerError, match=r"bin\.000001 is not a binlog"):
        committed_end(tmp_path / "bin.000001")
    with pytest.raises(ServerError, match="cannot read the binlog"):
        committed_end(tmp_path / "bin.000002")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to(path.with_name("elsewhere"))])
def test_only_a_file_is_read_as_a_binlog(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    """Whoever owns the folder could have root wait for ever, or read another file."""
    binlog(tmp_path, START, name="elsewhere")
    plant(tmp_path / "bin.000001")
    with pytest.raises(ServerError, match=r"cannot read the binlog bin\.000001"):
        committed_end(tmp_path / "bin.000001")
    with pytest.raises(ServerError, match=r"cannot read the binlog bin\.000001"):
        needed_by_recovery(tmp_path, ("bin.000001",))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_only_a_file_is_read_as_the_index(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    plant(tmp_path / "bin.index")
    with pytest.raises(ServerError, match="cannot read the binlog's index") as caught:
        listed(tmp_path / "bin.index")
    assert "log_bin_index" in caught.value.hint


def test_an_index_may_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept.index").write_text("./bin.000001\n")
    (tmp_path / "bin.index").symlink_to("kept.index")
    assert listed(tmp_path / "bin.index") == ("bin.000001",)


def test_a_folder_of_binlogs_may_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "logs").symlink_to("large")
    (tmp_path / "large" / "bin.index").write_text("./bin.000001\n")
    assert committed_end(binlog(tmp_path / "logs", START)) == 4 + len(START)
    assert listed(tmp_path / "logs" / "bin.index") == ("bin.000001",)


def test_an_index_lists_names_wherever_the_files_were(tmp_path: Path) -> None:
    (tmp_path / "bin.index").write_text("./bin.000001\n/srv/mysql/bin.000002\n")
    assert listed(tmp_path / "bin.index") == ("bin.000001", "bin.000002")


@pytest.mark.parametrize("text", [None, ""])
def test_an_index_that_lists_nothing_is_an_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "bin.index").write_text(text)
    with pytest.raises(ServerError, match="index"):
        listed(tmp_path / "bin.index")
