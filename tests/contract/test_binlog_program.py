"""A program that receives a binlog, whatever it does: what it may write, and what is taken of it."""

from pathlib import Path

import pytest

from backupd.mysql.binlog.client import BinlogClient
from backupd.mysql.binlog.endings import STREAM_ENDED, ReceiverEnd
from backupd.mysql.binlog.receiver import Receiver, receiving
from backupd.mysql.login import Login
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import wait_until

START = 4  # where a binlog's first event is


def _ended(receiver: Receiver) -> ReceiverEnd | None:
    wait_until(lambda: receiver.ended is not None)
    return receiver.ended


def test_the_program_writes_nowhere_but_into_its_folder(tmp_path: Path) -> None:
    """The server names the files; these names may lead anywhere."""
    script = tmp_path / "client"
    script.write_text(f"#!/bin/sh\necho x > {tmp_path}/outside\necho x > {tmp_path}/raw/bin.000001\n")
    script.chmod(0o755)
    client, login = BinlogClient(str(script), Flavour.MARIADB, None), Login("backupd", socket=Path("/run/s"))
    start = BinlogPlace("bin.000001", START)
    with receiving(client, login, start, tmp_path / "raw", server_id=9, limit=1 << 20) as receiver:
        wait_until(lambda: receiver.ended is not None)
        assert [piece.data for piece in receiver.poll()] == [b"x\n"]
    assert not (tmp_path / "outside").exists()


def test_a_program_that_says_nothing_was_told_that_the_log_ends(tmp_path: Path) -> None:
    """MySQL 9.7.4 does so when it shuts down."""
    client, login = BinlogClient("true", Flavour.MYSQL, (9, 7)), Login("backupd", socket=Path("/run/s"))
    start = BinlogPlace("bin.000001", START)
    with receiving(client, login, start, tmp_path / "raw", server_id=9, limit=1 << 20) as receiver:
        assert _ended(receiver) == STREAM_ENDED


def test_a_file_of_another_name_is_not_taken(tmp_path: Path) -> None:
    script = tmp_path / "client"
    script.write_text(f"#!/bin/sh\necho x > {tmp_path}/raw/other.000002\n")
    script.chmod(0o755)
    client, login = BinlogClient(str(script), Flavour.MARIADB, None), Login("backupd", socket=Path("/run/s"))
    start = BinlogPlace("bin.000001", START)
    with receiving(client, login, start, tmp_path / "raw", server_id=9, limit=1 << 20) as receiver:
        wait_until(lambda: receiver.ended is not None)
        with pytest.raises(ServerError, match="the server's binlogs have a new name"):
            receiver.poll()
