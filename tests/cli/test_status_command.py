"""`backupd status`: one screen for a person, one document, one line for Nagios; and what each ends with."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from backupd.catalogue import tables
from backupd.catalogue.store import Catalogue
from backupd.service import site_status
from backupd.vocabulary.errors import Cancelled, ExitStatus, Terminated
from backupd.vocabulary.records import Check, Drill
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from tests.cli.terminal import Terminal
from tests.story.world import World

PLUGIN_LINE = re.compile(r"BACKUPD (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+(\|\S+( \S+)*)?\n")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A host with one good run, `r1`."""
    world = World(tmp_path_factory.mktemp("good"))
    world.back_up("r1")
    return world


@pytest.fixture
def backed_up(terminal: Terminal, world: World, good: World) -> Terminal:
    """The same host's catalogue, to do with as one likes."""
    world.go_on_from(good)
    return terminal


def configure(terminal: Terminal, text: str) -> None:
    terminal.configuration.write_text(terminal.configuration.read_text() + text)


def test_a_job_is_told_on_one_screen(backed_up: Terminal) -> None:
    configure(backed_up, '[jobs.nightly.schedules.backup]\ncron = "30 2 * * *"\nzone = "UTC"\n')
    ended = backed_up.run("status")

    assert ended.status == ExitStatus.OK
    (head, *lines), (target, *of_target) = (part.splitlines() for part in ended.stdout.split("\n\n"))
    assert (head, target) == ("nightly: OK", "target vault: OK")
    assert [line.split("  ")[1] for line in lines] == ["last good", "stored", "last failure", "proof", "next"]
    assert [line.split("  ")[1] for line in of_target] == ["free", "full in", "jobs"]
    assert re.search(r"last good +\S+ \S+ UTC, \d+ \S+ ago, may be \d+ (h|days) old \(run r1\)", ended.stdout)
    assert re.search(r"stored +1 backup on vault, the newest \d+ \S+ old\n", ended.stdout)
    assert re.search(r"last failure +none\n", ended.stdout)
    assert re.search(r"proof +never, no limit set\n", ended.stdout)
    assert re.search(r"next +backup \d{4}-\d\d-\d\d 02:30 UTC\n", ended.stdout)


def test_a_failure_is_told_with_its_sentence_also_when_it_is_over(backed_up: Terminal) -> None:
    world = backed_up.world
    world.database.refuses_lock = True
    assert world.try_to_back_up("r2") is not None
    failed = backed_up.run("status").stdout
    assert failed.startswith("nightly: WARNING\n")
    assert re.search(r"  alarm +the last backup failed: .+ \(run r2\)\n", failed)
    assert re.search(r"  last failure +\S+ \S+ UTC, \S+ \S+ ago \(run r2\)\n", failed)

    world.database.refuses_lock = False
    world.back_up("r3")
    over = backed_up.run("status").stdout
    assert over.startswith("nightly: OK\n")
    assert re.search(r"  last failure +\S+ \S+ UTC, \S+ \S+ ago: .+ \(run r2\)\n", over)


def test_a_try_that_is_planned_is_told_and_is_no_alarm_yet(backed_up: Terminal) -> None:
    configure(backed_up, '[jobs.nightly.schedules.backup]\ncron = "30 2 * * *"\nretries = 2\n')
    now = datetime.now(UTC)
    backed_up.world.database.refuses_lock = True
    assert backed_up.world.try_to_back_up("r2") is not None
    with Catalogue.open(backed_up.world.places.catalogue) as catalogue:
        slot = Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r2")
        catalogue.take_slot(slot)
        catalogue.plan_retry(slot, now + timedelta(minutes=15))
        catalogue.slot_ended(slot, exit_status=6)
    shown = backed_up.run("status").stdout
    assert shown.startswith("nightly: OK\n")
    assert re.search(r"last failure +.+ ago: .+ \(run r2\)\n", shown)
    assert f"try 2 of the backup {now + timedelta(minutes=15):%Y-%m-%d %H:%M} UTC, backup " in shown
    (job,) = backed_up.run("status", "--json").document["jobs"]
    assert job["retry_at"] == (now + timedelta(minutes=15)).isoformat()


def test_the_exit_status_is_0_whatever_it_shows(terminal: Terminal) -> None:
    ended = terminal.run("status", "nightly")
    assert (ended.status, ended.stdout.splitlines()[0]) == (ExitStatus.OK, "nightly: CRITICAL")
    assert "there is no good backup" in ended.stdout


def test_a_pause_and_a_copy_that_was_not_read_back_are_told(backed_up: Terminal) -> None:
    configure(backed_up, '[jobs.nightly.schedules.backup]\ncron = "30 2 * * *"\n')
    backed_up.run("schedule", "pause", "nightly", "--note", "new disks")
    with Catalogue.open(backed_up.world.places.catalogue) as catalogue:
        catalogue._write(update(tables.backups).values(verified_at=None))
    ended = backed_up.run("status")
    assert re.search(r"next +paused: new disks\n", ended.stdout)
    assert ", 1 not verified\n" in ended.stdout
    line = backed_up.run("status", "--nagios").stdout
    assert "; paused: nightly|" in line
    assert "nightly_not_verified=1;;;0" in line


def test_the_document_has_the_same(backed_up: Terminal) -> None:
    (job,) = backed_up.run("status", "--json").document["jobs"]
    assert (job["job"], job["severity"], job["alarms"], job["last_good_run"]) == ("nightly", "ok", [], "r1")
    assert job["allowed_age_seconds"] == 1.5 * 86400
    assert 0 <= job["last_good_age_seconds"] < 600
    assert [(one["target"], one["backups"], one["not_verified"]) for one in job["stored"]] == [("vault", 1, 0)]
    assert (job["last_failure"], job["running"], job["paused"]) == (None, [], None)
    (target,) = backed_up.run("status", "--json").document["targets"]
    assert (target["target"], target["severity"], target["alarms"], target["jobs"]) == ("vault", "ok", [], ["nightly"])
    assert target["up"]
    assert 0 < target["free"] < target["size"]


@pytest.mark.parametrize(("asked", "last"), [(Terminated("by SIGTERM"), "r2"), (Cancelled("by SIGINT"), None)])
def test_the_last_failure_may_be_a_backup_that_the_system_ended_and_is_none_that_a_person_cancelled(
    backed_up: Terminal, asked: Cancelled, last: str | None
) -> None:
    with (
        Catalogue.open(backed_up.world.places.catalogue) as catalogue,
        pytest.raises(Cancelled),
        catalogue.open_run("nightly", "db1", run_id="r2"),
    ):
        raise asked
    (job,) = backed_up.run("status", "--json").document["jobs"]
    assert (job["last_failure"] and job["last_failure"]["run_id"]) == last


def test_a_job_that_is_not_there_is_status_2(terminal: Terminal) -> None:
    ended = terminal.run("status", "weekly")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "error: no job 'weekly'" in ended.stderr


# --- for Nagios -----------------------------------------------------------------------------------------------------


def nagios(terminal: Terminal, *arguments: str, configuration: Path | None = None) -> tuple[int, str]:
    ended = terminal.run("status", *arguments, "--nagios", configuration=configuration)
    assert PLUGIN_LINE.fullmatch(ended.stdout), ended.stdout
    return ended.status, ended.stdout


def test_ok_is_one_line_with_figures(backed_up: Terminal) -> None:
    status, line = nagios(backed_up)
    assert status == 0
    assert re.fullmatch(
        r"BACKUPD OK - nightly: the last good backup is \d+ s old"
        r"\|nightly_age=\d+s;;129600;0 nightly_stored=\d+B;;;0 nightly_not_verified=0;;;0"
        r" vault_free=\d+B;;;0;\d+\n",
        line,
    )


def test_a_failure_after_a_good_backup_is_a_warning(backed_up: Terminal) -> None:
    backed_up.world.database.refuses_lock = True
    backed_up.world.try_to_back_up("r2")
    status, line = nagios(backed_up, "nightly")
    assert status == 1
    assert line.startswith("BACKUPD WARNING - nightly: the last backup failed: ")


@pytest.mark.parametrize("mistyped", [("--jsn",), ("nightly", "weekly"), ("--json",)], ids=" ".join)
def test_a_mistyped_command_is_unknown_rather_than_critical(terminal: Terminal, mistyped: tuple[str, ...]) -> None:
    status, line = nagios(terminal, *mistyped)
    assert status == 3
    assert line.startswith("BACKUPD UNKNOWN - ")


def test_no_good_backup_is_critical(terminal: Terminal) -> None:
    status, line = nagios(terminal)
    assert (status, line.partition("|")[0]) == (2, "BACKUPD CRITICAL - nightly: there is no good backup")


def test_the_gravest_of_several_jobs_counts_and_is_told_first(backed_up: Terminal) -> None:
    configure(backed_up, '[jobs.aside]\nhost = "db1"\ntargets = ["vault"]\n')
    backed_up.world.database.refuses_lock = True
    backed_up.world.try_to_back_up("r2")
    status, line = nagios(backed_up)
    assert status == 2
    assert re.match(r"BACKUPD CRITICAL - aside: there is no good backup; nightly: the last backup failed: ", line)
    assert nagios(backed_up, "nightly")[0] == 1


def test_all_well_of_several_jobs_names_the_oldest(backed_up: Terminal) -> None:
    configure(backed_up, '[jobs.aside]\nhost = "db1"\ntargets = ["vault"]\n')
    with Catalogue.open(backed_up.world.places.catalogue) as catalogue:
        with catalogue.open_run("aside", "db1", run_id="r9") as run:
            run.complete(catalogue.run("r1").backups)
        catalogue.record_drill(Drill("r9", True, (Check("starts", True, "yes", "yes"),), 1.0, datetime.now(UTC)))
    status, line = nagios(backed_up)
    assert status == 0
    assert re.match(r"BACKUPD OK - 2 jobs, the oldest last good backup is \d+ s old \(nightly\)\|", line)
    assert re.search(r" aside_proof_age=\d+s;;;0 ", line)


def test_a_target_that_is_away_is_a_warning_of_the_jobs_that_write_there(backed_up: Terminal) -> None:
    configure(
        backed_up,
        '[targets.offsite]\ntype = "directory"\npath = "/not-mounted"\n'
        '[jobs.aside]\nhost = "db1"\ntargets = ["offsite"]\n',
    )
    status, line = nagios(backed_up)
    away = "target offsite: /not-mounted is missing, not mounted or read-only, or does not answer"
    assert (status, line.partition("|")[0]) == (2, f"BACKUPD CRITICAL - aside: there is no good backup; {away}")
    assert nagios(backed_up, "nightly")[0] == 0
    shown = backed_up.run("status").stdout
    assert "\n\ntarget offsite: WARNING\n" in shown
    assert re.search(r"alarm +/not-mounted is missing.*\n +type now +backupd check aside\n", shown)
    assert "offsite" not in backed_up.run("status", "nightly").stdout
    (target,) = backed_up.run("status", "aside", "--json").document["targets"]
    assert (target["target"], target["severity"], target["up"]) == ("offsite", "warning", False)
    assert [(one["kind"], one["command"]) for one in target["alarms"]] == [
        ("storage-unreachable", "backupd check aside")
    ]


def test_a_proof_host_without_jobs_is_judged_by_its_targets(terminal: Terminal, tmp_path: Path) -> None:
    proof_host = tmp_path / "proof-host.toml"
    places = f'catalogue.path = "{tmp_path}/catalogue.sqlite"\n[prove]\n'
    proof_host.write_text(places)
    unconfigured = "BACKUPD UNKNOWN - no job and no target is configured\n"
    assert nagios(terminal, configuration=proof_host) == (3, unconfigured)
    places += '[targets.vault]\ntype = "directory"\n'
    proof_host.write_text(f'{places}path = "{tmp_path}"\n')
    status, line = nagios(terminal, configuration=proof_host)
    assert (status, line.partition("|")[0]) == (0, "BACKUPD OK - no job is configured")
    proof_host.write_text(f'{places}path = "/not-mounted"\n')
    assert nagios(terminal, configuration=proof_host)[0] == 1


def test_what_prevents_an_answer_is_unknown(
    backed_up: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nagios(backed_up, "weekly") == (
        3,
        "BACKUPD UNKNOWN - no job 'weekly'; hint: configured jobs: nightly\n",
    )
    assert nagios(backed_up, configuration=tmp_path / "none.toml")[0] == 3
    assert nagios(backed_up, "--json")[0] == 3

    empty = tmp_path / "empty.toml"
    empty.write_text(f'catalogue.path = "{backed_up.world.places.catalogue}"\n')
    assert nagios(backed_up, configuration=empty)[0] == 3

    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of ours")

    with monkeypatch.context() as patch:
        patch.setattr(site_status, "job_statuses", bug)
        assert nagios(backed_up) == (3, "BACKUPD UNKNOWN - internal error: ZeroDivisionError\n")

    backed_up.world.places.catalogue.write_bytes(b"torn" * 10_000)
    status, line = nagios(backed_up)
    assert status == 3
    assert "BACKUPD UNKNOWN - the catalogue " in line


def test_what_a_server_said_cannot_forge_figures(backed_up: Terminal) -> None:
    with (
        pytest.raises(RuntimeError),
        Catalogue.open(backed_up.world.places.catalogue) as catalogue,
        catalogue.open_run("nightly", "db1", run_id="r2"),
    ):
        raise RuntimeError("no|nightly_age=0s\nBACKUPD OK - well")
    status, line = nagios(backed_up)
    assert status == 1
    assert line.count("|") == 1
    assert "no/nightly_age=0s" in line
