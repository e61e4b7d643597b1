"""A moment is restored by the newest backup that leads to it without a gap, or it is refused."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.moments import BeforeGtid, Latest, Moment, ToGtid, ToPosition, ToTime
from backupd.policy.segment_retention import SegmentDecision, decision, needed
from backupd.vocabulary.binlogs import ArchiveGap, BinlogPlace, BinlogSegment, LoggedTransaction
from backupd.vocabulary.errors import UsageError
from tests.binlog_segments import BEGAN, FIRST, chain_of, following
from tests.held_archives import plan, reach
from tests.share import examples

NOW = BEGAN + timedelta(days=1)
PER_SEGMENT = 10  # transactions, one a second, of 100 bytes each


def committed(number: int) -> datetime:
    """When that transaction of the server's history was: from 1."""
    return BEGAN + timedelta(seconds=number - 1)


@dataclass(frozen=True)
class History:
    """What a server wrote, and what of it is archived."""

    written: Sequence[BinlogSegment]
    archived: Sequence[BinlogSegment]
    backups: Sequence[PlacedBackup]

    @property
    def transactions(self) -> int:
        return len(self.written) * PER_SEGMENT

    def leads_to(self, done: int, last: int) -> bool:
        """Whether all transactions after the first `done` ones are archived up to this one, in one chain."""
        if last > self.transactions:
            return False
        needed = [self.written[(number - 1) // PER_SEGMENT] for number in range(done + 1, last + 1)]
        if needed and done and done % PER_SEGMENT == 0 and self.written[done // PER_SEGMENT - 1].file_ended:
            needed.append(self.written[done // PER_SEGMENT - 1])  # it says that the next binlog follows
        return all(one in self.archived for one in needed) and len({one.chain for one in needed}) < 2


def segments_of(count: int, breaks: set[int]) -> list[BinlogSegment]:
    """The history's segments; before each of the breaks a chain ended and the next one begins."""
    found: list[BinlogSegment] = []
    number, previous = 0, ""
    for at, segment in enumerate(chain_of(count)):
        number, previous = (0, "") if at in breaks else (number, previous)
        chain = f"20261120T0400{len([one for one in breaks if one <= at]):02}Z-0123abcd"
        found.append(replace(segment, chain=chain, number=number + 1, previous=previous))
        number, previous = number + 1, segment.digest
    return found


def place_after(written: Sequence[BinlogSegment], done: int) -> BinlogPlace:
    segment = written[max(done - 1, 0) // PER_SEGMENT]
    return BinlogPlace(segment.file, segment.start + 100 * (done - int(segment.gtid_start.rpartition("-")[2] or 0)))


def backup_after(written: Sequence[BinlogSegment], done: int, *, good: bool = True) -> PlacedBackup:
    gtid = f"0-1-{done}" if done else ""
    return PlacedBackup(f"r{done}", place_after(written, done), gtid, BEGAN + timedelta(seconds=done - 0.5), good)


@st.composite
def histories(draw: st.DrawFn) -> History:
    count = draw(st.integers(1, 8))
    written = segments_of(count, draw(st.sets(st.integers(1, 8), max_size=2)))
    lost = draw(st.sets(st.integers(0, count - 1), max_size=2))
    archived = draw(st.permutations([one for at, one in enumerate(written) if at not in lost]))
    taken = draw(st.dictionaries(st.integers(0, count * PER_SEGMENT), st.booleans(), max_size=4))
    backups = draw(st.permutations([backup_after(written, done, good=good) for done, good in taken.items()]))
    return History(written, archived, backups)


def done_in(backup: PlacedBackup) -> int:
    return int(backup.gtid.rpartition("-")[2] or 0)


def read(segments: Sequence[BinlogSegment], start: BinlogPlace) -> Iterator[tuple[int, LoggedTransaction]]:
    """What is in the segments from the place on."""
    for segment in segments:
        first = int(segment.gtid_start.rpartition("-")[2] or 0) + 1
        for number in range(first, first + segment.transactions):
            at = segment.start + 100 * (number - first)
            if (segment.file, at) >= (start.file, start.offset):
                places = (BinlogPlace(segment.file, at), BinlogPlace(segment.file, at + 100))
                yield number, LoggedTransaction(*places, f"0-1-{number}", committed(number), ())


def restored(history: History, moment: Moment) -> tuple[PlacedBackup, int]:
    """The backup that was chosen, and how many transactions the restored server has done."""
    found = plan(history.backups, history.archived, moment, now=NOW)
    done = done_in(found.backup)
    met = False
    for number, transaction in read(found.segments, found.start):
        assert number == done + 1, "nothing is left out, and nothing is applied again"
        met = moment.stops_before(transaction)
        if not met:
            done = number
            met = moment.stops_after(transaction)
        if met:
            assert number > (len(found.segments) - 1) * PER_SEGMENT
            assert transaction.start.file == found.segments[-1].file, "the last segment is needed"
            break
    assert met == found.end.met_in_last
    return found.backup, done


def wanted(
    segments: Sequence[BinlogSegment], kept: Sequence[PlacedBackup], *, elsewhere: Sequence[BinlogSegment] = ()
) -> list[SegmentDecision]:
    """Of a target that has these segments and backups."""
    needs = needed([*segments, *elsewhere], kept)
    return [decision(segment, needs, NOW) for segment in segments]


def check(history: History, moment: Moment, *, wanted: int, seen: int, usable: Sequence[PlacedBackup]) -> None:
    """Of what is usable the newest that leads to transaction `seen` is taken, and as many as wanted are done."""
    able = [backup for backup in usable if backup.good and history.leads_to(done_in(backup), seen)]
    if not able:
        with pytest.raises(UsageError) as refused:
            plan(history.backups, history.archived, moment, now=NOW)
        assert refused.value.hint
        return
    assert restored(history, moment) == (max(able, key=lambda backup: backup.taken_at), wanted)


@settings(max_examples=examples(400))
@given(histories(), st.integers(-2, 90), st.sampled_from([0.0, 0.25, 0.75]))
def test_a_time_is_restored_by_the_newest_backup_that_leads_to_it(history: History, seconds: int, part: float) -> None:
    at = BEGAN + timedelta(seconds=seconds + part)
    before = max(0, min(history.transactions, seconds + (part > 0)))
    usable = [backup for backup in history.backups if backup.taken_at < at]
    check(history, ToTime(at), wanted=before, seen=before + 1, usable=usable)


@settings(max_examples=examples(300))
@given(histories(), st.integers(1, 85), st.booleans())
def test_a_gtid_is_restored_by_the_newest_backup_that_leads_to_it(history: History, number: int, with_it: bool) -> None:
    moment = ToGtid(f"0-1-{number}") if with_it else BeforeGtid(f"0-1-{number}")
    usable = [backup for backup in history.backups if done_in(backup) < number]
    check(history, moment, wanted=number if with_it else number - 1, seen=number, usable=usable)


@settings(max_examples=examples(300))
@given(histories(), st.data())
def test_a_position_is_restored_by_the_newest_backup_that_leads_to_it(history: History, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, history.transactions))
    usable = [backup for backup in history.backups if done_in(backup) <= number]
    moment = ToPosition(place_after(history.written, number))
    check(history, moment, wanted=number, seen=number, usable=usable)


@settings(max_examples=examples(300))
@given(histories())
def test_the_latest_is_what_was_archived_last_or_nothing(history: History) -> None:
    last = max((int(one.gtid_end.rpartition("-")[2]) for one in history.archived), default=0)
    newest = max((done_in(backup) for backup in history.backups if backup.good), default=0)
    usable = history.backups if history.archived else []  # what is not archived has no latest moment
    check(history, Latest(), wanted=max(last, newest), seen=max(last, newest), usable=usable)


@settings(max_examples=examples(200))
@given(histories())
def test_what_is_said_to_be_within_reach_is(history: History) -> None:
    found = reach(history.backups, history.archived)
    for stretch in found.stretches:
        if stretch.chain:
            plan(history.backups, history.archived, ToTime(stretch.until), now=NOW)
    for hole in found.holes:
        assert hole.reason
        with pytest.raises(UsageError, match="in a gap"):
            plan(history.backups, history.archived, ToTime(hole.until), now=NOW)


@settings(max_examples=examples(300))
@given(histories(), st.integers(0, 100))
def test_retention_removes_nothing_that_a_kept_backup_leads_to(history: History, seconds: int) -> None:
    """Whatever moment could be restored by the kept backups, and whatever is archived later, still can be."""
    decisions = wanted(history.archived, history.backups)
    kept_names = {decision.name for decision in decisions if decision.keep}
    kept = [segment for segment in history.archived if segment.name in kept_names]
    assert len(decisions) == len(history.archived)
    assert all(decision.reason for decision in decisions)
    moment = ToTime(BEGAN + timedelta(seconds=seconds))
    try:
        before = plan(history.backups, history.archived, moment, now=NOW)
    except UsageError:
        return
    assert plan(history.backups, kept, moment, now=NOW) == before


# A replica's host whose clock is behind its source's, which the log's times are of.
@pytest.mark.parametrize("done", [20, 40])
def test_a_backup_that_has_what_was_committed_later_by_the_log_is_passed_over_whatever_its_clock_said(
    done: int,
) -> None:
    written = segments_of(6, set())
    behind = [
        replace(one, taken_at=one.taken_at - timedelta(seconds=6))
        for one in (backup_after(written, 5), backup_after(written, done))
    ]
    history = History(written, written, behind)
    for number in (done - 3, done):
        assert restored(history, ToTime(committed(number))) == (behind[0], number - 1)
        with pytest.raises(UsageError, match="has later transactions: its host's clock was behind") as refused:
            plan(behind[1:], written, ToTime(committed(number)), now=NOW)
        assert "--before-gtid" in refused.value.hint
    assert restored(history, ToTime(committed(done + 1))) == (behind[1], done)


# After a rotation on a quiet server, or a restart, the archive has segments without a transaction.
@pytest.mark.parametrize("quiet", [1, 3])
@pytest.mark.parametrize("into", [0, 500, 1000])
def test_such_a_backup_is_passed_over_directly_behind_a_rotation_too(quiet: int, into: int) -> None:
    written = [replace(FIRST, file_ended=True)]  # up to nine seconds after BEGAN
    for _ in range(quiet):
        written.append(following(written[-1], transactions=0, rotates=True))
    place = BinlogPlace(written[-1].file, written[-1].start + into)
    busy = replace(following(written[-1]), first_at=committed(61), last_at=committed(70))
    skewed = PlacedBackup("r", place, "0-1-10", BEGAN + timedelta(seconds=3))
    with pytest.raises(UsageError, match="has later transactions: its host's clock was behind"):
        plan([skewed], [*written, busy], ToTime(committed(6)), now=NOW, complete_until=NOW)
    with pytest.raises(UsageError, match="cannot be restored"):
        plan([skewed], written, ToTime(committed(6)), now=NOW, complete_until=NOW)
    assert plan([skewed], [*written, busy], ToTime(committed(11)), now=NOW).backup == skewed


def test_such_a_backup_is_passed_over_where_a_chain_begins_at_it() -> None:
    written = segments_of(4, {2})
    skewed = replace(backup_after(written, 20), taken_at=committed(13))
    with pytest.raises(UsageError, match="has later transactions: its host's clock was behind"):
        plan([skewed], written, ToTime(committed(15)), now=NOW)


# --- sentences -------------------------------------------------------------------------------------------------------

WRITTEN = segments_of(6, {3})  # chains of three segments: 30 seconds each
TWO = [backup_after(WRITTEN, 5), backup_after(WRITTEN, 45)]


@pytest.mark.parametrize(
    ("moment", "sentence", "hint"),
    [
        (
            ToTime(BEGAN),
            "the oldest good backup is of 2026-11-20 04:00:04.500000 UTC",
            "later than 2026-11-20 04:00:04",
        ),
        (
            ToTime(committed(36)),
            "in a gap from 2026-11-20 04:00:29 UTC to 2026-11-20 04:00:44.5",
            "before it: the transaction of 2026-11-20",
        ),
        (ToTime(committed(70)), "the last transaction that can be reached is of 2026-11-20 04:00:59", "04:00:59 UTC"),
        (ToTime(NOW + timedelta(days=1)), "in the future", "04:00:59 UTC"),
        (ToGtid("0-1-99"), "in no segment of the archive", "from 2026-11-20 04:00:04"),
        (ToGtid("7-1-1"), "in no segment of the archive", "from"),
        (BeforeGtid("0-1-3"), "no good backup before it leads to", "from"),
        (ToGtid("0-1-35"), "which no good backup before it leads to", "from"),
        (ToGtid("0-1"), "is not the GTID of a transaction", "MariaDB's are as"),
        (ToPosition(BinlogPlace("binlog.000099", 4)), "in no segment", "from"),
    ],
)
def test_a_moment_that_cannot_be_reached_is_refused_with_the_nearest_that_can(
    moment: Moment, sentence: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        plan(TWO, WRITTEN, moment, now=NOW)
    assert sentence in refused.value.message
    assert hint in refused.value.hint


def test_without_a_good_backup_nothing_can_be_restored() -> None:
    with pytest.raises(UsageError, match="there is no good backup"):
        plan([backup_after(WRITTEN, 5, good=False)], WRITTEN, Latest(), now=NOW)


def test_the_latest_is_not_an_earlier_end_of_the_archive() -> None:
    with pytest.raises(UsageError, match="there is a gap between the last good backup and the newest segments"):
        plan(TWO[:1], WRITTEN, Latest(), now=NOW)


def test_a_quiet_server_can_be_restored_to_when_the_archive_was_known_to_be_complete() -> None:
    at = committed(60) + timedelta(hours=1)
    found = plan(TWO, WRITTEN, ToTime(at), now=NOW, complete_until=at)
    assert found.segments == tuple(WRITTEN[4:])
    assert not found.end.met_in_last
    with pytest.raises(UsageError):
        plan(TWO, WRITTEN, ToTime(at), now=NOW, complete_until=at - timedelta(seconds=1))


def test_a_gap_that_is_known_tells_its_reason() -> None:
    gap = ArchiveGap(WRITTEN[0].chain, "the server had purged its binlogs", NOW, committed(30))
    (hole,) = reach(TWO, WRITTEN, [gap]).holes
    assert (hole.since, hole.until, hole.reason) == (committed(30), TWO[1].taken_at, gap.reason)


# --- retention -------------------------------------------------------------------------------------------------------


def test_what_comes_before_the_oldest_backup_goes_and_chains_that_no_backup_is_of() -> None:
    decisions = {one.name: one for one in wanted(WRITTEN, [backup_after(WRITTEN, 45)])}
    assert [decisions[one.name].keep for one in WRITTEN] == [False, False, False, False, True, True]
    assert "chain" in decisions[WRITTEN[0].name].reason
    assert "before the oldest backup" in decisions[WRITTEN[3].name].reason
    assert "r45" in decisions[WRITTEN[4].name].reason


def test_without_a_backup_everything_stays_as_does_what_was_received_since_the_last_one() -> None:
    assert all(one.keep for one in wanted(WRITTEN, []))
    stays = wanted(WRITTEN, [backup_after(WRITTEN, 5)])
    assert all(one.keep for one in stays)
    assert "since the last backup" in stays[-1].reason


def test_what_is_dated_in_the_future_stays() -> None:
    ahead = replace(FIRST, received_at=NOW + timedelta(days=9))
    later = replace(backup_after(WRITTEN, 45), taken_at=NOW + timedelta(days=10))
    assert [one.keep for one in wanted([ahead], [later])] == [True]


def test_a_target_that_lacks_a_backup_s_segment_keeps_those_after_it() -> None:
    lacking = [WRITTEN[1], WRITTEN[2]]
    kept = [backup_after(WRITTEN, 5), backup_after(WRITTEN, 45)]
    assert [one.keep for one in wanted(lacking, kept)] == [False, False]
    assert [one.keep for one in wanted(lacking, kept, elsewhere=WRITTEN)] == [True, True]


# A clock that ran ahead while the backup was taken, and was set right: what follows the backup is older by its times.
def test_what_follows_a_backup_stays_though_the_clock_was_set_back_since() -> None:
    ahead = replace(backup_after(WRITTEN, 45), taken_at=NOW - timedelta(minutes=1))
    assert [one.keep for one in wanted(WRITTEN, [ahead])][4:] == [True, True]


# RESET just before a backup: the files of before had the same names, and numbers; and just after one the same.
@pytest.mark.parametrize("since", [timedelta(minutes=-1), timedelta(minutes=1)])
def test_a_backup_beside_a_reset_is_rolled_forward_by_its_own_history(since: timedelta) -> None:
    taken = backup_after(WRITTEN, 15)
    times = [taken.taken_at + min(since, timedelta()) - timedelta(minutes=1), taken.taken_at + max(since, -since) / 2]
    if since < timedelta():
        times = [taken.taken_at - timedelta(hours=1), taken.taken_at - timedelta(minutes=1)]
    earlier, later = (
        [replace(one, chain=f"2026112{at}T040000Z-0123abcd", format=made_at(time)) for one in WRITTEN[:3]]
        for at, time in enumerate(times)
    )
    later = [replace(one, received_at=one.received_at + timedelta(minutes=2)) for one in later]
    own = later if since < timedelta() else earlier
    other = ToPosition(BinlogPlace(own[1].file, own[1].end))
    assert plan([taken], [*earlier, *later], other, now=NOW, named=True).segments[0].chain == own[0].chain
    if since > timedelta():
        with pytest.raises(UsageError):
            plan([taken], [*earlier, *later], Latest(), now=NOW)


def made_at(at: datetime) -> str:
    return base64.b64encode(int(at.timestamp()).to_bytes(4, "little") + bytes(100)).decode()


# A clock that was set back between two chains: the newer one was received earlier, if one believes it.
def test_the_latest_is_of_the_chain_that_began_last_whatever_the_clock_said() -> None:
    written = segments_of(6, set())
    anew = [
        replace(one, chain="20261120T040001Z-0123abcd", number=number, previous="" if number == 1 else one.previous)
        for number, one in enumerate(written[3:], 1)
    ]
    anew = [replace(one, received_at=one.received_at - timedelta(hours=1)) for one in anew]
    taken = replace(backup_after(written, 35), taken_at=BEGAN - timedelta(hours=1))
    chosen = plan([taken], [*anew, *written[:5]], Latest(), now=NOW)
    assert chosen.segments[-1].name == anew[-1].name


# A clock that was a year ahead while a backup was taken: everything in the archive was received before that, it seems.
@pytest.mark.parametrize("archived", [slice(0, 6), slice(3, 6)])
def test_a_backup_of_a_clock_that_was_ahead_is_not_the_latest_of_all_that_is_archived(archived: slice) -> None:
    written = segments_of(6, set())
    ahead = replace(backup_after(written, 25), taken_at=NOW + timedelta(days=365))
    taken = backup_after(written, 45)
    chosen = plan([ahead, taken], written[archived], Latest(), now=NOW)
    assert (chosen.backup, chosen.segments[-1]) == (taken, written[-1])
    with pytest.raises(UsageError, match="there is a gap between the last good backup and the newest segments"):
        plan([ahead], written[archived], Latest(), now=NOW)


def test_a_backup_of_a_clock_that_was_ahead_reaches_no_moment_of_the_future() -> None:
    written = segments_of(6, set())
    ahead = replace(backup_after(written, 25), taken_at=NOW + timedelta(days=365))
    taken = backup_after(written, 45)
    assert reach([taken, ahead], written, now=NOW) == reach([taken], written)


def test_a_backup_of_this_second_is_none_of_a_clock_that_was_ahead() -> None:
    """When its snapshot was taken is told in whole seconds, and not before it was there."""
    written = segments_of(6, set())
    just_now = replace(backup_after(written, 59), taken_at=NOW + timedelta(seconds=0.9))
    assert plan([just_now], written, Latest(), now=NOW).backup == just_now
    assert [one.backup for one in reach([just_now], written, now=NOW).stretches] == [just_now]


def test_what_a_client_has_dated_ahead_hides_no_gap_behind_it() -> None:
    """Nothing is restored to 2037."""
    written = segments_of(6, {3})
    ahead = replace(written[2], last_at=BEGAN + timedelta(days=4000))
    taken = [backup_after(written, 5), backup_after(written, 45)]
    told = reach(taken, [*written[:2], ahead, *written[4:]], now=NOW)
    assert [(one.since, one.until) for one in told.stretches] == [
        (taken[0].taken_at, ahead.received_at),
        (taken[1].taken_at, written[-1].last_at),
    ]
    assert len(told.holes) == 1


# An archive that lags behind the newest backup: the latest moment is no earlier one than that backup's.
def test_the_latest_is_not_before_the_newest_backup() -> None:
    written = segments_of(6, set())
    lagging = [replace(one, received_at=BEGAN + timedelta(minutes=2)) for one in written[:3]]
    taken = [backup_after(written, 5), backup_after(written, 45)]
    assert plan(taken, lagging, Latest(), now=NOW).backup == taken[1]


# After a RESET two transactions have the same GTID: which of them is meant nobody can tell.
def test_a_gtid_of_two_histories_is_refused() -> None:
    written = segments_of(6, set())
    chain, began = "20261121T040000Z-0123abcd", BEGAN + timedelta(hours=12)
    anew = [replace(one, chain=chain, received_at=NOW, format=made_at(began)) for one in written]
    taken = [backup_after(written, 5), replace(backup_after(anew, 30), taken_at=NOW)]
    with pytest.raises(UsageError, match=r"occurs twice in the archive: in .* and in ") as refused:
        plan(taken, [*written, *anew], BeforeGtid("0-1-25"), now=NOW + timedelta(days=3))
    assert "name the backup" in refused.value.hint
    days_later = NOW + timedelta(days=3)
    found = plan(taken[:1], [*written, *anew], BeforeGtid("0-1-25"), now=days_later, named=True)
    assert found.backup == taken[0]


# A client may have dated the file ahead: what is received before that time has come tells that, and later ones do not.
def test_a_gtid_that_two_chains_have_of_one_binlog_occurs_once() -> None:
    written = [replace(one, format=made_at(BEGAN + timedelta(hours=1))) for one in segments_of(3, set())]
    chain = "20261121T040000Z-0123abcd"
    again = [replace(one, chain=chain, received_at=BEGAN + timedelta(hours=2)) for one in written]
    taken = [backup_after(written, 5)]
    found = plan(taken, [*written, *again], ToGtid("0-1-25"), now=NOW + timedelta(days=3))
    assert found.segments[-1].chain == written[0].chain


# --- what retention says of a segment --------------------------------------------------------------------------------

ELSEWHERE = "20261120T040000Z-ffffffff"  # a chain that no backup has its place in


def test_each_segment_is_told_why_it_stays_or_goes() -> None:
    taken = WRITTEN[4].received_at
    needs = needed(WRITTEN, [replace(backup_after(WRITTEN, 45), taken_at=taken), backup_after(WRITTEN, 55)])

    def said(segment: BinlogSegment) -> tuple[bool, str]:
        told = decision(segment, needs, NOW)
        assert told.name == segment.name
        return told.keep, told.reason

    assert said(WRITTEN[4]) == (True, "backup r45 is rolled forward by it")
    assert said(WRITTEN[3]) == (False, "expired: before the oldest backup, r45")
    other = replace(WRITTEN[0], chain=ELSEWHERE)
    assert said(other) == (False, "expired: no backup can be rolled forward by its chain")
    assert needs.newest is not None
    assert said(replace(other, received_at=needs.newest.taken_at)) == (
        True,
        f"received since the last backup, {needs.newest.run_id}",
    )
    assert said(replace(other, received_at=NOW)) == (True, f"received since the last backup, {needs.newest.run_id}")
    ahead = replace(other, received_at=NOW + timedelta(seconds=1))
    assert said(ahead) == (True, "dated in the future: a clock is or was wrong")
    assert needs.from_number == {WRITTEN[4].chain: 2}


def test_without_a_backup_no_segment_goes() -> None:
    told = decision(WRITTEN[0], needed(WRITTEN, []), NOW)
    assert told == SegmentDecision(WRITTEN[0].name, True, "there is no backup that tells what is needed")


def test_of_several_backups_the_one_that_needs_most_is_named() -> None:
    backups = [backup_after(WRITTEN, done) for done in (55, 25, 42)]
    assert needed(WRITTEN, backups).first == {WRITTEN[2].chain: (3, "r25"), WRITTEN[4].chain: (2, "r42")}
    assert needed(WRITTEN, backups).newest == backups[0]


@pytest.mark.parametrize("place", [True, False])
def test_what_two_histories_have_is_refused_where_there_is_one_backup_that_nobody_named(place: bool) -> None:
    """It may be the history's of which there is no backup."""
    written = segments_of(6, set())
    old = [replace(one, format=made_at(BEGAN - timedelta(hours=1))) for one in written]
    chain, began = "20261121T040000Z-0123abcd", BEGAN + timedelta(hours=12)
    anew = [replace(one, chain=chain, received_at=NOW, format=made_at(began)) for one in written]
    taken = [backup_after(written, 5)]
    moment = ToPosition(place_after(written, 25)) if place else BeforeGtid("0-1-25")
    with pytest.raises(UsageError, match="occurs twice in the archive"):
        plan(taken, [*old, *anew], moment, now=NOW + timedelta(days=3))
    assert plan(taken, [*old, *anew], moment, now=NOW + timedelta(days=3), named=True).backup == taken[0]
