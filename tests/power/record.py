"""What is recorded: two backups, a binlog archive, a restore, a prune and the catalogue's upgrade, under a few orders.

Knows: what was promised to whoever typed each command, and at which instant. The marks lie outside, beside the
recording: what a person has read on a screen no power cut takes back.
"""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from backupd.lab import configuration, server
from backupd.lab.options import ServerKind
from backupd.lab.orders import TABLE, Orders
from backupd.lab.servers import SOFTWARE
from backupd.policy import gtid
from tests.power.places import (
    MOUNTS,
    OUT,
    PHYSICAL,
    SITE,
    STATE,
    STORE,
    TARGET,
    VOLUME_MIB,
    Said,
    ask,
    must,
    power_off,
    power_on,
    sql,
    start_server,
    type_in,
    write_server_configuration,
)

JOB = "nightly"
FIRST, SECOND = "power-first", "power-second"
RESTORED = SITE.state / "restored"
LESS = SITE.etc / "less.toml"  # a configuration that keeps one backup
OLD_SCHEMA = "0010"
# Eight megabytes that cannot be compressed: what is stored takes some time, and much of it waits in caches.
_NOISE = """CREATE TABLE sbtest.noise (id INT PRIMARY KEY, v BLOB);
INSERT INTO sbtest.noise WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
    SELECT i, RANDOM_BYTES(1000) FROM n;
INSERT INTO sbtest.noise SELECT id + 1000, CONCAT(RANDOM_BYTES(1000), v) FROM sbtest.noise;
INSERT INTO sbtest.noise SELECT id + 2000, RANDOM_BYTES(2000) FROM sbtest.noise
"""
_PASSWORD = OUT / "password"
PHASES = ("backup", "archiving", "backup-while-archiving", "restore", "prune", "upgrade")
_PATIENCE_SECONDS = 60.0
_COUNTED_SECONDS = 0.2
_MARIADB = ServerKind.MARIADB_10
_CONFIGURATION = f"""
[jobs.{JOB}.settle]
enabled = false

[jobs.{JOB}.binlog]
spool = "{SITE.state}/binlog"
segment_age = "1s"

[jobs.{JOB}.retention]
keep_last = """


class Marks:
    """What was promised when: a line of JSON each, outside."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8", buffering=1)
        self._one = threading.Lock()
        self.orders: Orders | None = None  # that are taken meanwhile

    def put(self, what: str, **facts: Any) -> None:
        """It holds from now on, whatever comes: it was so before the instant was asked for."""
        orders = 0 if self.orders is None else self.orders.acknowledged
        with self._one:
            instant = ask({"do": "count"})["count"]
            self._file.write(json.dumps({"instant": instant, "what": what, "orders": orders, **facts}) + "\n")


def backupd(*words: str, planted: str = "", seconds: float = 120.0) -> Said:
    """A command, as a person types it; with `planted`, of a backupd that has this fault."""
    program = [sys.executable, "-m", "tests.power.planted", planted] if planted else ["backupd"]
    return type_in(*program, *words, seconds=seconds)


def configure() -> None:
    """The configurations are there: backupd's, the one that keeps less, the server's. They lie on no forgetful disk."""
    write_server_configuration()
    text = configuration.text(SITE) + _CONFIGURATION
    SITE.configuration.write_text(f"{text}7\n", encoding="utf-8")
    LESS.write_text(f"{text}1\n", encoding="utf-8")
    if _PASSWORD.exists():
        SITE.password_file.touch(mode=0o600)
        SITE.password_file.write_bytes(_PASSWORD.read_bytes())


def set_up() -> None:
    """On empty disks: volume, file systems, a server with a thousand rows, its account. All of it is durable."""
    group = SITE.volume_group
    must("vgcreate", "--yes", group, *(str(disk.device) for disk in PHYSICAL))
    size = ("--size", f"{VOLUME_MIB}m", "--stripes", "2", "--stripesize", "64k")
    must("lvcreate", "--yes", "--name", "data", *size, group)
    must("mkfs.xfs", "-q", "-K", str(SITE.volume_path))
    for disk in (STATE, STORE):
        must("mkfs.ext4", "-q", "-E", "nodiscard", str(disk.device))
    must("vgchange", "--activate", "n", group)
    failed = {step: said for step, said in power_on().items() if said.status}
    if failed:
        raise RuntimeError(f"the disks cannot be used: {failed}")
    for _, place in MOUNTS[1:]:
        place.chmod(0o700)
    SITE.datadir.mkdir()
    argv = [SOFTWARE[_MARIADB].install, f"--defaults-file={SITE.server_configuration}"]
    must(*argv, *SOFTWARE[_MARIADB].install_options, seconds=300.0)
    if not start_server():
        raise RuntimeError(f"the server does not start: {SITE.server_log.read_text()[-2000:]}")
    server.fill(SITE, _MARIADB, 1000)
    sql(_NOISE)
    server.set_password(SITE)
    _PASSWORD.write_bytes(SITE.password_file.read_bytes())  # for the next machine that sees these disks
    sql("GRANT REPLICATION SLAVE ON *.* TO backupd@localhost")
    os.sync()


def record(marks: Marks, *, planted: str = "") -> None:
    """All phases, one after the other. What fails here without a power cut ends the campaign."""
    set_up()
    with _ordering(marks):
        _phase(marks, PHASES[0])
        _acknowledged(marks, "run", backupd("run", JOB, "--run-id", FIRST, planted=planted), run=FIRST)
        _phase(marks, PHASES[1])
        with receiving(planted=planted):
            caught_up()
            time.sleep(3)  # the phase itself: the archive beside a busy server, and nothing else
            _phase(marks, PHASES[2])
            _acknowledged(marks, "run", backupd("run", JOB, "--run-id", SECOND, planted=planted), run=SECOND)
            _phase(marks, PHASES[3])
            restored = backupd("restore", FIRST, "--to", str(RESTORED), planted=planted)
            _acknowledged(marks, "restored", restored, tree=tree_digest(RESTORED))
            _phase(marks, PHASES[4])
            marks.put("may-go", run=FIRST)
            _acknowledged(marks, "pruned", backupd("--config", str(LESS), "prune", JOB, planted=planted))
        _phase(marks, "")
        make_old(SITE.catalogue)
        os.sync()
        _phase(marks, PHASES[5])
        _acknowledged(marks, "upgraded", backupd("history", "--json", planted=planted))
        _phase(marks, "")
    power_off()


def _phase(marks: Marks, name: str) -> None:
    marks.put("phase", phase=name)


def _acknowledged(marks: Marks, what: str, said: Said, **facts: Any) -> None:
    if said.status not in (0, 3):
        raise RuntimeError(f"{what} failed without a power cut: {said}")
    marks.put(what, status=said.status, **facts)


@contextmanager
def _ordering(marks: Marks) -> Iterator[None]:
    """Rows come into a table for the length of the block, and how many were acknowledged is marked now and then."""
    over = threading.Event()

    def counting() -> None:
        while not over.wait(_COUNTED_SECONDS):
            marks.put("orders")

    thread = threading.Thread(target=counting)
    with Orders(SITE.socket) as marks.orders:
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def receiving(*, planted: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The job's binlog is archived for the length of the block."""
    program = [sys.executable, "-m", "tests.power.planted", planted] if planted else ["backupd"]
    with (
        Path("/run/power-receiver.log").open("ab") as said,
        subprocess.Popen([*program, "binlog", "receive", JOB], stdout=said, stderr=said) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def caught_up(seconds: float = _PATIENCE_SECONDS) -> bool:
    """Whether all that the server had written by now is on the target within this time."""
    executed = sql("SELECT @@gtid_binlog_pos")[0]
    deadline = time.monotonic() + seconds
    while not _stored(executed):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _stored(executed: str) -> bool:
    """Whether the newest segment on the target reaches so far; one that is none says nothing."""
    newest = max(TARGET.glob(f"*/{JOB}/binlog/*.binlog"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        return False
    with newest.open("rb") as file, suppress(json.JSONDecodeError):
        return gtid.is_within(executed, json.loads(file.readline())["gtid_end"])
    return False


def tree_digest(folder: Path) -> str:
    """One digest of all names and bytes in a folder."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        whole.update(f"{path.relative_to(folder)}\0".encode())
        if path.is_file() and not path.is_symlink():
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def make_old(catalogue: Path) -> None:
    """The catalogue is one of an earlier backupd, with all of its rows that that one knew."""
    from alembic import command
    from alembic.config import Config

    from backupd.catalogue.database import engine_for
    from backupd.catalogue.schema import migrations_folder

    old = catalogue.with_name("old.sqlite")
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    engine = engine_for(old, busy_timeout_seconds=1, foreign_keys=False)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLD_SCHEMA)
    engine.dispose()
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS now", (str(catalogue),))
        listed = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE '%version%'"
        for (table,) in connection.execute(listed).fetchall():
            both = ", ".join(sorted(_columns(connection, "main", table) & _columns(connection, "now", table)))
            connection.execute(f"INSERT INTO main.{table} ({both}) SELECT {both} FROM now.{table}")
    for suffix in ("-wal", "-shm"):
        catalogue.with_name(catalogue.name + suffix).unlink(missing_ok=True)
    old.rename(catalogue)


def _columns(connection: sqlite3.Connection, schema: str, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA {schema}.table_info({table})")}


def orders_now() -> int:
    """How many there are."""
    return int(sql(f"SELECT COUNT(*) FROM {TABLE}")[0])
