"""What the documented grants let our account do and learn on every server: all that a run asks for, and no grant idle.

`root` is who tells the truth here: what our account is told must be what root sees at that moment.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from backupd.config import LockConfig
from backupd.mysql import UNLOCKED
from backupd.mysql.canary import MysqlCanary, moments
from backupd.mysql.flushing import LOW_WATER_MARK, MAX_DIRTY, PageFlusher
from backupd.mysql.grants import CANARY_SCHEMA, grant_script
from backupd.mysql.locks import ServerLock
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Connect, Row, Session, StatementError
from backupd.mysql.unlocked import NoLock
from backupd.vocabulary.errors import LockNotGranted
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import wait_until
from tests.docker.containers import KINDS, Pair, ServerContainer
from tests.docker.in_the_way import ALTER, busy, locked_table, long_read, long_write, unfinished_alter

USER = "account"
LIMITS = LockConfig(wait_timeout_seconds=2, hold_budget_seconds=10, tries=1, pause_seconds=0, blocker_age_seconds=3600)
LONG_SECONDS = 0.1
STRATEGIES = {Flavour.MARIADB: ("ftwrl", "backup-stage"), Flavour.MYSQL: ("ftwrl",)}
BEST = {Flavour.MARIADB: "backup-stage", Flavour.MYSQL: "ftwrl"}
PROOF = {Flavour.MARIADB: "session and position", Flavour.MYSQL: "metadata-locks"}
APPLIER = {Flavour.MARIADB: "REPLICATION SLAVE ADMIN", Flavour.MYSQL: "REPLICATION_SLAVE_ADMIN"}
FLUSHING = {Flavour.MARIADB: "SUPER", Flavour.MYSQL: "SYSTEM_VARIABLES_ADMIN"}
BINLOG = {Flavour.MARIADB: "SHOW MASTER STATUS", Flavour.MYSQL: "SHOW BINARY LOG STATUS"}
GTID = {Flavour.MARIADB: "SELECT @@global.gtid_binlog_pos", Flavour.MYSQL: "SELECT @@global.gtid_executed"}
ROLES = {
    Flavour.MARIADB: {"datadir", "redo", "undo", "aria log", "binlog"},
    Flavour.MYSQL: {"datadir", "redo", "undo", "doublewrite", "binlog"},
}
PURGED = (
    "CREATE TABLE t.purged (id INT AUTO_INCREMENT PRIMARY KEY, a CHAR(36), KEY (a)) ENGINE = InnoDB",
    "INSERT INTO t.purged (a) VALUES (UUID())",
    *["INSERT INTO t.purged (a) SELECT UUID() FROM t.purged"] * 11,
)


def flavour_of(kind: str) -> Flavour:
    return Flavour.MYSQL if kind.startswith("mysql") else Flavour.MARIADB


def documented(flavour: Flavour) -> list[tuple[str, str]]:
    """Every privilege that the documentation's script grants, with what it is granted on; one by one."""
    granted = re.findall(r"^GRANT (.+) ON (\S+) TO ", grant_script(USER, flavour=flavour), re.MULTILINE)
    return [(privilege, level) for privileges, level in granted for privilege in privileges.split(", ")]


# kind, privilege, what it is granted on
SERVERS = [(kind, *one) for kind in KINDS for one in documented(flavour_of(kind)) if CANARY_SCHEMA not in one[1]]
CANARYS = [(kind, *one) for kind in KINDS for one in documented(flavour_of(kind)) if CANARY_SCHEMA in one[1]]
each = pytest.mark.parametrize


@pytest.fixture
def account(server: ServerContainer) -> Connect:
    """What the documentation tells an administrator to grant, and nothing else; it has never run here."""
    with server.session() as root:
        root.execute(f"DROP DATABASE IF EXISTS {CANARY_SCHEMA}")
    return server.account(USER, grant_script(USER, flavour=server.flavour))


def revoke(server: ServerContainer, privilege: str, level: str) -> None:
    with server.session() as root:
        root.execute("SET SESSION sql_log_bin = 0")
        root.execute(f"REVOKE {privilege} ON {level} FROM '{USER}'@'localhost'")


# --- privileges ------------------------------------------------------------------------------------------------------


def test_the_documented_grants_are_enough_to_know_the_server(account: Connect, server: ServerContainer) -> None:
    ours = MysqlServer(account)
    facts = ours.facts()
    assert (facts.flavour, facts.datadir, facts.socket) == (server.flavour, server.datadir, server.socket)
    assert facts == MysqlServer(server.connect()).facts()
    assert {path.role for path in ours.data_paths(facts)} >= ROLES[server.flavour]
    assert ours.data_paths(facts) == MysqlServer(server.connect()).data_paths(facts)
    assert [ours.missing_grants(one) for one in (*STRATEGIES[server.flavour], UNLOCKED)] == (
        [()] * (len(STRATEGIES[server.flavour]) + 1)
    )
    assert (ours.blockers(3600), ours.replica_lag_seconds(), ours.membership()) == ((), None, None)
    assert ours.replication().channels == ()


def test_a_limit_of_time_for_clients_is_none_for_us(account: Connect, server: ServerContainer) -> None:
    variable = "max_statement_time" if server.flavour is Flavour.MARIADB else "max_execution_time"
    with server.session() as root:
        root.execute(f"SET GLOBAL {variable} = 30")
        try:
            with account() as session:
                assert float(session.value(f"SELECT @@SESSION.{variable}") or "30") == 0
        finally:
            root.execute(f"SET GLOBAL {variable} = DEFAULT")


def test_the_documented_grants_are_enough_for_every_lock(account: Connect, server: ServerContainer) -> None:
    for strategy in STRATEGIES[server.flavour]:
        with ServerLock(account, LIMITS, strategy=strategy).held(server.datadir) as held:
            assert len(server.holders(USER)) == 1
            assert held.position.binlog_file is not None
        assert (held.receipt.strategy, held.receipt.proof) == (strategy, PROOF[server.flavour])
        assert held.receipt.lsn is not None
        assert server.holders(USER) == []
    with NoLock(account).held(server.datadir) as nothing:
        assert server.holders(USER) == []
    assert nothing.receipt.lsn is not None
    assert ServerLock(account, LIMITS).strategy == BEST[server.flavour]


def test_the_lsn_of_a_receipt_is_on_disk_whatever_innodb_writes_by_itself(
    account: Connect, server: ServerContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purging goes on under any lock, and no commit waits for its redo: an image of the disk need not have that.

    The server takes its time between the statements of a packet, as a busy one does.
    """
    at_once = Session.stream

    def slowly(session: Session, statements: Sequence[str]) -> Iterator[list[Row]]:
        spaced = [one for statement in statements for one in (statement, "SELECT SLEEP(0.2)")]
        yield from list(at_once(session, spaced))[::2]

    monkeypatch.setattr(Session, "stream", slowly)
    for strategy in STRATEGIES[server.flavour]:
        with server.session() as root, server.session() as reader:
            for statement in PURGED:
                root.execute(statement)
            reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            root.execute("DELETE FROM t.purged")
            reader.execute("COMMIT")  # now nobody sees the rows, and their removal begins
            for _ in range(2):
                with ServerLock(account, LIMITS, strategy=strategy).held(server.datadir) as held:
                    (told,) = root.query("SHOW ENGINE INNODB STATUS")
                (flushed,) = re.findall(r"^Log flushed up to\s+(\d+)", told["Status"] or "", re.MULTILINE)
                assert held.receipt.lsn is not None
                assert int(flushed) >= held.receipt.lsn
            root.execute("DROP TABLE t.purged")


def test_the_documented_grants_are_enough_for_the_canary(account: Connect, server: ServerContainer) -> None:
    for run in ("first", "second"):
        MysqlCanary(account).before(run)
        with server.session() as root:
            assert moments(root, run) == ("before",)
        MysqlCanary(account).after(run)
        with server.session() as root:
            assert moments(root, run) == ("before", "after")


def test_the_documented_grants_let_it_read_nobodys_data(account: Connect, server: ServerContainer) -> None:
    with account() as session:
        for statement in ("SELECT v FROM t.innodb", "SELECT * FROM mysql.user", "CREATE DATABASE mine"):
            with pytest.raises(StatementError) as refused:
                session.query(statement)
            assert refused.value.denied


@each(("kind", "privilege", "level"), SERVERS, indirect=["kind"], scope="session")
def test_each_privilege_is_needed_and_its_lack_is_named_and_no_other(
    account: Connect, server: ServerContainer, privilege: str, level: str
) -> None:
    revoke(server, privilege, level)
    named = privilege if level == "*.*" else f"{privilege} ON {level}"
    for strategy in STRATEGIES[server.flavour]:
        assert MysqlServer(account).missing_grants(strategy) == (named,)


@each(("kind", "privilege", "level"), CANARYS, indirect=["kind"], scope="session")
def test_without_any_of_its_privileges_there_is_no_canary(
    account: Connect, server: ServerContainer, privilege: str, level: str
) -> None:
    revoke(server, privilege, level)
    canary = MysqlCanary(account)

    def rows_around_a_run() -> None:
        canary.before("run")
        canary.after("run")

    with pytest.raises(StatementError) as refused:
        rows_around_a_run()
    assert refused.value.denied
    assert f"grant user '{USER}' what is missing" in refused.value.hint


def test_to_stop_the_applier_takes_one_privilege_more(account: Connect, server: ServerContainer) -> None:
    more = APPLIER[server.flavour]
    assert MysqlServer(account).missing_grants("ftwrl", stop_applier=True) == (more,)
    script = grant_script(USER, flavour=server.flavour, stop_applier=True)
    assert script == grant_script(USER, flavour=server.flavour).replace(" ON *.*", f", {more} ON *.*")
    stopping = server.account(USER, script)
    assert MysqlServer(stopping).missing_grants("ftwrl", stop_applier=True) == ()


def test_to_have_dirty_pages_written_takes_one_privilege_more(account: Connect, server: ServerContainer) -> None:
    more = FLUSHING[server.flavour]
    assert MysqlServer(account).missing_grants("ftwrl", preflush=True) == (more,)
    flushing = server.account(USER, grant_script(USER, flavour=server.flavour, preflush=True))
    assert MysqlServer(flushing).missing_grants("ftwrl", preflush=True) == ()
    flusher = PageFlusher(flushing, wait_seconds=30)
    with server.session() as root:
        root.execute(f"SET GLOBAL {LOW_WATER_MARK} = 5")
    saved = flusher.settings()
    flusher.flush()
    assert [float(flusher.settings()[name]) for name in (MAX_DIRTY, LOW_WATER_MARK)] == [0, 0]
    flusher.put_back(saved)
    assert [float(flusher.settings()[name]) for name in (MAX_DIRTY, LOW_WATER_MARK)] == [90, 5]


SUPER_LACKS = {
    "mariadb-10.11": ("RELOAD", "PROCESS"),
    "mariadb-11": ("RELOAD", "PROCESS", "BINLOG MONITOR", "REPLICA MONITOR"),  # 11.8.6: it has lost these two
    "mysql-9": ("RELOAD", "PROCESS", "BACKUP_ADMIN", "SELECT ON performance_schema.*"),
}


def test_super_is_not_enough(server: ServerContainer) -> None:
    connect = server.account(USER, f"GRANT SUPER ON *.* TO '{USER}'@'localhost'")
    assert MysqlServer(connect).missing_grants("ftwrl") == SUPER_LACKS[server.kind]


# --- positions -------------------------------------------------------------------------------------------------------


def where_root_sees_it(server: ServerContainer) -> tuple[str | None, int, str]:
    """Binlog file, offset, and the GTIDs on one line."""
    with server.session() as root:
        row = root.one(BINLOG[server.flavour])
        assert row is not None
        return row["File"], int(row["Position"] or 0), (root.value(GTID[server.flavour]) or "").replace("\n", "")


def write_as_another_source_would(session: Session, flavour: Flavour) -> None:
    """So that there is more than one part to the GTIDs: MySQL breaks the line after each."""
    if flavour is Flavour.MYSQL:
        session.execute(f"SET SESSION gtid_next = '{uuid.uuid4()}:1'")
    else:
        session.execute("SET SESSION gtid_domain_id = 7")
    session.execute("INSERT INTO t.innodb (v) VALUES ('from elsewhere')")


def test_the_position_under_each_lock_is_the_one_that_root_sees(account: Connect, server: ServerContainer) -> None:
    for strategy in STRATEGIES[server.flavour]:
        with server.session() as root:
            root.execute("INSERT INTO t.innodb (v) VALUES ('moves the position')")
            write_as_another_source_would(root, server.flavour)
        with ServerLock(account, LIMITS, strategy=strategy).held(server.datadir) as held:
            seen = where_root_sees_it(server)
        assert (held.position.binlog_file, held.position.binlog_offset, held.position.gtid) == seen
        assert "," in seen[2]
        assert held.position.replicas == ()


def test_after_a_rotation_the_position_is_in_the_next_file(account: Connect, server: ServerContainer) -> None:
    def file() -> str:
        with ServerLock(account, LIMITS).held(server.datadir) as held:
            assert (held.position.binlog_file, held.position.binlog_offset) == where_root_sees_it(server)[:2]
        return held.position.binlog_file or ""

    before = file()
    with server.session() as root:
        root.execute("FLUSH BINARY LOGS")
    stem, number = before.rsplit(".", 1)
    assert file() == f"{stem}.{int(number) + 1:0{len(number)}}"


# --- blockers --------------------------------------------------------------------------------------------------------

Occupied = Callable[[ServerContainer], AbstractContextManager[object]]
SEEN: dict[Flavour, dict[Occupied, str]] = {
    Flavour.MARIADB: {long_write: "UPDATE t.myisam", unfinished_alter: ALTER},
    Flavour.MYSQL: {
        long_read: "SELECT SLEEP",
        long_write: "UPDATE t.myisam",
        unfinished_alter: ALTER,
        locked_table: "LOCK TABLES",
    },
}


@each("occupied", [long_read, long_write, unfinished_alter, locked_table])
def test_what_a_lock_would_wait_behind_is_told_and_what_it_would_not_is_not(
    account: Connect, server: ServerContainer, occupied: Occupied
) -> None:
    """MySQL's FLUSH TABLES WITH READ LOCK waits for reads too; of LOCK TABLES without a statement MariaDB is silent."""
    with occupied(server):
        found = MysqlServer(account).blockers(LONG_SECONDS)
        statement = SEEN[server.flavour].get(occupied)
        assert [one.statement.startswith(statement or "nothing") for one in found] == ([True] if statement else [])
        assert [one.user for one in found] == ["root"] * len(found)
        assert all(LONG_SECONDS < one.seconds < 50 for one in found)
        assert MysqlServer(account).blockers(3600) == ()


def test_neither_we_nor_those_who_replicate_are_in_the_way(account: Connect, pair: Pair) -> None:
    """Not the threads that send to a replica, not those that apply on it, not a session of ours that asks."""
    pair.caught_up()
    replicas = pair.replica.account(USER, grant_script(USER, flavour=pair.replica.flavour, canary=False))
    dumps = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"
    with pair.source.session() as root:
        wait_until(lambda: root.value(dumps) == "1")
    assert MysqlServer(replicas).replica_lag_seconds() is not None
    with account():
        assert MysqlServer(account).blockers(0) == ()
        assert MysqlServer(replicas).blockers(0) == ()


# --- where the two MariaDBs differ -----------------------------------------------------------------------------------


@contextmanager
def alter_behind_a_reader(server: ServerContainer) -> Iterator[Session]:
    """An ALTER TABLE before its last step; it goes on when this session ends its transaction."""
    with closing(server.session()) as reader:
        reader.execute("START TRANSACTION")
        reader.query("SELECT * FROM t.innodb LIMIT 1")
        with busy(server, ALTER):
            yield reader
    server.add_tables()


def files_of_the_table(server: ServerContainer) -> dict[str, int]:
    """Their names and inodes: an ALTER TABLE puts others in their place.

    Seen from outside, because nobody can open the table while the ALTER waits for the lock with the table to itself.
    """
    return {path.name: path.stat().st_ino for path in (server.datadir / "t").glob("innodb.*")}


@each("kind", ["mariadb-10.11"], indirect=True, scope="session")
def test_backup_stage_waits_for_an_alter_that_waits_for_a_reader(account: Connect, server: ServerContainer) -> None:
    lock = ServerLock(account, LIMITS, strategy="backup-stage")
    with (
        alter_behind_a_reader(server),
        pytest.raises(LockNotGranted, match="did not grant it within"),
        lock.held(server.datadir),
    ):
        raise AssertionError("granted")


@each("kind", ["mariadb-11"], indirect=True, scope="session")
def test_backup_stage_goes_before_such_an_alter_which_then_waits_for_the_lock(
    account: Connect, server: ServerContainer
) -> None:
    """11.8.6. What is copied under the lock is the table as it was, whatever becomes of the reader meanwhile."""
    waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'Waiting for backup lock'"
    with alter_behind_a_reader(server) as reader:
        before = files_of_the_table(server)
        with ServerLock(account, LIMITS, strategy="backup-stage").held(server.datadir) as held:
            reader.execute("ROLLBACK")
            with server.session() as root:
                wait_until(lambda: root.value(waits) == "1")
            assert files_of_the_table(server) == before
        assert held.receipt.proof == PROOF[server.flavour]
        with server.session() as root:
            root.query("SELECT n FROM t.innodb LIMIT 1")  # it waits for the ALTER
        assert files_of_the_table(server) != before
