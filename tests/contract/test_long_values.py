"""Values that InnoDB keeps outside of their rows: CHECK TABLE does not follow them, so they are read."""

import random
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backupd.mysql.long_values import require_long_values, unreadable
from backupd.mysql.proof import prove
from backupd.mysql.scratch import RunningServer
from backupd.mysql.session import Row, Session
from backupd.mysql.tablefiles import Table
from backupd.vocabulary.errors import VerificationError
from tests.contract.mariadb import MariadbServer, mysql_server
from tests.contract.test_scratch import Image, taken

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

_BLOB, _TYPE_AT, _PAGE = 10, 24, 16384  # fil0fil.h: FIL_PAGE_TYPE_BLOB, FIL_PAGE_TYPE
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


def a_bit(page: bytearray, _other: bytes) -> None:
    page[200] ^= 1


def noise(page: bytearray, _other: bytes) -> None:
    page[:] = random.Random(7).randbytes(_PAGE)


def misdirected(page: bytearray, other: bytes) -> None:
    """As a write to the wrong place leaves it: a sound page, of another number."""
    page[:] = other


def spoil(image: Image, spoilt: Callable[[bytearray, bytes], None]) -> None:
    """A page that only a long value lies in."""
    (path,) = (image.datadir / "t").glob("long@*.ibd")
    content = path.read_bytes()
    pages = [content[at : at + _PAGE] for at in range(0, len(content), _PAGE)]
    first, second, *_ = (at for at, page in enumerate(pages) if struct.unpack_from(">H", page, _TYPE_AT)[0] == _BLOB)
    page = bytearray(pages[first])
    spoilt(page, pages[second])
    pages[first] = bytes(page)
    path.write_bytes(b"".join(pages))


def test_long_values_that_can_be_read_are_proven(image: Image) -> None:
    with image.scratch().running() as server:
        assert [check for check in prove(server, image.manifest) if not check.ok and check.name == "tables"] == []


@pytest.mark.parametrize("spoilt", [a_bit, noise, misdirected])
def test_a_damaged_one_fails_the_proof_and_every_use_of_its_table(
    image: Image, spoilt: Callable[[bytearray, bytes], None]
) -> None:
    spoil(image, spoilt)
    with image.scratch().running() as server:
        (told,) = server.session.query("CHECK TABLE t.`long ``values` MEDIUM")
        assert told["Msg_text"] == "OK"
        (tables,) = (check for check in prove(server, image.manifest) if check.name == "tables")
        assert (tables.ok, "t.long `values: error: reading its long values" in tables.found) == (False, True)
        assert "[ERROR] InnoDB" in tables.found
        with pytest.raises(VerificationError, match=r"it is damaged: reading its long values: .*ERROR. InnoDB"):
            require_long_values(server, Table("t", "long `values"), "it")


@pytest.mark.parametrize(
    "made",
    [
        "(v VARCHAR(3000) NOT NULL) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 1",
        "(id INT PRIMARY KEY, v VARCHAR(700) CHARACTER SET latin1, w TEXT, KEY (v), x INT AS (id) VIRTUAL)",
        "(v TEXT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION h HISTORY, PARTITION n CURRENT)",
        "(u UUID, i INET6, b BIT(9), v BLOB, k VARBINARY(8000))",
    ],
)
def test_whatever_may_be_outside_of_a_row_is_read(mysql_server: MariadbServer, made: str) -> None:
    asked: list[str] = []

    class Told(Session):
        def query(self, statement: str, *values: object) -> list[Row]:
            asked.append(statement)
            return super().query(statement, *values)

    with mysql_server.session() as session:
        session.execute(f"CREATE OR REPLACE TABLE t.made {made}")
        session.__class__ = Told
        server = cast(RunningServer, SimpleNamespace(session=session, error_log=""))
        assert unreadable(server, Table("t", "made"), page_size=_PAGE) == ""
        session.execute("DROP TABLE t.made")
    (reading,) = (statement for statement in asked if "FROM `t`.`made`" in statement)
    assert "SUM(LENGTH(`v`))" in reading
    assert ("FOR SYSTEM_TIME ALL" in reading) == ("VERSIONING" in made)
