"""What is to be typed when there is an alarm can be typed."""

import shlex
from typing import Any

import pytest
from typer.main import get_command

from backupd.cli.main import app
from backupd.service.remedies import remedy
from backupd.vocabulary.alarms import OF_TARGETS, AlarmKind
from backupd.vocabulary.schedule import Activity

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
            typed = remedy(kind, job=job, run_id=run_id, about=about, jobs=jobs)
            program, *words = shlex.split(typed)
            assert program == "backupd"
            command: Any = get_command(app)
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context("backupd", words)  # refuses what is no option, and what has no argument


def test_it_names_what_the_alarm_is_of() -> None:
    assert remedy(AlarmKind.OVERDUE, job="shop", run_id="r1", about="") == "backupd check shop"
    assert remedy(AlarmKind.FAILED, job="shop", run_id="r1", about=Activity.BACKUP) == "backupd show r1"
    assert remedy(AlarmKind.STORAGE_UNREACHABLE, job="", run_id="", about="vault", jobs=("a", "b")) == "backupd check a"
