"""The schema that the migrations make is the schema that the code knows, and an upgrade loses nothing."""

import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from backupd.catalogue import schema, tables
from backupd.catalogue.database import direct, engine_for
from backupd.catalogue.schema import migrations_folder, prepare, upgrade
from backupd.catalogue.store import Catalogue
from backupd.errors import CatalogueError, TargetError
from backupd.model import Backup, Check, Drill, Holding, HoldingKind, Phase, RunDetails, Sample

BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
LV = Holding(HoldingKind.SNAPSHOT, "labvg/bk_bad", {"run": "bad"})

NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("weather", sa.Text(), nullable=False, server_default="fair"))
        runs.alter_column("host", new_column_name="host")
    {more}
"""


@pytest.fixture
def populated(tmp_path: Path) -> Path:
    """A catalogue of the oldest schema with rows in every table that others refer to or that refers to others."""
    path = tmp_path / "catalogue.db"
    with Catalogue.open(path) as catalogue:
        with catalogue.open_run("nightly", "db1", run_id="good") as run:
            run.took(Phase.COPY, 10.0)
            run.samples([Sample(1.0, "settle", iops=5.0)])
            run.attention("look")
            run.complete(BACKUP)
        catalogue.record_drill(Drill("good", True, (Check("tables", True, "3", "3"),), 2.0, datetime.now(UTC)))
        with pytest.raises(TargetError):
            fail_holding(catalogue)
    return path


def fail_holding(catalogue: Catalogue) -> None:
    with catalogue.open_run("nightly", "db1", run_id="bad") as run:
        run.hold(LV)
        raise TargetError("no room")


@pytest.fixture
def future(tmp_path: Path) -> Callable[[str], Path]:
    """Our migrations, and one of tomorrow that rebuilds the table that all others refer to."""

    def write(more: str = "pass") -> Path:
        folder = tmp_path / "migrations"
        shutil.copytree(migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "versions" / "0002_weather.py").write_text(NEXT.format(more=more))
        return folder

    return write


def contents(path: Path) -> tuple[list[RunDetails], list[tuple[str, Holding]]]:
    engine = engine_for(path, busy_timeout_seconds=1)  # past `open`, which would refuse tomorrow's schema
    catalogue = Catalogue(engine, path)
    with catalogue:
        return [catalogue.run(run_id) for run_id in ("good", "bad")], catalogue.holdings()


def rows(path: Path, query: str) -> list[tuple[str, ...]]:
    with direct(path, busy_timeout_seconds=1) as connection:
        return connection.execute(query).fetchall()


def definitions(path: Path) -> dict[str, str]:
    """Every table and index as SQLite keeps it, whatever the order of the constraints and the white space."""
    found = rows(path, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {
        name: ",".join(sorted(" ".join(part.split()) for part in sql.strip("() \n").split(", \n\t")))
        for name, sql in found
    }


def test_the_head_of_the_migrations_is_the_one_that_the_code_knows() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [tables.HEAD]
    assert [script.revision for script in scripts.walk_revisions()][-1] == "0001"


def test_the_migrations_make_the_tables_that_the_code_knows(tmp_path: Path) -> None:
    path = tmp_path / "migrated.db"
    upgrade(path, migrations=migrations_folder())
    engine = engine_for(path, busy_timeout_seconds=1)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert context.get_current_revision() == tables.HEAD
        assert compare_metadata(context, tables.metadata) == []
    engine.dispose()


def test_a_fresh_catalogue_is_what_the_migrations_would_have_made(tmp_path: Path) -> None:
    migrated, fresh = tmp_path / "migrated.db", tmp_path / "fresh.db"
    upgrade(migrated, migrations=migrations_folder())
    prepare(fresh)
    assert definitions(fresh) == definitions(migrated)
    assert len(definitions(fresh)) > 12
    version = "SELECT version_num FROM alembic_version"
    assert rows(fresh, version) == rows(migrated, version) == [(tables.HEAD,)]


def test_an_upgrade_keeps_every_row_and_a_copy_of_what_was(populated: Path, future: Callable[[str], Path]) -> None:
    before = contents(populated)
    upgrade(populated, migrations=future("pass"))
    assert rows(populated, "SELECT run_id, weather FROM runs ORDER BY run_id") == [("bad", "fair"), ("good", "fair")]
    assert contents(populated) == before
    copy = populated.with_name("catalogue.db.before-0002")
    assert contents(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert rows(copy, "SELECT version_num FROM alembic_version") == [("0001",)]
    assert list(populated.parent.glob("*.partial")) == []


def test_an_upgrade_that_was_done_is_not_done_again(populated: Path, future: Callable[[str], Path]) -> None:
    migrations = future("pass")
    upgrade(populated, migrations=migrations)
    copy = populated.with_name("catalogue.db.before-0002")
    copy.unlink()
    upgrade(populated, migrations=migrations)
    assert not copy.exists()


def test_opening_a_catalogue_of_an_older_schema_upgrades_it(
    populated: Path, future: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations = future("pass")
    monkeypatch.setattr(schema, "migrations_folder", lambda: migrations)
    monkeypatch.setattr(tables, "HEAD", "0002")
    with Catalogue.open(populated) as catalogue:
        assert [run.run_id for run in catalogue.runs()] == ["bad", "good"]
    assert rows(populated, "SELECT version_num FROM alembic_version") == [("0002",)]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('op.execute("INSERT INTO runs (nonsense) VALUES (1)")', "refused a statement"),
        ("op.execute(\"DELETE FROM runs WHERE run_id = 'good'\")", "would have lost the run of"),
    ],
)
def test_an_upgrade_that_fails_leaves_the_catalogue_as_it_was(
    populated: Path, future: Callable[[str], Path], more: str, sentence: str
) -> None:
    before, tables_before = contents(populated), definitions(populated)
    with pytest.raises(CatalogueError, match=sentence):
        upgrade(populated, migrations=future(more))
    assert contents(populated) == before
    assert definitions(populated) == tables_before
    assert rows(populated, "SELECT version_num FROM alembic_version") == [("0001",)]


def test_migrations_are_found_beside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "backupd"
    (package / "catalogue").mkdir(parents=True)
    monkeypatch.setattr(schema, "__file__", str(package / "catalogue" / "schema.py"))
    assert migrations_folder() == tmp_path / "site-packages" / "migrations"
    (package / "_migrations").mkdir()
    assert migrations_folder() == package / "_migrations"
