"""Rows become statements of bounded size; a loading schema is removed by nobody who does not know it."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pymysql.constants import ER

from backupd.config import Configuration
from backupd.mysql.loading_schema import LOADING, LoadingServer, new_place, remove_left_loading, remove_loading
from backupd.mysql.row_loading import STATEMENT_BYTES, statements
from backupd.mysql.session import Connect, Row, Session, StatementError
from backupd.mysql.table_shape import TableColumn, TableShape
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.loading_notes import attentions, beforehand
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.servers import Flavour, LoadingWay
from backupd.wiring import host_tools
from tests.fakes.target import MACHINE

SHAPE = TableShape(
    Table("live", "t"),
    "InnoDB",
    "CREATE TABLE `t` ()",
    (TableColumn("id", "int", "int"), TableColumn("v", "blob", "blob")),
    ("id",),
    foreign_keys=(),
    triggers=(),
)


SERVER = LoadingServer(
    *("db1", Flavour.MARIADB, (10, 11, 19)),
    largest_statement=16 << 20,
    logs=True,
    replicas=2,
    left_out="",
    is_replica=False,
    identity={},
)


@dataclass
class Rows:
    """A session of which rows are asked."""

    sizes: list[int]
    asked: str = ""

    def byte_rows(self, statement: str) -> Iterator[tuple[bytes | None, ...]]:
        self.asked = statement
        yield from ((b"%d" % number, b"x" * size) for number, size in enumerate(self.sizes))


def made(sizes: list[int], *, largest_statement: int) -> list[tuple[bytes, int]]:
    server = replace(SERVER, largest_statement=largest_statement)
    rows: Any = Rows(sizes)
    found = list(statements(rows, SHAPE, "loading", server=server))
    assert rows.asked == "SELECT `id`, `v` FROM `live`.`t`"
    return found


def test_many_rows_are_few_statements_of_bounded_size() -> None:
    found = made([1000] * 5000, largest_statement=16 << 20)
    assert sum(count for _, count in found) == 5000
    assert max(len(statement) for statement, _ in found) <= STATEMENT_BYTES
    assert len(found) <= 6
    assert found[0][0].startswith(b"INSERT INTO `loading`.`t` (`id`, `v`) VALUES ('0',_binary'xxx")


def test_no_statement_is_larger_than_the_server_takes() -> None:
    found = made([1000] * 100, largest_statement=4096)
    assert sum(count for _, count in found) == 100
    assert max(len(statement) for statement, _ in found) < 4096


def test_a_row_that_is_larger_than_a_statement_should_be_has_one_of_its_own() -> None:
    assert [count for _, count in made([10, 2 << 20, 10], largest_statement=16 << 20)] == [1, 1, 1]


def test_a_row_that_no_statement_holds_is_refused() -> None:
    with pytest.raises(ServerError, match=r"a row of live\.t takes \d+ bytes in a statement, and db1 takes 4096") as it:
        made([10, 5000], largest_statement=4096)
    assert "max_allowed_packet" in it.value.hint


def test_a_table_without_rows_needs_no_statement() -> None:
    assert made([], largest_statement=4096) == []


def test_no_two_loads_share_a_schema_and_each_tells_what_it_makes() -> None:
    one, other = new_place("db1", "restored_1121"), new_place("db1", "restored_1121")
    assert one.loading != other.loading
    holding = one.holding([Table("shop", "orders")], SERVER)
    assert (holding.name, holding.detail["host"]) == (one.loading, "db1")
    assert json.loads(holding.detail["tables"]) == ["orders"]


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "a b", "-a", "x" * 65, f"{LOADING}1", LOADING.upper() + "1", "é"])
def test_a_name_that_needs_thought_is_none_for_a_new_schema(name: str) -> None:
    with pytest.raises(UsageError, match="is not a name for a new schema"):
        new_place("db1", name)


def test_a_schema_that_is_not_a_loading_one_is_never_removed() -> None:
    def connect(**_how: object) -> Any:
        raise AssertionError("the server is not even asked")

    with pytest.raises(ServerError, match="'shop' is not a loading schema"):
        remove_loading(connect, Holding(HoldingKind.LOADING_SCHEMA, "shop", {"host": "db1", "tables": "[]"}))


class Elsewhere:
    """Another server than the one that the load began on answers, and does not have its schema."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, **_how: object) -> Session:
        session = Mock(Session)
        session.__enter__ = Mock(return_value=session)
        session.__exit__ = Mock(return_value=None)
        session.variables.return_value = {"datadir": "/srv/", "server_uuid": "B"}
        session.status.return_value = "9000"
        session.one.return_value = None
        session.query.side_effect = self._answer
        session.execute.side_effect = self.told.append
        return session

    def _answer(self, statement: str, *_values: object) -> list[Row]:
        if statement.startswith("SHOW CREATE DATABASE"):
            raise StatementError("unknown database", number=ER.BAD_DB_ERROR)
        return []


def test_only_recover_asks_which_server_answers_for_behind_one_address_there_may_be_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A load that failed before its schema was there has nothing to remove, on whichever node of the cluster."""
    began_on = {"datadir": "/srv/", "server_uuid": "A", "uptime": "9000", "at": f"{time.time():.0f}"}
    holding = Holding(HoldingKind.LOADING_SCHEMA, f"{LOADING}1", {"host": "db1", "tables": "[]", **began_on})
    elsewhere = Elsewhere()
    monkeypatch.setattr("backupd.mysql.loading_schema.datadir_here", lambda _session: None)
    remove_loading(cast(Connect, elsewhere), holding)
    assert elsewhere.told == [f"DROP DATABASE IF EXISTS `{LOADING}1`"]
    with pytest.raises(ServerError, match=f"its server_uuid is B, and schema {LOADING}1 was made on the one of A"):
        remove_left_loading(cast(Connect, elsewhere), holding)


def test_a_load_into_a_host_that_the_configuration_has_no_more_is_a_sentence_and_no_crash() -> None:
    release = host_tools(Configuration(), MACHINE).releases[HoldingKind.LOADING_SCHEMA]
    with pytest.raises(UsageError, match="no host 'db1', into which a table was being loaded"):
        release(Holding(HoldingKind.LOADING_SCHEMA, f"{LOADING}1", {"host": "db1", "tables": "[]"}))


@pytest.mark.parametrize(
    ("server", "share"),
    [
        (SERVER, "they go through its binary log to 2 connected replicas: each writes as much"),
        (replace(SERVER, replicas=0), "they go through its binary log, and to any replica, which writes as much"),
        (replace(SERVER, logs=False), "its binary log is off, so no replica receives them"),
    ],
)
def test_bytes_and_what_replicas_have_to_write_are_told_beforehand(server: LoadingServer, share: str) -> None:
    told = beforehand(server, new_place("db1", "restored"), 3 << 29, [LoadingWay.ROWS])
    assert told.startswith("loading about 1.5 GiB (the files of the tables) into db1 as schema restored, by rows: ")
    assert told.endswith(share)


def test_a_replica_that_is_loaded_into_is_an_attention() -> None:
    place = new_place("db1", "restored")
    assert list(attentions(SERVER, place)) == []
    told = "db1 is a replica itself: its source does not receive schema restored"
    own = ", and its binary log has transactions then that its source lacks"
    replica = replace(SERVER, is_replica=True)
    assert list(attentions(replica, place)) == [told + own]
    assert list(attentions(replica, replace(place, logged=False))) == [told]
    assert list(attentions(replace(replica, logs=False), place)) == [told]
