"""What a replica and a member of a cluster are found to be, from what servers answer to what a run is told."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast
from unittest.mock import Mock

import pytest

from backupd.config import Configuration, JobConfig, LimitsConfig, LockConfig
from backupd.mysql.replication import ReplicaApplier, channels, group_membership
from backupd.mysql.session import Connect, Row, Session
from backupd.operations.backup.replicas import of_member, of_replica
from backupd.operations.server_holdings import applier_holding, start_again
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.records import Finding, Holding, HoldingKind, Level
from backupd.vocabulary.servers import Channel, Cluster, Flavour, Membership, Replication
from backupd.wiring import host_tools
from tests.fakes.target import MACHINE

OK, WARNING, REFUSED = Level.OK, Level.WARNING, Level.REFUSED

# As MariaDB 10.11.19 and 11.8.6 and MySQL 9.7.4 answered, cut to what is read.
MARIADB = {
    "Connection_name": "x",
    "Slave_IO_Running": "Yes",
    "Slave_SQL_Running": "Yes",
    "Seconds_Behind_Master": "0",
    "Using_Gtid": "Slave_Pos",
    "Until_Condition": "None",
}
MYSQL = {
    "Channel_Name": "x",
    "Replica_IO_Running": "Yes",
    "Replica_SQL_Running": "Yes",
    "Seconds_Behind_Source": "0",
    "Auto_Position": "1",
    "Until_Condition": "None",
}
CHANNEL = Channel("x", receiving=True, applying=True, lag_seconds=0.0, by_gtid=True, until=False)
REPLICA = Replication((CHANNEL,), workers=0, logs_updates=False, open_temporary_tables=0)
JOB = JobConfig(name="nightly", host="db1", targets=("vault",))
STOPPING = replace(JOB, lock=LockConfig(stop_applier=True))


@pytest.mark.parametrize(
    ("answer", "changes", "found"),
    [
        (MARIADB, {}, CHANNEL),
        (MYSQL, {}, CHANNEL),
        (MARIADB, {"Connection_name": ""}, replace(CHANNEL, name="")),
        (MYSQL, {"Channel_Name": ""}, replace(CHANNEL, name="")),
        (MARIADB, {"Using_Gtid": "No"}, replace(CHANNEL, by_gtid=False)),
        (MYSQL, {"Auto_Position": "0"}, replace(CHANNEL, by_gtid=False)),
        (MARIADB, {"Slave_IO_Running": "Connecting"}, replace(CHANNEL, receiving=False)),
        (MYSQL, {"Replica_IO_Running": "No"}, replace(CHANNEL, receiving=False)),
        (
            MARIADB,
            {"Slave_SQL_Running": "No", "Seconds_Behind_Master": None},
            replace(CHANNEL, applying=False, lag_seconds=None),
        ),
        (
            MYSQL,
            {"Replica_SQL_Running": "No", "Seconds_Behind_Source": None},
            replace(CHANNEL, applying=False, lag_seconds=None),
        ),
        (MARIADB, {"Until_Condition": "Gtid"}, replace(CHANNEL, until=True)),
        (MYSQL, {"Until_Condition": "SQL_AFTER_MTS_GAPS"}, replace(CHANNEL, until=True)),
    ],
)
def test_a_channel_is_read_from_either_servers_words(
    answer: Mapping[str, str], changes: Mapping[str, str | None], found: Channel
) -> None:
    assert channels([{**answer, **changes}]) == (found,)


def test_the_applier_of_a_host_that_the_configuration_has_no_more_is_a_sentence_and_no_crash() -> None:
    release = host_tools(Configuration(), MACHINE).releases[HoldingKind.APPLIER]
    with pytest.raises(UsageError, match="no host 'db1'"):
        release(applier_holding("db1", ("x",), {}))


@dataclass
class Answering:
    """A server, and what it was told."""

    variables: dict[str, str]
    uptime: str = "9000"
    told: list[str] = field(default_factory=list)

    def start_again(self, holding: Holding) -> None:
        """As `recover` does that reaches this server."""
        start_again(holding, lambda _host: ReplicaApplier(cast(Connect, self), temporary_tables_wait_seconds=0))

    def __call__(self, **how: float) -> Session:
        session = Mock(Session)
        session.__enter__ = Mock(return_value=session)
        session.__exit__ = Mock(return_value=None)
        session.variables.return_value = self.variables
        session.status.side_effect = {"Uptime": self.uptime}.get
        session.execute.side_effect = lambda statement, *_: self.told.append(statement)
        return session


STOPPED_ON = {"datadir": "/var/lib/mysql/", "server_id": "1", "uptime": "100", "at": "1000"}


@pytest.mark.parametrize(
    ("changes", "differs"),
    [({"datadir": "/srv/"}, "datadir is /srv/"), ({"server_id": "2"}, "server_id is 2"), ({"server_uuid": "b"}, "")],
)
def test_the_applier_of_another_server_is_not_started(changes: dict[str, str], differs: str) -> None:
    """Somebody may have stopped it: a replica that is to be late, or to be looked at."""
    at = f"{time.time() - 3600:.0f}"
    saved = {**STOPPED_ON, "at": at} if differs else {**STOPPED_ON, "at": at, "server_uuid": "a"}
    other = Answering({**STOPPED_ON, **changes})
    with pytest.raises(ServerError, match=f"another server answers: its {differs or 'server_uuid is b'}") as told:
        other.start_again(applier_holding("db1", ("",), saved))
    assert "START REPLICA SQL_THREAD there" in told.value.hint
    assert other.told == []
    younger = replace(other, uptime="5")  # the one that was stopped may be gone for good
    younger.start_again(applier_holding("db1", ("",), {**saved, "uptime": "100"}))
    assert younger.told == []


@pytest.mark.parametrize("saved", [STOPPED_ON, {}])
def test_the_applier_of_the_same_server_and_of_a_row_of_an_older_version_is(saved: dict[str, str]) -> None:
    answering = Answering(STOPPED_ON)
    answering.start_again(applier_holding("db1", ("",), saved))
    assert answering.told == ["START REPLICA SQL_THREAD FOR CHANNEL %s"]


def test_no_applier_is_stopped_but_on_the_server_that_was_written_down() -> None:
    other = Answering({**STOPPED_ON, "server_id": "2"})
    with pytest.raises(ServerError, match="another server answers than a moment ago"):
        ReplicaApplier(cast(Connect, other), temporary_tables_wait_seconds=0).stop(("",), of=STOPPED_ON)
    assert other.told == []


def member(state: str, role: str, ours: str) -> Row:
    return {"state": state, "role": role, "ours": ours}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], None),
        ([member("OFFLINE", "", "1")], None),
        (
            [member("ONLINE", "PRIMARY", "0"), member("ONLINE", "SECONDARY", "1")],
            Membership(Cluster.GROUP_REPLICATION, 2, "ONLINE", primary=False),
        ),
        (
            [member("ONLINE", "PRIMARY", "1"), member("RECOVERING", "SECONDARY", "0")],
            Membership(Cluster.GROUP_REPLICATION, 2, "ONLINE", primary=True),
        ),
        ([member("ERROR", "", "1")], Membership(Cluster.GROUP_REPLICATION, 1, "ERROR", primary=True)),
    ],
)
def test_a_member_is_the_row_that_bears_our_uuid(rows: list[Row], found: Membership | None) -> None:
    assert group_membership(rows) == found


def findings(job: JobConfig, flavour: Flavour, found: Replication, *, shares: bool = False) -> dict[str, Finding]:
    told = list(of_replica(job, flavour, found, binlog_shares=shares))
    assert len({one.name for one in told}) == len(told)
    assert all(one.hint for one in told if one.level is not OK)
    return {one.name: one for one in told}


@pytest.mark.parametrize("job", [JOB, STOPPING])
@pytest.mark.parametrize("flavour", Flavour)
def test_a_replica_that_applies_by_itself_has_nothing_to_be_told(job: JobConfig, flavour: Flavour) -> None:
    assert [one.level for one in findings(job, flavour, REPLICA).values()] == [OK]


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        (replace(CHANNEL, receiving=False), "the receiver of channel 'x' is stopped"),
        (replace(CHANNEL, applying=False), "the applier of channel 'x' is stopped"),
        (replace(CHANNEL, name="", applying=False), "the applier of the default channel is stopped"),
    ],
)
def test_a_thread_that_stands_still_is_named(channel: Channel, words: str) -> None:
    found = findings(JOB, Flavour.MYSQL, replace(REPLICA, channels=(CHANNEL, channel)))["replication"]
    assert (found.level, words in found.detail) == (WARNING, True)


@pytest.mark.parametrize(("lag", "refused"), [(None, False), (60.0, False), (61.0, True)])
def test_a_lag_for_which_the_run_would_be_given_up_is_refused_at_once(lag: float | None, refused: bool) -> None:
    job = replace(JOB, limits=LimitsConfig(max_replica_lag_seconds=60.0))
    late = replace(REPLICA, channels=(CHANNEL, replace(CHANNEL, lag_seconds=lag)))
    assert ("replica lag" in findings(job, Flavour.MYSQL, late)) is refused
    assert "replica lag" not in findings(JOB, Flavour.MYSQL, late)


BY_FILE = replace(REPLICA, workers=4, channels=(CHANNEL, replace(CHANNEL, name="west", by_gtid=False)))


def test_coordinates_of_parallel_workers_are_exact_by_gtid_or_when_they_stand_still() -> None:
    found = findings(JOB, Flavour.MYSQL, BY_FILE)["replica coordinates"]
    assert (found.level, "'west'" in found.detail, "'x'" in found.detail) == (WARNING, True, False)
    assert "stop_applier" in found.hint
    assert "replica coordinates" not in findings(STOPPING, Flavour.MYSQL, BY_FILE)
    assert "replica coordinates" not in findings(JOB, Flavour.MYSQL, replace(BY_FILE, workers=0))
    assert "replica coordinates" not in findings(JOB, Flavour.MYSQL, replace(BY_FILE, channels=(CHANNEL,)))


PARALLEL = replace(REPLICA, workers=4)


@pytest.mark.parametrize(
    ("job", "flavour", "found", "shares", "refused"),
    [
        (JOB, Flavour.MARIADB, PARALLEL, False, True),
        (JOB, Flavour.MARIADB, PARALLEL, True, True),  # a binlog without what was applied decides nothing
        (JOB, Flavour.MARIADB, replace(PARALLEL, logs_updates=True), False, True),
        (JOB, Flavour.MARIADB, replace(PARALLEL, logs_updates=True), True, False),
        (JOB, Flavour.MARIADB, REPLICA, False, False),
        (JOB, Flavour.MARIADB, replace(PARALLEL, channels=(replace(CHANNEL, applying=False),)), False, False),
        (STOPPING, Flavour.MARIADB, PARALLEL, False, False),
        (JOB, Flavour.MYSQL, PARALLEL, False, False),
    ],
)
def test_prepared_transactions_of_mariadbs_parallel_workers_need_a_binlog_in_the_image(
    job: JobConfig, flavour: Flavour, found: Replication, shares: bool, refused: bool
) -> None:
    told = findings(job, flavour, found, shares=shares)
    assert ("parallel applier" in told) is refused
    assert all(one.level is not REFUSED for name, one in told.items() if name != "parallel applier")


def test_open_temporary_tables_are_told_where_the_run_does_not_wait_for_them() -> None:
    found = replace(REPLICA, open_temporary_tables=2)
    assert findings(JOB, Flavour.MYSQL, found)["temporary tables"].level is WARNING
    assert "temporary tables" not in findings(STOPPING, Flavour.MYSQL, found)


def test_an_applier_that_is_to_stop_by_itself_is_not_stopped() -> None:
    found = replace(REPLICA, channels=(replace(CHANNEL, until=True),))
    assert findings(STOPPING, Flavour.MYSQL, found)["applier"].level is REFUSED
    assert "applier" not in findings(JOB, Flavour.MYSQL, found)


GROUP = Membership(Cluster.GROUP_REPLICATION, 3, "ONLINE", primary=False)
GALERA = Membership(Cluster.GALERA, 3, "Donor/Desynced", primary=True, desynced=True)


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (GROUP, WARNING, "secondary of 3"),
        (replace(GROUP, primary=True), REFUSED, "primary of 3"),
        (replace(GROUP, primary=True, members=1), WARNING, "only member"),
        (replace(GROUP, state="RECOVERING"), REFUSED, "RECOVERING"),
        (replace(GROUP, state="ERROR", members=1), REFUSED, "ERROR"),
        (GALERA, WARNING, "desynced node of 3"),
        (replace(GALERA, desynced=False), REFUSED, "Donor/Desynced"),
        (replace(GALERA, state="Synced", desynced=False), REFUSED, "Synced"),
        (replace(GALERA, state="Synced", desynced=False, members=1), WARNING, "only member"),
    ],
)
def test_a_member_is_backed_up_where_the_others_do_not_wait_for_it(found: Membership, level: Level, words: str) -> None:
    told = of_member(found)
    assert (told.name, told.level) == ("cluster", level)
    assert words in told.detail
    assert told.hint
