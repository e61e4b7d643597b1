"""What a sieve lets through of a binlog has every transaction that is wanted, and is read as the whole is."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.mysql.binlog.events import EventStream, ImpossibleEvent, has_checksums
from backupd.mysql.binlog.grouping import query_text
from backupd.mysql.binlog.layout import BEGINNINGS, FORMAT_DESCRIPTION, MAGIC, QUERY, TRANSACTION_PAYLOAD
from backupd.mysql.binlog.sifting import BinlogBytes, Sieve
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.policy.log_search import LogSearch
from backupd.vocabulary.binlogs import ChangeKind, LoggedTransaction
from backupd.vocabulary.servers import Flavour
from tests.binlog_texts import binlog
from tests.share import examples

NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "data" / "binlog").glob("*.txt"))


def whole(name: str) -> tuple[BinlogBytes, list[LoggedTransaction]]:
    """A recorded binlog of MySQL's without its magic, and all of its transactions."""
    content = binlog(name)
    events = list(EventStream("bin.000001").feed(content))
    reader = TransactionReader(Flavour.MYSQL, "bin.000001")
    found = [one for event in events if (one := reader.feed(event))]
    checksummed = next(has_checksums(event.raw) for event in events if event.kind == FORMAT_DESCRIPTION)
    return BinlogBytes(content[len(MAGIC) :], len(MAGIC), checksummed), found


WHOLE = {name: whole(name) for name in NAMES}
TABLES = sorted({(one.schema, one.table) for _, found in WHOLE.values() for each in found for one in each.changes})


def sifted(piece: BinlogBytes, sieve: Sieve) -> list[LoggedTransaction]:
    reader = TransactionReader(Flavour.MYSQL, "bin.000001")
    ranges = sieve.let_through(piece, last=False)
    return [one for begin, end in ranges for event in piece.events(begin, end) if (one := reader.feed(event))]


@given(
    st.sampled_from(NAMES),
    st.lists(st.sampled_from([*TABLES, ("SHOP", "no such")]), max_size=2),
    st.frozensets(st.sampled_from(ChangeKind), max_size=3),
)
@settings(max_examples=examples(200), deadline=None)
def test_what_is_wanted_comes_through_as_it_is(
    name: str, tables: list[tuple[str, str]], kinds: frozenset[ChangeKind]
) -> None:
    piece, everything = WHOLE[name]
    wanted = LogSearch(tables=tuple(tables), kinds=kinds)
    found = sifted(piece, Sieve(tables, kinds))
    assert [one for one in found if wanted.matches(one)] == [one for one in everything if wanted.matches(one)]
    assert set(found) <= set(everything)


def test_where_nothing_is_named_all_comes_through() -> None:
    for piece, everything in WHOLE.values():
        assert sifted(piece, Sieve()) == everything


def test_rows_of_other_tables_are_left_out() -> None:
    """What comes through says something, or hides what it does."""
    piece, everything = WHOLE["mysql-9.7.4-anonymous"]
    (_, *ranges) = Sieve([("no", "where")]).let_through(piece, last=False)
    assert 0 < len(ranges) < len(everything)
    for begin, end in ranges:
        said = [query_text(event.body) for event in piece.events(begin, end) if event.kind == QUERY]
        hidden = [event for event in piece.events(begin, end) if event.kind == TRANSACTION_PAYLOAD]
        assert hidden or set(said) - {b"BEGIN", b"COMMIT"}


def test_the_last_one_comes_through_where_it_goes_on_elsewhere() -> None:
    piece, _ = WHOLE["mysql-9.7.4-anonymous"]
    sieve = Sieve([("no", "where")], [ChangeKind.DELETE])
    begins = [event.start - piece.start for event in piece.events(0, len(piece.data)) if event.kind in BEGINNINGS]
    assert list(sieve.let_through(piece, last=True))[-1] == (begins[-1], len(piece.data))


@given(st.sampled_from(NAMES), st.integers(1, 400))
@settings(max_examples=examples(50), deadline=None)
def test_bytes_that_are_cut_off_are_refused(name: str, short: int) -> None:
    piece, _ = WHOLE[name]
    cut = BinlogBytes(piece.data[:-short], piece.start, piece.checksummed)
    ends = {event.end - piece.start for event in piece.events(0, len(piece.data))}
    if len(cut.data) not in ends:
        with pytest.raises(ImpossibleEvent, match="is not whole"):
            list(Sieve([("a", "b")]).let_through(cut, last=True))
        with pytest.raises(ImpossibleEvent, match="is not whole"):
            list(cut.events(0, len(cut.data)))
