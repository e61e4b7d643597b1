"""The schema that the migrations make is the schema that the code knows, and an upgrade loses nothing."""

import re
import shutil
import sqlite3
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from backupd.catalogue import audit, schema, tables
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


# --- from every revision ----------------------------------------------------------------------------------------------


def chained(*told: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Rows of the audit chain as the store writes them."""
    found: list[dict[str, Any]] = []
    for number, (event, subject, detail) in enumerate(told, 1):
        at = f"2026-11-20T0{number}:00:00.000001+00:00"
        row = {"number": number, "at": at, "event": event, "subject": subject, "detail": detail}
        row["previous"] = found[-1]["digest"] if found else ""
        found.append({**row, "digest": audit.digest(row)})
    return found


PROBED = {
    **{"run_id": "cost", "volume": "labvg/data", "volume_size": 1 << 40, "layout": "striped", "stripes": 3},
    **{"stripe_size": 65536, "pvs": '["/dev/sdb"]', "filesystem": "xfs", "thin": 0, "kernel": "6.1", "lvm": "2.03.16"},
    **{"sysbench": None, "seconds": 5.0, "repeat": 3, "block_size": 16384, "file_size": 1 << 28},
    **{"rewrite_size": 1 << 22, "write_share": 0.75, "chunk_size": 65536, "cow_pvs": "[]", "cow_size": 1 << 30},
    **{"threshold": 1.25, "notes": '["the server wrote"]'},
}
PROBE_ROW = {
    **{"id": 1, "run_id": "cost", "mode": "direct", "threads": 2, "block_size": 16384, "chunk_size": 65536},
    **{"cow_pvs": "[]", "snapshots": 1, "phase": "first", "iops": 120.5, "spread": 0.1, "penalty": 3.3, "repeats": 3},
    **{"bytes_per_second": 1e6, "latency_p95_ms": 9.5, "reads_per_write": 0.9, "writes_per_write": 2.9},
    **{"cow_chunks_per_second": 98.5, "shares": '{"/dev/sdb": 1.0}'},
}
PROBE_CURVE = {
    **{"id": 1, "run_id": "cost", "mode": "rewrite", "threads": 1, "chunk_size": 65536, "cow_pvs": "[]"},
    **{"snapshots": 1, "repeat": 1, "reason": "settled"},
    "points": '[{"at_seconds": 5.0, "iops": 120.0, "ratio": 3.3}]',
}
BENCH = {
    **{"run_id": "disks", "kernel": "6.1", "lvm": "2.03.16", "sysbench": "1.0.20", "fio": None, "mdadm": "4.2"},
    **{"memory": 1 << 34, "processors": 8, "vg": "labvg", "disks": '["/dev/sdb"]', "filesystem": "xfs"},
    **{"file_size": 1 << 28, "volume_size": 1 << 29, "seconds": 1.0, "repeat": 3, "tables": '["e2"]'},
    **{"layouts": '[{"kind": "linear", "disks": ["/dev/sdb"], "stripe_size": 0}]', "notes": '["load 0.1"]'},
}
BENCH_CELL = {
    **{"id": 1, "run_id": "disks", "layout": "linear", "operation": "random-write", "record": 16384, "threads": 2},
    **{"medium": "file", "iops": 240.5, "bytes_per_second": 3.9e6, "spread": 0.04, "repeats": 3},
    **{"latency_p95_ms": None, "shares": '{"/dev/sdb": 1.0}', "system": 0.1, "iowait": 0.5},
}
BENCH_SAMPLE = {
    **{"id": 1, "run_id": "disks", "at_seconds": 1.0, "layout": "linear", "step": "write, round 1"},
    **{"read": "{}", "written": '{"/dev/sdb": 4e7}', "system": 0.1, "iowait": 0.5},
}
BENCH_SNAPSHOT = {
    **{"id": 1, "run_id": "disks", "layout": "linear", "probe_run_id": "disks-1", "chunk_size": 65536},
    **{"origin_read": 5e7, "snapshot_read": 4.8e7, "penalty": 3.5},
}
KIND_SINCE = {"probe": "0002", "bench": "0007"}  # an older catalogue has no run of this kind
ROWS: dict[str, list[dict[str, Any]]] = {  # of every table, as they are stored; an older revision lacks some columns
    "runs": [
        {
            **{"run_id": "good", "job": "nightly", "host": "db1", "status": "success", "pid": 4711},
            **{"process_start": 99, "started_at": "2026-11-20T01:00:00.000001+00:00"},
            **{"ended_at": "2026-11-20T02:00:00+00:00", "kind": "backup"},
        },
        {
            **{"run_id": "bad", "job": "nightly", "host": "db1", "status": "failed", "pid": None},
            **{"process_start": None, "started_at": "2026-11-21T01:00:00.000001+00:00", "ended_at": None},
            "kind": "backup",
        },
        {
            **{"run_id": "cost", "job": "", "host": "", "status": "success", "pid": 7, "process_start": 8},
            **{"started_at": "2026-11-22T01:00:00+00:00", "ended_at": "2026-11-22T01:05:00+00:00", "kind": "probe"},
        },
        {
            **{"run_id": "disks", "job": "", "host": "", "status": "success", "pid": 7, "process_start": 8},
            **{"started_at": "2026-11-23T01:00:00+00:00", "ended_at": "2026-11-23T01:05:00+00:00", "kind": "bench"},
        },
    ],
    "attentions": [{"id": 1, "run_id": "good", "text": "look"}],
    "backups": [
        {
            **{"run_id": "good", "target": "disk", "location": "/backups/nightly/good", "bytes_read": 1000},
            **{"bytes_stored": 400, "files": 12, "sha256": "ab" * 32, "ordinal": 0},
            **{"verified_at": "2026-11-20T02:00:00+00:00", "broken": "", "removed_at": None, "removed_because": ""},
        }
    ],
    "drills": [
        {
            **{"id": 1, "run_id": "good", "ok": 1, "seconds": 2.0, "at": "2026-11-20T03:00:00Z"},
            "checks": '[{"name": "t", "ok": true, "expected": "3", "found": "3"}]',
            "position": '{"binlog_file": "b.7", "binlog_offset": 1, "gtid": null, "replicas": []}',
        }
    ],
    "errors": [{"run_id": "bad", "code": "target-error", "message": "no room", "hint": "make some", "exit_status": 8}],
    "holdings": [
        {
            **{"id": 1, "run_id": "bad", "kind": "snapshot", "name": "labvg/bk_bad", "detail": '{"run": "bad"}'},
            **{"held_at": "2026-11-21T01:00:01+00:00", "released_at": None},
        }
    ],
    "locks": [
        {
            **{"run_id": "good", "strategy": "backup-stage", "tries": 2, "wait_seconds": 0.5, "hold_seconds": 0.031},
            **{"proof": "metadata-locks", "lsn": 1 << 40},
        }
    ],
    "phases": [
        {"run_id": "bad", "phase": "copy", "seconds": 1.5},
        {"run_id": "good", "phase": "copy", "seconds": 10.0},
    ],
    "positions": [
        {
            **{"run_id": "good", "binlog_file": "binlog.000007", "binlog_offset": 4242, "gtid": "0-1-99"},
            **{"replicas": "[]", "derived": 1},
        }
    ],
    "samples": [
        {
            **{"id": 1, "run_id": "good", "at_seconds": 1.0, "stage": "settle", "iops": 5.0, "ratio": 3.0},
            **{"latency_p95_ms": 12.5, "probe_bytes": 4096, "cow_used": 1 << 20, "cow_rate": 55.5},
            **{"replica_lag_seconds": 0.5, "write_latency_ms": 1.25},
        }
    ],
    "snapshots": [
        {
            **{"run_id": "good", "name": "bk_good", "volume": "labvg/data", "layout": "striped", "stripes": 3},
            **{"stripe_size": 65536, "chunk_size": 4096, "cow_size": 1 << 30, "cow_used_peak": 700, "pool": "labvg/p"},
        }
    ],
    "verdicts": [
        {
            **{"run_id": "good", "outcome": "start", "reason": "settled", "detail": "3 windows within 10 %"},
            "waited_seconds": 61.5,
        }
    ],
    "probes": [PROBED],
    "probe_rows": [PROBE_ROW],
    "probe_curves": [PROBE_CURVE],
    "benches": [BENCH],
    "bench_cells": [BENCH_CELL],
    "bench_samples": [BENCH_SAMPLE],
    "bench_snapshots": [BENCH_SNAPSHOT],
    "throughput": [{"run_id": "good", "stage": "read", "ordinal": 0, "bytes": 1000, "busy_seconds": 0.5}],
    "pins": [{"run_id": "good", "note": "before the merger", "at": "2026-11-20T05:00:00+00:00"}],
    "audit": chained(
        ("run-started", "good", '{"host":"db1","job":"nightly","kind":"backup"}'),
        ("run-ended", "good", '{"backups":{"disk":"%s"},"status":"success"}' % ("ab" * 32)),
        ("pinned", "good", '{"note":"before the merger"}'),
    ),
    "slots": [
        {
            **{"job": "nightly", "activity": "backup", "due_at": "2026-11-20T01:00:00.000000+00:00"},
            **{"state": "ended", "decided_at": "2026-11-20T01:00:00.100000+00:00", "run_id": "good", "reason": ""},
            **{"ended_at": "2026-11-20T02:00:00.000000+00:00", "exit_status": 0},
        }
    ],
    "pauses": [{"job": "nightly", "note": "the merger", "at": "2026-11-22T01:00:00.000000+00:00"}],
    "notices": [{"kind": "failed", "job": "nightly", "subject": "bad", "at": "2026-11-21T01:00:02.000000+00:00"}],
}
WHERE_NOT_TOLD: dict[tuple[str, str], Any] = {  # what a column is that the row's revision did not have
    ("runs", "kind"): "backup",
    ("samples", "write_latency_ms"): None,
    ("positions", "derived"): 0,
    ("drills", "position"): None,
    ("snapshots", "pool"): None,
    ("backups", "ordinal"): 0,  # it was its run's only one
    ("backups", "verified_at"): "2026-11-20T02:00:00+00:00",  # it was read back before its run ended
    ("backups", "broken"): "",
    ("backups", "removed_at"): None,
    ("backups", "removed_because"): "",
}


def revisions() -> list[str]:
    """All that the migrations know, the oldest first: one that is added is tested with the others."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


def columns_of(path: Path) -> dict[str, list[str]]:
    """Every table but Alembic's own, with its columns."""
    found: dict[str, list[str]] = {}
    for table, column in rows(
        path,
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
        " WHERE tables.type = 'table' AND tables.name <> 'alembic_version' ORDER BY tables.rowid, columns.cid",
    ):
        found.setdefault(table, []).append(column)
    return found


def stored_in(path: Path, table: str) -> list[dict[str, Any]]:
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")]


AsOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def made_as_of(tmp_path_factory: pytest.TempPathFactory) -> AsOf:
    """Each revision's catalogue, made once: nobody but `as_of` touches it."""
    return cache(lambda revision: make_as_of(tmp_path_factory.mktemp(f"as-of-{revision}"), revision))


@pytest.fixture
def as_of(made_as_of: AsOf, tmp_path: Path) -> AsOf:
    """A copy of it."""
    return lambda revision: Path(shutil.copy(made_as_of(revision), tmp_path))


def make_as_of(folder: Path, revision: str) -> Path:
    """A catalogue of this revision with rows in every table that it had, by the migrations up to it and by SQL."""
    path, until = folder / "catalogue.db", folder / "migrations"
    later = [script.name for script in (migrations_folder() / "versions").glob("*.py") if script.name[:4] > revision]
    shutil.copytree(migrations_folder(), until, ignore=shutil.ignore_patterns("__pycache__", *later))
    upgrade(path, migrations=until)
    known = columns_of(path)
    with direct(path, busy_timeout_seconds=1) as connection:
        for table, columns in known.items():
            for row in ROWS[table]:
                if table == "runs" and revision < KIND_SINCE.get(row["kind"], ""):
                    continue
                marks = ", ".join(f":{column}" for column in columns)
                connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", row)
    return path


@pytest.fixture
def oldest(as_of: AsOf) -> Path:
    return as_of("0001")


@pytest.mark.parametrize("revision", revisions())
def test_every_value_of_every_table_of_every_revision_is_kept(as_of: AsOf, revision: str) -> None:
    path = as_of(revision)
    had = columns_of(path)
    before = {table: stored_in(path, table) for table in had}
    assert all(before.values()), "each table has rows"
    Catalogue.open(path).close()
    has = columns_of(path)
    for table, of_table in before.items():
        added = set(has[table]) - set(had[table])
        expected = [{**row, **{column: WHERE_NOT_TOLD[table, column] for column in added}} for row in of_table]
        assert stored_in(path, table) == expected, table
    assert rows(path, "SELECT * FROM alembic_version") == [(tables.HEAD,)]
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("revision", revisions()[:-1])
def test_what_was_before_every_upgrade_is_kept_beside_it(as_of: AsOf, revision: str) -> None:
    path = as_of(revision)
    before = {table: stored_in(path, table) for table in columns_of(path)}
    Catalogue.open(path).close()
    copy = path.with_name(f"catalogue.db.before-{tables.HEAD}")
    assert {table: stored_in(copy, table) for table in columns_of(copy)} == before
    assert rows(copy, "SELECT * FROM alembic_version") == [(revision,)]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize("revision", revisions())
def test_a_catalogue_of_every_revision_has_our_schema_afterwards(tmp_path: Path, as_of: AsOf, revision: str) -> None:
    path = as_of(revision)
    Catalogue.open(path).close()
    prepare(tmp_path / "fresh.db")
    assert definitions(path) == definitions(tmp_path / "fresh.db")


@pytest.mark.parametrize("revision", [revision for revision in revisions() if revision >= "0005"])
def test_no_upgrade_rewrites_the_audit_chain(as_of: AsOf, revision: str) -> None:
    """To the byte and its type, in the same order on disk; and nobody can change it afterwards."""
    path = as_of(revision)
    whole = "SELECT rowid, " + ", ".join(f"typeof({c}), hex({c})" for c in columns_of(path)["audit"]) + " FROM audit"
    before = rows(path, whole)
    assert len(before) == 3
    with Catalogue.open(path) as catalogue:
        assert rows(path, whole) == before
        assert catalogue.audit_trail().chain.first_fault is None
        catalogue.unpin("good")
        assert catalogue.audit_trail().chain.first_fault is None
    assert rows(path, whole)[:3] == before
    for statement in ("UPDATE audit SET detail = '{}'", "DELETE FROM audit", "REPLACE INTO audit SELECT * FROM audit"):
        with pytest.raises(sqlite3.IntegrityError, match="only appended"):
            rows(path, statement)


def test_the_runs_of_0001_are_backups_and_their_samples_have_no_write_latency(oldest: Path) -> None:
    with Catalogue.open(oldest) as catalogue:
        assert [(run.run_id, run.kind) for run in catalogue.runs()] == [
            ("bad", RunKind.BACKUP), ("good", RunKind.BACKUP)
        ]  # fmt: skip
        assert catalogue.run("good").samples == (Sample(1.0, "settle", 5.0, 3.0, 12.5, 4096, 1 << 20, 55.5, 0.5, None),)
        assert (catalogue.probes(), catalogue.benches()) == ([], [])
        assert [holding for _, holding in catalogue.holdings()] == [LV]


def test_the_backup_of_a_run_of_0001_is_its_only_one_and_was_read_back_when_the_run_ended(oldest: Path) -> None:
    with Catalogue.open(oldest) as catalogue:
        run = catalogue.run("good")
        assert run.backups == (
            Backup("disk", "/backups/nightly/good", 1000, 400, 12, "ab" * 32, verified_at=run.ended_at),
        )
        assert run.backup is not None
        assert (catalogue.audit_head(), catalogue.audit_trail().chain.first_fault) == ("", None)
        catalogue.pin("good", "the audit chain begins here")
        assert catalogue.audit_trail().chain.first_fault is None


# --- where they are --------------------------------------------------------------------------------------------------


def test_migrations_are_found_beside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "backupd"
    (package / "catalogue").mkdir(parents=True)
    monkeypatch.setattr(schema, "__file__", str(package / "catalogue" / "schema.py"))
    assert migrations_folder() == tmp_path / "site-packages" / "migrations"
    (package / "_migrations").mkdir()
    assert migrations_folder() == package / "_migrations"
