"""By which backup and which segments a moment is restored, and why another moment cannot be.

Knows: the newest good backup that is not after the moment, and from which no gap lies before it, is the one. Of
transactions only first and last of each segment are known here: the segments that are chosen have the moment in them,
and whoever reads them finds it. A moment that cannot be reached is refused, with the nearest ones that can.

An archive may have a million segments. So rows may be told by few of theirs, and the others are asked for: those that
have a GTID or a place, the first of a row that has a time, and at last all that are applied.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from backupd.policy import gtid
from backupd.policy.binlog_chain import ChainRow, PlacedBackup, continuations, is_same_server, order, told_at
from backupd.policy.moments import BeforeGtid, Latest, Moment, ToGtid, ToPosition, ToTime
from backupd.policy.reach import Reach, RestorableStretch, newest_first, reach
from backupd.policy.segment_file import FIRST_OFFSET
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment, ChangeKind
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.instants import shown


class Archive(Protocol):
    """A job's segments, without a look at each."""

    @property
    def rows(self) -> Sequence[ChainRow]:
        """Where they follow one another, by chain and number. Each row has at least its first and last segment, those
        at which another server's log goes on, and those that have a backup's place, with the ones that follow them.
        """

    def having(self, moment: "ToGtid | BeforeGtid | ToPosition") -> Sequence[BinlogSegment]:
        """Those of the rows that have the moment in them, as `is_in` tells, by chain and number."""

    def first_at(self, first: BinlogSegment, last: BinlogSegment, at: datetime) -> BinlogSegment | None:
        """The first between these two of a row, both included, that has what was committed at that time or later."""

    def last_before(self, segment: BinlogSegment | None) -> BinlogSegment | None:
        """The last that has a transaction, of all before this one by chain and number; None: of all."""

    def between(self, first: BinlogSegment, last: BinlogSegment) -> Sequence[BinlogSegment]:
        """All between these two of a row, both included."""


@dataclass(frozen=True, slots=True)
class EndCondition:
    """Where whoever reads the segments has to stop."""

    moment: Moment
    met_in_last: bool  # the last segment has it: that it is not met there, or earlier, is a fault. Else all is wanted


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """How a moment is restored."""

    backup: PlacedBackup
    segments: tuple[BinlogSegment, ...]  # in their order, without a gap; none where the backup is at the moment itself
    start: BinlogPlace  # in the first of them, in its server's log: the backup has what lies before
    end: EndCondition

    @property
    def log_bytes(self) -> int:
        """Of the segments, as the server wrote them."""
        return sum(segment.plain_bytes for segment in self.segments)


def plan(
    backups: Sequence[PlacedBackup],
    archive: Archive,
    moment: Moment,
    *,
    now: datetime,
    complete_until: datetime | None = None,
    named: bool = False,
    passed: Collection[str] = (),
) -> RestorePlan:
    """How the moment is restored. Everything that was committed before `complete_until`, if it is known, is archived.
    Where a person has `named` the one backup, its history is the one that is meant. The runs that are `passed` over
    have something in them that is not wanted, by the log itself.

    Raises:
        UsageError: it cannot be; or it is no moment.
    """
    _require_moment(moment)
    if isinstance(moment, Latest) and not archive.rows:
        raise UsageError(
            "the latest moment cannot be restored: no segment of the binlog is archived there",
            hint="without a moment the backup alone is restored; `backupd binlog list JOB` shows what is archived",
        )
    having = () if isinstance(moment, ToTime | Latest) else archive.having(moment)
    _require_one_history(moment, having, named=named)
    for backup in newest_first(backups):
        if backup.run_id in passed or _is_after(backup, moment):
            continue
        for following in continuations(backup, archive.rows) or [()]:
            if _has_later(following, moment, archive):
                continue
            last = _last_wanted(backup, following, moment, archive, having, complete_until, now)
            if last is not None:
                return _planned(backup, following, last, moment, archive)
    raise _unreachable(backups, archive.rows, having, moment, now)


def _planned(
    backup: PlacedBackup,
    following: Sequence[BinlogSegment],
    last: BinlogSegment | PlacedBackup,
    moment: Moment,
    archive: Archive,
) -> RestorePlan:
    if isinstance(last, PlacedBackup):
        return RestorePlan(backup, (), backup.place, EndCondition(moment, met_in_last=False))
    start, met = _start(backup, following[0], archive.rows), is_in(moment, last)
    return RestorePlan(backup, tuple(archive.between(following[0], last)), start, EndCondition(moment, met))


def _start(backup: PlacedBackup, first: BinlogSegment, found: Sequence[ChainRow]) -> BinlogPlace:
    """The backup's place; where another server's log goes on there, the beginning of what that has written since."""
    begins_log = gtid.same(first.gtid_start, backup.gtid) and any(
        not is_same_server(one.origin, first.origin) for one in _just_before(first, found)
    )
    return backup.place if _has_in_it(first, backup.place) and not begins_log else BinlogPlace(first.file, first.start)


def _just_before(segment: BinlogSegment, found: Sequence[ChainRow]) -> Iterator[BinlogSegment]:
    """The one that it goes on from, where that is told."""
    place = segment.chain, segment.number - 1
    return (one for row in found for one in row.segments if (one.chain, one.number) == place)


def _has_in_it(segment: BinlogSegment, place: BinlogPlace) -> bool:
    return segment.file == place.file and segment.start <= place.offset < segment.end


def statements_in(segments: Sequence[BinlogSegment]) -> tuple[str, ...]:
    """The tables, SCHEMA.TABLE, whose rows the segments change by statements: there are changes and no rows of them."""
    rows = (ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE)
    found = (change for segment in segments for change in segment.changes if change.kind in rows and not change.rows)
    return tuple(sorted({f"{change.schema}.{change.table}" for change in found}))


def _require_moment(moment: Moment) -> None:
    if isinstance(moment, ToGtid | BeforeGtid) and not gtid.is_one(moment.gtid):
        raise UsageError(
            f"{moment.gtid!r:.80} is not the GTID of a transaction",
            hint="MariaDB's are as 0-1-4711, MySQL's as 3e11fa47-71ca-11e1-9e33-c80aa9429562:4711",
        )


def _require_one_history(moment: Moment, having: Sequence[BinlogSegment], *, named: bool) -> None:
    """What is named is named once. After a RESET, or on a server that was restored, names and numbers start again.

    Raises:
        UsageError: it is in two logs; who names the backup says which one is meant, but for places of two servers.
    """
    if isinstance(moment, ToTime | Latest) or (named and not isinstance(moment, ToPosition)):
        return
    found = {(segment.origin.server_id, segment.origin.uuid, told_at(segment), segment.file) for segment in having}
    servers = {(server_id, uuid) for server_id, uuid, *_ in found}
    if len(servers if named else found) > 1:
        told = [
            f"in {file} of server {server_id}, begun {shown(datetime.fromtimestamp(at, UTC))}"
            for server_id, _, at, file in sorted(found, key=lambda one: (one[2], one))[:2]
        ]
        raise UsageError(
            f"{moment} occurs twice in the archive: {', and '.join(told)}",
            hint="name the moment by its GTID or time"
            if len(servers) > 1
            else "name the backup to begin with: `backupd restore RUN --to DIR …`; see `backupd binlog list JOB`",
        )


def _is_after(backup: PlacedBackup, moment: Moment) -> bool:
    """Whether the backup has, or may have, something in it that is not wanted."""
    match moment:
        case ToTime(at):
            return backup.taken_at >= at
        case ToGtid(one) | BeforeGtid(one):
            return gtid.holds(backup.gtid, one)
    return False


def _has_later(following: Sequence[BinlogSegment], moment: Moment, archive: Archive) -> bool:
    """Whether the log that the backup has in it tells of a later time: its host's clock may be behind the log's. The
    last of its transactions tells that, however many segments without one lie between.
    """
    if not isinstance(moment, ToTime):
        return False
    before = archive.last_before(following[0] if following else None)
    return before is not None and is_in(moment, before)


def _last_wanted(
    backup: PlacedBackup,
    following: Sequence[BinlogSegment],
    moment: Moment,
    archive: Archive,
    having: Sequence[BinlogSegment],
    complete_until: datetime | None,
    now: datetime,
) -> BinlogSegment | PlacedBackup | None:
    """The last segment that is applied, of those that follow the backup; the backup itself where none is; None where
    the moment is in none of them.
    """
    if isinstance(moment, ToPosition) and moment.place == backup.place:
        return backup
    last = following[-1] if following else backup
    if isinstance(moment, Latest):
        return last if _is_last(backup, following, archive.rows, now) else None
    if following and (met := _meeting(following, moment, archive, having)) is not None:
        too_early = isinstance(moment, ToPosition) and _is_before(
            moment.place, _start(backup, following[0], archive.rows)
        )
        return None if too_early and met.number == following[0].number else met
    if isinstance(moment, ToTime) and complete_until is not None and moment.at <= complete_until:
        return last if _is_last(backup, following, archive.rows, now) else None
    return None


def _meeting(
    following: Sequence[BinlogSegment],
    moment: "ToTime | ToGtid | BeforeGtid | ToPosition",
    archive: Archive,
    having: Sequence[BinlogSegment],
) -> BinlogSegment | None:
    """The first of these of a row that has the moment in it."""
    first, last = following[0], following[-1]
    if isinstance(moment, ToTime):
        return archive.first_at(first, last, moment.at)
    return next((one for one in having if one.chain == first.chain and first.number <= one.number <= last.number), None)


def _is_before(one: BinlogPlace, other: BinlogPlace) -> bool:
    return one.file == other.file and one.offset < other.offset


def _is_last(
    backup: PlacedBackup, following: Sequence[BinlogSegment], found: Sequence[ChainRow], now: datetime
) -> bool:
    """Whether nothing is archived that came after the backup and what follows it. The archive may lag behind a backup:
    then it tells by its time alone, unless that is yet to come, which is a wrong clock's.
    """
    ends = (row.segments[-1] for row in found)
    newest = max(ends, key=lambda segment: (segment.chain, segment.number), default=None)  # whatever clocks said
    if newest is None or following:
        return newest is None or following[-1].name == newest.name
    at_its_end = (newest.file, newest.end) == (backup.place.file, backup.place.offset)
    holds_it = bool(backup.gtid and newest.gtid_end) and gtid.is_within(newest.gtid_end, backup.gtid)
    came_after = newest.received_at <= backup.taken_at and backup.has_come(now)
    return came_after or at_its_end or holds_it


def is_in(moment: Moment, segment: BinlogSegment) -> bool:
    """Whether whoever reads the segment, and has not stopped before, stops in it."""
    match moment:
        case ToTime(at):
            return any(told is not None and told >= at for told in (segment.first_at, segment.last_at))
        case ToGtid(one) | BeforeGtid(one):
            return gtid.holds(segment.gtid_end, one) and not gtid.holds(segment.gtid_start, one)
        case ToPosition(place):
            begins = place.offset <= FIRST_OFFSET == segment.start
            return segment.file == place.file and (begins or segment.start < place.offset <= segment.end)
    return False


def _unreachable(
    backups: Sequence[PlacedBackup],
    found: Sequence[ChainRow],
    having: Sequence[BinlogSegment],
    moment: Moment,
    now: datetime,
) -> UsageError:
    within = reach(backups, found)
    if not within.stretches:
        return UsageError(
            f"{moment} cannot be restored: there is no good backup that knows its place in the binlog",
            hint="see `backupd history`; a backup that was taken without a lock gets its place by `backupd drill RUN`,"
            " one that is taken now helps for later moments only: `backupd run JOB`",
        )
    if isinstance(moment, ToTime):
        if any(one.chain and one.since < moment.at <= one.until for one in within.stretches):
            return _behind(moment)
        return UsageError(_time_refused(moment.at, within, now), hint=_nearest(moment.at, within, found))
    return UsageError(_refused(moment, within, having), hint=_ranges(within))


def _behind(moment: ToTime) -> UsageError:
    """By its own clock a backup leads to it."""
    return UsageError(
        f"{moment} cannot be restored: the backup before it has later transactions: its host's clock was behind",
        hint="name the first transaction that you do not want: `backupd binlog search JOB` lists them with their times,"
        " and restore --before-gtid tells whether a backup leads to it",
    )


def _time_refused(at: datetime, within: Reach, now: datetime) -> str:
    first, last = within.stretches[0], max(stretch.until for stretch in within.stretches)
    if at <= first.since:
        return f"{shown(at)} cannot be restored: the oldest good backup is of {shown(first.since)}"
    for hole in within.holes:
        if hole.since < at <= hole.until:
            between = f"from {shown(hole.since)} to {shown(hole.until)}"
            return f"{shown(at)} cannot be restored: it is in a gap {between}: {hole.reason}"
    if at > now:
        return f"{shown(at)} cannot be restored: it is in the future"
    return f"{shown(at)} cannot be restored: the last transaction that can be reached is of {shown(last)}"


def _refused(moment: Moment, within: Reach, having: Sequence[BinlogSegment]) -> str:
    if isinstance(moment, Latest):
        last = max(stretch.until for stretch in within.stretches)
        return (
            f"{moment} cannot be restored: there is a gap between the last good backup and the newest segments; the"
            f" last reachable moment is {shown(last)}"
        )
    if having:
        return (
            f"{moment} cannot be restored: it is in segment {having[0].name}, which no good backup before it leads to"
        )
    oldest = within.stretches[0].backup
    before_it = isinstance(moment, ToPosition) and order(moment.place) < order(oldest.place)
    if before_it or _is_after(oldest, moment):
        return f"{moment} cannot be restored: the oldest good backup was taken after it"
    return f"{moment} cannot be restored: it is in no segment of the archive"


def _nearest(at: datetime, within: Reach, found: Sequence[ChainRow]) -> str:
    before = max((one for one in within.stretches if one.until < at), key=lambda one: one.until, default=None)
    after = next((one for one in within.stretches if one.since >= at), None)
    newest = max(found, key=lambda row: (row.chain, row.segments[-1].number), default=None)
    if before is not None and after is None and newest is not None and newest.last_at == before.until:
        return (
            f"--to-latest restores everything that is archived, with the transaction of {shown(before.until)};"
            " --to-time with that time would leave it out"
        )
    told = [] if before is None else [f"before it: {_end_of(before)}"]
    if after is not None:
        told.append(f"after it: any time later than {shown(after.since)}{_alone(after)}")
    return f"the nearest moment that can be restored {'; '.join(told)}"


def _end_of(stretch: RestorableStretch) -> str:
    """A time is without what was committed at it."""
    if not stretch.chain:
        return f"{shown(stretch.until)}{_alone(stretch)}"
    return f"the transaction of {shown(stretch.until)}, by --to-gtid: `backupd binlog search` lists GTIDs"


def _alone(stretch: RestorableStretch) -> str:
    """Where there is but the backup's own moment: no time is asked for to restore it."""
    return "" if stretch.chain else f", by restoring backup {stretch.backup.run_id} alone"


def _ranges(within: Reach) -> str:
    shown_last = within.stretches[-3:]
    told = "; ".join(f"from {shown(stretch.since)} to {shown(stretch.until)}" for stretch in shown_last)
    return f"what can be restored: {told}"
