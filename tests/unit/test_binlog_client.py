"""The program that receives a binlog: whose it is, how it is called, what it is told and what its last words mean."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.config.secrets import client_options
from backupd.mysql.binlog.client import (
    BinlogClient,
    described,
    environment,
    matching_client,
    option_file,
    receiver_id,
    receiving_argv,
)
from backupd.mysql.binlog.endings import EndKind, judged_end
from backupd.mysql.binlog.file_identity import file_birth, same_file
from backupd.mysql.login import Login
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.fakes.server import FACTS

MARIADB = BinlogClient("/usr/bin/mariadb-binlog", Flavour.MARIADB, None)
MYSQL = BinlogClient("/usr/bin/mysqlbinlog", Flavour.MYSQL, (8, 4))
PLACE = BinlogPlace("bin.000007", 4711)
SOCKET = Login("backupd", socket=Path("/run/s"), password="secret")
REMOTE = Login("backupd", address="db1.example.com", password="secret", tls_ca=Path("/etc/ca.pem"))


def program(folder: Path, name: str, *, version: str, options: str = "") -> Path:
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$2" in --version) echo "{version}";; *) echo "{options}";; esac\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "options", "flavour", "series"),
    [
        ("mariadb-binlog Ver 3.5 for debian-linux-gnu at x86_64", "--stop-never", Flavour.MARIADB, None),
        ("mariadb-binlog from 11.8.6-MariaDB, client 3.5 for Linux", "--stop-never", Flavour.MARIADB, (11, 8)),
        ("mysqlbinlog  Ver 8.4.6 for Linux on x86_64 (MySQL)", "--connection-server-id=#", Flavour.MYSQL, (8, 4)),
    ],
)
def test_a_program_says_whose_it_is(
    version: str, options: str, flavour: Flavour, series: tuple[int, int] | None
) -> None:
    assert described("/p", version, options) == BinlogClient("/p", flavour, series)


def test_a_program_of_the_wrong_flavour_or_too_old_is_refused_with_the_package(tmp_path: Path) -> None:
    mysql = replace(FACTS, flavour=Flavour.MYSQL, version="9.7.4", version_number=(9, 7, 4))
    old = program(tmp_path, "old", version="mysqlbinlog  Ver 8.4.6 for Linux", options="--connection-server-id=#")
    other = program(tmp_path, "other", version="mariadb-binlog Ver 3.5 for Linux")
    for path, told in ((old, "of 8.4, which is too old"), (other, "which is mariadb's"), (tmp_path, "did not report")):
        with pytest.raises(ServerError, match=told) as raised:
            matching_client(mysql, path)
        assert "mysql-community-client" in raised.value.hint


# MariaDB's of before 11 refuses servers of 11 and later (10.11.19 on 11.8.9), and does not tell which series it is of.
def test_a_program_of_before_mariadb_11_is_too_old_for_a_server_from_11_on(tmp_path: Path) -> None:
    path = program(tmp_path, "b", version="mariadb-binlog Ver 3.5 for debian-linux-gnu at x86_64")
    assert matching_client(FACTS, path).path == str(path)
    upgraded = replace(FACTS, version="11.8.9-MariaDB", version_number=(11, 8, 9))
    with pytest.raises(ServerError, match="of a series before 11, which is too old") as raised:
        matching_client(upgraded, path)
    assert "install mariadb-client" in raised.value.hint


def test_a_program_older_than_the_server_within_a_series_is_a_warning(tmp_path: Path) -> None:
    path = program(tmp_path, "b", version="mysqlbinlog  Ver 9.1.0 for Linux", options="--connection-server-id=#")
    mysql = replace(FACTS, flavour=Flavour.MYSQL, version="9.7.4", version_number=(9, 7, 4))
    client = matching_client(mysql, path)
    assert "of 9.1, older than the server's 9.7" in client.warning(mysql)
    assert client.warning(replace(mysql, version_number=(9, 1, 2))) == ""


def test_the_id_is_registered_under_the_option_that_each_program_has() -> None:
    common = ["--defaults-file=/dev/stdin", "--read-from-remote-server", "--raw", "--stop-never"]
    place = ["--start-position=4711", "--result-file=/spool/raw/", "bin.000007"]
    for client, option in ((MARIADB, "--stop-never-slave-server-id=9"), (MYSQL, "--connection-server-id=9")):
        argv = receiving_argv(client, Path("/spool/raw"), start=PLACE, server_id=9)
        assert argv == [client.path, *common, option, *place]


@given(user=st.text(min_size=1), password=st.text())
def test_user_and_password_are_read_back_whatever_they_hold(user: str, password: str) -> None:
    read = client_options(option_file(replace(SOCKET, user=user, password=password), Flavour.MARIADB))
    assert (read["user"], read["password"]) == (user, password)


def test_over_a_network_certificate_and_name_are_verified() -> None:
    assert option_file(REMOTE, Flavour.MARIADB).endswith('ssl\nssl-verify-server-cert\nssl-ca="/etc/ca.pem"\n')
    assert option_file(REMOTE, Flavour.MYSQL).endswith('ssl-mode=VERIFY_IDENTITY\nssl-ca="/etc/ca.pem"\n')
    for flavour in Flavour:
        assert "ssl-ca" in option_file(replace(REMOTE, tls_ca=None), flavour)


def test_the_password_goes_over_no_unprotected_port() -> None:
    for address in (None, "localhost", "127.0.0.1"):
        with pytest.raises(ServerError, match="over TCP without TLS"):
            option_file(Login("backupd", address=address, password="secret"), Flavour.MARIADB)


def test_nothing_of_our_environment_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", "secret")
    assert set(environment()) == {"PATH", "LC_ALL", "MYSQL_TEST_LOGIN_FILE"}
    assert not Path(environment()["MYSQL_TEST_LOGIN_FILE"]).exists()


@given(machine=st.text(), job=st.text())
def test_an_id_is_no_address_that_a_machine_can_have(machine: str, job: str) -> None:
    found = receiver_id(machine, job)
    assert 240 << 24 <= found < 2**32 - 1
    assert found == receiver_id(machine, job)
    assert found != receiver_id(machine, job + "x")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Could not find first log file name in binary log index file", EndKind.PLACE_GONE),
        ("could not find next log; the first event 'b.000001' at 4", EndKind.PLACE_GONE),
        ("Client requested master to start replication from impossible position; …", EndKind.OTHER_LOG),
        ("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master; …", EndKind.OTHER_LOG),
        ("Client requested source to start replication from position > file size", EndKind.OTHER_LOG),
        ("binlog truncated in the middle of event; consider out of disk space on source; …", EndKind.OTHER_LOG),
        ("A replica with the same server_uuid/server_id as this replica has connected to …", EndKind.ID_TAKEN),
        ("bogus data in log event; the first event 'b.000001' at 5", EndKind.OTHER_LOG),
        ("Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file …", EndKind.PLACE_GONE),
        ("Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file …", EndKind.PLACE_GONE),
        ("A slave with the same server_uuid/server_id is already connected; …", EndKind.ID_TAKEN),
        ("Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)", EndKind.NOT_ALLOWED),
        ("Lost connection to server during query", EndKind.SERVER_AWAY),
        ("Can't connect to local server through socket '/run/s' (2)", EndKind.SERVER_AWAY),
        ("Binary log is not open", EndKind.BINLOG_OFF),
        ("Could not find server version: Master reported unrecognized MariaDB …", EndKind.PROGRAM_TOO_OLD),
        ("something that nobody has heard of", EndKind.FAILED),
    ],
)
def test_what_the_program_said_last_tells_what_to_do(said: str, kind: EndKind) -> None:
    end = judged_end(f"ERROR: Got error reading packet from server: {said}")
    assert (end.kind, end.ends_chain) == (kind, kind in (EndKind.PLACE_GONE, EndKind.OTHER_LOG))


def event(*, second: int = 1000, server_id: int = 7, version: bytes = b"10.11.19-MariaDB-log", **sent: int) -> bytes:
    """A format description event, on the server's disk or as it is sent to one who begins in the middle."""
    body = struct.pack("<H50sI", 4, version, sent.get("started", second)) + bytes(range(160)) + bytes(4)
    header = struct.pack("<IBIIIH", second, 15, server_id, 19 + len(body), sent.get("end", 256), sent.get("flags", 1))
    return header + body


def test_a_file_is_the_same_however_its_first_event_was_sent() -> None:
    assert same_file(event(), b"\xfebin" + event(end=0, flags=0, started=0) + b"what follows")


@pytest.mark.parametrize("other", [event(second=1001), event(server_id=8), event(version=b"10.11.20-MariaDB-log")])
def test_a_file_of_another_second_server_or_version_is_another(other: bytes) -> None:
    assert not same_file(event(), other)


@given(st.binary(max_size=200))
def test_what_is_no_format_description_is_refused(found: bytes) -> None:
    with pytest.raises(ServerError, match="does not begin"):
        file_birth(b"\0\0\0\0\x10" + found)


@given(st.integers(0, 80))
def test_an_event_that_is_cut_short_is_refused(length: int) -> None:
    cut = event()[:length]
    if length < 75:
        with pytest.raises(ServerError, match="does not begin"):
            file_birth(cut)
    else:
        assert file_birth(cut).server_id == 7
