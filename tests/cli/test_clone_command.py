"""`backupd clone` as a person meets it: what it refuses, and what it tells."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.proof import Recovered
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Position, ServerFacts
from tests.cli.terminal import Terminal
from tests.story.world import World

PASSWORD = "s3%cret"


class Replica:
    """A MariaDB server on the copy: it recovers to where the backup was taken, and keeps what it is told."""

    error_log = ""

    def __init__(self) -> None:
        self.session = self
        self.told: list[tuple[str, tuple[object, ...]]] = []

    def execute(self, statement: str, *values: object) -> None:
        self.told.append((statement, values))

    def query(self, statement: str, *values: object) -> list[dict[str, str]]:
        if "FROM mysql.event" in statement:
            return []
        assert statement.startswith("SHOW GLOBAL VARIABLES LIKE 'aria")
        return [{"Variable_name": "aria_block_size", "Value": "8192"}]

    def value(self, statement: str, *values: object) -> str:
        assert statement == "SELECT VERSION()"
        return "10.11.6-MariaDB"

    def shut_down(self) -> Check:
        return Check("clean shutdown", ok=True, expected="status 0", found="status 0")


@pytest.fixture
def replica(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Replica:
    """The run `r1` has a backup, and this is what starts on copies of it."""
    terminal.run("run", "nightly", "--run-id", "r1")
    made = Replica()
    serve_copies(monkeypatch, made)
    return made


def serve_copies(monkeypatch: pytest.MonkeyPatch, made: Replica) -> None:
    """This is what starts on copies of a backup."""

    @contextmanager
    def running(self: object) -> Iterator[Replica]:
        yield made

    def recovered(session: object, recorded: Position, error_log: str, *, facts: ServerFacts) -> Recovered:
        return Recovered(recorded.binlog_offset, recorded.gtid, innodb_binlog=None, lsn=1 << 60, prepared=0)

    monkeypatch.setattr("backupd.operations.restore.restored_copy.ScratchServer.running", running)
    monkeypatch.setattr("backupd.operations.restore.restored_copy.matching_program", lambda facts: "mariadbd")
    monkeypatch.setattr("backupd.operations.restore.restored_copy.recovered", recovered)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.touch(mode=0o600)
    path.write_text(f"{PASSWORD}\n")
    return path


SOURCE = ["--source", "db1:3307", "--source-user", "repl"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "clone makes a replica or a scrubbed copy, and neither was asked for"),
        (["--as-replica", "--source-user", "repl"], "a source user is given, but no source"),
        (["--as-replica", "--source", "db1"], "--source needs a user"),
        (["--as-replica", "--source", "db1:0", "--source-user", "r"], "'db1:0' is not a HOST[:PORT]"),
        (["--as-replica", "--source", "db1:99999", "--source-user", "r"], "is not a HOST[:PORT]"),
        (["--as-replica", "--source", "db1:x", "--source-user", "r"], "is not a HOST[:PORT]"),
        (["--as-replica", "--source", "a b", "--source-user", "r"], "is not a HOST[:PORT]"),
        (["--as-replica", "--source", "d'b", "--source-user", "r"], "is not a HOST[:PORT]"),
        (["--as-replica", *SOURCE, "--source-password-file", "/nowhere"], "cannot read /nowhere"),
        (["--as-replica", "--server-id", "0"], "--server-id"),
        (["--as-replica", "--server-id", "4294967296"], "--server-id"),
    ],
)
def test_a_command_that_makes_no_sense_is_status_2(
    terminal: Terminal, replica: Replica, tmp_path: Path, words: list[str], says: str
) -> None:
    ended = terminal.run("clone", "r1", "--to", str(tmp_path / "clone"), *words)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert says in ended.stderr
    assert not (tmp_path / "clone").exists()
    assert replica.told == []


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["--as-replica", "--scrub", "FILE"], "a scrubbed copy cannot be a replica", "omit --as-replica or --scrub"),
        (["--scrub", "FILE", "--server-id", "7"], "--server-id and --gtid are for replicas", "omit them"),
        (["--scrub", "FILE", "--file-position"], "--server-id and --gtid are for replicas", "omit them"),
        (["--scrub", "FILE", "--source", "db1"], "--server-id and --gtid are for replicas", "omit them"),
        (["--as-replica", "--scrub-within", "1h"], "--scrub-within has no effect", "add --scrub FILE"),
        (["--scrub", "FILE", "--scrub-within", "0s"], "--scrub-within must be more than 0", "for example"),
        (["--scrub", "FILE", "--scrub-within", "soon"], '--scrub-within: "soon" is not a duration', "for example"),
        (["--scrub", "FILE", "--scrub-within", "90"], '"90" has no known unit of time', "for example"),
        (["--scrub", "/nowhere.sql"], "cannot read /nowhere.sql: No such file", "pass a file of SQL statements"),
        (["--scrub", "FILE", "--scrub", "/"], "cannot read /: Is a directory", "pass a file of SQL statements"),
    ],
)
def test_a_scrub_that_cannot_be_is_refused_before_anything_is_fetched(
    terminal: Terminal, replica: Replica, world: World, tmp_path: Path, words: list[str], says: str, hint: str
) -> None:
    file = tmp_path / "scrub.sql"
    file.write_text("DELETE FROM shop.people")
    words = [str(file) if word == "FILE" else word for word in words]
    ended = terminal.run("clone", "r1", "--to", str(tmp_path / "clone"), *words)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert says in ended.stderr
    assert f"hint: {hint}" in ended.stderr
    assert not (tmp_path / "clone").exists()
    with world.catalogue() as catalogue:
        assert [entry.event for entry in catalogue.audit_entries(limit=None) if "clone" in entry.event] == []


def test_without_the_server_program_no_scrub_is_begun(terminal: Terminal, world: World, tmp_path: Path) -> None:
    """The server that was backed up is of a series that is not installed here."""
    terminal.run("run", "nightly", "--run-id", "r1")
    (world.backups / "r1" / "data-1.tar.zst").unlink()  # nothing is read
    (tmp_path / "scrub.sql").write_text("DELETE FROM shop.people")
    words = ["--to", str(tmp_path / "clone"), "--scrub", str(tmp_path / "scrub.sql")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backupd.host.process.found", lambda program: False)
        ended = terminal.run("clone", "r1", *words)
    assert (ended.status, ended.stdout) == (ExitStatus.SERVER, "")
    assert "server is installed here; found: none" in ended.stderr
    assert "hint: install the server program" in ended.stderr
    assert not (tmp_path / "clone").exists()


def test_a_password_file_that_others_can_read_is_refused(
    terminal: Terminal, replica: Replica, password_file: Path, tmp_path: Path
) -> None:
    password_file.chmod(0o644)
    words = ["--as-replica", *SOURCE, "--source-password-file", str(password_file)]
    ended = terminal.run("clone", "r1", "--to", str(tmp_path / "clone"), *words)
    assert ended.status == ExitStatus.USAGE
    assert f"chmod 600 {password_file}" in ended.stderr
    assert not (tmp_path / "clone").exists()


def test_a_damaged_backup_makes_no_replica(terminal: Terminal, replica: Replica, world: World, tmp_path: Path) -> None:
    os.truncate(world.backups / "r1" / "data-1.tar.zst", 1000)
    ended = terminal.run("clone", "r1", "--to", str(tmp_path / "clone"), "--as-replica")
    assert (ended.status, ended.stdout) == (ExitStatus.VERIFICATION, "")
    assert not (tmp_path / "clone").exists()
    with world.catalogue() as catalogue:
        told, broken, began = catalogue.audit_entries(limit=3)
    assert (began.event, began.subject, began.detail["to"]) == ("clone-started", "r1", str(tmp_path / "clone"))
    assert (broken.event, broken.subject, broken.detail["target"]) == ("found-broken", "r1", "vault")
    assert (told.event, told.detail["outcome"], told.detail["code"]) == ("clone-ended", "failed", "verification-error")
    assert told.detail["targets"] == ["vault"]


def test_a_backup_whose_target_lost_it_is_status_8(
    terminal: Terminal, replica: Replica, world: World, tmp_path: Path
) -> None:
    (world.backups / "r1" / "manifest.json").unlink()
    ended = terminal.run("clone", "r1", "--to", str(tmp_path / "clone"), "--as-replica")
    assert (ended.status, ended.stdout) == (ExitStatus.TARGET, "")


def test_the_password_reaches_the_server_and_nobody_else(
    terminal: Terminal, replica: Replica, password_file: Path, tmp_path: Path
) -> None:
    to = tmp_path / "clone"
    words = ["--as-replica", *SOURCE, "--source-password-file", str(password_file), "--json"]
    ended = terminal.run("clone", "latest", "--to", str(to), *words)
    assert ended.status == ExitStatus.OK
    statement, values = replica.told[-1]
    assert (statement.endswith("MASTER_PASSWORD = %s"), values) == (True, (PASSWORD,))
    written = [ended.stdout, ended.stderr, *(path.read_text() for path in to.glob("replica.*"))]
    assert [text for text in written if PASSWORD in text] == []


def test_the_document_says_what_was_applied_and_what_is_left(
    terminal: Terminal, replica: Replica, tmp_path: Path
) -> None:
    to = tmp_path / "clone"
    words = ["--as-replica", *SOURCE, "--server-id", "77", "--file-position", "--json"]
    document = terminal.run("clone", "r1", "--to", str(to), *words).document
    assert document["applied"] == [statement for statement, _ in replica.told]
    assert document["left"] == ["START SLAVE"]
    assert (document["server_id"], document["following"]) == (77, "file-position")
    assert document["source"] == {"host": "db1", "port": 3307, "user": "repl"}
    assert document["position"]["binlog_file"] == "bin.000001"
    assert "server_id = 77\n" in Path(document["option_file"]).read_text()
    assert Path(document["statements_file"]).read_text().endswith("START SLAVE;\n")
    assert document["run_id"] == "r1"


def test_without_a_source_everything_but_the_source_is_applied(
    terminal: Terminal, replica: Replica, tmp_path: Path
) -> None:
    to = tmp_path / "clone"
    ended = terminal.run("clone", "r1", "--to", str(to), "--as-replica")
    assert ended.status == ExitStatus.OK
    assert [statement.split()[0] for statement, _ in replica.told] == ["RESET", "SET"]
    assert f"options: {to / 'replica.cnf'}" in ended.stdout
    assert "then: CHANGE MASTER TO MASTER_HOST = 'SOURCE'" in ended.stdout
