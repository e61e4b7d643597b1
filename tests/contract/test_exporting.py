"""A partial copy of a running server is recovered, and its tables can be imported by another server."""

import os
import shutil
from pathlib import Path

import pytest

from backupd.errors import ServerError
from backupd.exporting import export
from backupd.mysql.locks import ServerLock
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.tablefiles import Table, TableFiles
from tests.contract.mariadb import MariadbServer, mysql_server
from tests.contract.test_scratch import LIMITS, Image, copied, cut, load, manifest

__all__ = ["mysql_server"]

INNODB, MYISAM = Table("t", "innodb"), Table("t", "myisam")


@pytest.fixture
def partial(mysql_server: MariadbServer, tmp_path: Path) -> Image:
    """An image in which only two tables are left, though the redo log speaks of others too."""
    with mysql_server.session() as session, load(mysql_server):
        session.execute("DROP DATABASE IF EXISTS other")
        session.execute("CREATE DATABASE other")
        session.execute("CREATE TABLE other.gone (id INT PRIMARY KEY) ENGINE=InnoDB")
        session.execute("INSERT INTO other.gone SELECT seq FROM other.seq_1_to_5000")
        with ServerLock(mysql_server.connect(), LIMITS).held() as held:
            copied(mysql_server, tmp_path / "data")
    image = Image(tmp_path, manifest(mysql_server, held.position, held.receipt))
    cut(image)
    paths = sorted(image.datadir.rglob("*"), reverse=True)
    names = [str(path.relative_to(tmp_path)) for path in paths]
    files = TableFiles(names, datadir="data", lower_case=False)
    for path, wanted in zip(paths, files.selected(names, [INNODB, MYISAM]), strict=True):
        if not wanted:
            path.rmdir() if path.is_dir() else path.unlink()
    assert not (image.datadir / "other").exists()
    return image


def test_without_its_other_tables_it_starts_only_as_a_partial_copy(partial: Image) -> None:
    with pytest.raises(ServerError, match="did not start"), partial.scratch().running():
        pass
    with ScratchServer(partial.folder, partial.manifest, start_seconds=50, partial=True).running() as server:
        assert int(server.session.value("SELECT COUNT(*) FROM t.innodb") or 0) > 0


def test_an_exported_table_can_be_imported(partial: Image, mysql_server: MariadbServer) -> None:
    innodb, myisam = export(partial.folder, partial.manifest, [INNODB, MYISAM])
    assert {path.suffix for path in innodb.files} >= {".ibd", ".cfg"}
    assert {path.suffix for path in myisam.files} >= {".MYD", ".MYI"}
    assert innodb.statements == partial.folder / "tables" / "t" / "innodb.sql"
    before, _, after = innodb.statements.read_text().replace("`t`", "`back`").partition("-- now copy")
    with mysql_server.session() as session:
        session.execute("DROP DATABASE IF EXISTS back")
        for statement in filter(str.strip, before.split(";\n")):
            session.execute(statement)
        for path in innodb.files:
            if path.suffix != ".frm":
                there = shutil.copy(path, mysql_server.datadir / "back")
                owner = (mysql_server.datadir / "back").stat()
                os.chown(there, owner.st_uid, owner.st_gid)
        session.execute(after.partition("\n")[2].strip().rstrip(";"))
        assert [row["Msg_text"] for row in session.query("CHECK TABLE back.innodb")] == ["OK"]
        assert int(session.value("SELECT COUNT(*) FROM back.innodb") or 0) > 0
        session.execute("DROP DATABASE back")


def test_a_table_that_the_server_does_not_know_leaves_no_export(partial: Image) -> None:
    with pytest.raises(ServerError, match="gone"):
        export(partial.folder, partial.manifest, [INNODB, Table("other", "gone")])
    assert not (partial.folder / "tables").exists()
