"""What a real server lets our account do, what it tells it, and what its refusals sound like."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import LockConfig
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.grants import grant_script
from backupd.mysql.locks import STRATEGIES, ServerLock
from backupd.mysql.replication import ReplicaApplier
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Connect, Login, Session, connector
from backupd.mysql.unlocked import NoLock
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import DataPath, Flavour, ReplicaPosition
from tests.contract.certificates import certificate
from tests.contract.mariadb import PASSWORD, MariadbServer, mariadb, mysql_server
from tests.servers.ports import free_port

__all__ = ["mysql_server"]

NEEDED = ("RELOAD", "PROCESS", "BINLOG MONITOR", "REPLICA MONITOR")


@pytest.fixture
def account(mysql_server: MariadbServer) -> Connect:
    """What the documentation tells an administrator to grant, and nothing else."""
    return mysql_server.account("backupd", grant_script("backupd"))


@pytest.mark.thorough
def test_the_documented_grants_are_enough_for_everything(account: Connect, mysql_server: MariadbServer) -> None:
    server = MysqlServer(account)
    with mysql_server.session() as root:
        root.execute("DROP DATABASE IF EXISTS backupd_canary")
    facts = server.facts()
    assert [server.missing_grants(strategy) for strategy in (*STRATEGIES, "none")] == [(), (), ()]
    assert {path.role for path in server.data_paths(facts)} >= {"datadir", "redo", "undo", "aria log", "binlog"}
    assert server.blockers(3600) == ()
    assert server.replica_lag_seconds() is None
    MysqlCanary(account).before("run-a")
    for strategy in STRATEGIES:
        with ServerLock(account, LockConfig(), strategy=strategy).held(facts.datadir) as held:
            assert held.position.binlog_file is not None
        assert held.receipt.proof == "session and position"
        assert held.receipt.lsn is not None
    MysqlCanary(account).after("run-a")


@pytest.mark.parametrize("lacking", NEEDED)
def test_each_missing_privilege_is_named_and_the_facts_are_told_all_the_same(
    mysql_server: MariadbServer, lacking: str
) -> None:
    script = grant_script("lacking").replace(f"{lacking}, ", "").replace(f", {lacking}", "")
    server = MysqlServer(mysql_server.account("lacking", script))
    assert server.missing_grants("ftwrl") == (lacking,)
    assert server.facts().flavour is Flavour.MARIADB


def test_without_a_lock_less_is_needed(mysql_server: MariadbServer) -> None:
    modest = mysql_server.account("modest", "GRANT PROCESS, REPLICA MONITOR ON *.* TO 'modest'@'localhost'")
    server = MysqlServer(modest)
    assert server.missing_grants("none") == ()
    assert server.missing_grants("ftwrl") == ("RELOAD", "BINLOG MONITOR")
    with NoLock(modest).held(mysql_server.datadir) as held:
        assert held.receipt.lsn is not None
    assert {"t/myisam (MyISAM)", "t/aria (Aria)"} <= set(server.unsafe_tables(server.facts()))


def test_an_applier_is_stopped_with_one_privilege_more(mysql_server: MariadbServer, account: Connect) -> None:
    assert MysqlServer(account).missing_grants("ftwrl", stop_applier=True) == ("REPLICATION SLAVE ADMIN",)
    more = mysql_server.account("stopping", grant_script("stopping", stop_applier=True))
    assert MysqlServer(more).missing_grants("ftwrl", stop_applier=True) == ()


def test_an_applier_of_no_replica_is_nothing_and_one_that_is_no_more_needs_no_start(account: Connect) -> None:
    applier = ReplicaApplier(account, temporary_tables_wait_seconds=0)
    assert applier.running() == ()
    applier.start(["gone"], of=applier.server())
    with pytest.raises(ServerError, match="another server answers: its hostname is"):
        applier.start(["gone"], of={**applier.server(), "hostname": "elsewhere"})


def test_all_privileges_and_a_role_count(mysql_server: MariadbServer) -> None:
    everything = mysql_server.account("everything", "GRANT ALL PRIVILEGES ON *.* TO 'everything'@'localhost'")
    assert MysqlServer(everything).missing_grants("ftwrl") == ()
    role = mysql_server.account(
        "byrole",
        f"CREATE OR REPLACE ROLE backup; GRANT {', '.join(NEEDED)} ON *.* TO backup;"
        " GRANT backup TO 'byrole'@'localhost'; SET DEFAULT ROLE backup FOR 'byrole'@'localhost'",
    )
    assert MysqlServer(role).missing_grants("ftwrl") == ()


def test_super_is_not_enough_to_lock(mysql_server: MariadbServer) -> None:
    """MariaDB's SUPER stands for neither RELOAD nor PROCESS."""
    connect = mysql_server.account("super", "GRANT SUPER ON *.* TO 'super'@'localhost'")
    assert MysqlServer(connect).missing_grants("ftwrl") == ("RELOAD", "PROCESS")


def test_a_wrong_password_is_told_with_its_source_and_never_shown(mysql_server: MariadbServer) -> None:
    mysql_server.account("backupd")
    login = Login("backupd", socket=mysql_server.socket, password="horse battery", password_source="file /etc/secret")
    with pytest.raises(ServerError, match="refused user 'backupd': wrong password") as refused:
        connector(login)()
    assert "file /etc/secret" in refused.value.hint
    assert "horse battery" not in f"{refused.value} {refused.value.hint} {login!r}"


def test_a_socket_that_is_not_there_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"nowhere\.sock: no such file or directory") as refused:
        connector(Login("backupd", socket=tmp_path / "nowhere.sock"))()
    assert "running" in refused.value.hint


def test_a_session_reads_text_and_tells_refusals(mysql_server: MariadbServer) -> None:
    with mysql_server.account("backupd")() as session:
        assert session.one("SELECT 1 AS a, NULL AS b, 'ä' AS c") == {"a": "1", "b": None, "c": "ä"}
        assert session.value("SELECT %s", "o'hara") == "o'hara"
        assert session.value("SELECT 1 FROM DUAL WHERE FALSE") is None
        with pytest.raises(ServerError, match=r"the server refused: SELECT v FROM t\.innodb") as refused:
            session.query("SELECT v FROM t.innodb")
    assert "grant user 'backupd'" in refused.value.hint
    assert PASSWORD not in refused.value.hint


def test_of_several_statements_none_runs_after_the_first_that_fails(mysql_server: MariadbServer) -> None:
    with mysql_server.session() as session:
        answers = session.stream(("SELECT 1 AS a", "SELECT no_such_column", "SET @reached = 1"))
        assert next(answers) == [{"a": "1"}]
        with pytest.raises(ServerError, match="no_such_column"):
            next(answers)
        assert session.value("SELECT @reached") is None


def test_the_facts_are_what_the_server_runs_with(mysql_server: MariadbServer) -> None:
    facts = MysqlServer(mysql_server.connect()).facts()
    assert facts.datadir == mysql_server.datadir
    assert facts.socket == mysql_server.socket
    assert facts.binlog_basename == mysql_server.datadir / "bin"
    assert facts.binlog_expire_seconds is None
    assert (facts.read_only, facts.is_replica, facts.redo_logging, facts.page_size) == (False, False, True, 16384)
    assert facts.settings["innodb_log_file_size"] == str(16 << 20)
    assert {"Aria", "InnoDB", "MyISAM"} <= set(facts.settings["storage_engines"].split(","))
    assert facts.settings["plugin_libraries"] == ""
    assert "relay_log_basename" in facts.settings  # by which the relay logs are left out of the archive


@pytest.fixture
def elsewhere(mysql_server: MariadbServer) -> Iterator[Path]:
    """A folder outside of the datadir with an InnoDB and a MyISAM table in it."""
    folder = mysql_server.folder / "elsewhere"
    folder.mkdir()
    with mysql_server.session() as root:
        for name, engine in (("far", "InnoDB"), ("farther", "MyISAM")):
            root.execute(f"CREATE TABLE t.{name} (id INT) ENGINE = {engine} DATA DIRECTORY = '{folder}'")
        yield folder
        root.execute("DROP TABLE t.far, t.farther")
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_tables_outside_of_the_datadir_are_found(mysql_server: MariadbServer, elsewhere: Path) -> None:
    server = MysqlServer(mysql_server.connect())
    paths = server.data_paths(server.facts())
    assert DataPath("DATA DIRECTORY", elsewhere / "t" / "far.ibd", must_share=True) in paths
    assert DataPath("absolute symlink", elsewhere / "farther.MYD", must_share=True) in paths
    assert all(path.path.is_absolute() for path in paths)


def test_a_binlog_may_lie_elsewhere_and_the_redo_log_may_not(mysql_server: MariadbServer) -> None:
    server = MysqlServer(mysql_server.connect())
    paths = {path.role: path for path in server.data_paths(server.facts())}
    assert not paths["binlog"].must_share
    assert paths["redo"].must_share
    assert paths["redo"].path == mysql_server.datadir.resolve()


def test_the_canary_forgets_rows_of_long_ago(mysql_server: MariadbServer) -> None:
    canary = MysqlCanary(mysql_server.connect())
    with mysql_server.session() as root:
        root.execute("DROP DATABASE IF EXISTS backupd_canary")
        canary.before("old")
        root.execute(f"UPDATE {canary.table} SET at = NOW() - INTERVAL 31 DAY")
        canary.before("new")
        canary.after("new")
        rows = root.query(f"SELECT run_id, moment FROM {canary.table} ORDER BY moment")
    assert [(row["run_id"], row["moment"]) for row in rows] == [("new", "before"), ("new", "after")]


def test_the_canary_uses_a_table_that_an_administrator_made(mysql_server: MariadbServer) -> None:
    MysqlCanary(mysql_server.connect()).before("made")
    modest = mysql_server.account("modest", "GRANT SELECT, INSERT, DELETE ON backupd_canary.* TO 'modest'@'localhost'")
    MysqlCanary(modest).before("modest")
    with mysql_server.session() as root:
        assert root.value("SELECT COUNT(*) FROM backupd_canary.canary WHERE run_id = 'modest'") == "1"


def test_a_session_that_is_broken_from_outside_fails_and_stays_ended(mysql_server: MariadbServer) -> None:
    with mysql_server.session() as session:
        session.sever()
        for _ in range(2):
            with pytest.raises(ServerError, match="ended during"):
                session.execute("DO 1")


def test_an_answer_that_does_not_come_ends_the_session(mysql_server: MariadbServer) -> None:
    connect = mysql_server.connect()
    with mysql_server.frozen(), pytest.raises(ServerError), connect(answer_seconds=0.2):
        raise AssertionError("connected")
    with connect(answer_seconds=0.2) as session, pytest.raises(ServerError, match="ended during: DO SLEEP"):
        session.execute("DO SLEEP(50)")


@pytest.fixture
def replica(mysql_server: MariadbServer) -> Iterator[MariadbServer]:
    """A server with a replication channel whose threads stand still."""
    with mysql_server.session() as root:
        root.execute(
            "CHANGE MASTER 'west' TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'r',"
            " MASTER_LOG_FILE = 'far.000042', MASTER_LOG_POS = 4711, MASTER_USE_GTID = no"
        )
        yield mysql_server
        root.execute("RESET SLAVE 'west' ALL")


def test_a_replicas_applied_position_is_recorded_and_its_lag_is_unknown(replica: MariadbServer) -> None:
    server = MysqlServer(replica.connect())
    assert server.facts().is_replica
    assert server.replica_lag_seconds() is None
    with ServerLock(replica.connect(), LockConfig()).held(replica.datadir) as held:
        (channel,) = held.position.replicas
    assert channel == ReplicaPosition("west", "far.000042", 4711, gtid=channel.gtid)


def test_on_loopback_a_named_certificate_is_all_that_is_trusted(tmp_path: Path) -> None:
    """A server signs for itself, and for no name."""
    ours, others = (certificate(tmp_path / name, for_name="no-name") for name in ("ours", "others"))
    port = free_port()
    tls = (f"--ssl-cert={ours.chain}", f"--ssl-key={ours.chain}")
    with mariadb(*tls, "--skip-networking=0", f"--port={port}", "--bind-address=127.0.0.1") as server:
        with server.session() as root:
            root.execute(f"CREATE USER 'backupd'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        login = Login("backupd", address="127.0.0.1", port=port, password=PASSWORD, tls_ca=ours.ca)
        cipher = "SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Ssl_cipher'"
        with Session.open(login) as session:
            assert session.value(cipher)
        with pytest.raises(ServerError, match="cannot be trusted"):
            Session.open(replace(login, tls_ca=others.ca))
        with Session.open(replace(login, tls_ca=None)) as session:
            assert session.value(cipher) == ""
