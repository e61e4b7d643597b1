"""Transactions of recorded binlogs, as MySQL's own program prints them; what of MariaDB's needs no server."""

import random
import re
import struct
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.changes import MOST_STATEMENT, MOST_TABLES, ChangeTally
from backupd.mysql.binlog.events import EventStream, LogEvent
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.policy.log_search import LogSearch
from backupd.vocabulary.binlogs import ChangeKind, LoggedTransaction, TableChange
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.binlog_texts import assert_alike, binlog
from tests.share import examples

DATA = Path(__file__).parents[1] / "data" / "binlog"
NAMED = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
FIRST = datetime(2026, 11, 26, 0, 21, 15, 225046, UTC)
QUOTED = 'quo`ted, "name"'


def recorded(name: str) -> list[LoggedTransaction]:
    return assert_alike(binlog(name), (DATA / f"{name}.txt").read_text(errors="replace"), Flavour.MYSQL)


def made(kind: int, body: bytes, at_seconds: int = 100, start: int = 0) -> LogEvent:
    raw = struct.pack("<IBIIIH", at_seconds, kind, 7, 19 + len(body), 0, 0) + body
    return LogEvent(kind, at_seconds, 7, 0, start, start + len(raw), raw, checksummed=False)


def query(said: bytes, schema: bytes = b"shop") -> bytes:
    return struct.pack("<IIBHH", 1, 0, len(schema), 0, 0) + schema + b"\0" + said


def gtid(number: int, *, ddl: bool) -> bytes:
    return struct.pack("<QIB", number, 0, ddl) + bytes(6)


def fed(*events: LogEvent, reader: TransactionReader | None = None) -> list[LoggedTransaction]:
    reader = reader or TransactionReader(Flavour.MARIADB, "bin.000001")
    return [found for event in events if (found := reader.feed(event))]


def test_mysqls_transactions_without_gtids_are_as_its_own_program_prints_them() -> None:
    found = recorded("mysql-9.7.4-anonymous")
    assert {one.gtid for one in found} == {None}
    assert found[0].changes == (TableChange("shop", "", ChangeKind.CREATE),)
    assert found[0].committed_at == FIRST
    assert TableChange("shop", "places", ChangeKind.INSERT, 3) in [one for each in found for one in each.changes]


def test_a_compressed_transaction_of_mysqls_tells_its_rows() -> None:
    (found,) = [one for one in recorded("mysql-9.7.4-anonymous") if len(one.changes) == 2 and one.changes[0].rows == 16]
    assert found.changes == (
        TableChange("shop", QUOTED, ChangeKind.INSERT, 16),
        TableChange("shop", "kinds", ChangeKind.DELETE, 1),
    )


def test_mysqls_gtids_with_and_without_tags() -> None:
    found = recorded("mysql-9.7.4-gtids")
    assert [str(one.gtid).partition(":")[2] for one in found[:3]] == ["1", "nightly:1", "nightly:2"]
    assert [one.gtid for one in found[3:5]] == [f"{NAMED}:1000000", f"{NAMED}:a_tag:70000"]


def test_of_a_replica_the_time_is_that_of_the_server_where_it_was_committed() -> None:
    text = (DATA / "mysql-9.7.4-replica.txt").read_text()
    found = recorded("mysql-9.7.4-replica")
    originally, immediately = (
        [int(told) for told in re.findall(rf"^# {which}_commit_timestamp=(\d+)", text, re.MULTILINE)]
        for which in ("original", "immediate")
    )
    assert [one.gtid is not None and ":a_tag:" in one.gtid for one in found] == [False, False, True, True]
    assert originally[2] == 0, "the server did not know it"
    times = [original or now for original, now in zip(originally, immediately, strict=True)]
    assert [round(one.committed_at.timestamp() * 1_000_000) for one in found] == times


def test_what_was_executed_goes_on_from_file_to_file() -> None:
    after, begun = TransactionReader(Flavour.MYSQL, "f"), TransactionReader(Flavour.MYSQL, "f")
    for event in EventStream("f").feed(binlog("mysql-9.7.4-gtids")):
        after.feed(event)
    assert after.file_ended
    (described, listed, *_) = EventStream("f").feed(binlog("mysql-9.7.4-after-gtids"))
    begun.feed(described)
    begun.feed(listed)
    assert begun.gtids == after.gtids
    assert begun.gtids.endswith(f":1-5:nightly:1-2,{NAMED}:1000000:a_tag:70000")
    assert not begun.file_ended
    assert begun.format_event == described.raw


def test_a_file_that_is_read_from_its_middle_goes_on_with_what_had_been_executed() -> None:
    reader = TransactionReader(Flavour.MARIADB, "f", gtids="5-1-9,0-7-1")
    fed(made(layout.MARIADB_GTID, gtid(2, ddl=True)), made(layout.QUERY, query(b"TRUNCATE t")), reader=reader)
    assert reader.gtids == "0-7-2,5-1-9"


def test_a_transaction_is_open_from_its_gtid_to_its_commit() -> None:
    reader = TransactionReader(Flavour.MARIADB, "bin.000001")
    within = []
    for event in (
        made(layout.MARIADB_GTID, gtid(1, ddl=False), start=500),
        made(layout.QUERY, query(b"INSERT INTO t VALUES ('COMMIT')")),
        made(layout.QUERY, query(b"SAVEPOINT s")),
        made(layout.BINLOG_CHECKPOINT, bytes(4)),
    ):
        assert reader.feed(event) is None
        within.append(reader.within)
    found = reader.feed(made(layout.XID, bytes(8), at_seconds=160, start=900))
    assert within == [True] * 4
    assert not reader.within
    assert found is not None
    assert (found.start.offset, found.end.offset, found.gtid) == (500, 927, "0-7-1")
    assert found.committed_at == datetime.fromtimestamp(160, UTC)
    assert found.changes == (TableChange("shop", "t", ChangeKind.INSERT),)
    assert found.statement == "INSERT INTO t VALUES ('COMMIT')"


def test_the_words_of_a_statement_that_was_not_understood_are_told_wherever_it_stands() -> None:
    """Nothing else tells whether it changes a table that is looked for."""
    said = b"DELETE o FROM orders AS o JOIN former USING (id)"
    (found,) = fed(
        made(layout.MARIADB_GTID, gtid(1, ddl=False)),
        made(layout.QUERY, query(b"INSERT INTO t VALUES (1)")),
        made(layout.QUERY, query(said)),
        made(layout.QUERY, query(b"DELETE t FROM t JOIN u")),
        made(layout.XID, bytes(8)),
    )
    assert [change.kind for change in found.changes] == [ChangeKind.INSERT, ChangeKind.OTHER]
    assert found.statement == said.decode()


def test_without_gtids_a_statement_or_what_begins_to_commit_is_a_transaction() -> None:
    found = fed(
        made(layout.QUERY, query(b"DROP TABLE t")),
        made(layout.QUERY, query(b"BEGIN")),
        made(layout.QUERY, query(b"DELETE FROM u")),
        made(layout.XID, bytes(8)),
        made(250, b"of a later release"),
    )
    assert [one.changes[0].kind for one in found] == [ChangeKind.DROP, ChangeKind.DELETE]
    assert {one.gtid for one in found} == {None}


def test_lost_events_change_what_is_not_known() -> None:
    (found,) = fed(made(layout.MARIADB_GTID, gtid(1, ddl=True)), made(layout.INCIDENT, b"\1\0\0"))
    assert found.changes == (TableChange("", "", ChangeKind.OTHER),)


def test_a_statement_is_cut_and_a_strangers_bytes_are_text() -> None:
    (found,) = fed(made(layout.QUERY, query(b"CREATE TABLE `\xff` (" + b"c" * 600)))
    assert len(found.statement) == MOST_STATEMENT
    assert found.changes == (TableChange("shop", "\ufffd", ChangeKind.CREATE),)


def test_of_a_list_that_was_too_long_to_read_no_table_is_told() -> None:
    many = b"DROP TABLE " + b",".join(b"t%06d" % n for n in range(20_000))
    (found,) = fed(made(layout.QUERY, query(many)))
    assert found.changes == (TableChange("shop", "", ChangeKind.OTHER),)


def test_a_compressed_statement_of_mariadbs_is_read_as_far_as_it_is_needed() -> None:
    said = b"CREATE TABLE bomb (" + b" " * (80 << 20)
    stored = b"\x84" + len(said).to_bytes(4, "big") + zlib.compress(said)
    (found,) = fed(made(layout.QUERY_COMPRESSED, query(stored)))
    assert found.changes == (TableChange("shop", "bomb", ChangeKind.CREATE),)


def test_more_tables_than_are_told_apart_are_one_that_is_not_known() -> None:
    tally = ChangeTally()
    for number in range(MOST_TABLES + 5):
        event = bytes(layout.HEADER_BYTES) + query(b"TRUNCATE t%d" % number)
        tally.add(layout.QUERY, event, len(event))
    assert len(tally.changes) == MOST_TABLES + 1
    assert tally.changes[-1] == TableChange("", "", ChangeKind.OTHER)


@pytest.mark.parametrize("kind", [layout.MARIADB_GTID, layout.GTID, layout.TAGGED_GTID, layout.PREVIOUS_GTIDS])
def test_a_gtid_that_is_too_short_is_damage(kind: int) -> None:
    with pytest.raises(ServerError, match=r"bin\.000001 is damaged"):
        TransactionReader(Flavour.MYSQL, "bin.000001").feed(made(kind, b"\1\2\3"))


@given(st.sampled_from(["mysql-9.7.4-gtids", "mysql-9.7.4-anonymous"]), st.randoms(use_true_random=False))
@settings(max_examples=examples(200))
def test_events_that_make_no_sense_are_a_server_error_and_no_other(name: str, dice: random.Random) -> None:
    reader = TransactionReader(Flavour.MYSQL, "f")
    for event in list(EventStream("f").feed(binlog(name))):
        raw = bytearray(event.raw)
        raw[dice.randrange(19, len(raw)) if len(raw) > 19 else 0] ^= dice.randrange(1, 256)
        changed = LogEvent(event.kind, 1, 1, 0, event.start, event.end, bytes(raw), event.checksummed)
        try:
            reader.feed(changed)
        except ServerError:
            reader.feed(event)


@pytest.mark.parametrize(
    "events",
    [
        [made(layout.QUERY, query(said)) for said in (b"DELETE a FROM a JOIN b", b"DELETE o FROM orders o JOIN b")],
        [made(layout.QUERY, query(b"UPDATE a JOIN (SELECT " + b"x," * 300 + b"1) s SET orders.v = 2"))],
        [made(17, bytes(9)), made(18, bytes(13) + query(b"LOAD DATA INFILE 'x' REPLACE INTO TABLE orders"))],
    ],
    ids=["the second that is not understood", "behind 500 characters", "LOAD DATA"],
)
def test_what_may_change_a_table_is_found_wherever_it_is_named(events: list[LogEvent]) -> None:
    (found,) = fed(made(layout.MARIADB_GTID, gtid(1, ddl=False)), *events, made(layout.XID, bytes(8)))
    assert LogSearch(tables=(("shop", "orders"),)).matches(found)
