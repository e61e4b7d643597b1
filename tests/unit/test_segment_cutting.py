"""What is told of a segment that was cut is what its transactions are, read one by one; its bytes are the server's."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.operations.binlog.cutting import CutPiece, OtherHistory, SegmentCutter
from backupd.vocabulary.binlogs import BinlogPlace, LoggedTransaction
from backupd.vocabulary.servers import Flavour
from tests.binlog_archives import require_as_read
from tests.binlog_texts import binlog, read
from tests.share import examples

FILE = "bin.000001"
LOGS = {name: binlog(name) for name in ("mysql-9.7.4-gtids", "mysql-9.7.4-anonymous")}
READ = {name: read(content, Flavour.MYSQL)[0] for name, content in LOGS.items()}


def cut(
    content: bytes, edges: list[int], *, size: int, age_seconds: float, gtids: str = "", purged: str = ""
) -> list[CutPiece]:
    cutter = SegmentCutter(
        Flavour.MYSQL,
        size=size,
        age_seconds=age_seconds,
        begin=BinlogPlace(FILE, 4),
        gtids=gtids,
        purged=purged,
        clock=lambda: 1.0,
    )
    found: list[CutPiece] = []
    for start, end in pairwise([0, *sorted(edges), len(content)]):
        found += cutter.feed(FILE, content[start:end], file_ended=end == len(content))
        if not found or not found[-1].file_ended:
            found += filter(None, [cutter.due()])
    return found


@settings(max_examples=examples(200))
@given(
    name=st.sampled_from(sorted(LOGS)),
    edges=st.lists(st.integers(0, min(map(len, LOGS.values())) - 1), max_size=30),
    size=st.integers(1, 20_000),
    age_seconds=st.sampled_from([0.0, 5.0]),
)
def test_however_a_log_is_cut_its_segments_tell_what_its_transactions_are(
    name: str, edges: list[int], size: int, age_seconds: float
) -> None:
    content, transactions = LOGS[name], READ[name]
    pieces = cut(content, edges, size=size, age_seconds=age_seconds)
    require_as_read(pieces, content, transactions)
    for piece in pieces:
        open_there = any(one.start.offset < piece.end < one.end.offset for one in transactions)
        assert piece.within_transaction is open_there
    assert all(piece.end - piece.start >= 2 * size for piece in pieces if piece.within_transaction)


def test_a_transaction_that_reaches_over_pieces_is_told_where_it_ends() -> None:
    content, transactions = LOGS["mysql-9.7.4-gtids"], READ["mysql-9.7.4-gtids"]
    pieces = cut(content, [], size=1, age_seconds=5.0)
    ended: list[LoggedTransaction] = []
    for piece in pieces:
        ended += [one for one in transactions if piece.start < one.end.offset <= piece.end]
        assert sum(each.transactions for each in pieces[: pieces.index(piece) + 1]) == len(ended)
    assert any(piece.within_transaction and not piece.transactions for piece in pieces)


def test_what_mysql_was_given_by_gtid_purged_is_in_no_file_and_breaks_no_chain() -> None:
    """A replica that was seeded: each of its files tells only what was ever logged."""
    given, content = "00000000-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-1000", LOGS["mysql-9.7.4-gtids"]
    executed = cut(content, [], size=1 << 20, age_seconds=5.0)[-1].gtid_end
    pieces = cut(content, [], size=1 << 20, age_seconds=5.0, gtids=given, purged=given)
    assert (pieces[0].gtid_start, pieces[-1].gtid_end) == (given, f"{given},{executed}")
    for gtids, purged in ((given, ""), ("", given)):  # executed elsewhere; given since the last file began
        with pytest.raises(OtherHistory, match="was archived"):
            cut(content, [], size=1 << 20, age_seconds=5.0, gtids=gtids, purged=purged)
