"""What a replica and a member of a cluster ask of a run: what forbids one, and the applier that stands still meanwhile.

Knows: which coordinates a snapshot of a replica is good for, and whom a lock on a cluster's member is felt by.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backupd.config import JobConfig
from backupd.host.holdings import Claim, HoldingJournal, Releases, held
from backupd.mysql import Applier, Server
from backupd.operations.findings import ok, refused
from backupd.operations.server_holdings import applier_holding
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import Channel, Cluster, Flavour, Membership, Replication, ServerFacts

_ONLINE = "ONLINE"
_ELSEWHERE = "back up an asynchronous replica of the cluster instead"
_STOP_APPLIER = "set lock.stop_applier = true for this job"


# --- the applier -----------------------------------------------------------------------------------------------------


@contextmanager
def applier_stopped(
    applier: Applier | None, host: str, journal: HoldingJournal, releases: Releases
) -> Iterator[Claim | None]:
    """The appliers that run now stand still within the block, and run again after it, whatever happens.

    What is stopped already stays so. With no applier, or none that runs, nothing is touched, and nothing claimed. A
    failed start is no error, as with every holding: its row stays for `backupd recover`, and the run needs attention.

    Raises:
        ServerError: they could not be stopped; they have been started again.
    """
    channels = applier.running() if applier is not None else ()
    if applier is None or not channels:
        yield None
        return
    server = applier.server()
    with held(journal, applier_holding(host, channels, server), releases) as claim:
        applier.stop(channels, of=server)
        yield claim


# --- findings --------------------------------------------------------------------------------------------------------


def examine(job: JobConfig, server: Server, facts: ServerFacts, *, binlog_shares: bool) -> Iterator[Finding]:
    """What only replicas and members of clusters are asked. `binlog_shares`: it is on the datadir's volume."""
    try:
        if facts.is_replica:
            yield from of_replica(job, facts.flavour, server.replication(), binlog_shares=binlog_shares)
    except ServerError as error:
        yield refused("replication", error)
    try:
        member = server.membership() if facts.cluster is not None else None
    except ServerError as error:
        yield refused("cluster", error)
        return
    if member is not None:
        yield of_member(member)


def of_replica(job: JobConfig, flavour: Flavour, found: Replication, *, binlog_shares: bool) -> Iterator[Finding]:
    """What a run of this job on this replica would be worth."""
    if not found.channels:
        return
    stops = job.lock.stop_applier
    yield _threads(found)
    yield from _lag(job, found)
    if stops:
        yield from _until(found)
    else:
        yield from _coordinates(found)
        yield from _prepared(flavour, found, binlog_shares=binlog_shares)
        yield from _temporary_tables(found)


def of_member(member: Membership) -> Finding:
    """Whom a lock and a snapshot on this member would be felt by."""
    healthy = member.cluster is Cluster.GALERA or member.state == _ONLINE
    if member.members == 1 and healthy:
        return Finding(
            "cluster",
            Level.WARNING,
            f"{member.cluster}: this is the only member; its clients wait for the lock as on any server",
            "with more members, run the job on one that the others do not depend on",
        )
    return _of_galera(member) if member.cluster is Cluster.GALERA else _of_group(member)


def _threads(found: Replication) -> Finding:
    standing = [*_standing(found, "receiver", lambda one: one.receiving), *_standing(found, "applier", _applying)]
    if not standing:
        names = ", ".join(_named(one) for one in found.channels)
        return ok("replication", f"{names}: receiver and applier are running")
    return Finding(
        "replication",
        Level.WARNING,
        f"{'; '.join(standing)}: the backup shows an older state than the source has",
        "check SHOW REPLICA STATUS for the error that stopped it, then START REPLICA",
    )


def _standing(found: Replication, thread: str, runs: Callable[[Channel], bool]) -> Iterator[str]:
    names = [_named(one) for one in found.channels if not runs(one)]
    if names:
        yield f"the {thread} of {', '.join(names)} is stopped"


def _applying(one: Channel) -> bool:
    return one.applying


def _lag(job: JobConfig, found: Replication) -> Iterator[Finding]:
    """The gate would give the run up for it, after the lock."""
    limit = job.limits.max_replica_lag_seconds
    lag = max((one.lag_seconds for one in found.channels if one.lag_seconds is not None), default=0.0)
    if limit is not None and lag > limit:
        yield Finding(
            "replica lag",
            Level.REFUSED,
            f"the replica is {lag:.0f} s behind, limits.max_replica_lag is {limit:.0f} s",
            "wait until it has caught up, or raise the limit",
        )


def _until(found: Replication) -> Iterator[Finding]:
    names = [_named(one) for one in found.channels if one.until and one.applying]
    if names:
        yield Finding(
            "applier",
            Level.REFUSED,
            f"{', '.join(names)} was started with UNTIL, which a stop and a restart would lose",
            "set lock.stop_applier = false, or wait until it has reached that position",
        )


def _coordinates(found: Replication) -> Iterator[Finding]:
    """Its data is whole either way; what a new replica would be pointed to is not.

    With parallel workers Exec_Source_Log_Pos is a low-water mark that lags behind what was applied, even where the
    commit order is preserved (MySQL 8.0 to 9.7 manual, Replication and Transaction Inconsistencies).
    """
    names = [_named(one) for one in found.channels if not one.by_gtid and one.applying]
    if names and found.workers:
        yield Finding(
            "replica coordinates",
            Level.WARNING,
            f"{', '.join(names)} uses file and offset with {found.workers} parallel workers: the recorded source"
            f" position may be earlier than what was applied, or leave gaps",
            f"seed no replica from this backup by file and offset; {_STOP_APPLIER}, or use GTIDs",
        )


def _prepared(flavour: Flavour, found: Replication, *, binlog_shares: bool) -> Iterator[Finding]:
    """MDEV-36025: parallel workers let the backup's lock pass while they wait for one another, prepared.

    With a binlog in the image that has what was applied, recovery decides about them; without one the server may not
    start ("Found 1 prepared transactions!").
    """
    in_order_of_the_binlog = found.logs_updates and binlog_shares
    applying = any(one.applying for one in found.channels)
    if flavour is Flavour.MARIADB and found.workers and applying and not in_order_of_the_binlog:
        yield Finding(
            "parallel applier",
            Level.REFUSED,
            f"{found.workers} parallel workers may leave prepared transactions in the image (MDEV-36025), and no"
            f" binlog in it tells how they end: the restored server may not start",
            f"{_STOP_APPLIER}; or set log_slave_updates and keep the binlog on the datadir's volume",
        )


def _temporary_tables(found: Replication) -> Iterator[Finding]:
    if found.open_temporary_tables:
        yield Finding(
            "temporary tables",
            Level.WARNING,
            f"the applier has {found.open_temporary_tables} open: no snapshot has them, and a replica seeded from it"
            f" would miss them",
            f"{_STOP_APPLIER}: the run then waits for a moment when none is open; or binlog_format=ROW on the source",
        )


def _of_group(member: Membership) -> Finding:
    """A member under a lock queues what the group has certified; the group slows down once the queue is long.

    MySQL manual, Flow Control: from 25,000 waiting transactions on (group_replication_flow_control_applier_threshold).
    """
    if member.state != _ONLINE:
        return Finding(
            "cluster",
            Level.REFUSED,
            f"group replication: this member is {member.state}, and its data may differ from what the group agreed on",
            "wait until it is ONLINE: SELECT * FROM performance_schema.replication_group_members",
        )
    if member.primary:
        return Finding(
            "cluster",
            Level.REFUSED,
            f"group replication: this is a primary of {member.members} members: all clients would wait for the lock",
            f"run the job on an ONLINE secondary, or {_ELSEWHERE}",
        )
    return Finding(
        "cluster",
        Level.WARNING,
        f"group replication: a secondary of {member.members} members; flow control may slow down the whole group when"
        f" its queue grows",
        "keep lock.hold_budget and limits.max_penalty low, or raise group_replication_flow_control_applier_threshold",
    )


def _of_galera(member: Membership) -> Finding:
    """Locks desync and pause the provider by themselves (10.11.19: both strategies); what they leave is the penalty.

    A synced node that falls behind stops the others by flow control, for as long as the snapshot makes its writes
    dear; a desynced one does not (Galera documentation, Flow Control; codership/mysql-wsrep 251).
    """
    if member.desynced:
        return Finding(
            "cluster",
            Level.WARNING,
            f"galera: a desynced node of {member.members}: it may fall behind while the backup runs",
            "when wsrep_local_recv_queue is 0 again: SET GLOBAL wsrep_desync = OFF",
        )
    return Finding(
        "cluster",
        Level.REFUSED,
        f"galera: this node is {member.state} among {member.members}: while the snapshot makes its writes expensive,"
        f" flow control would slow down the whole cluster",
        f"SET GLOBAL wsrep_desync = ON before the job and OFF when wsrep_local_recv_queue is 0 again, or {_ELSEWHERE}",
    )


def _named(one: Channel) -> str:
    return f"channel {one.name!r}" if one.name else "the default channel"
