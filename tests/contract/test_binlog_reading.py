"""A real MariaDB's binlogs, as they grow and as its client receives them, are read as its own program prints them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.mysql.binlog.events import EventStream
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.mysql.binlogs import committed_end
from backupd.vocabulary.binlogs import ChangeKind, TableChange
from backupd.vocabulary.servers import Flavour
from tests.binlog_archives import require_as_read, written_binlogs
from tests.binlog_texts import assert_alike, read
from tests.contract.mariadb import MariadbServer, mariadb

WORKLOAD = Path(__file__).parents[1] / "data" / "binlog" / "mariadb.sql"
QUOTED = 'quo`ted, "name"'


@pytest.fixture(scope="module")
def loaded() -> Iterator[MariadbServer]:
    """With a workload in logs with checksums, and the same in logs without."""
    with mariadb("--binlog-format=ROW", "--binlog-checksum=CRC32") as server:
        client = [
            "mariadb",
            "--no-defaults",
            "--default-character-set=utf8mb4",
            "--user=root",
            f"--socket={server.socket}",
        ]
        for checksums in ("CRC32", "NONE"):
            statements = f"SET GLOBAL binlog_checksum = {checksums};\n{WORKLOAD.read_text()}"
            subprocess.run(client, input=statements.encode(), check=True, capture_output=True)
        yield server


def logs(server: MariadbServer) -> list[Path]:
    return sorted(server.datadir.glob("bin.0*"))


def printed(log: Path) -> str:
    done = subprocess.run(
        ["mariadb-binlog", "--no-defaults", "-vv", "--base64-output=decode-rows", str(log)],
        check=True,
        capture_output=True,
        env={**os.environ, "TZ": "UTC"},
    )
    return done.stdout.decode(errors="replace")


def test_a_real_log_is_read_as_the_servers_own_program_prints_it(loaded: MariadbServer) -> None:
    changes = set()
    for log in logs(loaded)[:-1]:
        found = assert_alike(log.read_bytes(), printed(log), Flavour.MARIADB)
        assert committed_end(log) == max(read(log.read_bytes(), Flavour.MARIADB)[1])
        changes |= {change for one in found for change in one.changes}
    assert changes >= {
        TableChange("shop", QUOTED, ChangeKind.INSERT, 16),
        TableChange("shop", QUOTED, ChangeKind.UPDATE, 10),
        TableChange("shop", "compressed_statement", ChangeKind.CREATE),
        TableChange("shop", "places", ChangeKind.INSERT, 3),
        TableChange("shop", "copied", ChangeKind.RENAME),
        TableChange("shop", "m", ChangeKind.DROP),
        TableChange("shop", "", ChangeKind.DROP),
    }
    assert not any(change.table == "tmp" for change in changes)


def test_what_was_executed_is_what_the_server_says(loaded: MariadbServer) -> None:
    reader = TransactionReader(Flavour.MARIADB, "f")
    for log in logs(loaded):
        for event in EventStream(log.name).feed(log.read_bytes()):
            reader.feed(event)
    with loaded.session() as root:
        said = str(root.value("SELECT @@gtid_binlog_pos"))
    assert sorted(reader.gtids.split(",")) == sorted(said.split(","))


def test_what_the_client_receives_from_an_offset_on_is_the_same_from_there(
    loaded: MariadbServer, tmp_path: Path
) -> None:
    log = logs(loaded)[0]
    whole, _ = read(log.read_bytes(), Flavour.MARIADB)
    at = whole[len(whole) // 2].start.offset
    subprocess.run(
        [
            *("mariadb-binlog", "--no-defaults", "--raw", "--read-from-remote-server", "--user=root"),
            *(f"--socket={loaded.socket}", f"--result-file={tmp_path}/", f"--start-position={at}", log.name),
        ],
        check=True,
        capture_output=True,
    )
    received, _ = read((tmp_path / log.name).read_bytes(), Flavour.MARIADB, piece=100)
    assert received == [one for one in whole if one.start.offset >= at]
    assert received[0].start.offset == at


def test_its_segments_tell_what_its_transactions_are(loaded: MariadbServer) -> None:
    written = written_binlogs(loaded)
    for size in (1000, 16 << 10, 16 << 20):
        pieces = written.pieces(size)
        for file, content in written.files:
            of_file = [piece for piece in pieces if piece.file == file]
            require_as_read(of_file, content, read(content, Flavour.MARIADB)[0])
