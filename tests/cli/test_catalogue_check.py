"""`backupd catalogue check`, and a catalogue that was damaged is rebuilt from what lies on the target."""

from pathlib import Path

from backupd.catalogue.database import direct
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal

PAGE = 4096


def test_a_whole_catalogue_is_told_with_its_size(terminal: Terminal) -> None:
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.OK
    ended = terminal.run("catalogue", "check")
    assert ended.status == ExitStatus.OK
    assert f"the catalogue {terminal.world.places.catalogue} is whole: " in ended.stdout
    assert "MiB" in ended.stdout or "KiB" in ended.stdout


def test_where_there_is_none_none_is_made(terminal: Terminal) -> None:
    ended = terminal.run("catalogue", "check")
    assert ended.status == ExitStatus.CATALOGUE
    assert "there is no catalogue" in ended.stderr
    assert "backupd catalogue rebuild --target T" in ended.stderr
    assert not terminal.world.places.catalogue.exists()


def test_a_damaged_one_is_told_by_day_and_is_rebuilt_with_all_its_backups(terminal: Terminal) -> None:
    catalogue = terminal.world.places.catalogue
    for run_id in ("r1", "r2", "r3"):
        assert terminal.run("run", "nightly", "--run-id", run_id).status == ExitStatus.OK
    damage(catalogue, "ix_samples_run_id")
    checked = terminal.run("catalogue", "check")
    assert checked.status == ExitStatus.CATALOGUE
    assert f"error: the catalogue {catalogue} is damaged: " in checked.stderr
    assert "hint: move the file away with its -wal and -shm" in checked.stderr
    by_day = terminal.run("check", "nightly")
    assert by_day.status == ExitStatus.ATTENTION
    assert "warning  catalogue: its file is damaged: " in by_day.stdout
    machine = terminal.world.name
    catalogue.rename(catalogue.with_name("damaged"))
    assert terminal.run("identity", "adopt", machine, "--yes").status == ExitStatus.OK
    rebuilt = terminal.run("catalogue", "rebuild", "--target", "vault")
    assert rebuilt.status == ExitStatus.OK, rebuilt.stderr
    assert terminal.run("catalogue", "check").status == ExitStatus.OK
    told = terminal.run("history", "--json").document["runs"]
    assert [(run["run_id"], run["status"]) for run in told] == [(one, "success") for one in ("r3", "r2", "r1")]
    assert terminal.run("verify", "r1").status == ExitStatus.OK
    assert terminal.run("run", "nightly").status == ExitStatus.OK


def damage(path: Path, name: str) -> None:
    """The first page of this table or index is zeroed, as a disk does it that has lost a write."""
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE))
