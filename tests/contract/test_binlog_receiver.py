"""A real MariaDB's binlog as its own client receives it: byte for byte, and how each kind of end is told apart."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.mysql.binlog.client import BinlogClient, matching_client
from backupd.mysql.binlog.endings import EndKind, ReceiverEnd
from backupd.mysql.binlog.file_identity import same_file
from backupd.mysql.binlog.receiver import ReceivedBytes, Receiver, receiving
from backupd.mysql.binlog.source import binlog_source, end_of_log, lacks_receiving
from backupd.mysql.facts import server_facts
from backupd.mysql.login import Login
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.contract.certificates import certificate
from tests.contract.mariadb import PASSWORD, MariadbServer, mariadb, wait_until
from tests.servers.ports import free_port

START = 4  # of a first event
IN_USE = 4 + 17  # the byte with the flag that the server sets on its disk alone, while it writes the file


Receive = Callable[..., AbstractContextManager[Receiver]]


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    with mariadb() as running:
        yield running


@pytest.fixture
def client(server: MariadbServer) -> BinlogClient:
    with server.session() as root:
        return matching_client(server_facts(root))


@pytest.fixture
def receive(server: MariadbServer, client: BinlogClient, tmp_path: Path) -> Receive:
    def enter(
        start: BinlogPlace,
        *,
        server_id: int = 4100000000,
        user: str = "root",
        password: str = "",
        limit: int = 64 << 20,
    ) -> AbstractContextManager[Receiver]:
        login = server.login(user, password)
        return receiving(client, login, start, tmp_path / f"of-{server_id}", server_id=server_id, limit=limit)

    return enter


@pytest.fixture
def first(server: MariadbServer) -> BinlogPlace:
    """The start of a binlog of which nothing is known."""
    nobody_receives(server)
    with server.session() as root:
        root.execute("RESET MASTER")
        root.execute("INSERT INTO t.innodb (v) VALUES ('early')")
        return BinlogPlace(binlog_source(root).files[0].name, START)


def nobody_receives(server: MariadbServer) -> None:
    """The server notices only when it sends something that a receiver has gone; until then it purges nothing."""
    asked = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"
    with server.session() as root:
        for row in root.query("SHOW PROCESSLIST"):
            if row["Command"] == "Binlog Dump":
                root.kill(int(row["Id"] or 0))
        wait_until(lambda: root.value(asked) == "0")


def write(server: MariadbServer, rows: int = 20) -> None:
    with server.session() as root:
        for number in range(rows):
            root.execute("INSERT INTO t.innodb (v) VALUES (%s)", "x" * 100 * number)


def rotate(server: MariadbServer) -> None:
    """MariaDB writes the new file's last checkpoint of its own accord, some time after its statement has ended."""
    with server.session() as root:
        root.execute("FLUSH BINARY LOGS")
        newest = binlog_source(root).files[-1].name
        events = f"SHOW BINLOG EVENTS IN '{newest}'"
        wait_until(
            lambda: ("Binlog_checkpoint", newest) in [(row["Event_type"], row["Info"]) for row in root.query(events)]
        )


def end_of(server: MariadbServer) -> BinlogPlace:
    with server.session() as root:
        found = binlog_source(root).end
    assert found is not None
    return found


def received_until(
    receiver: Receiver, done: Callable[[dict[str, bytes]], bool], *, most: int = 8 << 20
) -> dict[str, bytes]:
    """The files by their names, as far as they have come."""
    files: dict[str, bytes] = {}

    def has_come() -> bool:
        receiver.wait(1)
        for piece in receiver.poll(most):
            assert piece.at == len(files.get(piece.file, b""))
            files[piece.file] = files.get(piece.file, b"") + piece.data
        return done(files)

    wait_until(has_come)
    return files


def up_to(end: BinlogPlace) -> Callable[[dict[str, bytes]], bool]:
    return lambda files: len(files.get(end.file, b"")) >= end.offset


def ending(receiver: Receiver) -> ReceiverEnd:
    def is_over() -> bool:
        receiver.wait(1)
        receiver.poll()
        return receiver.ended is not None

    wait_until(is_over)
    assert receiver.ended is not None
    return receiver.ended


def as_sent(file: Path) -> bytes:
    """The server's file as it sends it: not in use."""
    content = bytearray(file.read_bytes())
    content[IN_USE] &= ~1
    return bytes(content)


def test_nothing_that_was_received_is_left_when_the_receiver_ends(
    server: MariadbServer, receive: Receive, first: BinlogPlace, tmp_path: Path
) -> None:
    """It is unencrypted, and an archive that is turned off has no next start."""
    end, folder = end_of(server), tmp_path / "of-4100000000"
    with pytest.raises(KeyError), receive(first) as receiver:
        received_until(receiver, up_to(end))
        assert list(folder.iterdir())
        raise KeyError
    assert list(folder.iterdir()) == []


def test_the_binlog_is_not_received_over_an_unprotected_port(tmp_path: Path) -> None:
    client = BinlogClient("mariadb-binlog", Flavour.MARIADB, None)
    login = Login("backupd", address="127.0.0.1", password=PASSWORD)
    with (
        pytest.raises(ServerError, match="without TLS"),
        receiving(client, login, BinlogPlace("bin.000001", START), tmp_path / "b", server_id=9, limit=1 << 20),
    ):
        pass
    assert not (tmp_path / "b").exists()


def test_what_is_written_is_received_byte_for_byte(server: MariadbServer, receive: Receive, first: BinlogPlace) -> None:
    with receive(first) as receiver:
        write(server)
        end = end_of(server)
        files = received_until(receiver, up_to(end))
        assert receiver.ended is None
    assert files == {end.file: as_sent(server.datadir / end.file)}


def test_it_goes_on_over_rotations_in_small_pieces(server: MariadbServer, receive: Receive, first: BinlogPlace) -> None:
    with receive(first) as receiver:
        for _ in range(3):
            write(server, 5)
            rotate(server)
        end = end_of(server)
        files = received_until(receiver, up_to(end), most=700)
        left = {path.name for path in (receiver._folder).iterdir()}
    with server.session() as root:
        names = [file.name for file in binlog_source(root).files]
    assert files == {name: as_sent(server.datadir / name) for name in names}
    assert left == {end.file}  # those before it were read, and deleted


def test_an_end_of_a_file_is_told_once_and_behind_its_last_byte(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    rotate(server)
    pieces: list[ReceivedBytes] = []
    with receive(first) as receiver:

        def has_gone_on() -> bool:
            pieces.extend(receiver.poll())
            return any(piece.file != first.file for piece in pieces)

        wait_until(has_gone_on)
    ends = [piece for piece in pieces if piece.file_ended]
    assert [piece.file for piece in ends] == [first.file]
    assert ends[0].at + len(ends[0].data) == (server.datadir / first.file).stat().st_size


def test_a_killed_receiver_goes_on_where_it_was(server: MariadbServer, receive: Receive, first: BinlogPlace) -> None:
    with receive(first) as receiver:
        write(server)
        middle = end_of(server)
        before = received_until(receiver, up_to(middle))[first.file]
        os.kill(receiver._child.pid, signal.SIGKILL)
        assert ending(receiver).kind is EndKind.FAILED
    write(server)
    end = end_of(server)
    with receive(middle) as receiver:
        whole = end.offset - middle.offset
        behind = received_until(receiver, lambda files: len(files.get(first.file, b"")) > whole + 200)[first.file]
    assert before + behind[-whole:] == as_sent(server.datadir / first.file)
    assert same_file(before, behind)


def test_a_server_that_stops_is_away_and_goes_on_in_another_file(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    with receive(first) as receiver:
        received_until(receiver, up_to(end_of(server)))
        server.stop()
        gone = ending(receiver)
    with receive(first) as receiver:
        unreachable = ending(receiver)
    server.start()
    assert (gone.kind, unreachable.kind) == (EndKind.SERVER_AWAY, EndKind.SERVER_AWAY)
    with receive(first) as receiver:
        end = end_of(server)
        files = received_until(receiver, up_to(end))
    assert end.file != first.file
    assert files[first.file] == as_sent(server.datadir / first.file)


def test_a_purged_place_is_gone(server: MariadbServer, receive: Receive, first: BinlogPlace) -> None:
    rotate(server)
    newest = end_of(server).file
    with server.session() as root:

        def is_purged() -> bool:  # the server keeps it for as long as a crash recovery may need it
            root.execute(f"PURGE BINARY LOGS TO '{newest}'")
            return not binlog_source(root).has(first)

        wait_until(is_purged)
    with receive(first) as receiver:
        end = ending(receiver)
    assert (end.kind, end.ends_chain) == (EndKind.PLACE_GONE, True)
    assert "Could not find first log file name" in end.said


def test_a_reset_is_told_by_the_server_when_asked_and_by_the_files_first_event(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    with receive(first) as receiver:
        write(server)
        was = end_of(server)
        known = received_until(receiver, up_to(was))[first.file]
        with server.session() as root:
            second = int.from_bytes(known[4:8], "little")
            wait_until(lambda: int(root.value("SELECT UNIX_TIMESTAMP()") or 0) > second)
            root.execute("RESET MASTER")
            assert not binlog_source(root).has(was)  # the receiver is told nothing
            assert end_of_log(root, of=binlog_source(root)).place < was
    with receive(was) as receiver:
        assert ending(receiver).kind is EndKind.OTHER_LOG  # the new file is shorter
    with server.session() as root:
        root.execute("INSERT INTO t.innodb (v) VALUES ('again')")
    with receive(BinlogPlace(first.file, START)) as receiver:
        found = received_until(receiver, up_to(end_of(server)))[first.file]
    assert not same_file(known, found)  # it has the name of the one before


def test_a_place_behind_the_end_or_within_an_event_is_of_another_log(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    write(server, 3)
    end = end_of(server)
    for offset in (end.offset + 1000, end.offset - 5, end.offset - 20, START + 10):
        with receive(replace(first, offset=offset)) as receiver:
            assert ending(receiver).kind is EndKind.OTHER_LOG


def test_an_account_without_the_privilege_is_told_which(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    with server.account("poor")() as poor:
        assert lacks_receiving(poor)
    with receive(first, user="poor", password=PASSWORD) as receiver:
        end = ending(receiver)
    assert (end.kind, "REPLICATION SLAVE" in end.said) == (EndKind.NOT_ALLOWED, True)


def test_one_privilege_is_enough_and_the_password_may_hold_anything(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    password = "a\\b \"c\" #d 'e'; é\t="
    with server.account("able", "GRANT REPLICATION SLAVE ON *.* TO able@localhost")() as able:
        assert not lacks_receiving(able)
    with server.session() as root:
        root.execute("SET PASSWORD FOR able@localhost = PASSWORD(%s)", password)
    with receive(first, user="able", password=password) as receiver:
        received_until(receiver, up_to(end_of(server)))
        shown = Path(f"/proc/{receiver._child.pid}")
        for file in ("cmdline", "environ"):
            assert b"a\\b" not in (shown / file).read_bytes()
    with receive(first, user="able", password="another") as receiver:
        assert ending(receiver).kind is EndKind.NOT_ALLOWED


def test_a_role_may_give_the_privilege(server: MariadbServer) -> None:
    with server.session() as root:
        root.execute("CREATE OR REPLACE ROLE archivist")
        root.execute("GRANT REPLICATION SLAVE ON *.* TO archivist")
    grants = "GRANT archivist TO member@localhost; SET DEFAULT ROLE archivist FOR member@localhost"
    with server.account("member", grants)() as member:
        assert not lacks_receiving(member)


def test_two_receivers_with_one_id_are_told_apart_from_a_lost_connection(
    server: MariadbServer, receive: Receive, client: BinlogClient, first: BinlogPlace, tmp_path: Path
) -> None:
    with receive(first) as one:
        received_until(one, up_to(end_of(server)))
        with receiving(client, server.login(), first, tmp_path / "two", server_id=4100000000, limit=1 << 20) as two:
            received_until(two, up_to(end_of(server)))
            assert ending(one).kind is EndKind.ID_TAKEN
            assert two.ended is None


def test_receivers_with_ids_of_their_own_do_not_disturb_each_other(
    server: MariadbServer, receive: Receive, first: BinlogPlace
) -> None:
    with receive(first) as one, receive(first, server_id=4100000001) as two:
        for receiver in (one, two):
            received_until(receiver, up_to(end_of(server)))
        assert (one.ended, two.ended) == (None, None)


def test_what_is_not_read_does_not_fill_the_disk(server: MariadbServer, receive: Receive, first: BinlogPlace) -> None:
    with receive(first, limit=100_000) as receiver:
        write(server, 60)
        wait_until(lambda: receiver.ended is not None)
        assert ending(receiver).kind is EndKind.TOO_MUCH_UNREAD


def test_nothing_is_left_running_and_the_folder_is_ours_alone(
    server: MariadbServer, receive: Receive, first: BinlogPlace, tmp_path: Path
) -> None:
    folder = tmp_path / "of-4100000000"
    folder.mkdir(mode=0o755)
    (folder / first.file).write_text("left by another")
    with contextlib.suppress(RuntimeError), receive(first) as receiver:
        files = received_until(receiver, up_to(end_of(server)))
        raise RuntimeError
    assert files[first.file] == as_sent(server.datadir / first.file)
    assert folder.stat().st_mode & 0o077 == 0
    assert receiver._child.poll() is not None


def test_a_server_without_a_binlog_says_so(server: MariadbServer, receive: Receive) -> None:
    server.stop()
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(server, "_options", ("--skip-log-bin",))
        server.start()
        with server.session() as root:
            source = binlog_source(root)
            with pytest.raises(ServerError, match="binlog is off"):
                end_of_log(root, of=source)
        with receive(BinlogPlace("bin.000001", START)) as receiver:
            end = ending(receiver)
        server.stop()
    server.start()
    assert (source.end, source.files, end.kind) == (None, (), EndKind.BINLOG_OFF)


def test_a_server_tells_what_its_binlog_is(server: MariadbServer, first: BinlogPlace) -> None:
    with server.session() as root:
        source = binlog_source(root)
        root.execute("SET GLOBAL binlog_format = 'STATEMENT'")
        statements = binlog_source(root)
        root.execute("SET GLOBAL binlog_format = 'MIXED'")
    assert (source.origin.server_id, source.origin.uuid, source.encrypted) == (7, "", False)
    assert source.end is not None
    assert source.has(source.end)
    assert not source.has(replace(source.end, offset=source.end.offset + 1))
    assert (source.may_replay_otherwise, statements.may_replay_otherwise) == (False, True)


def test_over_tls_the_certificate_and_its_name_are_verified(
    server: MariadbServer, client: BinlogClient, first: BinlogPlace, tmp_path: Path
) -> None:
    ours, others = (certificate(tmp_path / name, for_name="localhost") for name in ("ours", "others"))
    port = free_port()
    options = (f"--ssl-cert={ours.chain}", f"--ssl-key={ours.chain}", "--skip-networking=0", f"--port={port}")
    server.stop()
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(server, "_options", (*options, "--bind-address=127.0.0.1,127.0.0.2"))
        server.start()
        with server.session() as root:
            root.execute(f"CREATE OR REPLACE USER far@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
            root.execute("GRANT REPLICATION SLAVE ON *.* TO far@'127.0.0.1'")
        good = Login("far", address="localhost", port=port, password=PASSWORD, tls_ca=ours.ca)

        def entered(login: Login) -> AbstractContextManager[Receiver]:
            return receiving(client, login, first, tmp_path / "far", server_id=9, limit=1 << 20)

        with entered(good) as receiver:
            received_until(receiver, up_to(end_of(server)))
        for bad in (replace(good, tls_ca=others.ca), replace(good, address="127.0.0.2")):
            with entered(bad) as receiver:
                assert ending(receiver).kind is EndKind.NOT_ALLOWED
        server.stop()
    server.start()
