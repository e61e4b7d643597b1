"""What is looked for in a log: which segments may have it, and which transactions are it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.policy.log_search import LogSearch
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, ChangeKind, LoggedTransaction, TableChange
from tests.binlog_segments import BEGAN, FIRST, summed
from tests.share import examples

SCHEMAS, TABLES = ("shop", "Shop", "s"), ("orders", "a", "")


def transaction(*changes: TableChange, second: int = 0, number: int = 1, statement: str = "") -> LoggedTransaction:
    place = BinlogPlace("bin.000001", 4)
    return LoggedTransaction(place, place, f"0-1-{number}", BEGAN + timedelta(seconds=second), changes, statement)


def segment_of(transactions: list[LoggedTransaction]) -> BinlogSegment:
    """As the archive tells of them."""
    changes, everything = summed((change for one in transactions for change in one.changes), at_most=3)
    times = [one.committed_at for one in transactions]
    return replace(
        FIRST,
        gtid_start="",
        gtid_end=f"0-1-{len(transactions)}",
        transactions=len(transactions),
        first_at=min(times, default=None),
        last_at=max(times, default=None),
        changes=changes,
        all_changes=everything,
    )


changes = st.builds(TableChange, st.sampled_from(SCHEMAS), st.sampled_from(TABLES), st.sampled_from(ChangeKind))
moments = st.none() | st.integers(0, 10).map(lambda second: BEGAN + timedelta(seconds=second))
searches = st.builds(
    LogSearch,
    tables=st.lists(st.tuples(st.sampled_from(SCHEMAS), st.sampled_from(TABLES[:2])), max_size=2).map(tuple),
    kinds=st.frozensets(st.sampled_from(ChangeKind), max_size=2),
    since=moments,
    until=moments,
    gtid=st.none() | st.integers(1, 6).map(lambda number: f"0-1-{number}"),
)


@st.composite
def written(draw: st.DrawFn) -> list[LoggedTransaction]:
    made = st.tuples(
        st.lists(changes, max_size=3), st.integers(0, 10), st.sampled_from(["", "DELETE a FROM x", "GRANT"])
    )
    return [
        transaction(*what, second=second, number=number + 1, statement=said)
        for number, (what, second, said) in enumerate(draw(st.lists(made, max_size=6)))
    ]


@given(searches, written())
@settings(max_examples=examples(500))
def test_no_segment_with_what_is_wanted_is_passed_by(wanted: LogSearch, transactions: list[LoggedTransaction]) -> None:
    if any(map(wanted.matches, transactions)):
        assert wanted.may_be_in(segment_of(transactions))


@pytest.mark.parametrize(
    ("change", "statement", "found"),
    [
        (TableChange("shop", "orders", ChangeKind.DELETE, 3), "", True),
        (TableChange("SHOP", "Orders", ChangeKind.DELETE), "", True),  # as a server that compares so has it
        (TableChange("shop", "order", ChangeKind.DELETE), "", False),
        (TableChange("shop", "orders", ChangeKind.DROP), "", False),  # another kind
        (TableChange("shop", "", ChangeKind.DROP), "DROP DATABASE shop", False),
        (TableChange("shop", "", ChangeKind.OTHER), "DELETE o FROM orders o, x", True),  # of a kind that is not known
        (TableChange("shop", "", ChangeKind.OTHER), "GRANT ALL ON *.* TO someone", False),
    ],
)
def test_table_and_kind_are_of_one_change(change: TableChange, statement: str, found: bool) -> None:
    wanted = LogSearch(tables=(("shop", "orders"),), kinds=frozenset({ChangeKind.DELETE}))
    other = TableChange("shop", "other", ChangeKind.DELETE)
    assert wanted.matches(transaction(other, change, statement=statement)) is found


@pytest.mark.parametrize(
    ("change", "statement", "found"),
    [
        (TableChange("shop", "", ChangeKind.DROP), "DROP DATABASE shop", True),
        (TableChange("shop", "", ChangeKind.CREATE), "CREATE DATABASE shop", False),
        (TableChange("x", "", ChangeKind.OTHER), "DELETE o FROM shop.Orders o, x", True),
        (TableChange("x", "", ChangeKind.OTHER), "GRANT ALL ON *.* TO someone", False),
        (TableChange("", "", ChangeKind.OTHER), "", True),  # an event of which no sense could be made
    ],
)
def test_what_may_have_changed_a_table_is_found(change: TableChange, statement: str, found: bool) -> None:
    wanted = LogSearch(tables=(("shop", "orders"),))
    assert wanted.matches(transaction(change, statement=statement)) is found


def test_without_a_table_what_was_not_understood_is_of_its_own_kind_alone() -> None:
    unknown = transaction(TableChange("shop", "", ChangeKind.OTHER), statement="GRANT ALL ON *.* TO someone")
    assert not LogSearch(kinds=frozenset({ChangeKind.DELETE})).matches(unknown)
    assert LogSearch(kinds=frozenset({ChangeKind.OTHER})).matches(unknown)


def test_a_span_has_its_beginning_and_not_its_end() -> None:
    at: datetime = BEGAN + timedelta(seconds=5)
    later = at + timedelta(microseconds=1)
    assert LogSearch(since=at, until=later).matches(transaction(second=5))
    assert not LogSearch(until=at).matches(transaction(second=5))
    assert not LogSearch(since=later).matches(transaction(second=5))
