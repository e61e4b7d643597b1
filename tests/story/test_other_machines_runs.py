"""Runs of another machine, which `catalogue rebuild --from` brought in, can be restored and say nothing of ours."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backupd.catalogue.details import Filter
from backupd.catalogue.store import Catalogue
from backupd.cli.selection import run_of
from backupd.config import Configuration
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import GOOD, Drill, RunDetails
from tests.story.world import World

OTHER = "db2-0a1b2c3e"
LATER = timedelta(days=1)

Question = Callable[[Catalogue], Any]
QUESTIONS: dict[str, Question] = {
    "latest": lambda catalogue: catalogue.run("latest").run_id,
    "latest of the job": lambda catalogue: catalogue.run("latest:nightly").run_id,
    "what to restore": lambda catalogue: run_of(Configuration(), catalogue, "latest", target="vault").run_id,
    "what to prove": lambda catalogue: [run.run_id for run in catalogue.newest_unproven()],
    "the forecast of a copy": lambda catalogue: catalogue.last_copy("nightly"),
    "the forecast of its size": lambda catalogue: catalogue.last_stored_bytes("nightly"),
    "its volume": lambda catalogue: catalogue.last_volume("nightly"),
    "how the job stands": lambda catalogue: catalogue.records(["nightly"], at=datetime.now(UTC) + 2 * LATER),
    "how many runs there were": lambda catalogue: catalogue.run_counts(),
    "what is stored": lambda catalogue: catalogue.stored(),
    "what retention decides of": lambda catalogue: list(catalogue.on_target("nightly", "vault")),
    "what it costs": lambda catalogue: catalogue.costs(ours=True),
    "what it costs over time": lambda catalogue: catalogue.costs_over_time(Filter("nightly", statuses=GOOD, ours=True)),
    "what happened beside": lambda catalogue: catalogue.besides(),
    "what it was before": lambda catalogue: [run.run_id for run in catalogue.runs(job="nightly", ours=True)],
}


def of_another(run: RunDetails, run_id: str, *, job: str, broken: str = "") -> RunDetails:
    """The same as if another machine had taken it a day later, with a proof; larger, slower, elsewhere."""
    at = run.started_at + LATER
    assert run.snapshot is not None
    return replace(
        run,
        run_id=run_id,
        job=job,
        machine=OTHER,
        started_at=at,
        ended_at=at,
        snapshot=replace(run.snapshot, volume="othervg/data"),
        backups=tuple(replace(backup, bytes_stored=10**15, broken=broken) for backup in run.backups),
        drills=(Drill(run_id, ok=True, checks=(), seconds=1.0, at=at),),
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newer_run_of_another_machine_changes_no_answer_about_the_job(world: World, question: str) -> None:
    ask = QUESTIONS[question]
    run = world.back_up()
    with world.catalogue() as catalogue:
        before = ask(catalogue)
        assert catalogue.import_run(of_another(run, "theirs", job="nightly"))
        assert catalogue.import_run(of_another(run, "broken", job="nightly", broken="its first byte"))
        assert catalogue.import_run(of_another(run, "elsewhere", job="weekly"))
        assert ask(catalogue) == before


def test_a_run_of_another_machine_is_listed_with_its_machine_and_found_by_its_id(world: World) -> None:
    run = world.back_up()
    with world.catalogue() as catalogue:
        catalogue.import_run(of_another(run, "theirs", job="nightly"))
        assert [(one.run_id, one.machine) for one in catalogue.runs()] == [("theirs", OTHER), ("r1", world.name)]
        assert [(one.run_id, one.machine) for one in catalogue.costs()] == [("theirs", OTHER), ("r1", world.name)]
        assert run_of(Configuration(), catalogue, "theirs").machine == OTHER
        catalogue.verified("theirs", "vault", run.started_at + LATER)
        assert catalogue.run("theirs").backups[0].verified_at == run.started_at + LATER


def test_where_there_are_only_another_machines_backups_the_latest_is_none_and_says_how_to_name_one(
    world: World,
) -> None:
    run = world.back_up()
    theirs = of_another(run, "theirs", job="weekly")
    with world.catalogue() as catalogue:
        catalogue.import_run(theirs)
        with pytest.raises(UsageError, match="no backup of job weekly") as refused:
            run_of(Configuration(), catalogue, "latest:weekly")
    assert f"another machine by its id, such as theirs, the newest one, of job weekly of {OTHER}" in refused.value.hint


def test_a_run_whose_names_are_no_text_is_entered_with_their_bytes_spelt_out(world: World) -> None:
    run = replace(world.back_up(), run_id="theirs", machine=OTHER, host="caf\udce9")
    with world.catalogue() as catalogue:
        assert catalogue.import_run(run)
        assert catalogue.run("theirs").host == "caf\\udce9"
