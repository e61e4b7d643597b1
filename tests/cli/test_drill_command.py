"""`backupd drill` without a run: which backup it proves, and what it says of that."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from backupd.targets import BackupSource
from backupd.vocabulary.records import Check, Drill
from backupd.vocabulary.storage import Backup
from tests.cli.terminal import Terminal
from tests.story.world import World

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Drills:
    """What was drilled; each drill ends as told, an hour after the one before it."""

    def __init__(self) -> None:
        self.of: list[str] = []
        self.ok = True
        self.undecided = ""

    def __call__(self, sources: Sequence[BackupSource], tools: object, **how: object) -> Drill:
        self.of.append(sources[0].run_id)
        checks = (Check("tables", ok=self.ok, expected="3", found="3"),)
        at = NOW + len(self.of) * timedelta(hours=1)
        return Drill(sources[0].run_id, self.ok, checks, seconds=1, at=at, undecided=self.undecided)


@pytest.fixture
def drills(monkeypatch: pytest.MonkeyPatch) -> Drills:
    made = Drills()
    monkeypatch.setattr("backupd.operations.restore.drill.drill", made)
    return made


@pytest.fixture
def backed_up(world: World) -> None:
    """The runs `r1` and `r2`, which is newer, have a backup."""
    with world.catalogue() as catalogue:
        for run_id in ("r1", "r2"):
            with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
                run.complete((Backup("vault", "/vault", bytes_read=1, bytes_stored=1, files=1, sha256=""),))


def test_nothing_to_prove_is_a_matter_of_usage(terminal: Terminal) -> None:
    ended = terminal.run("drill")
    assert ended.status == 2
    assert "there is no backup to drill" in ended.stderr


def test_a_run_and_a_job_are_one_too_many(terminal: Terminal) -> None:
    assert terminal.run("drill", "r1", "--job", "nightly").status == 2
    unknown = terminal.run("drill", "--job", "hourly")
    assert unknown.status == 2
    assert "no job 'hourly'" in unknown.stderr


def test_the_newest_unproven_backup_goes_first_and_then_the_oldest_proof(
    terminal: Terminal, drills: Drills, backed_up: None
) -> None:
    first, second, third = (terminal.run("drill", "--job", "nightly") for _ in range(3))
    assert drills.of == ["r2", "r1", "r2"]
    assert "run r2 of job nightly: the newest that no drill has proven" in first.stderr
    assert "run r1 of job nightly: the newest that no drill has proven" in second.stderr
    assert "run r2 of job nightly: it has the oldest proof, of 2026-11-21 13:00 UTC" in third.stderr


def test_a_backup_whose_drill_failed_is_still_unproven(terminal: Terminal, drills: Drills, backed_up: None) -> None:
    drills.ok = False
    assert terminal.run("drill").status == 9
    assert terminal.run("drill").status == 9
    assert drills.of == ["r2", "r2"]


def test_an_undecided_drill_is_status_14_and_doubts_nothing(
    terminal: Terminal, world: World, drills: Drills, backed_up: None
) -> None:
    assert terminal.run("drill", "r2").status == 0
    drills.ok, drills.undecided = False, "the server on the restored files was killed (out of memory?)"
    ended = terminal.run("drill", "r2")
    assert ended.status == 14
    assert "error: the drill of run r2 was undecided: the server on the restored files was killed" in ended.stderr
    assert "nothing was learned about the backup: drill it again with more time, memory or disk space" in ended.stderr
    with world.catalogue() as catalogue:
        run = catalogue.run("r2")
        assert (run.doubted, run.proven_at) == (False, NOW + timedelta(hours=1))
        assert catalogue.besides()["nightly"].drills_failed == 0
        assert catalogue.audit_entries(limit=1)[0].detail == {"ok": False, "undecided": drills.undecided}
    shown = terminal.run("show", "r2").stdout
    assert "undecided (the server on the restored files was killed (out of memory?))" in shown
    assert terminal.run("show", "r2", "--json").document["drills"][1]["status"] == "undecided"
    assert "yes" in terminal.run("history").stdout


def test_backups_without_a_copy_on_the_target_are_passed_over(
    terminal: Terminal, drills: Drills, backed_up: None
) -> None:
    assert terminal.run("drill", "--target", "elsewhere").status == 2
    assert terminal.run("drill", "--target", "vault").status == 0
    assert drills.of == ["r2"]
