"""`clone --scrub`, typed, with a real backup and real servers: what is handed over, what is left of rows, what is not.

Thorough: each clone restores a datadir and starts a server on it.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backupd.archive.index import written
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.server_logs import LOG_SETTINGS
from backupd.targets.directory import DirectoryTarget
from tests.cli.terminal import Ended
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.contract.test_proof_host import anybodys, stream_of
from tests.contract.test_scratch import Image, taken
from tests.hostile_words import faults
from tests.story import stored

pytestmark = pytest.mark.thorough

__all__ = ["anybodys"]

MACHINE, MARKER = "db1-0a1b2c3d", "alice-lives-here"
LOGGING = (
    *("--general-log=ON", "--slow-query-log=ON", "--long-query-time=0", "--log-output=TABLE,FILE"),
    *("--general-log-file=queries", "--slow-query-log-file=slow_queries.txt"),
)
LOGS = (
    *("queries", "queries-20261127.gz", "slow_queries.txt", "slow_queries-20261127.txt", "t/slow.log"),
    *("innodb_status.4711", "core.4711", "core.mysqld.77"),
    *("db1.err.00.json", "db1-slow.log-20261127", "db1-slow.log-20261126.xz", "db1.err-old"),  # MySQL's; rotated
    *("galera.cache", "gcache.page.000000"),  # Galera's write sets
)
SCRUB = """
    UPDATE t.people SET email = CONCAT('user', id, '@example.org'), bio = '';
    UPDATE t.myisam SET v = 'x'; UPDATE t.aria SET v = 'x';
"""
FORGED = "\x1b[2J\nhint: this is forged"
REBUILT = "ALTER TABLE t.people FORCE; ALTER TABLE t.myisam FORCE; ALTER TABLE t.aria FORCE;"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Of a server that logs all statements, whose rows were changed before, and of whose columns it has statistics."""
    folder = tmp_path_factory.mktemp("image")
    with mariadb(*LOGGING) as server:
        fill(server)
        image = taken(server, folder)
    for name in ("older-name.000007", "t/relay.000001"):  # of a time when the binlog was called so
        shutil.copy(image.datadir / "bin.000001", image.datadir / name)
    (image.datadir / "t" / "notes.000001").write_text("no binlog")
    return image


def fill(server: MariadbServer) -> None:
    with server.session() as session:
        for statement in (
            "CREATE TABLE t.people (id INT PRIMARY KEY, email VARCHAR(99), bio TEXT, KEY (email)) ENGINE=InnoDB",
            f"INSERT INTO t.people SELECT seq, CONCAT('{MARKER}', seq), REPEAT('{MARKER}', 40) FROM t.seq_1_to_500",
            f"INSERT INTO t.myisam (v) SELECT '{MARKER}' FROM t.seq_1_to_50",
            f"INSERT INTO t.aria (v) SELECT '{MARKER}' FROM t.seq_1_to_50",
            "ANALYZE TABLE t.people PERSISTENT FOR ALL",
            f"UPDATE t.people SET bio = CONCAT('{MARKER}-before', id) WHERE id < 250",
            "SET GLOBAL general_log = OFF",
            "RENAME TABLE mysql.general_log TO mysql.general_log_backup",
            "CREATE TABLE mysql.general_log LIKE mysql.general_log_backup",
            "SET GLOBAL general_log = ON",
        ):
            session.execute(statement)


@pytest.fixture(scope="module")
def host(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a host whose catalogue knows of run `r1`, a backup of that image.

    Of run `r0`, too, of the same image, which an earlier backupd has taken.
    """
    base = tmp_path_factory.mktemp("host")
    vault = base / "vault"
    vault.mkdir()
    for name in LOGS:
        with (image.datadir / name).open("a") as file:
            file.write(MARKER)
    put(image, vault, "r1")
    settings = {name: value for name, value in image.manifest.server.settings.items() if name not in LOG_SETTINGS}
    earlier = replace(image.manifest, server=replace(image.manifest.server, settings=settings))
    put(replace(image, manifest=earlier), vault, "r0")
    path = base / "backupd.toml"
    path.write_text(f"""
        [catalogue]
        path = "{base}/own/catalogue.sqlite"
        [paths]
        run = "{base}/run"
        staging = "{base}/staging"
        log = "{base}/log"
        [hosts.db1]
        socket = "{base}/s"
        user = "backupd"
        [targets.vault]
        type = "directory"
        path = "{vault}"
        [jobs.nightly]
        host = "db1"
        targets = ["vault"]
    """)
    ended = run(path, "catalogue", "rebuild", "--target", "vault", "--from", MACHINE, "--unsigned")
    assert ended.status == 0, ended.stderr
    return path


def put(image: Image, vault: Path, run_id: str) -> None:
    target = DirectoryTarget("vault", vault, machine=MACHINE)
    files = stream_of(image.datadir)
    plain, lines = stored.tar(files)
    data = stored.stored("data-1.tar.zst", plain, sum(not name.endswith("/") for name, _ in files))
    index = stored.stored("index.jsonl.zst", b"".join(written({"data-1.tar.zst": lines})), 0)
    for packed, told in (data, index):
        with target.writing("nightly", run_id, told.name) as writer:
            writer.write(packed)
    target.publish(
        replace(
            image.manifest, run_id=run_id, machine=MACHINE, objects=(data[1], index[1]), created_at=datetime.now(UTC)
        )
    )


def argv(configuration: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "backupd", "--config", str(configuration), *words]


def run(configuration: Path, *words: str) -> Ended:
    """`backupd WORDS…`, in a process of its own."""
    ended = subprocess.run(argv(configuration, *words), capture_output=True, text=True, timeout=300, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def clone(host: Path, to: Path, sql: str, *words: str) -> Ended:
    return run(host, *typed(to, sql), *words)


def typed(to: Path, sql: str) -> list[str]:
    """The words of a clone whose SQL is in `scrub.sql` beside its folder."""
    file = to.with_name("scrub.sql")
    file.write_text(sql)
    return ["clone", "r1", "--to", str(to), "--scrub", str(file)]


def marked(folder: Path) -> set[str]:
    """The files with something of a row as it was."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in files if MARKER.encode() in path.read_bytes()}


def audit(host: Path, to: Path) -> list[dict[str, Any]]:
    """Of the clone into that folder."""
    entries = run(host, "audit", "list", "--json").document["entries"]
    return [entry for entry in entries if entry["detail"].get("to") == str(to)]


def running_in(folder: Path) -> list[str]:
    """What has the folder on its command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [words[0] for word in words if str(folder) in word]
    return found


def test_a_copy_is_handed_over_scrubbed_and_with_proof(host: Path, image: Image, tmp_path: Path) -> None:
    to, sql = tmp_path / "dev", SCRUB + REBUILT
    logs = {"data/ib_logfile0", "data/bin.000001", "data/mysql/slow_log.CSV", "data/mysql/general_log_backup.CSV"}
    logs |= {f"data/{name}" for name in LOGS}
    assert logs <= marked(image.folder)
    ended = clone(host, to, sql, "--json")
    assert ended.status == 0, ended.stderr
    digest = hashlib.sha256(sql.encode()).hexdigest()
    scrub = ended.document["scrub"]
    assert [(each["sha256"], each["statements"], each["rows_affected"]) for each in scrub["files"]] == [
        (digest, 6, 708)
    ]
    assert scrub["server_version"].startswith("10.11.")
    proof = json.loads((to / "backupd-scrub.json").read_text())
    assert "doubt" not in proof
    assert (proof["run_id"], proof["machine"], proof["files"]) == ("r1", MACHINE, scrub["files"])
    assert proof["files"][0]["file"] == str(tmp_path / "scrub.sql")
    began, over = audit(host, to)
    assert began["detail"]["scrub"] == over["detail"]["scrub"] == {str(tmp_path / "scrub.sql"): digest}
    assert over["detail"]["scrubbed"] == {name: value for name, value in scrub.items() if name != "files"}
    told = run(host, "report", "--evidence", "--since", "1d")
    assert f"scrub.sql (sha256 {digest})" in told.stdout
    assert "scrubbed: 6 statements ran, 708 rows affected, in " in told.stdout
    # Of the original rows only the system tablespace may have something: its doublewrite area is never cut.
    assert marked(to) <= {"data/ibdata1"}
    assert not list(to.rglob("bin.*"))
    assert {path.name for path in to.rglob("*.0000*")} == {"notes.000001", "aria_log.00000002"}
    owners = {path.lstat().st_uid for path in to.rglob("*")}
    assert owners == {(to / "data").stat().st_uid}
    copy = ScratchServer(to, replace(image.manifest, binlog=None))
    with copy.running() as server:
        assert server.session.value("SELECT COUNT(*) FROM t.people WHERE email LIKE 'user%@example.org'") == "500"


def test_a_backup_that_does_not_tell_what_its_logs_are_called_is_handed_over_with_that_doubt(
    host: Path, tmp_path: Path
) -> None:
    to, sql = tmp_path / "dev", tmp_path / "scrub.sql"
    sql.write_text(SCRUB + REBUILT)
    ended = run(host, "clone", "r0", "--to", str(to), "--scrub", str(sql))
    assert ended.status == 3
    doubt = json.loads((to / "backupd-scrub.json").read_text())["doubt"]
    assert doubt.startswith("the names of the server's logs were not recorded with this backup")
    assert f"attention: {doubt}" in ended.stderr
    assert audit(host, to)[-1]["detail"]["attentions"] == [doubt]
    assert "data/queries" in marked(to)
    assert not marked(to) & {"data/t/slow.log", "data/mysql/general_log_backup.CSV", "data/db1-slow.log-20261127"}


def test_its_server_starts_by_the_option_file(host: Path, tmp_path: Path) -> None:
    to = tmp_path / "dev"
    assert clone(host, to, SCRUB).status == 0
    program = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
    assert program is not None
    words = [program, f"--defaults-file={to}/scrubbed.cnf", f"--pid-file={tmp_path}/pid", "--user=root", "--bootstrap"]
    for table, works in (("people", True), ("gone", False)):
        told = f"SELECT * FROM t.{table};\n"
        ended = subprocess.run(words, input=told, capture_output=True, text=True, timeout=50, check=False)
        assert (ended.returncode == 0) == works, ended.stderr


@pytest.mark.parametrize(
    ("sql", "status", "says", "hint"),
    [
        ("UPDATE t.people SET bio='';\nUPDATE t.gone SET a=1;", 6, "statement 2 of {} (line 2) failed with", "t.gone"),
        ("SELECT SLEEP(600)", 6, "did not end within 1s: statement 1 of {} (line 1)", "raise --scrub-within"),
        (f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{FORGED}'", 6, "(line 1) failed with", "is forged"),
        ("SHUTDOWN", 6, "", "SHUTDOWN or a KILL"),
        ("", 2, "{} has no SQL statement", "pass a file"),
    ],
    ids=["refused", "for ever", "hostile words", "shutdown", "empty"],
)
def test_a_scrub_that_fails_hands_nothing_over(
    host: Path, tmp_path: Path, sql: str, status: int, says: str, hint: str
) -> None:
    to = tmp_path / "dev"
    ended = clone(host, to, sql, *(("--scrub-within", "1s") if "SLEEP" in sql else ()))
    assert (ended.status, ended.stdout) == (status, "")
    assert says.format(tmp_path / "scrub.sql") in ended.stderr
    assert hint in ended.stderr
    assert faults(ended.stderr) == []
    assert not to.exists()
    assert running_in(to) == []
    rows = audit(host, to)
    assert [row["detail"].get("outcome") for row in rows] == ([] if status == 2 else [None, "failed"])
    assert "scrubbed" not in json.dumps(rows)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_stopped_leaves_nothing_that_looks_finished(
    host: Path, tmp_path: Path, anybodys: Path, number: signal.Signals
) -> None:
    to = tmp_path / "dev"
    to.mkdir()
    words, own = argv(host, *typed(to, "SELECT SLEEP(600)")), {**os.environ, "TMPDIR": str(anybodys)}
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=own) as process:
        try:
            assert process.stderr is not None
            assert any(line.startswith("running ") for line in process.stderr)
        finally:
            process.send_signal(number)
            process.communicate(timeout=50)
    wait_until(lambda: running_in(to) == [])
    left = {path.name for path in to.iterdir()}
    if number is signal.SIGKILL:
        assert {".backupd-incomplete", "data"} == left
        ended = clone(host, to, SCRUB)
        assert (ended.status, "has an interrupted restore" in ended.stderr) == (2, True)
    else:
        assert (process.returncode, left) == (15, set())
        assert audit(host, to)[-1]["detail"]["outcome"] == "cancelled"
