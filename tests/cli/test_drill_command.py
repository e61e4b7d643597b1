"""`backupd drill` without a run: which backup it proves, and what it says of that."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.config import DrillCheckConfig
from backupd.host.claims import Claims
from backupd.host.operator_name import operator
from backupd.operations import context
from backupd.targets import BackupSource
from backupd.vocabulary.errors import Busy, Cancelled, UsageError
from backupd.vocabulary.records import Check, Drill, DrilledMoment
from backupd.vocabulary.storage import Backup
from tests.cli.terminal import Terminal
from tests.fakes.target import BELIEVED
from tests.story.world import World

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Drills:
    """What was drilled; each drill ends as told, an hour after the one before it."""

    def __init__(self) -> None:
        self.of: list[str] = []
        self.ok = True
        self.undecided = ""
        self.own_ok = True
        self.error: BaseException | None = None
        self.own: list[list[str]] = []  # the job's checks, of each

    def __call__(
        self, sources: Sequence[BackupSource], tools: object, checks: Sequence[DrillCheckConfig] = (), **how: object
    ) -> Drill:
        self.of.append(sources[0].run_id)
        if self.error is not None:
            sources[0].was_read.set()
            raise self.error
        self.own.append([check.sql for check in checks])
        own = tuple(Check(f"checks.{check.name}", self.own_ok, "at least 1", "0", asked=check.sql) for check in checks)
        ok = self.ok and self.own_ok
        made = (Check("tables", ok=self.ok, expected="3", found="3"), *own)
        at = NOW + len(self.of) * timedelta(hours=1)
        return Drill(sources[0].run_id, ok, made, seconds=1, at=at, undecided=self.undecided)


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


def test_a_backup_that_is_being_removed_is_passed_over(
    terminal: Terminal, world: World, drills: Drills, backed_up: None
) -> None:
    with Claims(context.configuration(terminal.configuration).paths.run).removing("r2"):
        ended = terminal.run("drill")
    assert (ended.status, drills.of) == (0, ["r1"])
    assert "run r2 is passed over" in ended.stderr


def test_a_backup_of_which_a_removal_has_left_perhaps_half_is_passed_over(
    terminal: Terminal, world: World, drills: Drills, backed_up: None
) -> None:
    with world.catalogue() as catalogue:
        catalogue.removing("r2", "vault", because="expired")
    assert (terminal.run("drill").status, drills.of) == (0, ["r1"])


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
        told = catalogue.audit_entries(limit=1)[0].detail
        assert (told["ok"], told["undecided"]) == (False, drills.undecided)
        assert (told["operator"], told["uid"]) == (operator().name, operator().uid)
    shown = terminal.run("show", "r2").stdout
    assert "undecided (the server on the restored files was killed (out of memory?))" in shown
    assert terminal.run("show", "r2", "--json").document["drills"][1]["status"] == "undecided"
    assert "yes" in terminal.run("history").stdout


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (UsageError("/srv has 10 B free, and the backup needs 99 B", hint="make room"), 2, "/srv has 10 B free"),
        (Cancelled("stopped by SIGTERM", hint=""), 11, "stopped by SIGTERM"),
        (RuntimeError("a bug"), 1, "RuntimeError: a bug"),
    ],
)
def test_a_drill_that_ends_without_a_result_is_on_record_as_undecided_with_the_reason(
    terminal: Terminal, world: World, drills: Drills, backed_up: None, error: BaseException, status: int, reason: str
) -> None:
    assert terminal.run("drill", "r2").status == 0
    drills.error = error
    assert terminal.run("drill", "r2").status == status
    with world.catalogue() as catalogue:
        run = catalogue.run("r2")
        assert (run.doubted, run.proven_at) == (False, NOW + timedelta(hours=1))
        assert catalogue.besides()["nightly"].drills_failed == 0
        told = catalogue.audit_entries(limit=1)[0]
    assert (told.event, told.detail["ok"], told.detail["targets"]) == ("drilled", False, ["vault"])
    assert told.detail["undecided"].startswith(f"it ended without a result: {reason}")
    evidence = terminal.run("report", "--evidence", "--since", "36500d", "--json")
    row = next(row for row in evidence.document["rows"] if row["kind"] == "drill" and row["outcome"] == "undecided")
    assert (row["good"], row["targets"], row["remarks"]) == (None, ["vault"], [told.detail["undecided"]])
    with world.catalogue() as catalogue:
        assert catalogue.audit_trail().drills == catalogue.audit_trail().chain.drilled
    assert reason in terminal.run("show", "r2").stdout


def test_a_drill_that_another_process_keeps_from_beginning_is_none(
    terminal: Terminal, world: World, drills: Drills, backed_up: None
) -> None:
    drills.error = Busy("run r2 is being drilled")
    assert terminal.run("drill", "r2").status == 4
    assert world.row("r2").drills == ()


def test_backups_without_a_copy_on_the_target_are_passed_over(
    terminal: Terminal, drills: Drills, backed_up: None
) -> None:
    assert terminal.run("drill", "--target", "elsewhere").status == 2
    assert terminal.run("drill", "--target", "vault").status == 0
    assert drills.of == ["r2"]


CHECK = '[jobs.nightly.drill.checks.orders]\nsql = "SELECT {}"\nat_least = 1\n'


def with_checks(terminal: Terminal, text: str) -> Path:
    path = terminal.configuration.with_name("checked.toml")
    path.write_text(f"{terminal.configuration.read_text()}\n{text}")
    return path


def test_a_drill_asks_what_the_job_asks_now(terminal: Terminal, drills: Drills, backed_up: None) -> None:
    for number in (1, 2):
        ended = terminal.run("drill", "r1", configuration=with_checks(terminal, CHECK.format(number)))
        assert ended.status == 0
        assert "ok  checks.orders  0, expected at least 1" in ended.stdout
    assert drills.own == [["SELECT 1"], ["SELECT 2"]]
    shown = terminal.run("show", "r1", "--json").document["drills"]
    assert [drill["checks"][1]["asked"] for drill in shown] == ["SELECT 1", "SELECT 2"]


def test_a_backup_that_fails_the_job_s_own_checks_alone_is_not_called_unreliable(
    terminal: Terminal, drills: Drills, backed_up: None
) -> None:
    drills.own_ok = False
    ended = terminal.run("drill", "r2", configuration=with_checks(terminal, CHECK.format(1)))
    assert ended.status == 9
    assert "the drill of run r2 failed: checks.orders" in ended.stderr
    assert "look at the data, and at [jobs.nightly.drill.checks]" in ended.stderr
    drills.ok = False
    ended = terminal.run("drill", "r2", configuration=with_checks(terminal, CHECK.format(1)))
    assert "the drill of run r2 failed: tables, checks.orders" in ended.stderr
    assert "do not rely on this backup" in ended.stderr


def test_another_machine_s_backup_is_not_asked_what_this_machine_s_are(
    terminal: Terminal, world: World, drills: Drills, backed_up: None
) -> None:
    with direct(world.places.catalogue, busy_timeout_seconds=5) as connection:
        connection.execute("UPDATE runs SET machine = 'db9-12345678' WHERE run_id = 'r1'")
    ended = terminal.run("drill", "r1", configuration=with_checks(terminal, CHECK.format(1)))
    assert drills.own == [[]]
    assert "the checks of job nightly are not run: the backup is of another machine, db9-12345678" in ended.stderr


def test_what_is_wrong_with_a_check_is_told_before_anything_is_restored(terminal: Terminal, drills: Drills) -> None:
    broken = with_checks(terminal, CHECK.format(1).replace("at_least", "at_last"))
    for command in (["config", "check"], ["check", "nightly"], ["drill"]):
        ended = terminal.run(*command, configuration=broken)
        assert ended.status == 2
        assert "jobs.nightly.drill.checks.orders.at_last: unknown key" in ended.stderr
        assert "did you mean at_least?" in ended.stderr


def test_a_drill_that_takes_longer_than_restore_within_is_told_and_its_run_needs_attention(
    terminal: Terminal, world: World, drills: Drills, backed_up: None
) -> None:
    text = terminal.configuration.read_text()
    for within, found in (("2s", ()), ("500ms", ("a drill took longer than restore_within: 1.0 s instead of 500 ms",))):
        terminal.configuration.write_text(text.replace('host = "db1"', f'host = "db1"\nrestore_within = "{within}"'))
        ended = terminal.run("drill", "r2")
        assert (ended.status, "attention: the drill took longer" in ended.stderr) == (0, bool(found))
        with world.catalogue() as catalogue:
            said = catalogue.run("r2").attention
        assert tuple(text for text in said if "took" in text) == found


# --- moments ---------------------------------------------------------------------------------------------------------

MOMENT = DrilledMoment("2026-11-20 03:12:44 UTC", datetime(2026, 11, 20, 3, 12, 44, tzinfo=UTC))


@pytest.fixture
def of_moment(world: World, drills: Drills, backed_up: None, monkeypatch: pytest.MonkeyPatch) -> Drills:
    """The moment that is asked for can be reached from `r2`."""

    def prove(_configuration: object, catalogue: Catalogue, *_: object, **how: object) -> object:
        source = BackupSource(world.target, "nightly", "r2", BELIEVED)
        return catalogue.run("r2"), SimpleNamespace(sources=[source], told=MOMENT)

    def drill(wanted: SimpleNamespace, tools: object, checks: Sequence[DrillCheckConfig] = (), **how: object) -> Drill:
        return replace(drills(wanted.sources, tools, checks), moment=MOMENT)

    monkeypatch.setattr("backupd.cli.drill.moment_to_prove", prove)
    monkeypatch.setattr("backupd.operations.restore.moment.moment_drill.drill_to_moment", drill)
    return drills


def test_a_moment_that_is_not_proven_casts_no_doubt_on_the_backup(
    terminal: Terminal, world: World, of_moment: Drills
) -> None:
    of_moment.ok = False
    ended = terminal.run("drill", "--to-time", "random")
    assert ended.status == 9
    assert "the drill of run r2 to 2026-11-20 03:12:44 UTC failed: tables" in ended.stderr
    assert "hint: `backupd drill r2` tells whether the backup alone is sound" in ended.stderr
    assert "drill to 2026-11-20 03:12:44 UTC: NOT proven in 1.0 s" in ended.stdout
    assert not world.row("r2").doubted
    assert "to 2026-11-20 03:12:44 UTC: FAILED" in terminal.run("show", "r2").stdout
    assert "FAILED, to 2026-11-20 03:12:44 UTC" in terminal.run("history").stdout


def test_a_drill_of_a_moment_that_ends_without_a_result_is_on_record_with_its_moment(
    terminal: Terminal, world: World, of_moment: Drills
) -> None:
    of_moment.error = UsageError("/srv has 10 B free, and the backup needs 99 B", hint="make room")
    assert terminal.run("drill", "--to-latest").status == 2
    (drill,) = world.row("r2").drills
    assert (drill.moment, drill.ok) == (MOMENT, False)
    assert drill.undecided.startswith("it ended without a result: /srv has 10 B free")
    with world.catalogue() as catalogue:
        assert catalogue.audit_entries(limit=1)[0].detail["moment"] == MOMENT.name
    evidence = terminal.run("report", "--evidence", "--since", "36500d", "--json")
    (row,) = [row for row in evidence.document["rows"] if row["kind"] == "drill"]
    assert row["remarks"] == [f"to {MOMENT.name}", drill.undecided]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--to-time", "random", "--to-gtid", "0-1-7"), "a moment is either drawn or named"),
        (("--seed", "7", "--to-latest"), "--seed belongs to --to-time random"),
        (("--to-time", "random", "r1", "--job", "nightly"), "both a run and a job were given"),
        (("--to-time", "random"), "no job archives its binlog"),
        (("--to-latest", "--job", "nightly"), "job nightly archives no binlog"),
        (("--to-time", "random", "r1"), "there is no moment that a drill could restore"),
    ],
)
def test_a_moment_that_cannot_be_drilled_is_refused(
    terminal: Terminal, backed_up: None, words: tuple[str, ...], sentence: str
) -> None:
    refused = terminal.run("drill", *words)
    assert refused.status == 2
    assert sentence in refused.stderr
    assert "hint: " in refused.stderr
