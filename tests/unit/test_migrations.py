"""The schema that the migrations make is the schema that the code knows, and an upgrade loses nothing."""

import re
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
from backupd.model import Backup, Check, Drill, Holding, HoldingKind, Phase, RunDetails, RunKind, Sample

BACKUP = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
LV = Holding(HoldingKind.SNAPSHOT, "labvg/bk_bad", {"run": "bad"})

TOMORROW = "tomorrow"  # a revision that no backupd knows yet

NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{tomorrow}", "{head}", None, None


def upgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("weather", sa.Text(), nullable=False, server_default="fair"))
        runs.alter_column("host", new_column_name="host")
    {more}
"""


@pytest.fixture
def populated(tmp_path: Path) -> Path:
    """A catalogue of our schema with rows in the table that others refer to, and in several that refer to it."""
    path = tmp_path / "catalogue.db"
    with Catalogue.open(path) as catalogue:
        with catalogue.open_run("nightly", "db1", run_id="good") as run:
            run.took(Phase.COPY, 10.0)
            run.samples([Sample(1.0, "settle", iops=5.0)])
            run.attention("look")
            run.complete((BACKUP,))
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
        (folder / "versions" / "weather.py").write_text(NEXT.format(tomorrow=TOMORROW, head=tables.HEAD, more=more))
        return folder

    return write


def contents(path: Path) -> tuple[list[RunDetails], list[tuple[str, Holding]]]:
    engine = engine_for(path, busy_timeout_seconds=1)  # past `open`, which would refuse tomorrow's schema
    catalogue = Catalogue(engine, path)
    with catalogue:
        return [catalogue.run(run_id) for run_id in ("good", "bad")], catalogue.holdings()


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with direct(path, busy_timeout_seconds=1) as connection:
        return connection.execute(query).fetchall()


def definitions(path: Path) -> dict[str, str]:
    """Every table and index as SQLite keeps it, whatever the order of the constraints and the white space.

    Not whatever the order of the columns: that is compared apart.
    """
    found = rows(path, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {
        name: ",".join(sorted(" ".join(part.split()) for part in re.split(r",\s", sql.strip("() \n"))))
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
    for table in tables.metadata.tables:
        columns = f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{table}') ORDER BY cid"
        assert rows(fresh, columns) == rows(migrated, columns)
    version = "SELECT version_num FROM alembic_version"
    assert rows(fresh, version) == rows(migrated, version) == [(tables.HEAD,)]


def test_an_upgrade_keeps_every_row_and_a_copy_of_what_was(populated: Path, future: Callable[[str], Path]) -> None:
    before = contents(populated)
    upgrade(populated, migrations=future("pass"))
    assert rows(populated, "SELECT run_id, weather FROM runs ORDER BY run_id") == [("bad", "fair"), ("good", "fair")]
    assert contents(populated) == before
    copy = populated.with_name(f"catalogue.db.before-{TOMORROW}")
    assert contents(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert rows(copy, "SELECT version_num FROM alembic_version") == [(tables.HEAD,)]
    assert list(populated.parent.glob("*.partial")) == []


def test_an_upgrade_that_was_done_is_not_done_again(populated: Path, future: Callable[[str], Path]) -> None:
    migrations = future("pass")
    upgrade(populated, migrations=migrations)
    copy = populated.with_name(f"catalogue.db.before-{TOMORROW}")
    copy.unlink()
    upgrade(populated, migrations=migrations)
    assert not copy.exists()


def test_opening_a_catalogue_of_an_older_schema_upgrades_it(
    populated: Path, future: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations = future("pass")
    monkeypatch.setattr(schema, "migrations_folder", lambda: migrations)
    monkeypatch.setattr(tables, "HEAD", TOMORROW)
    with Catalogue.open(populated) as catalogue:
        assert [run.run_id for run in catalogue.runs()] == ["bad", "good"]
    assert rows(populated, "SELECT version_num FROM alembic_version") == [(TOMORROW,)]


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
    assert rows(populated, "SELECT version_num FROM alembic_version") == [(tables.HEAD,)]


# --- 0002 ------------------------------------------------------------------------------------------------------------

FIRST_ROWS: dict[str, list[tuple[Any, ...]]] = {  # of every table of 0001, as the backupd of that time wrote them
    "runs": [
        (
            "good",
            "nightly",
            "db1",
            "success",
            4711,
            99,
            "2026-11-20T01:00:00.000001+00:00",
            "2026-11-20T02:00:00+00:00",
        ),
        ("bad", "nightly", "db1", "failed", None, None, "2026-11-21T01:00:00.000001+00:00", None),
    ],
    "attentions": [(1, "good", "look")],
    "backups": [("good", "disk", "/backups/nightly/good", 1000, 400, 12, "ab" * 32)],
    "drills": [
        (1, "good", 1, '[{"name": "t", "ok": true, "expected": "3", "found": "3"}]', 2.0, "2026-11-20T03:00:00Z")
    ],
    "errors": [("bad", "target-error", "no room", "make some", 8)],
    "holdings": [(1, "bad", "snapshot", "labvg/bk_bad", '{"run": "bad"}', "2026-11-21T01:00:01+00:00", None)],
    "locks": [("good", "backup-stage", 2, 0.5, 0.031, "metadata-locks", 1 << 40)],
    "phases": [("bad", "copy", 1.5), ("good", "copy", 10.0)],
    "positions": [("good", "binlog.000007", 4242, "0-1-99", "[]")],
    "samples": [(1, "good", 1.0, "settle", 5.0, 3.0, 12.5, 4096, 1 << 20, 55.5, 0.5)],
    "snapshots": [("good", "bk_good", "labvg/data", "striped", 3, 65536, 4096, 1 << 30, 700)],
    "verdicts": [("good", "start", "settled", "3 windows within 10 %", 61.5)],
}


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    """A catalogue of 0001 with rows in every table."""
    path, folder = tmp_path / "catalogue.db", tmp_path / "as-of-0001"
    later = [script.name for script in (migrations_folder() / "versions").glob("*.py") if script.name[:4] > "0001"]
    shutil.copytree(migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", *later))
    upgrade(path, migrations=folder)
    with direct(path, busy_timeout_seconds=1) as connection:
        for table, of_table in FIRST_ROWS.items():
            marks = ", ".join("?" * len(of_table[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", of_table)
    return path


def first_columns(path: Path, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table as 0001 knew it: what was added stands behind."""
    return [row[: len(FIRST_ROWS[table][0])] for row in rows(path, f"SELECT * FROM {table} ORDER BY rowid")]


def test_the_rows_of_every_table_of_0001_are_kept(oldest: Path) -> None:
    known = {name for (name,) in rows(oldest, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert known - {"alembic_version"} == set(FIRST_ROWS)
    Catalogue.open(oldest).close()
    for path in (oldest, oldest.with_name(f"catalogue.db.before-{tables.HEAD}")):
        assert {table: first_columns(path, table) for table in FIRST_ROWS} == FIRST_ROWS
        assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(oldest.with_name(f"catalogue.db.before-{tables.HEAD}"), "SELECT * FROM alembic_version") == [("0001",)]
    assert rows(oldest, "SELECT * FROM alembic_version") == [(tables.HEAD,)]


def test_the_runs_of_0001_are_backups_and_their_samples_have_no_write_latency(oldest: Path) -> None:
    with Catalogue.open(oldest) as catalogue:
        assert [(run.run_id, run.kind) for run in catalogue.runs()] == [
            ("bad", RunKind.BACKUP), ("good", RunKind.BACKUP)
        ]  # fmt: skip
        assert catalogue.run("good").samples == (Sample(1.0, "settle", 5.0, 3.0, 12.5, 4096, 1 << 20, 55.5, 0.5, None),)
        assert catalogue.probes() == []
        assert [holding for _, holding in catalogue.holdings()] == [LV]


def test_the_backup_of_a_run_of_0001_is_its_only_one_and_was_read_back_when_the_run_ended(oldest: Path) -> None:
    with Catalogue.open(oldest) as catalogue:
        run = catalogue.run("good")
        assert run.backups == (
            Backup("disk", "/backups/nightly/good", 1000, 400, 12, "ab" * 32, verified_at=run.ended_at),
        )
        assert run.backup is not None
        assert (catalogue.audit_head(), catalogue.audit_verify()) == ("", None)
        catalogue.pin("good", "the audit chain begins here")
        assert catalogue.audit_verify() is None


def test_a_catalogue_of_0001_has_our_schema_afterwards(oldest: Path, tmp_path: Path) -> None:
    Catalogue.open(oldest).close()
    prepare(tmp_path / "fresh.db")
    assert definitions(oldest) == definitions(tmp_path / "fresh.db")


# --- where they are --------------------------------------------------------------------------------------------------


def test_migrations_are_found_beside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "backupd"
    (package / "catalogue").mkdir(parents=True)
    monkeypatch.setattr(schema, "__file__", str(package / "catalogue" / "schema.py"))
    assert migrations_folder() == tmp_path / "site-packages" / "migrations"
    (package / "_migrations").mkdir()
    assert migrations_folder() == package / "_migrations"
