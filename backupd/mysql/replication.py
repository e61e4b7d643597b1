"""A server that is a replica or a member of a cluster: how it stands, and its appliers.

Knows: which statement lists, stops and starts the channels of this server, found by asking it, and where a member's
state is told. Refuses to judge any of it: what forbids a run is the stories' business.

Seen on MariaDB 10.11.19, 11.8.6 and MySQL 9.7.4: all take `STOP REPLICA SQL_THREAD FOR CHANNEL 'x'` and START, and the
default channel is named ''. Stopping what has stopped and starting what runs is a note and no error. A member of a
group lists no group channel in SHOW REPLICA STATUS (9.7.4); one that does would still not have it stopped.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pymysql.constants import ER

from backupd.mysql.positions import replica_status
from backupd.mysql.same_server import has_identity, identity, is_same, on_another
from backupd.mysql.session import Connect, Row, Session, StatementError
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Channel, Cluster, Membership, Replication

log = logging.getLogger(__name__)

NO_SUCH_CHANNEL = (1617, 3074)  # WARN_NO_MASTER_INFO of MariaDB, ER_REPLICA_CHANNEL_DOES_NOT_EXIST of MySQL

_ANY: Mapping[str, str] = MappingProxyType({})  # whichever server answers
_GROUP_PREFIX = "group_replication_"
_FORMS = (
    "{verb} REPLICA SQL_THREAD FOR CHANNEL %s",  # MySQL from 8.0.22, MariaDB from 10.7
    "{verb} SLAVE %s SQL_THREAD",  # MariaDB before
    "{verb} SLAVE SQL_THREAD FOR CHANNEL %s",  # MySQL before
)
_STOP_SECONDS = 300.0  # MySQL's waits until its workers have closed all gaps; a large event group takes its time
_LOOK_SECONDS = 1.0
_TEMPORARY_TABLES = ("Slave_open_temp_tables", "Replica_open_temp_tables")  # both: the same, and MySQL from 8.0.26
_WORKERS = ("slave_parallel_threads", "replica_parallel_workers", "slave_parallel_workers")  # MariaDB; MySQL
_LOGS_UPDATES = ("log_replica_updates", "log_slave_updates")

_GROUP_PLUGIN = """
    SELECT COUNT(*) FROM information_schema.PLUGINS
    WHERE PLUGIN_NAME = 'group_replication' AND PLUGIN_STATUS = 'ACTIVE'
"""
_GROUP_MEMBERS = """
    SELECT MEMBER_STATE AS state, MEMBER_ROLE AS role, MEMBER_ID = @@server_uuid AS ours
    FROM performance_schema.replication_group_members
"""
_OFFLINE = "OFFLINE"  # the plugin is loaded, and the server takes part in no group


def replication(session: Session) -> Replication:
    """Every channel and how it is applied; no channel where it is no replica.

    Raises:
        ServerError: it cannot be asked: a privilege is missing, or the session is over.
    """
    variables = session.variables()
    workers = next((variables[name] for name in _WORKERS if name in variables), "0")
    return Replication(
        channels=channels(replica_status(session)),
        workers=int(workers),
        logs_updates=variables.get("log_bin") == "ON" and any(variables.get(name) == "ON" for name in _LOGS_UPDATES),
        open_temporary_tables=_open_temporary_tables(session),
    )


def channels(rows: Sequence[Row]) -> tuple[Channel, ...]:
    """The rows of SHOW REPLICA STATUS, or of MariaDB's SHOW ALL SLAVES STATUS."""
    return tuple(_channel(row) for row in rows)


def cluster_of(session: Session, variables: Mapping[str, str]) -> Cluster | None:
    """Of which kind of cluster it is a member now.

    Where the account may not read performance_schema, a server with the plugin counts as a member: better asked for a
    privilege than locked by mistake.

    Raises:
        ServerError: the session is over.
    """
    try:
        member = membership(session, variables)
    except StatementError as error:
        if error.denied:
            return Cluster.GROUP_REPLICATION
        raise
    return member.cluster if member is not None else None


def membership(session: Session, variables: Mapping[str, str]) -> Membership | None:
    """How it is in its cluster; None where it takes part in none.

    Galera's variables are the same in MariaDB (10.11.19 with provider 26.4.23) and Percona XtraDB Cluster. One that was
    told to desync says `Donor/Desynced`, as one does that feeds a joining node: only wsrep_desync tells them apart.

    Raises:
        ServerError: the session is over, or the account may not ask (`StatementError.denied`).
    """
    if variables.get("wsrep_on") == "ON" and (size := int(session.status("wsrep_cluster_size") or 0)):
        state = session.status("wsrep_local_state_comment") or ""
        desynced = variables.get("wsrep_desync") == "ON"
        return Membership(Cluster.GALERA, size, state, primary=True, desynced=desynced)
    if session.value(_GROUP_PLUGIN) == "0":
        return None
    try:
        return group_membership(session.query(_GROUP_MEMBERS))
    except StatementError as error:
        if not error.denied:
            raise
        raise StatementError(
            "the account may not read the state of this group member",
            hint="GRANT SELECT ON performance_schema.replication_group_members to the account",
            number=error.number,
        ) from error


def group_membership(rows: Sequence[Row]) -> Membership | None:
    """The rows of replication_group_members; None where the plugin is loaded and the server is in no group."""
    ours = next((row for row in rows if row["ours"] == "1"), None)
    if ours is None or ours["state"] == _OFFLINE:
        return None
    return Membership(Cluster.GROUP_REPLICATION, len(rows), ours["state"] or "", primary=ours["role"] != "SECONDARY")


class ReplicaApplier:
    """The contract's `Applier` on a real server; each verb in a session of its own.

    `temporary_tables_wait_seconds` is how long `stop` waits for a moment without open temporary tables, while the
    appliers run: they would be lost with a restart on the snapshot, and later statements of a source that logs
    statements may need them. What xtrabackup calls --safe-slave-backup.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        temporary_tables_wait_seconds: float,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect = connect
        self._wait_seconds = temporary_tables_wait_seconds
        self._pause = pause

    def running(self) -> tuple[str, ...]:
        """The names of the channels whose applier runs now.

        Raises:
            ServerError: the server cannot be asked.
        """
        with self._connect() as session:
            listed = channels(replica_status(session))
        return tuple(one.name for one in listed if one.applying and not one.name.startswith(_GROUP_PREFIX))

    def server(self) -> Mapping[str, str]:
        """What tells this server from another.

        Raises:
            ServerError: the server cannot be asked.
        """
        with self._connect() as session:
            return identity(session, session.variables())

    def stop(self, channels: Sequence[str], *, of: Mapping[str, str] = _ANY) -> None:
        """They stand still, and no temporary table of theirs is open.

        MySQL's parallel workers close the gaps between them first, so that the coordinates are exact; without that
        they are a low-water mark (its manual, STOP REPLICA, and Replication and Transaction Inconsistencies).

        Raises:
            ServerError: a temporary table was open for too long, or the server failed; some may stand still then. Or
                another server answers.
        """
        deadline = time.monotonic() + self._wait_seconds
        with self._connect(answer_seconds=_STOP_SECONDS) as session:
            if has_identity(of) and not is_same(of, identity(session, session.variables())):
                raise ServerError(
                    "another server answers than a moment ago: its applier is not stopped",
                    hint="run again once the host's address leads to one server",
                )
            while True:
                if not _open_temporary_tables(session):
                    _each(session, "STOP", channels)
                    if not _open_temporary_tables(session):
                        return
                    _each(session, "START", channels)  # one was opened in between: only an applier can close it
                if time.monotonic() >= deadline:
                    raise ServerError(
                        f"the replica's applier had temporary tables open for {self._wait_seconds:.0f} s",
                        hint="a snapshot does not have them, and later statements may need them: raise"
                        " lock.temporary_tables_wait, choose a quieter hour, or set binlog_format=ROW on the source",
                    )
                self._pause(_LOOK_SECONDS)

    def start(self, channels: Sequence[str], *, of: Mapping[str, str] = _ANY) -> None:
        """They run, whether they had stood still or not. A channel that is no more is no error.

        Another server is never touched; if it was started since, the one that was changed may be gone for good. After
        a week that one is given up, with a warning.

        Raises:
            ServerError: at least one could not be started; the others run. Or another server answers.
        """
        with self._connect(answer_seconds=_STOP_SECONDS) as session:
            if has_identity(of) and (words := _on_another(session, of)):
                log.warning("%s", words)
                return
            failed: StatementError | None = None
            for name in channels:
                try:
                    _command(session, "START", name)
                except StatementError as error:
                    if error.number not in NO_SUCH_CHANNEL:
                        failed = failed or error
            if failed is not None:
                raise ServerError(
                    f"a replica's applier was stopped and could not be restarted: {failed.message}",
                    hint="START REPLICA SQL_THREAD on the server, or `backupd recover`",
                ) from failed


def _on_another(session: Session, of: Mapping[str, str]) -> str:
    remedy = "START REPLICA SQL_THREAD there"
    now = identity(session, session.variables())
    return on_another(of, now, changed="the replica's applier was stopped", remedy=remedy)


def _each(session: Session, verb: str, names: Sequence[str]) -> None:
    for name in names:
        _command(session, verb, name)


def _command(session: Session, verb: str, name: str) -> None:
    """The first form that this server can parse is the one that takes effect; the others change nothing."""
    for form in _FORMS:
        try:
            session.execute(form.format(verb=verb), name)
        except StatementError as error:
            if error.number != ER.PARSE_ERROR:
                raise
        else:
            return
    raise ServerError(f"the server cannot {verb.lower()} a single channel", hint="set lock.stop_applier = false")


def _open_temporary_tables(session: Session) -> int:
    return max(int(session.status(name) or 0) for name in _TEMPORARY_TABLES)


def _channel(row: Row) -> Channel:
    lag = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
    return Channel(
        name=row.get("Connection_name") or row.get("Channel_Name") or "",
        receiving=row.get("Replica_IO_Running", row.get("Slave_IO_Running")) == "Yes",
        applying=row.get("Replica_SQL_Running", row.get("Slave_SQL_Running")) == "Yes",
        lag_seconds=float(lag) if lag is not None else None,
        by_gtid=row.get("Auto_Position") == "1" or row.get("Using_Gtid", "No") != "No",
        until=row.get("Until_Condition", "None") not in ("None", "", None),
    )
