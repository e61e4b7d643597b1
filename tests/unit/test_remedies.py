"""What is to be typed when there is an alarm can be typed."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from backupd.catalogue.store import Catalogue
from backupd.cli.main import app
from backupd.host.run_log import RunLogs
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.service.remedies import remedy
from backupd.vocabulary.alarms import OF_TARGETS, AlarmKind
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import RunError
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.storage import Backup

ABOUT = ("", *Activity)
RUN = "20261121-020000-4e97"


@pytest.mark.parametrize(
    ("kind", "run_id"),
    [(kind, RUN) for kind in AlarmKind] + [(kind, "") for kind in AlarmKind if kind is not AlarmKind.BROKEN],
)
def test_each_alarm_has_a_command_that_backupd_knows(kind: AlarmKind, run_id: str) -> None:
    job, writers = ("", ("nightly",)) if kind in OF_TARGETS else ("nightly", ())
    for about in ABOUT:
        for jobs in (writers, ()):
            require_known(remedy(kind, job=job, run_id=run_id, about=about, jobs=jobs))


def require_known(typed: str) -> None:
    """It can be typed."""
    program, *words = shlex.split(typed, comments=True)
    assert program == "backupd"
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("backupd", words)  # refuses what is no option, and what has no argument


@pytest.mark.parametrize("state", SlotState)
@pytest.mark.parametrize("activity", Activity)
def test_each_failure_answers_with_commands_that_backupd_knows(
    activity: Activity, state: SlotState, tmp_path: Path
) -> None:
    due = datetime(2026, 11, 22, 3, tzinfo=UTC)
    answers = FailureAnswers(RunLogs(tmp_path), "https://db1", lambda _job, _activity: due)
    error = RunError("undecided", "no time", "", ExitStatus.UNDECIDED)
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        found = [
            answers.of_slot(Slot("the job's", activity, due, state, due, RUN), catalogue=catalogue),
            answers.of_check("the job's", catalogue=catalogue),
            answers.of_drill("the job's", RUN, error, catalogue=catalogue),
            answers.of_drill("the job's", RUN, replace(error, exit_status=ExitStatus.VERIFICATION), catalogue=None),
            answers.of("the job's", RUN, replace(error, exit_status=ExitStatus.CLEANUP), catalogue=None),
        ]
    assert found[0]["next try"] == f"the {activity} of 2026-11-22 03:00 UTC"
    assert found[0]["page"] == "https://db1/schedule", "there is no such run"
    for answer in found:
        assert {"another good copy", "next try", "type now", "page"} <= answer.keys()
        for line in answer["type now"].splitlines():
            require_known(line)


def test_how_far_it_has_looked_for_another_copy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be an older one that nobody has removed."""
    monkeypatch.setattr("backupd.operations.upkeep.failure_answers._LOOK_BACK", 1)
    answers = FailureAnswers(RunLogs(tmp_path), "", lambda _job, _activity: None)
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        for run_id in ("r1", "r2"):
            with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
                run.complete([Backup("vault", f"vault/{run_id}", 10, 5, 1, "b" * 64)])
        catalogue.removed("r2", "vault", because="a test")
        assert answers.of_check("nightly", catalogue=catalogue)["another good copy"] == "NO: none of 1 runs"
        monkeypatch.undo()
        found = answers.of_check("nightly", catalogue=catalogue)["another good copy"]
        lost = replace(answers, targets=("another",)).of_check("nightly", catalogue=catalogue)
    assert found.startswith("yes, ")
    assert "run r1 on vault" in found
    assert lost["another good copy"] == "NO: no good backup of this job is left", "nobody reads that target any more"


def test_it_names_what_the_alarm_is_of() -> None:
    assert remedy(AlarmKind.OVERDUE, job="shop", run_id="r1", about="") == "backupd check shop"
    assert remedy(AlarmKind.FAILED, job="shop", run_id="r1", about=Activity.BACKUP) == "backupd show r1"
    assert remedy(AlarmKind.STORAGE_UNREACHABLE, job="", run_id="", about="vault", jobs=("a", "b")) == "backupd check a"
