"""Whether a transaction of MariaDB's may be in an archive although the number of its GTID does not lead to it.

Knows: that numbers are compared within a domain, whichever server wrote them, as a server does with
`gtid_strict_mode = ON`, where they rise. Without it, where two servers write into one domain, they may fall: 0-2-100
behind 0-1-101. Pure values.
"""

from collections.abc import Iterable

from backupd.policy import gtid
from backupd.policy.moments import BeforeGtid, Moment, ToGtid
from backupd.vocabulary.binlogs import BinlogSegment


def doubt(moment: Moment, lasts: Iterable[BinlogSegment]) -> str:
    """Why a moment that was not found may be there, as a hint, by the last segments of what was looked through; empty:
    it is not.
    """
    if not isinstance(moment, ToGtid | BeforeGtid) or not gtid.is_one(moment.gtid) or ":" in moment.gtid:
        return ""
    domain, server, number = map(int, moment.gtid.split("-"))
    for last in lasts:
        state = gtid.state_of(last.gtid_state)
        several = any(one != server for of, one in state if of == domain)
        if several and state.get((domain, server), 0) >= number:
            return (
                f"several servers wrote to GTID domain {domain}: if gtid_strict_mode was off and {moment.gtid} followed"
                " a higher sequence number of another server, it cannot be found by GTID; use its time or position, as"
                f" `backupd binlog search {last.job}` shows them"
            )
    return ""
