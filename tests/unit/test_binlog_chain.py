"""Which segments follow one another, and which a backup is rolled forward by."""

import base64
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.policy import gtid
from backupd.policy.binlog_chain import PlacedBackup, continuations, covering, follows, order
from backupd.policy.moments import Latest, ToGtid, ToTime
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, SegmentOrigin
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.servers import Flavour
from tests.binlog_segments import BEGAN, CHAIN, FIRST, UUID, begun_by, chain_of, following, upgraded
from tests.fakes.chain_rows import rows
from tests.held_archives import plan
from tests.share import examples

ENDED = replace(FIRST, file_ended=True)
OTHER = SegmentOrigin(Flavour.MARIADB, "10.11.19-MariaDB", 2, "")


def test_what_begins_where_the_other_ended_follows_it() -> None:
    assert follows(FIRST, following(FIRST)) == ""
    assert follows(ENDED, following(ENDED)) == ""
    assert following(ENDED).file == "binlog.000008"


@pytest.mark.parametrize("last", ["binlog.999999", "db.1.000009"])
def test_the_next_binlog_has_the_next_number(last: str) -> None:
    ended = replace(ENDED, file=last)
    assert follows(ended, following(ended)) == ""


def test_places_are_in_order_beyond_a_million_binlogs() -> None:
    assert order(BinlogPlace("binlog.999999", 9)) < order(BinlogPlace("binlog.1000000", 4))


@pytest.mark.parametrize(
    ("before", "values", "reason"),
    [
        (FIRST, {"number": 3}, "comes number 3"),
        (FIRST, {"previous": "c" * 64}, "another segment"),
        (FIRST, {"chain": "20261121T040000Z-0123abcd"}, "another chain"),
        (FIRST, {"job": "hourly"}, "another chain"),
        (replace(FIRST, within_transaction=True), {"origin": OTHER}, "another server"),
        (replace(FIRST, gtid_end=""), {"origin": OTHER}, "another server"),
        (FIRST, {"origin": replace(OTHER, flavour=Flavour.MYSQL)}, "another server"),
        (FIRST, {"origin": OTHER, "gtid_start": "0-1-9"}, "another set of GTIDs"),
        (FIRST, {"start": 1005}, "instead of binlog.000007:1004"),
        (FIRST, {"start": 4, "file": "binlog.000008"}, "instead of binlog.000007:1004"),
        (ENDED, {"start": 1004, "file": "binlog.000007"}, "the binlog after binlog.000007"),
        (ENDED, {"file": "binlog.000009"}, "the binlog after binlog.000007"),
        (ENDED, {"file": "other.000008"}, "the binlog after binlog.000007"),
        (ENDED, {"start": 120}, "the binlog after binlog.000007"),
        (FIRST, {"gtid_start": "0-1-9"}, "another set of GTIDs"),
    ],
)
def test_what_does_not_continue_a_segment_is_told_why(before: Any, values: dict[str, Any], reason: str) -> None:
    assert reason in follows(before, replace(following(before), **values))


def test_why_a_segment_does_not_follow_is_a_sentence_with_both_names() -> None:
    after = following(FIRST)
    one, two = FIRST.name, after.name
    said = {
        f"{two} is of another chain than {one}": replace(after, machine="db2-00000000"),
        f"after number 1 of chain {CHAIN} comes number 4": replace(after, number=4),
        f"{two} was written to follow another segment than the {one} that is there": replace(after, previous=""),
        f"{two} is of another server than {one}": replace(after, origin=OTHER, gtid_start=""),
        f"{two} begins at binlog.000007:1005 instead of binlog.000007:1004": replace(after, start=1005),
        f"{two} begins with another set of GTIDs than {one} ends with": replace(after, gtid_start="0-1-11"),
    }
    for sentence, segment in said.items():
        assert follows(FIRST, segment) in (sentence, sentence.replace(two, segment.name))
    second = replace(following(ENDED), start=9)
    assert follows(ENDED, second) == (
        f"{second.name} begins at binlog.000008:9 instead of the start of the binlog after binlog.000007"
    )


def test_another_server_s_log_goes_on_between_two_transactions_that_have_gtids() -> None:
    assert follows(FIRST, replace(following(FIRST), origin=OTHER, file="mysql-bin.000001", start=4)) == ""


def test_a_server_of_another_version_goes_on_with_its_own_log() -> None:
    upgraded = replace(FIRST.origin, version="11.8.2-MariaDB")
    assert follows(FIRST, replace(following(FIRST), origin=upgraded)) == ""
    assert follows(FIRST, replace(following(FIRST), origin=upgraded, start=1005)) != ""


OLD = replace(ENDED, format=begun_by("10.11.19-MariaDB-log"))


@pytest.mark.parametrize("version", ["10.11.20-MariaDB-log", "10.6.23-MariaDB-log", "", "what?"])
def test_a_row_goes_on_with_what_a_server_of_its_series_can_apply(version: str) -> None:
    (row,) = rows([OLD, upgraded(OLD, to=version)])
    assert row.ended == ""


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("10.11.19-MariaDB-log", "11.8.9-MariaDB"),
        ("10.6.23-MariaDB", "10.11.19-MariaDB"),
        ("8.4.7", "9.7.4"),
        ("9.7.4", "10.0.1"),
        ("8.4.7", "9.7.4-MAX"),
    ],
)
def test_a_row_ends_where_a_server_of_a_later_series_goes_on(before: str, later: str) -> None:
    """10.11.19 applies what 11.8.9 has logged without an error, and gives a table another collation."""
    first = replace(OLD, format=begun_by(before))
    after = upgraded(first, to=later)
    assert follows(first, after) == "", "to the byte it does"
    old, new = rows([first, after, following(after)])
    assert (old.segments, len(new.segments)) == ((first,), 2)
    assert old.ended == (
        f"from binlog.000008 on the binlog was written by {later}, a newer series than {before}: earlier backups"
        " cannot be rolled forward with it"
    )


def test_a_version_that_is_no_text_is_told_as_far_as_it_is_one() -> None:
    event = base64.b64decode(begun_by("11.8.9?")).replace(b"?", b"\xff")
    old, _ = rows([OLD, replace(upgraded(OLD, to=""), format=base64.b64encode(event).decode())])
    assert "was written by 11.8.9\N{REPLACEMENT CHARACTER}, a newer series than 10.11.19-MariaDB-log:" in old.ended


def test_what_a_later_series_has_logged_is_refused_and_the_end_before_it_is_named_by_what_restores_it() -> None:
    old = [replace(one, format=OLD.format) for one in chain_of(3, rotates_after=2)]
    new = upgraded(old[-1], to="11.8.9-MariaDB")
    taken = PlacedBackup("r1", BinlogPlace("binlog.000007", 504), "0-1-5", BEGAN + timedelta(seconds=5))
    for moment in (Latest(), ToTime(BEGAN + timedelta(seconds=35)), ToGtid("0-1-33")):
        with pytest.raises(UsageError, match="cannot be restored") as refused:
            plan([taken], [*old, new], moment, now=BEGAN + timedelta(days=1))
        assert "--to-latest restores everything" not in (refused.value.hint or "")
    with pytest.raises(UsageError) as alone:
        plan([taken], old, ToTime(BEGAN + timedelta(seconds=35)), now=BEGAN + timedelta(days=1))
    assert "--to-latest restores everything" in (alone.value.hint or "")


def test_sets_of_gtids_are_compared_as_sets() -> None:
    before = replace(FIRST, gtid_end=f"{UUID}:1-3:4-9")
    assert follows(before, replace(following(before), gtid_start=f"{UUID.upper()}:1-9")) == ""


@settings(max_examples=examples(200))
@given(st.integers(1, 12), st.sets(st.integers(1, 12)), st.integers(0, 1 << 30))
def test_rows_are_as_long_as_they_can_be_and_none_has_a_gap(count: int, lost: set[int], seed: int) -> None:
    there = [segment for segment in chain_of(count) if segment.number not in lost]
    other = chain_of(3, first=replace(FIRST, chain="20261125T000000Z-0123abcd"))
    shuffled = there * 2 + other
    Random(seed).shuffle(shuffled)
    found = rows(shuffled)
    assert [segment for row in found for segment in row.segments] == [*there, *other]
    for row in found:
        numbers = [segment.number for segment in row.segments]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert (row.chain, numbers[0] - 1) not in {(each.chain, each.segments[-1].number) for each in found}
    of_it = [row for row in found if row.chain == CHAIN]
    assert all(row.ended for row in of_it[:-1])
    assert not any(row.ended for row in found if row not in of_it[:-1])


def test_a_row_tells_from_where_to_where_it_goes() -> None:
    (row,) = rows(chain_of(5))
    assert (row.start, row.end) == (BinlogPlace("binlog.000007", 4), BinlogPlace("binlog.000008", 1004))
    assert (row.gtid_start, row.gtid_end) == ("", "0-1-50")
    assert (row.first_at, row.last_at) == (BEGAN, BEGAN + timedelta(seconds=49))
    assert row.ended == ""


def test_a_row_begins_in_its_first_segment_s_binlog_and_ends_in_its_last_one_s() -> None:
    (row,) = rows(chain_of(2, first=ENDED))
    assert (row.start, row.end) == (BinlogPlace("binlog.000007", 4), BinlogPlace("binlog.000008", 1004))


def test_a_row_without_transactions_has_no_first_and_no_last_one() -> None:
    (row,) = rows([replace(FIRST, transactions=0, first_at=None, last_at=None)])
    assert row.first_at is None
    assert row.last_at is None


def test_a_segment_with_two_contents_is_never_chosen() -> None:
    chain = chain_of(4)
    first, second = rows([*chain, replace(chain[1], digest="f" * 64)])
    assert (first.segments, second.segments) == (tuple(chain[:1]), tuple(chain[2:]))
    assert "different contents" in first.ended


# --- backups ---------------------------------------------------------------------------------------------------------


def backup(segment: int, offset: int, *, chain: Any = None, **values: Any) -> PlacedBackup:
    """Taken when so many bytes of that segment were written; 100 bytes are a transaction."""
    inside = (chain or chain_of(6))[segment - 1]
    done = int(inside.gtid_start.rpartition("-")[2] or 0) + offset // 100
    at = BEGAN + timedelta(seconds=done)
    told = PlacedBackup("r1", BinlogPlace(inside.file, inside.start + offset), f"0-1-{done}" if done else "", at)
    return replace(told, **values)


@pytest.mark.parametrize(("offset", "first"), [(0, 1), (300, 2), (999, 2), (1000, 3)])
def test_a_backup_is_continuations_from_the_segment_that_has_its_place(offset: int, first: int) -> None:
    chain = chain_of(6)
    found = continuations(backup(2 if offset else 1, offset), rows(chain))
    assert found == [tuple(chain[first - 1 :])]


def test_a_backup_at_the_end_of_everything_has_nothing_behind_it() -> None:
    assert continuations(backup(6, 1000), rows(chain_of(6))) == [()]


def test_a_backup_of_another_history_is_not_continuations() -> None:
    """A RESET begins the same names anew: it is told by GTIDs and, where there are none, by the time."""
    found = rows(chain_of(6))
    assert continuations(backup(2, 300, gtid="0-1-55"), found) == [], "it has what came later"
    assert continuations(backup(2, 300, gtid="0-1-7"), found) == [], "it lacks what came before"
    assert continuations(backup(2, 300, gtid="", taken_at=BEGAN + timedelta(days=1)), found) == []
    for segment in (2, 3):
        assert continuations(backup(segment, 1000, gtid="", taken_at=BEGAN + timedelta(days=1)), found) == []
    assert continuations(backup(2, 300, gtid=""), found) != []


def test_of_two_histories_the_backup_is_rolled_forward_by_its_own() -> None:
    month = timedelta(days=30)
    earlier, later = ([replace(one, format=made_at(at)) for one in chain_of(4)] for at in (BEGAN, BEGAN + month))
    earlier, later = ([replace(one, gtid_start="", gtid_end="") for one in chain] for chain in (earlier, later))
    later = [replace(one, chain="20261220T040000Z-0123abcd", received_at=one.received_at + month) for one in later]
    found = rows([*later, *earlier])
    assert continuations(backup(2, 300, gtid=""), found) == [tuple(earlier[1:])]
    assert continuations(backup(2, 300, gtid="", taken_at=BEGAN + month), found) == [tuple(later[1:])]


def taken_over(before: Any, server_id: int, file: str) -> Any:
    """The first segment of another server's log, which goes on where this one ended."""
    return replace(following(before), origin=replace(OTHER, server_id=server_id), file=file, start=4, end=1004)


def test_a_place_in_the_third_server_s_log_of_a_row_is_found_in_that() -> None:
    second = taken_over(FIRST, 2, "b.000001")
    third = taken_over(following(second), 3, "c.000001")
    row = [FIRST, second, following(second), third, following(third)]
    within = PlacedBackup("r1", BinlogPlace("c.000001", 1304), "0-1-43", BEGAN + timedelta(seconds=43))
    assert continuations(within, rows(row)) == [(row[4],)]
    switched = PlacedBackup("r1", BinlogPlace("b.000001", 2004), "0-1-30", BEGAN + timedelta(seconds=30))
    assert continuations(switched, rows(row)) == [tuple(row[3:])]


def test_a_place_between_two_segments_is_covered_from_the_earlier_one_on() -> None:
    chain = chain_of(6)
    assert covering(backup(3, 0), chain) == covering(backup(3, 0), chain[::-1]) == {CHAIN: 2}


def test_a_backup_of_a_server_that_had_written_nothing_for_a_day_stands_at_the_end_of_the_last_segment() -> None:
    chain, day = chain_of(6), timedelta(days=1)
    quiet = [*chain[:2], *(replace(one, received_at=one.received_at + day) for one in chain[2:])]
    taken = replace(backup(2, 1000, gtid=""), taken_at=BEGAN + day)
    assert continuations(taken, rows(quiet)) == [tuple(quiet[2:])]


def test_a_segment_that_was_received_within_five_minutes_before_the_backup_may_have_its_place() -> None:
    chain = chain_of(6)
    latest = chain[1].received_at + timedelta(minutes=5)
    assert continuations(backup(2, 300, gtid="", taken_at=latest), rows(chain)) == [tuple(chain[1:])]
    assert continuations(backup(2, 300, gtid="", taken_at=latest + timedelta(seconds=1)), rows(chain)) == []


def test_a_backup_from_before_the_log_was_whole_again_is_not_rolled_forward_by_it() -> None:
    taken = backup(2, 300)
    whole = replace(FIRST.origin, whole_since=taken.taken_at)
    found = rows(chain_of(6, first=replace(FIRST, origin=whole)))
    assert continuations(taken, found) == [found[0].segments[1:]]
    assert continuations(replace(taken, taken_at=taken.taken_at - timedelta(seconds=1)), found) == []


def test_a_backup_whose_time_is_a_whole_second_ahead_was_taken_by_a_clock_that_was_ahead() -> None:
    taken = backup(2, 300)
    second = timedelta(seconds=1)
    assert not taken.has_come(taken.taken_at - second)
    assert taken.has_come(taken.taken_at - second + timedelta.resolution), "its time was rounded up"


def test_a_binlog_that_a_client_s_commit_has_dated_ahead_leads_on_from_the_backups_in_it() -> None:
    """`SET timestamp`, and a commit that fills a binlog: the next one begins with that time on MariaDB."""
    dated = [replace(one, format=made_at(BEGAN + timedelta(days=4000))) for one in chain_of(6)]
    assert continuations(backup(2, 300), rows(dated)) == [tuple(dated[1:])]


@pytest.mark.parametrize(
    ("taken", "offset", "received"), [(30, 300, (31, 31)), (90, 1000, (50, 91))], ids=["before", "after"]
)
def test_two_chains_within_a_binlog_that_is_dated_ahead_both_lead_on_from_a_backup_in_it(
    taken: int, offset: int, received: tuple[int, int]
) -> None:
    """By an hour: what is received within that tells that it is, and what is received later does not."""

    def chain(name: str, *minutes: int) -> list[BinlogSegment]:
        dated = (replace(one, chain=name, format=made_at(BEGAN + timedelta(hours=1))) for one in chain_of(4))
        return [replace(one, received_at=minute(at)) for one, at in zip(dated, minutes, strict=True)]

    first, second = received
    one = chain(CHAIN, first, first, second, second)
    other = chain("20261120T060000Z-0123abcd", 92, 92, 92, 92)
    begin = 2 if offset == 1000 else 1
    found = continuations(backup(2, offset, gtid="", taken_at=minute(taken)), rows([*one, *other]))
    assert found == [tuple(one[begin:]), tuple(other[begin:])]


def minute(number: int) -> datetime:
    return BEGAN + timedelta(minutes=number)


def made_at(at: datetime) -> str:
    """As a server writes it: the time, and that this is a FORMAT_DESCRIPTION_EVENT."""
    return base64.b64encode(int(at.timestamp()).to_bytes(4, "little") + bytes([15]) + bytes(95)).decode()


def test_a_chain_that_began_within_another_one_is_a_way_of_its_own() -> None:
    chain = chain_of(6)
    anew = [
        replace(one, chain="20261220T040000Z-0123abcd", number=at, previous="" if at == 1 else one.previous)
        for at, one in enumerate(chain[2:], 1)
    ]
    assert continuations(backup(3, 500), rows([*anew, *chain[:4]])) == [tuple(chain[2:4]), tuple(anew)]


# --- sets ------------------------------------------------------------------------------------------------------------

NUMBERS = st.frozensets(st.integers(1, 12), max_size=6)


def written(numbers: frozenset[int]) -> str:
    return f"{UUID}:{':'.join(map(str, sorted(numbers)))}" if numbers else ""


@settings(max_examples=examples(300))
@given(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 12))
def test_sets_are_compared_as_sets_of_numbers_are(
    one: frozenset[int], other: frozenset[int], third: frozenset[int], number: int
) -> None:
    assert gtid.is_within(written(one), written(other)) == (one <= other)
    assert gtid.holds(written(one), f"{UUID}:{number}") == (number in one)
    between = gtid.has_any_between(written(one), written(other), written(third))
    assert between == bool(one & (third - other))


@pytest.mark.parametrize(
    ("text", "one", "expected"),
    [
        ("0-1-5", "0-1-5", True),
        ("0-1-5", "0-2-4", True),
        ("0-1-5", "0-1-6", False),
        ("0-1-5", "1-1-1", False),
        ("0-1-5,0-2-9", "0-1-8", True),
        ("", "0-1-1", False),
        (f"{UUID}:tag:1-3", f"{UUID}:2", False),
        (f"{UUID}:tag:1-3", f"{UUID.upper()}:TAG:2", True),
    ],
)
def test_whether_a_log_has_a_transaction_behind_it(text: str, one: str, expected: bool) -> None:
    assert gtid.is_one(one)
    assert gtid.holds(text, one) is expected


@pytest.mark.parametrize(
    "text", ["", "0-1", f"{UUID}:1-2", f"{UUID}:1:2", "0-1-1,1-1-1", UUID, "0-1-1\n", "0-1-\u0663"]
)
def test_what_is_no_single_transaction(text: str) -> None:
    assert not gtid.is_one(text)
