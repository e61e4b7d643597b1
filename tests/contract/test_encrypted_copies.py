"""Copies of a server that encrypts: what a scratch server writes into them is encrypted, too."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.mariadb import MariadbServer, mariadb
from tests.contract.test_applying import Witness, applied, place
from tests.contract.test_scratch import taken

pytestmark = pytest.mark.exhaustive

_ENCRYPTING = (
    *("--innodb-encrypt-tables=FORCE", "--innodb-encrypt-log=ON", "--aria-encrypt-tables=ON"),
    *("--innodb-encrypt-temporary-tables=ON", "--encrypt-tmp-files=ON", "--encrypt-tmp-disk-tables=ON"),
)
_MARKER = "alice-lives-here"


@contextmanager
def encrypting(program: str) -> Iterator[MariadbServer]:
    """A server that encrypts all that it can, but for its binlog: the tests read that."""
    with tempfile.TemporaryDirectory(prefix="bk-keys-") as folder:
        keys = Path(folder) / "keys"
        keys.write_text(f"1;{'a7' * 32}\n")
        keys.chmod(0o644)
        keys.parent.chmod(0o755)
        given = ("--plugin-load-add=file_key_management.so", f"--file-key-management-filename={keys}")
        with mariadb("--binlog-format=ROW", *given, *_ENCRYPTING, program=program) as server:
            yield server


@pytest.mark.parametrize("binlog", ["OFF", "ON"])
def test_nothing_that_is_applied_is_written_in_clear(tmp_path: Path, binlog: str, mariadb_with_plugins: str) -> None:
    """Rows in tables that were there, or are made meanwhile, and InnoDB's redo log. Aria's log no server encrypts."""
    with encrypting(mariadb_with_plugins) as source, source.session() as root:
        image = taken(source, tmp_path / "image")
        for statement in (
            "CREATE TABLE t.people (id INT PRIMARY KEY, email VARCHAR(99)) ENGINE=InnoDB",
            f"INSERT INTO t.people SELECT seq, '{_MARKER}' FROM t.seq_1_to_500",
            "CREATE TABLE t.others (id INT PRIMARY KEY, email VARCHAR(99)) ENGINE=Aria",
            f"INSERT INTO t.others SELECT seq, '{_MARKER}' FROM t.seq_1_to_500",
            f"INSERT INTO t.innodb (v) SELECT '{_MARKER}' FROM t.seq_1_to_500",
            "SET GLOBAL innodb_encrypt_tables = ON",
            "CREATE TABLE t.open (id INT PRIMARY KEY) ENGINE=InnoDB ENCRYPTED=NO",
        ):
            root.execute(statement)
        end = place(root)
        settings = {**image.manifest.server.settings, "encrypt_binlog": binlog}
        recorded = replace(image.manifest, server=replace(image.manifest.server, settings=settings))
        witness, to = Witness(image.folder, recorded, source.datadir), tmp_path / "to"
        applied(witness, to, end)
    files = [path for path in to.rglob("*") if path.is_file() and not path.name.startswith("aria_log.")]
    written = [path for path in files if _MARKER.encode() in path.read_bytes()]
    assert [str(path.relative_to(to)) for path in written] == []
    assert to / "data" / "t" / "people.ibd" in files
