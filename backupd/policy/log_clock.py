"""Whether a time that a log stops at can be believed.

Knows: that MariaDB logs a session's `timestamp`, which anybody may set unless `secure_timestamp` keeps them from it,
and every server its host's clock: one transaction of a time to come ends every restore to a time behind it.
"""

from datetime import timedelta

from backupd.policy.moments import ToTime
from backupd.policy.roll_forward import RestorePlan
from backupd.vocabulary.instants import shown

_AHEAD = timedelta(minutes=2)  # that the clock of the log's server may be ahead of ours


def clock_doubt(plan: RestorePlan) -> str:
    """Why the log stops long before the time that is asked for: it was received then. Empty: it does not, as far as its
    receipt tells.
    """
    if not isinstance(plan.end.moment, ToTime) or not plan.end.met_in_last:
        return ""
    last = plan.segments[-1]
    if last.last_at is None or plan.end.moment.at - last.received_at <= _AHEAD:
        return ""
    return (
        f"the copy may lack transactions committed after {shown(last.received_at)}: the log stops in segment"
        f" {last.name}, received then, at a transaction dated {shown(last.last_at)} (SET timestamp, or a clock that was"
        f" ahead); to go past it use --to-gtid: `backupd binlog search {last.job}` lists GTIDs"
    )
