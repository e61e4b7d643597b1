"""The schema that the migrations make is the schema that the code knows, and an upgrade loses nothing."""

import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert

from backupd.catalogue import binlog_tables, schema, tables
from backupd.catalogue.archive_outline import at_places, drawn_rows, ended
from backupd.catalogue.columns import to_row
from backupd.catalogue.database import direct, engine_for
from backupd.catalogue.schema import migrations_folder, prepare, upgrade
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import CatalogueError, TargetError
from backupd.vocabulary.penalty import Sample
from backupd.vocabulary.records import Check, Drill, Holding, HoldingKind, Phase, RunDetails
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import begun_by, chain_of, following, upgraded
from tests.unit.test_failover import AFTER, BEFORE

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


def test_probes_of_an_earlier_backupd_had_linear_cow_areas(tmp_path: Path) -> None:
    folder, path = tmp_path / "migrations", tmp_path / "catalogue.db"
    shutil.copytree(
        migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", "0004_*", "000[5-9]_*", "001*")
    )
    upgrade(path, migrations=folder)
    with direct(path, busy_timeout_seconds=1) as connection:
        for table, known in (("runs", {}), ("probe_rows", {"cow_pvs": "[]", "iops": 9.0})):
            query = f"SELECT name FROM pragma_table_info('{table}') WHERE \"notnull\" AND dflt_value IS NULL AND NOT pk"
            row = dict.fromkeys([name for (name,) in connection.execute(query)], 1) | {"run_id": "p1"} | known
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        connection.commit()
    upgrade(path, migrations=migrations_folder())
    assert rows(path, "SELECT iops, cow_stripes FROM probe_rows") == [(9.0, 1)]


def test_backups_of_an_earlier_backupd_have_no_digest_of_a_manifest_and_nobodys_key_is_known(tmp_path: Path) -> None:
    folder, path = tmp_path / "migrations", tmp_path / "catalogue.db"
    shutil.copytree(migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", "000[5-9]_*", "001*"))
    upgrade(path, migrations=folder)
    with direct(path, busy_timeout_seconds=1) as connection:
        for table, key in (("runs", {"run_id": "r1"}), ("backups", {"run_id": "r1", "target": "disk"})):
            query = f"SELECT name FROM pragma_table_info('{table}') WHERE \"notnull\" AND dflt_value IS NULL AND NOT pk"
            row = dict.fromkeys([name for (name,) in connection.execute(query)], 1) | key
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        connection.commit()
    upgrade(path, migrations=migrations_folder())
    with Catalogue(engine_for(path, busy_timeout_seconds=1), path) as catalogue:
        (backup,) = catalogue.backups_of("r1")
        assert (backup.manifest_digest, backup.recipients) == ("", ())
        assert catalogue.keys("db1-0a1b2c3d") == frozenset()


def test_a_place_in_an_archive_that_an_earlier_backupd_led_over_a_failover_is_found(tmp_path: Path) -> None:
    """A backup's place that is not found needs no segment: retention removed them all."""
    folder, path = tmp_path / "migrations", tmp_path / "catalogue.db"
    shutil.copytree(migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", "0016_*", "001[7-9]_*"))
    upgrade(path, migrations=folder)
    archived = [*BEFORE, *(replace(one, file="binlog.000002") for one in AFTER)]
    engine = engine_for(path, busy_timeout_seconds=1)
    with engine.begin() as connection:
        for one in archived:
            row = {**to_row(one), "spooled": False, "follows": one.number > 1}  # as it was written then
            connection.execute(insert(binlog_tables.segments).values(row))
    upgrade(path, migrations=migrations_folder())
    with engine.connect() as connection:
        found = [at_places(connection, one.machine, "nightly", [BinlogPlace(one.file, one.end)]) for one in archived]
    engine.dispose()
    assert [[one.number for one in those] for those in found] == [[1, 2], [2, 3], [3], [4, 5], [5, 6], [6]]


def test_an_archive_that_an_earlier_backupd_led_over_an_upgrade_of_its_server_ends_there(tmp_path: Path) -> None:
    folder, path = tmp_path / "migrations", tmp_path / "catalogue.db"
    shutil.copytree(migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", "001[7-9]_*"))
    upgrade(path, migrations=folder)
    old = [replace(one, format=begun_by("10.11.19-MariaDB")) for one in chain_of(3)]
    new = upgraded(old[-1], to="11.8.9-MariaDB")
    engine = engine_for(path, busy_timeout_seconds=1)
    with engine.begin() as connection:
        for one in [*old, new, following(new)]:
            row = {**to_row(one), "spooled": False, "follows": one.number > 1}  # as it was written then
            connection.execute(insert(binlog_tables.segments).values(row))
    upgrade(path, migrations=migrations_folder())
    with engine.connect() as connection:
        found = drawn_rows(connection, ended(connection, new.machine, new.job), ())
    engine.dispose()
    assert [(row.segments[0].number, row.segments[-1].number) for row in found] == [(1, 3), (4, 5)]


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


def test_the_copy_has_its_name_durably_before_anything_is_upgraded(
    populated: Path, future: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: list[set[str]] = []
    fsync = os.fsync

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        if (folder := Path(f"/proc/self/fd/{descriptor}")).is_dir():
            durable.append({path.name for path in folder.iterdir()})

    monkeypatch.setattr(os, "fsync", synced)
    upgrade(populated, migrations=future(""))
    assert any(f"catalogue.db.before-{TOMORROW}" in names for names in durable)


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


# --- nothing is lost -------------------------------------------------------------------------------------------------

OF_TYPE: dict[str, Any] = {"INTEGER": 7, "FLOAT": 0.5, "BOOLEAN": 1, "TEXT": "as it was"}


def fill(path: Path) -> None:
    """One row more in every table but the audit chain's, of the run `good` where it belongs to one."""
    with direct(path, busy_timeout_seconds=1) as connection:
        for table, columns in columns_of(path).items():
            row = {name: "good" if name == "run_id" and table != "runs" else OF_TYPE[kind] for name, kind in columns}
            marks = ", ".join(f":{name}" for name in row)
            if table != "audit":
                connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", row)


def columns_of(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Every table but Alembic's own, with the names and types of its columns."""
    found: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in rows(
        path,
        "SELECT tables.name, columns.name, columns.type"
        " FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
        " WHERE tables.type = 'table' AND tables.name <> 'alembic_version' ORDER BY tables.rowid, columns.cid",
    ):
        found.setdefault(table, []).append((column, kind))
    return found


def stored_in(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every value of every table, to its type and byte, in the order on disk; of the columns that the code knows."""
    found = {}
    for name, table in tables.metadata.tables.items():
        columns = ", ".join(f'typeof("{column.name}"), quote("{column.name}")' for column in table.columns)
        found[name] = rows(path, f"SELECT rowid, {columns} FROM {name} ORDER BY rowid")
    return found


def test_an_upgrade_keeps_every_value_of_every_table(populated: Path, future: Callable[[str], Path]) -> None:
    """To the last row of the table that is rebuilt and of those that refer to it, and so does the copy."""
    fill(populated)
    before = stored_in(populated)
    assert all(before.values()), "each table has rows"
    upgrade(populated, migrations=future("pass"))
    assert stored_in(populated) == before
    assert stored_in(populated.with_name(f"catalogue.db.before-{TOMORROW}")) == before
    assert rows(populated, "PRAGMA foreign_key_check") == []
    assert rows(populated, "PRAGMA integrity_check") == [("ok",)]


def test_the_audit_chain_goes_on_after_an_upgrade_and_nobody_can_change_it(
    populated: Path, future: Callable[[str], Path]
) -> None:
    upgrade(populated, migrations=future("pass"))
    before = rows(populated, "SELECT * FROM audit")
    with Catalogue(engine_for(populated, busy_timeout_seconds=1), populated) as catalogue:
        assert catalogue.audit_trail().chain.first_fault is None
        catalogue.pin("good", "after the upgrade")
        assert catalogue.audit_trail().chain.first_fault is None
    assert rows(populated, "SELECT * FROM audit")[: len(before)] == before
    for statement in ("UPDATE audit SET detail = '{}'", "DELETE FROM audit", "REPLACE INTO audit SELECT * FROM audit"):
        with pytest.raises(sqlite3.IntegrityError, match="only appended"):
            rows(populated, statement)


# --- where they are --------------------------------------------------------------------------------------------------


def test_migrations_are_found_beside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "backupd"
    (package / "catalogue").mkdir(parents=True)
    monkeypatch.setattr(schema, "__file__", str(package / "catalogue" / "schema.py"))
    assert migrations_folder() == tmp_path / "site-packages" / "migrations"
    (package / "_migrations").mkdir()
    assert migrations_folder() == package / "_migrations"
