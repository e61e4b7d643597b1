"""From where an archive receives when it begins or goes on: behind its last segment, there in another server's log, or
where a new chain begins.

Knows: why another server's log does not go on with the chain. Refuses to record that.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from backupd.mysql.binlog.promoted import PromotedServer
from backupd.mysql.binlog.source import BinlogSource
from backupd.operations.binlog.segment_author import new_chain
from backupd.policy import gtid
from backupd.policy.binlog_chain import PlacedBackup, is_same_server
from backupd.policy.failover import Agreement, ArchivedEnd, History, agreement
from backupd.policy.segment_file import FIRST_OFFSET
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.errors import ServerError


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the log is received from, and what of it is archived already."""

    chain: str
    begin: BinlogPlace  # between two transactions
    gtids: str  # what had been executed there
    state: str  # and of MariaDB's the last of each server, there or later; empty: it is not known
    archived: BinlogPlace  # the end of the last segment; `begin` where there is none
    before: BinlogSegment | None = None  # the last segment
    backup: PlacedBackup | None = None  # whose place it is that a new chain begins with
    other: ArchivedEnd | None = None  # the last segment is of another server's log


def following_place(segment: BinlogSegment) -> BinlogPlace:
    """Where the log goes on behind a segment."""
    if not segment.file_ended:
        return BinlogPlace(segment.file, segment.end)
    base, _, number = segment.file.rpartition(".")
    return BinlogPlace(f"{base}.{int(number) + 1:0{len(number)}}", FIRST_OFFSET)


def behind(last: BinlogSegment, following: BinlogPlace, of_chain: Iterable[BinlogSegment]) -> Beginning:
    """From the last place between two transactions on, so that the one that is open is seen from its beginning."""
    begin, gtids, state = following, last.gtid_end, last.gtid_state
    if last.within_transaction:
        first = [one for one in of_chain if one.file == last.file and is_same_server(one.origin, last.origin)]
        whole = [segment for segment in first if not segment.within_transaction]
        begin = BinlogPlace(last.file, whole[-1].end if whole else first[0].start)
        gtids = whole[-1].gtid_end if whole else first[0].gtid_start
        state = whole[-1].gtid_state if whole else ""
    return Beginning(last.chain, begin, gtids, state, archived=following, before=last)


def taken_over(
    last: BinlogSegment, source: BinlogSource, promoted: Callable[[BinlogSource, str], PromotedServer]
) -> Beginning | str:
    """Another server's log, from the file in which by GTID the archived history ends; or why it does not go on with it.

    Raises:
        ServerError: it has not executed yet what is archived, and nothing else: as long as that is so, one waits.
    """
    named = f"another server answers: {source.origin.version}, id {source.origin.server_id}"
    archived = History(last.gtid_end, last.gtid_state)
    if last.origin.flavour is not source.origin.flavour:
        return named
    if last.within_transaction:
        return f"{named}; the archive ends within a transaction of the previous server"
    if not source.own_writes:
        return f"{named}; log_slave_updates is off there: its log lacks what it got from others"
    agreed = agreement(archived, History(source.gtid, source.gtid_state))
    if agreed is Agreement.DIFFERS:
        return f"{named}; it has executed {source.gtid or 'nothing'}, and {last.gtid_end or 'no GTID'} is archived"
    if agreed is Agreement.BEHIND:
        raise ServerError(
            f"{named}, and it has not executed yet what is archived: it is at {source.gtid or 'no GTID'}, the archive"
            f" at {last.gtid_end}",
            hint="the archive continues once it has; if it never does, its next transaction starts a new chain",
        )
    if not gtid.is_within(source.purged, last.gtid_end):
        return f"{named}; it has purged {source.purged}, which is not all archived"
    found = promoted(source, last.gtid_end)
    if found.filter:
        return f"{named}; {found.filter} is set there: its log may lack transactions"
    if found.file is None:
        return f"{named}; before each of its binlogs it had executed something that is not archived"
    begin = BinlogPlace(found.file, FIRST_OFFSET)
    return Beginning(last.chain, begin, source.purged, "", archived=begin, before=last, other=ArchivedEnd(archived))


def new_beginning(
    source: BinlogSource,
    end: BinlogPlace,
    last: BinlogSegment | None,
    backups: Sequence[PlacedBackup],
    *,
    anew: bool = False,
) -> Beginning:
    """A new chain: from the newest of the good backups on, if the server still has what followed it; else from that
    whose run goes on, which nothing would lead on from once it is good; else from the end. What was backed up before
    the log was whole is no beginning; nor is one that a clock which was ahead has dated later than now: nobody knows
    what came after it.

    Another server has the same places: what was backed up while its log was archived is none of this one's. With
    `anew`, what followed those backups has just been archived, up to where the log could not be gone on with.
    """
    now = datetime.now(UTC)
    chain = new_chain(now, after="" if last is None else last.chain)
    is_behind = last is not None and (anew or not is_same_server(last.origin, source.origin))
    archived_at = last.received_at if last is not None and is_behind else None
    since = [at for at in (archived_at, source.origin.whole_since) if at is not None]
    dated = [each for each in backups if each.has_come(now) and all(each.taken_at > at for at in since)]
    own = [each for each in dated if source.has(each.place)]
    backup = next((each for each in own if each.good), None) or next((each for each in own if each.live), None)
    if backup is not None:
        place, gtids = backup.place, backup.gtid
        return Beginning(chain, place, gtids, source.gtid_state, archived=place, backup=backup)
    return Beginning(chain, end, source.gtid, source.gtid_state, archived=end)
