"""Backups that somebody has removed, or whose target has left the configuration: nothing counts on them, and that is
told.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from backupd import wiring
from backupd.operations.upkeep import additional_copy
from backupd.vocabulary.errors import BackupdError, Cancelled, CatalogueError, ExitStatus, OutputError
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.cli.terminal import Ended
from tests.cli.test_drill_command import Drills
from tests.cli.test_moving_to_another_storage import Move, move

__all__ = ["move"]

BURNT = "the configuration no longer has target old"


def lose(folder: Path, run_id: str) -> None:
    """Somebody removes the backup on the storage."""
    (found,) = folder.glob(f"*/nightly/{run_id}")
    shutil.rmtree(found)


def damage(folder: Path, run_id: str) -> None:
    (found,) = folder.glob(f"*/nightly/{run_id}/data-*")
    os.truncate(found, found.stat().st_size // 2)


def last_good(move: Move) -> tuple[str | None, list[str]]:
    """By `status`, with the kinds of alarms."""
    (job,) = move.type("status", "--json").document["jobs"]
    return job["last_good_run"], [alarm["kind"] for alarm in job["alarms"]]


@pytest.fixture
def burnt(move: Move) -> Move:
    """The job's newest backup, r2, is on a target that has burnt down and was taken out of the configuration."""
    move.configure("new", has=("new",))
    move.type("run", "nightly", "--run-id", "r1")
    move.configure("old")
    move.type("run", "nightly", "--run-id", "r2")
    shutil.rmtree(move.old)
    move.configure("new", has=("new",))
    return move


class Told:
    """A notifier that keeps what it was told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def tell(self, notice: Notice) -> None:
        self.notices.append(notice)


def told_from_losing_r2(move: Move, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Of two backups the newest was removed on the storage: what people are told from now on."""
    told = Told()
    monkeypatch.setattr(wiring, "notifier", lambda configuration: told)
    move.configure("new", has=("new",), more="[jobs.nightly.retention]\nkeep_last = 5\n")
    for run_id in ("r1", "r2"):
        move.type("run", "nightly", "--run-id", run_id)
    lose(move.new, "r2")
    told.notices.clear()
    return told


def test_a_prune_that_finds_the_newest_backup_gone_says_so_wherever_somebody_looks(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_from_losing_r2(move, monkeypatch)

    looked = move.type("prune", "--dry-run")
    assert "backup r2 of job nightly is no longer on target new" in looked.stderr
    assert (last_good(move), told.notices) == (("r2", []), [])
    ended = move.terminal.run("prune")
    assert (ended.status, "backup r2 of job nightly is no longer on target new" in ended.stderr) == (3, True)
    assert last_good(move) == ("r1", ["attention"])
    assert move.terminal.run("status", "--nagios").status == 1
    assert "backup r2 is no longer on the target (new)" in move.type("show", "r1").stdout
    assert [(one.kind, one.job) for one in told.notices] == [(NoticeKind.ATTENTION, "nightly")]
    assert "backup r2 is no longer on target new" in told.notices[0].text
    assert move.type("prune").stderr == ""


@pytest.mark.parametrize("error", [Cancelled("stopped"), CatalogueError("the disk is full")])
def test_what_a_prune_that_breaks_off_has_found_gone_is_told(
    move: Move, monkeypatch: pytest.MonkeyPatch, error: BackupdError
) -> None:
    told = told_from_losing_r2(move, monkeypatch)

    def breaks_off(*_arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("backupd.operations.upkeep.prune.plan_for", breaks_off)
        assert move.terminal.run("prune").status == error.exit_status
    assert ["backup r2 is no longer on target new" in one.text for one in told.notices] == [True]
    move.type("prune")
    assert len(told.notices) == 1


def test_what_is_found_gone_by_the_pruning_after_a_run_is_told_with_that_run(move: Move) -> None:
    move.configure("new", has=("new",), more="[jobs.nightly.retention]\nkeep_last = 5\n")
    for run_id in ("r1", "r2"):
        move.type("run", "nightly", "--run-id", run_id)
    lose(move.new, "r2")
    move.terminal.run("run", "nightly", "--run-id", "r3")
    assert last_good(move) == ("r3", ["attention"])
    assert "backup r2 is no longer on the target (new)" in move.type("show", "r3").stdout


def test_the_newest_backup_that_can_be_read_is_the_last_good_one_and_the_latest(
    burnt: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert last_good(burnt)[0] == "r1"
    for word in ("latest", "latest-good", "as-of=0s", "latest:nightly"):
        assert "run r1 on target new: all of it read back" in burnt.type("verify", word).stdout
    assert burnt.type("pin", "latest", "--note", "x").stdout == "run r1 is pinned: x\n"
    monkeypatch.setattr("backupd.operations.restore.drill.drill", drills := Drills())
    burnt.type("drill", "latest")
    burnt.type("restore", "latest", "--to", str(burnt.world.base / "out"))
    assert drills.of == ["r1"]
    assert {run["run_id"] for run in burnt.type("history", "--json").document["runs"]} == {"r1", "r2"}


def test_every_command_means_the_same_run_and_says_that_it_passed_over_a_newer_one(burnt: Move) -> None:
    gone = "it is on target old, which is no longer in the configuration"
    passed = f"attention: run r2 of job nightly is passed over: {gone}"
    for word in ("latest-good", "as-of=2999-01-01:nightly"):
        shown = burnt.type("show", word, "--json")
        assert (shown.document["run_id"], passed in shown.stderr) == ("r1", True)
        for words in (("compare", word, "r2"), ("log", word), ("verify", word), ("pin", word, "--note", "x")):
            ended = burnt.type(*words)
            assert (words, ended.stderr.count(passed), "r1" in ended.stdout) == (words, 1, True)
    assert passed in burnt.type("unpin", "latest").stderr

    shown = burnt.type("show", "latest", "--json")  # whatever became of it
    assert (shown.document["run_id"], shown.stderr) == ("r2", "")
    assert passed not in burnt.type("verify", "latest", "--target", "new").stderr


def test_who_names_a_backup_out_of_reach_hears_which_one_can_be_read(burnt: Move) -> None:
    ended = burnt.terminal.run("restore", "r2", "--to", str(burnt.world.base / "out"))
    assert ended.status == ExitStatus.USAGE
    assert "run r2 cannot be read from target old, which is no longer in the configuration" in ended.stderr
    assert "the newest backup of job nightly that can be read is run r1, on target new" in ended.stderr


def test_a_job_that_has_backups_only_out_of_reach_has_none(move: Move) -> None:
    move.configure("old", has=("old",))
    move.type("run", "nightly", "--run-id", "r1")
    move.configure("new", has=("new",))
    assert last_good(move) == (None, ["overdue"])
    assert move.terminal.run("status", "--nagios").status == 2
    ended = move.terminal.run("restore", "latest", "--to", str(move.world.base / "out"))
    assert "no backup is on a target that is in the configuration" in ended.stderr
    assert "the newest one, run r1, is on target old" in ended.stderr


def test_retention_removes_none_for_a_newer_one_that_is_out_of_reach(burnt: Move) -> None:
    burnt.configure("new", has=("new",), more="[jobs.nightly.retention]\nkeep_last = 1\n")
    assert "they stay, because the configuration no longer has that target" in burnt.type("prune").stderr
    assert burnt.on(burnt.new) == {"r1"}


@pytest.fixture
def moved(move: Move) -> Move:
    """r1 is on a target that was taken out, r2 and r3 are on the new one."""
    move.configure("old", has=("old",))
    move.type("run", "nightly", "--run-id", "r1")
    move.configure("new", has=("new",))
    for run_id in ("r2", "r3"):
        move.type("run", "nightly", "--run-id", run_id)
    return move


def test_a_target_that_was_taken_out_keeps_nothing_else_of_a_job_from_being_read(moved: Move) -> None:
    ended = moved.type("verify", "--job", "nightly")
    assert f"attention: 1 backup of job nightly cannot be read: {BURNT}" in ended.stderr
    assert ended.stdout.count("all of it read back") == 2

    damage(moved.new, "r2")
    ended = moved.terminal.run("verify", "--job", "nightly", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    told = {run["run_id"]: [copy["status"] for copy in run["copies"]] for run in ended.document["runs"]}
    assert told == {"r3": ["verified"], "r2": ["broken"]}


def test_a_target_that_was_taken_out_keeps_no_drill_from_being_done(
    moved: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.operations.restore.drill.drill", drills := Drills())
    for _ in range(3):
        assert BURNT in moved.type("drill", "--job", "nightly").stderr
    assert drills.of == ["r3", "r2", "r3"]


def test_a_rebuild_of_a_job_that_is_not_there_names_those_that_are(move: Move) -> None:
    move.configure("old", has=("old",))
    move.type("run", "nightly", "--run-id", "r1")
    ended = move.terminal.run("catalogue", "rebuild", "--target", "old", "--job", "nigthly")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "target old has nothing of job 'nigthly'" in ended.stderr
    assert "hint: it has backups of nightly" in ended.stderr
    assert move.type("catalogue", "rebuild", "--target", "old", "--job", "nightly").stdout.startswith(
        "0 new, 1 already"
    )


def on_a_full_disk(monkeypatch: pytest.MonkeyPatch, command: str, move: Move, *arguments: str) -> Ended:
    def full(line: str) -> None:
        raise OutputError(f"stdout could not be written: no space left on device ({line})")

    with monkeypatch.context() as patch:
        patch.setattr(f"backupd.cli.{command}.say", full)
        return move.terminal.run(command, *arguments)


def test_a_copy_whose_line_nobody_takes_is_not_told_as_missing(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    real = additional_copy.copy_run

    def with_attention(route: additional_copy.CopyRoute, run_id: str, **more: object) -> object:
        done = real(route, run_id, **more)  # type: ignore[arg-type]
        assert done is not None
        return replace(done, attentions=("a person should look",))

    monkeypatch.setattr(additional_copy, "copy_run", with_attention)
    move.configure("old")
    for run_id in ("r1", "r2"):
        move.type("run", "nightly", "--run-id", run_id)
    ended = on_a_full_disk(monkeypatch, "copy", move, "--missing", "--from", "old", "--to", "new")
    assert (ended.status, "was not copied" in ended.stderr) == (ExitStatus.USAGE, False)
    assert move.on(move.new) == {"r1", "r2"}
    assert all("a person should look" in move.type("show", run_id).stdout for run_id in ("r1", "r2"))


def test_a_line_that_nobody_takes_keeps_no_other_copy_from_being_read(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    move.configure("new", has=("new",), more="[jobs.nightly.retention]\nkeep_last = 5\n")
    for run_id in ("r1", "r2"):
        move.type("run", "nightly", "--run-id", run_id)
    damage(move.new, "r1")
    assert on_a_full_disk(monkeypatch, "verify", move, "--job", "nightly").status == ExitStatus.VERIFICATION


def test_the_runs_of_a_job_that_was_renamed_can_still_be_asked_for(move: Move) -> None:
    move.configure("new", has=("new",))
    move.type("run", "nightly", "--run-id", "r1")
    toml = move.terminal.configuration
    toml.write_text(toml.read_text().replace("jobs.nightly", "jobs.night"))
    for words in (("history",), ("report",), ("report", "--evidence")):
        assert "nightly" in move.type(*words, "nightly").stdout
        mistyped = move.terminal.run(*words, "nigthly")
        assert (mistyped.status, "no job 'nigthly'" in mistyped.stderr) == (ExitStatus.USAGE, True)
