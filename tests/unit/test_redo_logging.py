"""A MySQL server whose redo log somebody disables (ALTER INSTANCE DISABLE INNODB REDO_LOG) after the preflight."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd.config import LockConfig
from backupd.mysql.locks import HeldServerLock, ServerLock
from backupd.mysql.login import Login
from backupd.mysql.session import ANSWER_SECONDS, Row, Session
from backupd.mysql.unlocked import NoLock
from backupd.vocabulary.errors import LockLost, ServerError

DISABLED = "redo logging is disabled: a snapshot of this server cannot be recovered"
LOG_STATUS: Row = {
    "here": '{"gtid_executed": "", "binary_log_file": "bin.000001", "binary_log_position": 4}',
    "engines": '{"InnoDB": {"LSN": 7}}',
}


class Mysql(Session):
    """One server; each of its sessions is this one."""

    connection_id = 7

    def __init__(self, datadir: Path) -> None:
        super().__init__(SimpleNamespace(close=lambda: None), Login("backup", socket=datadir / "s"))
        self.datadir = datadir
        self.logging: str | None = "ON"
        self.disabled_at = ""
        self.packets: list[Sequence[str]] = []

    def connect(self, *, answer_seconds: float = ANSWER_SECONDS) -> Session:
        return self

    def query(self, statement: str, *values: object) -> list[Row]:
        if statement == self.disabled_at:
            self.logging = "OFF"
        if "Innodb_redo_log_enabled" in (statement % values if values else statement):
            return [] if self.logging is None else [{"Variable_name": "?", "Value": self.logging}]
        answers: dict[str, Row] = {
            "SHOW GLOBAL VARIABLES": {"Variable_name": "datadir", "Value": str(self.datadir)},
            "SELECT CONNECTION_ID() AS id": {"id": "7"},
        }
        found = LOG_STATUS if "log_status" in statement else answers.get(statement)
        return [] if found is None else [found]

    def stream(self, statements: Sequence[str]) -> Iterator[list[Row]]:
        self.packets.append(statements)
        yield from map(self.query, statements)

    def locked(self) -> HeldServerLock:
        """Its lock, once it was held."""
        lock = ServerLock(self.connect, LockConfig(), strategy="ftwrl")
        with lock.held(self.datadir) as held:
            self.held = held
        return held


def test_it_is_refused_before_anything_is_locked(tmp_path: Path) -> None:
    server = Mysql(tmp_path)
    server.logging = "OFF"
    with pytest.raises(ServerError, match=DISABLED) as caught:
        server.locked()
    assert caught.value.hint == "ALTER INSTANCE ENABLE INNODB REDO_LOG"
    assert server.packets == []


def test_while_the_lock_was_waited_for_is_noticed_at_its_end_and_not_under_it(tmp_path: Path) -> None:
    server = Mysql(tmp_path)
    server.disabled_at = "FLUSH TABLES WITH READ LOCK"
    with pytest.raises(ServerError, match=DISABLED) as caught:
        server.locked()
    assert not isinstance(caught.value, LockLost)
    assert server.held.receipt.proof == "session and position"
    _request, proof = server.packets
    assert [statement for statement in proof if "redo" in statement] == list(proof[proof.index("UNLOCK TABLES") + 1 :])


def test_nothing_is_snapshotted_without_a_lock_either(tmp_path: Path) -> None:
    server = Mysql(tmp_path)
    server.logging = "OFF"
    with pytest.raises(ServerError, match=DISABLED), NoLock(server.connect).held(tmp_path):
        pytest.fail("the block was entered")


@pytest.mark.parametrize("logging", ["ON", None])  # as from 8.0.21 on, and before
def test_a_server_that_logs_is_locked(tmp_path: Path, logging: str | None) -> None:
    server = Mysql(tmp_path)
    server.logging = logging
    assert server.locked().position.binlog_file == "bin.000001"
