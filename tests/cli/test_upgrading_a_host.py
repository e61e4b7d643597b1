"""Of the page "Service and monitoring", "Upgrading a host, and the way back", walked: no backup is lost on either way.

The newer backupd is this one with a migration of tomorrow. How the daemon drains is told in
tests/story/test_daemon_process.py, how packages replace one another in tests/packaging.
"""

import shutil
from pathlib import Path

import pytest

from backupd.catalogue import schema, tables
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Ended, Terminal
from tests.story.world import World

TOMORROW = "9999"
MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{TOMORROW}", "{tables.HEAD}", None, None


def upgrade() -> None:
    op.add_column("runs", sa.Column("weather", sa.Text(), nullable=False, server_default="fair"))
"""


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Has the newer backupd installed in a context of it."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions/9999_weather.py").write_text(MIGRATION)
    return monkeypatch


def good(ended: Ended) -> Ended:
    assert ended.status == ExitStatus.OK, ended.stderr
    return ended


def runs(terminal: Terminal) -> set[str]:
    return {run["run_id"] for run in good(terminal.run("history", "--json")).document["runs"]}


def test_a_host_is_upgraded_goes_back_and_loses_no_backup(
    terminal: Terminal, world: World, newer: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalogue = world.places.catalogue
    kept = catalogue.with_name(f"{catalogue.name}.before-{TOMORROW}")
    good(terminal.run("run", "nightly", "--run-id", "r1"))
    assert "no job has a schedule" in good(terminal.run("schedule", "list")).stdout
    assert good(terminal.run("serve", "--drain")).stdout == "no daemon is running\n"

    with newer.context() as installed:
        installed.setattr(tables, "HEAD", TOMORROW)
        installed.setattr(schema, "migrations_folder", lambda: tmp_path / "migrations")
        assert runs(terminal) == {"r1"}
        assert kept.exists()
        good(terminal.run("run", "nightly", "--run-id", "r2"))

    refused = terminal.run("status")
    assert refused.status == ExitStatus.CATALOGUE
    assert "was written by a newer backupd" in refused.stderr

    catalogue.rename(catalogue.with_name(f"{catalogue.name}.newer"))
    shutil.copy2(kept, catalogue)
    assert runs(terminal) == {"r1"}
    assert terminal.run("run", "nightly").status == ExitStatus.REFUSED  # without the step that comes now
    good(terminal.run("identity", "adopt", "--yes"))
    good(terminal.run("catalogue", "rebuild", "--target", "vault", "--set-back"))
    good(terminal.run("run", "nightly", "--run-id", "r3"))
    assert runs(terminal) >= {"r1", "r2", "r3"}
