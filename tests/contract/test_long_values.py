"""Values that InnoDB keeps outside of their rows: CHECK TABLE does not follow them, so they are read."""

import re
import struct
import time
from pathlib import Path

import pytest

from backupd.mysql.long_values import require_long_values
from backupd.mysql.proof import prove
from backupd.mysql.session import Session
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import VerificationError
from tests.contract.mariadb import MariadbServer, mysql_server
from tests.contract.test_scratch import Image, taken

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

_BLOB_PAGE, _TYPE_AT, _PAGE = 10, 24, 16384  # fil0fil.h: FIL_PAGE_TYPE_BLOB, FIL_PAGE_TYPE
_PATIENCE = 60.0


@pytest.fixture
def image(mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """Of a server with a table of long values, all of which are in its files: no redo log makes them good again."""
    with mysql_server.session() as session:
        session.execute(
            "CREATE OR REPLACE TABLE t.`long ``values` (id INT PRIMARY KEY, v LONGTEXT, w JSON, g GEOMETRY)"
        )
        session.execute(
            "INSERT INTO t.`long ``values` SELECT seq, REPEAT(MD5(seq), 3000), '{}', POINT(1, seq) FROM t.seq_1_to_20"
        )
        session.execute("FLUSH TABLES t.`long ``values` FOR EXPORT")
        session.execute("UNLOCK TABLES")
        wait_for_a_checkpoint(session)
    return taken(mysql_server, tmp_path)


def wait_for_a_checkpoint(session: Session) -> None:
    """What has been written until now is in the files, and no recovery writes it again."""

    def told(what: str) -> int:
        (found,) = session.query("SHOW ENGINE INNODB STATUS")
        match = re.search(rf"{what}\s+(\d+)", found["Status"] or "")
        assert match is not None
        return int(match[1])

    before, deadline = told("Log sequence number"), time.monotonic() + _PATIENCE
    session.execute("SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0.001, GLOBAL innodb_max_dirty_pages_pct = 0")
    try:
        while told("Last checkpoint at") < before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        session.execute(
            "SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT, GLOBAL innodb_max_dirty_pages_pct_lwm = DEFAULT"
        )


def spoil(image: Image) -> None:
    """A byte of a page that only a long value lies in."""
    (path,) = (image.datadir / "t").glob("long@*.ibd")
    content = bytearray(path.read_bytes())
    pages = range(0, len(content), _PAGE)
    at = next(at for at in pages if struct.unpack_from(">H", content, at + _TYPE_AT)[0] == _BLOB_PAGE)
    content[at + 200] ^= 1
    path.write_bytes(content)


def test_long_values_that_can_be_read_are_proven(image: Image) -> None:
    with image.scratch().running() as server:
        assert [check for check in prove(server, image.manifest) if not check.ok and check.name == "tables"] == []


def test_a_damaged_one_fails_the_proof_and_every_use_of_its_table(image: Image) -> None:
    spoil(image)
    with image.scratch().running() as server:
        (told,) = server.session.query("CHECK TABLE t.`long ``values` MEDIUM")
        assert told["Msg_text"] == "OK"
        (tables,) = (check for check in prove(server, image.manifest) if check.name == "tables")
        assert (tables.ok, "t.long `values: error: reading its long values" in tables.found) == (False, True)
        assert "corrupted" in tables.found
        with pytest.raises(VerificationError, match=r"it is damaged: reading its long values: .*corrupted"):
            require_long_values(server, Table("t", "long `values"), "it")
