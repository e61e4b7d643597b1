"""Pages of another size than the backup's: rows arrive, one too wide is refused. Compressed ones can be imported."""

from collections.abc import Iterator

import pytest

from backupd.catalogue.store import Catalogue
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.into_server import into_server, load_recovered
from backupd.operations.restore.table_loading import LoadedTables
from backupd.operations.run_holdings import RunHoldings
from backupd.vocabulary.errors import ExitStatus, Refused, ServerError
from backupd.vocabulary.servers import LoadingWay
from tests.contract.mariadb import MariadbServer, mariadb, mysql_server
from tests.contract.test_loading import AWKWARD, CHILD, SQUEEZED, WIDE, before, catalogue, checksum, definition, schemas
from tests.contract.test_scratch import RUN, Image

pytestmark = pytest.mark.thorough

__all__ = ["before", "catalogue", "mysql_server"]


@pytest.fixture(scope="module")
def small() -> Iterator[MariadbServer]:
    with mariadb("--innodb-page-size=4k", "--skip-log-bin") as server:
        yield server


def load(
    to: MariadbServer, image: Image, catalogue: Catalogue, tables: list[Table], by: LoadingWay | None = None
) -> tuple[LoadedTables, list[str]]:
    told: list[str] = []
    into = into_server("db1", to.connect(), "restored", tables, by=by)
    journal = RunHoldings(catalogue, RUN)
    return load_recovered(image.folder, image.manifest, tables, into, journal, telling=told.append), told


def test_rows_arrive_and_files_are_refused(
    small: MariadbServer, mysql_server: MariadbServer, before: Image, catalogue: Catalogue
) -> None:
    with pytest.raises(Refused, match="its pages are of 4096 bytes, those of the backup of 16384"):
        load(small, before, catalogue, [CHILD], by=LoadingWay.TABLESPACE)
    _, told = load(small, before, catalogue, [CHILD, AWKWARD])
    assert "not by tablespace: its pages are of 4096 bytes, those of the backup of 16384" in told
    with mysql_server.session() as live, small.session() as root:
        for table in ("child", "awkward"):
            assert checksum(root, f"restored.{table}") == checksum(live, f"live.{table}")
        root.execute("DROP DATABASE restored")


@pytest.mark.parametrize("strict", [1, 0], ids=["its table cannot be made", "its row cannot be written"])
def test_a_row_that_is_too_wide_for_a_page_is_refused_and_nothing_is_left(
    small: MariadbServer, before: Image, catalogue: Catalogue, strict: int
) -> None:
    with small.session() as root:
        root.execute(f"SET GLOBAL innodb_strict_mode = {strict}")
        with pytest.raises(ServerError, match="Row size too large") as refused:
            load(small, before, catalogue, [CHILD, WIDE])
        assert "restore it into a folder, with --to DIR" in refused.value.hint
        assert refused.value.exit_status == ExitStatus.SERVER
        assert schemas(root) == {"t"}
        assert root.query("SHOW DATABASES LIKE 'backupd%'") == []
    assert list(catalogue.holdings(RUN)) == []


def test_a_table_of_compressed_rows_can_be_imported(
    mysql_server: MariadbServer, before: Image, catalogue: Catalogue
) -> None:
    _, told = load(mysql_server, before, catalogue, [SQUEEZED], by=LoadingWay.TABLESPACE)
    assert "importing live.squeezed" in told
    with mysql_server.session() as root:
        assert checksum(root, "restored.squeezed") == checksum(root, "live.squeezed")
        assert {row["Msg_text"] for row in root.query("CHECK TABLE restored.squeezed")} == {"OK"}
        assert "ROW_FORMAT=COMPRESSED" in definition(root, "restored.squeezed")
        root.execute("DROP DATABASE restored")
