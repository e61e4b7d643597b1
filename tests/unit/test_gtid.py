"""Two texts of one GTID set are the same; everything else is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.policy.gtid import BinlogGtids, ExecutedGtids, members, same
from backupd.vocabulary.errors import ServerError

U = "ce07eaf4-e5b7-11f1-9501-02fc00000001"
V = "0e07eaf4-e5b7-11f1-9501-02fc00000002"
SOURCES = (V, U, f"{U}:nightly")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", None),
        ("0-7-41,1-7-3", " 1-7-3, 0-7-41\n"),
        (f"{U}:1-5:7,\n{V}:1", f"{V}:1-1,{U}:7:1-5"),
        (f"{U}:1-5:6-9", f"{U}:1-9"),
        (f"{U.upper()}:1-3:2-5", f"{U}:1-5"),
        (f"{U}:1-3:tag:1-2:4", f"{U}:TAG:1-2:4-4,{U}:1-3"),
    ],
)
def test_the_same_set_in_other_words(one: str | None, other: str | None) -> None:
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{U}:1-5", None),
        ("0-7-41", "0-7-42"),
        ("0-7-41", "0-7-41,1-7-3"),
        (f"{U}:1-5", f"{U}:1-6"),
        (f"{U}:1-5", f"{V}:1-5"),
        (f"{U}:1-5", f"{U}:tag:1-5"),
        (f"{U}:1-5:7", f"{U}:1-7"),
    ],
)
def test_another_set(one: str | None, other: str | None) -> None:
    assert not same(one, other)
    assert not same(other, one)


def test_a_tag_holds_for_the_intervals_after_it() -> None:
    assert members(f"{U}:1-2:7:blue:3:red:1-4:6") == {
        U: ((1, 2), (7, 7)),
        f"{U}:blue": ((3, 3),),
        f"{U}:red": ((1, 4), (6, 6)),
    }


@given(st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40)), max_size=60))
def test_what_was_executed_is_the_set_of_what_was_added(added: list[tuple[str, int]]) -> None:
    executed = ExecutedGtids()
    for source, number in added:
        executed.add_gtid((source, number))
    assert members(str(executed)) == members(",".join(f"{source}:{number}" for source, number in added))
    assert str(ExecutedGtids(str(executed))) == str(executed)


def test_a_set_is_written_as_mysql_writes_it() -> None:
    executed = ExecutedGtids(f"{SOURCES[1]}:1-5:nightly:2,{SOURCES[0]}:7")
    executed.add_gtid((SOURCES[1], 6))
    assert str(executed) == f"{SOURCES[0]}:7,{SOURCES[1]}:1-6:nightly:2"


def test_a_gtid_of_the_other_kind_of_server_is_in_no_set() -> None:
    with pytest.raises(ServerError, match="1-8-4 is not a MySQL GTID"):
        ExecutedGtids().add_gtid((1, 8, 4))
    with pytest.raises(ServerError, match=f"{SOURCES[0]}:4 is not a MariaDB GTID"):
        BinlogGtids().add_gtid((SOURCES[0], 4))


def test_mariadbs_log_ends_with_the_last_of_each_domain() -> None:
    executed = BinlogGtids("1-7-3,0-1-41")
    executed.add_gtid((1, 8, 4))
    assert str(executed) == "0-1-41,1-8-4"
    assert str(BinlogGtids()) == ""
    with pytest.raises(ServerError, match="MariaDB"):
        BinlogGtids(f"{SOURCES[0]}:1")
