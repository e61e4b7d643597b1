"""What servers answer, read without one: process lists, positions, versions, errors, and what a login asks for."""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pymysql
import pytest
from pymysql.constants import ER

from backupd.mysql.activity import blocking, is_read
from backupd.mysql.binlog.source import ServerBinlog, sizes_of_log
from backupd.mysql.facts import expire_seconds, version_number
from backupd.mysql.grants import grant_script
from backupd.mysql.layout import data_paths
from backupd.mysql.locksession import _writing
from backupd.mysql.login import Login, connection_options
from backupd.mysql.positions import PositionReader, lag_seconds, position_reader
from backupd.mysql.refusals import StatementError, statement_error
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Row, Session, connector, whole_seconds
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import DataPath, Flavour, Position, ReplicaPosition
from tests.fakes.server import FACTS


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "select sleep(1)",
        "/* app */ SELECT 1",
        "-- why\nSELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "SHOW TABLES",
        "SET @a = 1",
        "/* update t */ WITH a AS (SELECT 1) SELECT * FROM a",
    ],
)
def test_reads_are_known_as_such(statement: str) -> None:
    assert is_read(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET v = 1",
        "/* SELECT */ DELETE FROM t",
        "INSERT INTO t SELECT 1",
        "WITH a AS (SELECT 1) DELETE FROM t",
        "ALTER TABLE t",
        "CALL p()",
        "",
        "SELECTED",
    ],
)
def test_everything_else_counts_as_a_write(statement: str) -> None:
    assert not is_read(statement)


@pytest.mark.parametrize(
    ("inner", "reads"),
    [
        ("SELECT 1", True),
        ("(SELECT 1) UNION (SELECT 2)", True),
        ("WITH a AS (SELECT 1) SELECT 2", True),
        ("UPDATE shop.orders SET a = a + 1", False),
        ("WITH a AS (SELECT 1) DELETE FROM t", False),
        ("SET STATEMENT lock_wait_timeout = 1 FOR DELETE FROM t", False),
        ("", False),
    ],
)
def test_a_statement_with_variables_of_its_own_is_judged_by_what_stands_behind_them(inner: str, reads: bool) -> None:
    """The lock waits for such an UPDATE as for any other."""
    assert is_read(f"SET STATEMENT max_statement_time=0 FOR {inner}") is reads
    assert is_read(f"set /* app */ statement sql_mode=' FOR SELECT', max_statement_time = 0\nfor {inner}") is reads


def test_whoever_only_reads_was_not_stalled_by_the_lock() -> None:
    told = (
        "SELECT 1",
        "/* app:7 */ SELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "WITH a AS (SELECT 1) SELECT 2",
        "SHOW TABLES",
    )
    rows: list[Row] = [{"statement": statement} for statement in (*told, "/* SELECT */ INSERT INTO t VALUES (1)", None)]
    assert _writing(rows) == 2


def process(number: int, milliseconds: str | None, statement: str | None) -> Row:
    return {"id": str(number), "user": "app", "milliseconds": milliseconds, "seconds": "9", "statement": statement}


def test_blockers_are_old_writes_longest_first() -> None:
    rows = [
        process(1, "900.5", "UPDATE a SET v = 1"),
        process(2, "7000.0", "ALTER TABLE a\n  ADD n INT"),
        process(3, "9000.0", "SELECT 1"),
        process(4, "60000.0", "UPDATE b SET v = '" + "x" * 200),
    ]
    found = blocking(rows, Flavour.MARIADB, older_than_seconds=1)
    assert [(one.connection_id, one.seconds) for one in found] == [(4, 60.0), (2, 7.0)]
    assert found[1].statement == "ALTER TABLE a ADD n INT"
    assert len(found[0].statement) == 100


def test_mysql_waits_for_reads_too_and_counts_in_seconds() -> None:
    (found,) = blocking([process(3, None, "SELECT 1")], Flavour.MYSQL, older_than_seconds=5)
    assert found.seconds == 9.0


def test_an_applier_of_mysqls_that_waits_for_events_is_in_nobodys_way() -> None:
    """As MySQL 8.0 lists it in information_schema.PROCESSLIST (github.com/mydumper/mydumper/issues/236)."""
    applier = {"id": "16", "user": "system user", "milliseconds": None, "seconds": "2719764", "statement": None}
    assert blocking([applier], Flavour.MYSQL, older_than_seconds=5) == ()


def test_a_certificate_file_that_is_not_there_is_the_servers_refusal_like_any_other(tmp_path: Path) -> None:
    login = Login("b", address="10.0.0.1", tls_ca=tmp_path / "ca.pem")
    with pytest.raises(ServerError, match="cannot connect to the server at 10") as refused:
        Session.open(login)
    assert refused.value.hint == "check the address and tls_ca"


READER = PositionReader("SHOW MASTER STATUS", "SELECT @@global.gtid_executed AS gtid", "SHOW REPLICA STATUS", None)
BINLOG: list[Row] = [{"File": "bin.000003", "Position": "4711", "Binlog_Do_DB": ""}]


def test_a_position_is_read_from_mysqls_words_too() -> None:
    channel: Row = {
        "Channel_Name": "west",
        "Relay_Source_Log_File": "far.000042",
        "Read_Source_Log_Pos": "999",
        "Exec_Source_Log_Pos": "815",
        "Executed_Gtid_Set": "a:1-5,\nb:1-7",
    }
    position = READER.position([BINLOG, [{"gtid": "a:1-5,\nb:1-7"}], [channel]])
    assert position == Position(
        "bin.000003", 4711, "a:1-5,b:1-7", (ReplicaPosition("west", "far.000042", 815, "a:1-5,b:1-7"),)
    )


def test_a_channel_that_goes_by_gtids_alone_has_no_place_in_its_sources_log() -> None:
    """With GTID_ONLY = 1 MySQL keeps no place while its applier stands still, and says so in the place of the file."""
    channel: Row = {
        "Channel_Name": "",
        "Relay_Source_Log_File": "INVALID",
        "Exec_Source_Log_Pos": "0",
        "Executed_Gtid_Set": "a:1-5",
    }
    position = READER.position([BINLOG, [{"gtid": "a:1-5"}], [channel]])
    assert position.replicas == (ReplicaPosition("", "", 0, "a:1-5"),)


def test_a_binlog_that_is_off_is_no_position_and_never_an_empty_one() -> None:
    assert READER.position([[], [{"gtid": ""}], []]) == Position()


LOG_STATUS = PositionReader("SELECT … log_status", None, None, None, log_status=True)
ENGINES = '{"InnoDB": {"LSN": 19528094, "LSN_checkpoint": 19525268}}'


def test_one_row_of_mysqls_tells_binlog_gtids_and_lsn() -> None:
    told = '{"gtid_executed": "a:1-5,\\nb:1-7", "binary_log_file": "bin.000001", "binary_log_position": 6093}'
    answers: list[list[Row]] = [[{"here": told, "engines": ENGINES}]]
    assert LOG_STATUS.position(answers) == Position("bin.000001", 6093, "a:1-5,b:1-7")
    assert LOG_STATUS.lsn_beside(answers) == 19528094


def test_a_log_status_without_binlog_is_no_position() -> None:
    told = '{"gtid_executed": "", "binary_log_file": "", "binary_log_position": 0}'
    assert LOG_STATUS.position([[{"here": told, "engines": ENGINES}]]) == Position()


@pytest.mark.parametrize("engines", [None, "", "{}", "[]", '{"InnoDB": {}}'])
def test_a_log_status_without_innodb_is_an_error(engines: str | None) -> None:
    with pytest.raises(ServerError, match="the server reported an implausible"):
        LOG_STATUS.lsn_beside([[{"here": "{}", "engines": engines}]])


@pytest.mark.parametrize("told", ['{"binary_log_file": "bin.000001"}', "?", '{"binary_log_file": 7}'])
def test_a_log_status_that_is_no_position_is_an_error(told: str) -> None:
    with pytest.raises(ServerError, match="the server reported an implausible"):
        LOG_STATUS.position([[{"here": told, "engines": ENGINES}]])


def test_an_answer_that_is_no_position_is_an_error() -> None:
    with pytest.raises(ServerError, match="the server reported an implausible"):
        READER.position([[{"File": "bin.000003", "Position": None}], [{"gtid": ""}], []])


def test_the_lag_is_the_largest_and_unknown_when_any_is() -> None:
    assert lag_seconds([{"Seconds_Behind_Master": "3"}, {"Seconds_Behind_Master": "8"}]) == 8.0
    assert lag_seconds([{"Seconds_Behind_Source": "3"}, {"Seconds_Behind_Source": None}]) is None
    assert lag_seconds([]) is None


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000"}, None),
        ({"binlog_expire_logs_seconds": "864000", "expire_logs_days": "10.000000"}, 864_000),
        ({"expire_logs_days": "0.5"}, 43_200),
        ({"binlog_expire_logs_seconds": "2592000", "binlog_expire_logs_auto_purge": "OFF"}, None),
    ],
)
def test_how_long_binlogs_are_kept(variables: dict[str, str], seconds: int | None) -> None:
    assert expire_seconds(variables) == seconds


def test_versions_are_numbers() -> None:
    assert version_number("10.11.19-MariaDB-0+deb12u1-log") == (10, 11, 19)
    assert version_number("9.7.0") == (9, 7, 0)
    with pytest.raises(ServerError, match="cannot be read"):
        version_number("unknown")


@pytest.mark.parametrize("address", [None, "localhost", "127.0.0.1", "::1"])
def test_loopback_and_socket_do_without_tls(address: str | None) -> None:
    assert connection_options(Login("b", address=address), 1)["ssl_disabled"] is True
    assert connection_options(Login("b", socket=Path("/s"), address="10.0.0.1"), 1)["ssl_disabled"] is True


@pytest.mark.parametrize("address", ["10.0.0.1", "db1.example.org", "fd00::2"])
def test_a_network_is_crossed_with_a_verified_certificate_only(address: str) -> None:
    context = connection_options(Login("b", address=address), 1)["ssl"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_every_wait_of_a_connection_has_its_limit() -> None:
    options = connection_options(Login("b"), 7)
    assert (options["read_timeout"], options["write_timeout"]) == (7, 7)
    assert options["connect_timeout"] > 0


@pytest.mark.parametrize(
    ("number", "said", "sentence"),
    [
        (1045, "Access denied for user", "refused user 'b': wrong password, or no such account"),
        (1698, "Access denied for user", "the account takes no password"),
        (2003, "Can't connect to MySQL server on 'localhost' ([Errno 111] Connection refused)", ": connection refused"),
        (2003, "([SSL: CERTIFICATE_VERIFY_FAILED] self-signed)", "certificate of the server at /s cannot be trusted"),
        (2026, "SSL is required", "offers no TLS"),
        (2013, "Lost connection", "ended during: DO 1"),
        (1227, "you need the RELOAD privilege", "the server refused: DO 1: you need the RELOAD privilege"),
        (1143, "SELECT command denied for column 'at'", "the server refused: DO 1: SELECT command denied for column"),
        (1064, "You have an error", "refused: DO 1: You have an error"),
    ],
)
def test_errors_become_sentences_with_the_servers_number(number: int, said: str, sentence: str) -> None:
    error = statement_error(
        pymysql.OperationalError(number, said), Login("b", socket=Path("/s"), password="pw"), "DO  1"
    )
    assert sentence in error.message
    assert error.number == (0 if 2000 <= number < 3000 else number)
    assert error.code == "server-error"
    assert (error.hint != "") == (number != 1064)


def test_the_grant_script_is_what_an_administrator_pastes() -> None:
    assert grant_script("backupd", "10.0.%") == (
        "GRANT RELOAD, PROCESS, BINLOG MONITOR, REPLICA MONITOR ON *.* TO 'backupd'@'10.0.%';\n"
        "GRANT CREATE, SELECT, INSERT, DELETE ON `backupd_canary`.* TO 'backupd'@'10.0.%';\n"
    )
    assert "backupd_canary" not in grant_script("backupd", canary=False)
    assert grant_script("backupd", flavour=Flavour.MYSQL) == (
        "GRANT RELOAD, PROCESS, REPLICATION CLIENT, BACKUP_ADMIN ON *.* TO 'backupd'@'localhost';\n"
        "GRANT SELECT ON performance_schema.* TO 'backupd'@'localhost';\n"
        "GRANT CREATE, SELECT, INSERT, DELETE ON `backupd_canary`.* TO 'backupd'@'localhost';\n"
    )


def test_waits_are_rounded_up_because_zero_is_no_wait_at_all() -> None:
    assert [whole_seconds(seconds) for seconds in (0, 0.2, 1, 1.1)] == [1, 1, 1, 2]


@pytest.mark.timeout(30)
def test_a_server_that_does_not_answer_is_not_waited_for_by_whoever_watches_a_snapshot(
    path_in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.server._PROMPT_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path_in_memory / "mute"))
        mute.listen()
        server = MysqlServer(connector(Login("backup", socket=path_in_memory / "mute")))
        with pytest.raises(ServerError):
            server.replica_lag_seconds()


class InnodbBinlog:
    """A session of a server whose binlog is in InnoDB's own files."""

    def query(self, statement: str) -> list[Row]:
        ibb: Row = {"File": "binlog-000003.ibb", "Position": "4711"}
        return [ibb] if statement == "SHOW BINARY LOG STATUS" else []

    def one(self, statement: str) -> Row | None:
        return next(iter(self.query(statement)), None)

    def status(self, name: str) -> None:
        """No counters."""


def test_a_binlog_without_offsets_is_refused_before_the_lock_and_not_when_it_is_restored() -> None:
    with pytest.raises(ServerError, match=r"binlog-000003\.ibb"):
        position_reader(cast(Session, InnodbBinlog()))


class EncryptedBinlogs:
    """A session of a MySQL server with `binlog_encryption`, which was off before."""

    def query(self, _statement: str) -> list[Row]:
        return [
            {"Log_name": "binlog.000006", "File_size": "1080", "Encrypted": "No"},
            {"Log_name": "binlog.000007", "File_size": "1592", "Encrypted": "Yes"},
        ]


def test_the_header_of_an_encrypted_binlog_is_no_part_of_its_length() -> None:
    """No position counts it: an archive would take the file for another one, and its log for one that was reset."""
    found = sizes_of_log(cast(Session, EncryptedBinlogs()))
    assert found == (ServerBinlog("binlog.000006", 1080), ServerBinlog("binlog.000007", 1080))


class Mariadb105:
    """A session of MariaDB 10.5.29 with a table elsewhere, as it answered when it was asked for its tablespaces."""

    far_address = None
    peer = None

    def __init__(self, datadir: Path) -> None:
        self._datadir = datadir

    def variables(self) -> Mapping[str, str]:
        return {"datadir": f"{self._datadir}/"}

    def query(self, statement: str) -> list[Row]:
        if "FILENAME" in statement:
            raise StatementError(
                "the server refused", number=ER.BAD_FIELD_ERROR, said="Unknown column 'FILENAME' in 'field list'"
            )
        assert "PATH AS file FROM information_schema.INNODB_SYS_DATAFILES" in statement
        return [{"file": "/srv/elsewhere/t/far.ibd"}]


def test_a_mariadb_from_before_10_6_tells_its_tablespaces_in_other_words(tmp_path: Path) -> None:
    facts = replace(FACTS, datadir=tmp_path)
    far = DataPath("tablespace", Path("/srv/elsewhere/t/far.ibd"), must_share=True)
    assert far in data_paths(cast(Session, Mariadb105(tmp_path)), facts)
