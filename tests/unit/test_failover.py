"""Whether another server's log continues an archived one, and what is restored across the switch."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backupd.operations.restore.moment.log_to_moment import tells_places
from backupd.policy.binlog_chain import PlacedBackup, continuations
from backupd.policy.failover import Agreement, ArchivedEnd, History, agreement
from backupd.policy.moments import Latest, ToGtid, ToPosition
from backupd.policy.segment_file import from_line, signed, to_line
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import UsageError
from tests.binlog_segments import BEGAN, FIRST, UUID, chain_of, following
from tests.fakes.chain_rows import rows
from tests.held_archives import plan
from tests.signers import signer

ARCHIVED = History("0-1-100,1-1-7", "0-1-100,0-9-40,1-1-7")
SETS = History(f"{UUID}:1-100")
OTHER_UUID = UUID.replace("3e", "4e")


@pytest.mark.parametrize(
    ("archived", "server", "expected"),
    [
        (ARCHIVED, History("0-1-100,1-1-7", "0-1-100,1-1-7"), Agreement.HAS_ALL),
        (ARCHIVED, History("0-2-101,1-1-7", "0-1-100,0-2-101,0-9-40,1-1-7"), Agreement.HAS_ALL),
        (ARCHIVED, History("0-1-90,1-1-7", "0-1-90,1-1-7"), Agreement.BEHIND),
        (ARCHIVED, History("", ""), Agreement.BEHIND),
        (ARCHIVED, History("0-2-91,1-1-7", "0-1-90,0-2-91,1-1-7"), Agreement.DIFFERS),
        (ARCHIVED, History("0-2-101,1-1-7", "0-1-90,0-2-101,1-1-7"), Agreement.DIFFERS),
        (replace(ARCHIVED, state=""), ARCHIVED, Agreement.DIFFERS),
        (History(""), ARCHIVED, Agreement.DIFFERS),
        (SETS, ARCHIVED, Agreement.DIFFERS),
        (SETS, SETS, Agreement.HAS_ALL),
        (SETS, History(f"{UUID}:1-100,{OTHER_UUID}:1"), Agreement.HAS_ALL),
        (SETS, History(f"{UUID}:1-99"), Agreement.BEHIND),
        (SETS, History(f"{UUID}:1-99,{OTHER_UUID}:1"), Agreement.DIFFERS),
    ],
)
def test_what_another_server_has_is_told_by_its_gtids(archived: History, server: History, expected: Agreement) -> None:
    assert agreement(archived, server) is expected


def test_the_archived_end_is_where_nothing_else_was_executed() -> None:
    end = ArchivedEnd(ARCHIVED)
    assert [end.has(one) for one in ("0-1-100", "0-8-3", "0-1-101", "1-1-8", "2-1-1")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [end.may_end_with(one) for one in ("0-1-100", "0-8-100")] == [True, False]
    assert end.is_here(History("1-1-7,0-1-100"))
    assert end.stranger(History("", "0-1-100,1-1-7")) == ""
    assert end.stranger(History("", "0-1-100,0-8-41,1-1-7")) == "0-8-41"
    assert end.stranger(History("", "0-1-100,0-9-41,1-1-7")) == "0-9-41"
    end = ArchivedEnd(SETS)
    assert [end.has(f"{one}") for one in (f"{UUID}:7", f"{UUID}:101", f"{OTHER_UUID}:7")] == [True, False, False]


# --- the chain -------------------------------------------------------------------------------------------------------

BEFORE = chain_of(3, rotates_after=9)  # binlog.000007:4 to 3004
_ORIGIN = replace(FIRST.origin, server_id=2)
_JOINED = replace(following(BEFORE[-1]), origin=_ORIGIN, start=500, end=1500)  # of the same name, and less far
AFTER = [_JOINED]
while len(AFTER) < 3:
    AFTER.append(following(AFTER[-1]))
WHOLE = [*BEFORE, *AFTER]
TAKEN = PlacedBackup("r1", BinlogPlace("binlog.000007", 1504), "0-1-15", BEGAN + timedelta(seconds=15))


def test_a_row_leads_to_another_server_s_log() -> None:
    (row,) = rows(WHOLE)
    assert (row.gtid_end, row.end) == ("0-1-60", BinlogPlace("binlog.000007", 3500))
    (found,) = continuations(TAKEN, [row])
    assert (found[0].end, found[-1].origin) == (2004, _ORIGIN)


@pytest.mark.parametrize(
    ("moment", "last"),
    [
        (Latest(), AFTER[-1]),
        (ToGtid("0-1-30"), BEFORE[-1]),
        (ToGtid("0-1-31"), AFTER[0]),
        (ToPosition(BinlogPlace("binlog.000007", 3400)), AFTER[-1]),
    ],
)
def test_moments_of_both_servers_are_restored(moment: Latest | ToGtid | ToPosition, last: object) -> None:
    chosen = plan([TAKEN], WHOLE, moment, now=BEGAN + timedelta(days=1))
    assert (chosen.start, chosen.segments[-1]) == (TAKEN.place, last)


# Its place is one of the other server's log as well, within the segment that follows.
def test_a_backup_at_the_end_of_one_log_is_followed_by_the_whole_of_the_other() -> None:
    joined = [replace(one, start=one.start + 2000, end=one.end + 2000) for one in AFTER]  # from 2500 to 5500
    at_the_end = PlacedBackup("r1", BinlogPlace("binlog.000007", 3004), "0-1-30", BEGAN + timedelta(seconds=30))
    chosen = plan([at_the_end], [*BEFORE, *joined], Latest(), now=BEGAN + timedelta(days=1))
    assert (chosen.start, chosen.segments) == (BinlogPlace("binlog.000007", 2500), tuple(joined))


@pytest.mark.parametrize("others", [[], [replace(TAKEN, run_id="r0")]])
@pytest.mark.parametrize("backup", [TAKEN, replace(TAKEN, place=BinlogPlace("binlog.000007", 2500), gtid="0-1-25")])
def test_a_place_that_both_logs_have_is_refused_whatever_backup_is_named(
    backup: PlacedBackup, others: list[PlacedBackup]
) -> None:
    with pytest.raises(
        UsageError, match=r"twice in the archive: in binlog.000007 of server 1.* of server 2"
    ) as refused:
        plan([backup, *others], WHOLE, ToPosition(BinlogPlace("binlog.000007", 2500)), now=BEGAN + timedelta(days=1))
    assert refused.value.hint == "name the moment by its GTID or time"


def test_a_backup_with_exactly_what_a_log_begins_with_is_followed_by_that_log_whosever_its_place_is() -> None:
    first = replace(AFTER[0], start=2500, end=3500)
    second = replace(AFTER[1], start=3500, end=4500)
    taken = replace(TAKEN, place=BinlogPlace("binlog.000007", 2504), gtid=BEFORE[-1].gtid_end)
    taken = replace(taken, taken_at=BEFORE[-1].received_at + timedelta(seconds=20))
    whole = [*BEFORE, first, second]
    assert continuations(taken, rows(whole)) == [(first, second)]
    way = plan([taken], whole, Latest(), now=BEGAN + timedelta(days=1))
    assert (way.start, way.segments) == (BinlogPlace(first.file, first.start), (first, second))


def test_a_copy_s_place_is_gone_on_from_only_where_all_of_the_log_is_of_the_backup_s_server() -> None:
    def way(backup: PlacedBackup, moment: Latest | ToGtid) -> bool:
        return tells_places(plan([backup], WHOLE, moment, now=BEGAN + timedelta(days=1)))

    at_the_end = replace(TAKEN, place=BinlogPlace(BEFORE[-1].file, BEFORE[-1].end), gtid=BEFORE[-1].gtid_end)
    at_the_end = replace(at_the_end, taken_at=BEFORE[-1].received_at)
    assert way(TAKEN, ToGtid("0-1-25"))
    assert not way(TAKEN, Latest())
    assert not way(at_the_end, Latest())


def test_without_gtids_nobody_knows_whose_place_a_backup_has() -> None:
    joined = [replace(one, start=one.start + 500, end=one.end + 500) for one in AFTER]  # from 1000 to 4000
    found = rows([*BEFORE, *joined])
    assert continuations(replace(TAKEN, gtid=""), found) == []
    assert continuations(TAKEN, found) != []


# --- what is stored of it --------------------------------------------------------------------------------------------


def test_a_description_without_a_state_is_as_it_was_before_there_were_any() -> None:
    key = signer()
    old, new = signed(FIRST, key), signed(replace(FIRST, gtid_state="0-1-10,0-2-3"), key)
    assert b'"schema":{"major":1,"minor":0}' in to_line(old)
    assert b"gtid_state" not in to_line(old)
    assert b'"schema":{"major":1,"minor":1}' in to_line(new)
    assert [from_line(to_line(one)).gtid_state for one in (old, new)] == ["", "0-1-10,0-2-3"]
