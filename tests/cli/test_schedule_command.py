"""`backupd schedule` as a person meets it: what is due, what is refused, and a pause that stays."""

import os
import shutil
import signal
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from backupd import wiring
from backupd.config import load
from backupd.host.claims import Claims
from backupd.notifications import Notifier
from backupd.policy.timetable import stable_offset
from backupd.service.launch import mark_of
from backupd.service.timetables import timetables
from backupd.vocabulary.errors import ExitStatus, ServerError
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from tests.cli.terminal import Terminal
from tests.story.world import World

SCHEDULES = """
    [service]
    zone = "Europe/Berlin"
    [jobs.nightly.schedules.backup]
    cron = "30 2 * * *"
    spread = "1h"
    [jobs.nightly.schedules.probe]
    cron = "0 4 * * Sun"
    zone = "America/New_York"
    start_within = "90m"
"""
IN_WINTER = datetime(2026, 1, 10, 12, tzinfo=UTC)
FROM = ("--from", "2026-03-28T00:00:00Z")
BERLIN = ("--cron", "30 2 * * *", "--tz", "Europe/Berlin")


@pytest.fixture
def terminal(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """`backupd` on a host whose only job has two schedules."""
    monkeypatch.setattr("socket.gethostname", lambda: "db1.example")
    terminal = Terminal(world, monkeypatch, capsys)
    terminal.configuration.write_text(terminal.configuration.read_text() + SCHEDULES)
    return terminal


def test_the_tries_of_a_slot_are_told(terminal: Terminal) -> None:
    now = datetime.now(UTC)
    terminal.configuration.write_text(terminal.configuration.read_text().replace('spread = "1h"', "retries = 2"))
    with terminal.world.catalogue() as catalogue:
        slot = Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r1")
        catalogue.take_slot(slot)
        catalogue.plan_retry(slot, now + timedelta(minutes=15))
        catalogue.slot_ended(slot, exit_status=6)
        listed = terminal.run("schedule", "list").stdout
        assert f"{now:%Y-%m-%d %H:%M} failed, next try {now + timedelta(minutes=15):%H:%M} UTC" in listed
        again = replace(slot, run_id="r2", tried=("r1",))
        catalogue.take_retry(slot, again)
    assert f"{now:%Y-%m-%d %H:%M} try 2 of 3 started" in terminal.run("schedule", "list").stdout
    (last,) = [
        entry["last"]
        for entry in terminal.run("schedule", "list", "--json").document["schedules"]
        if entry["activity"] == "backup"
    ]
    assert (last["try"], last["run_id"], last["retry_at"]) == (2, "r2", None)


def test_a_run_of_a_slot_plans_its_next_try_and_one_by_hand_does_not(terminal: Terminal) -> None:
    now = datetime.now(UTC)
    text = terminal.configuration.read_text()
    terminal.configuration.write_text(
        text.replace('spread = "1h"', "retries = 2")
        .replace('"30 2 * * *"', f'"{now:%M %H} * * *"')
        .replace("Europe/Berlin", "UTC")
    )
    terminal.world.database.refuses_lock = True
    assert terminal.run("run", "nightly", "--run-id", "by-hand").status == ExitStatus.SERVER
    with terminal.world.catalogue() as catalogue:
        catalogue.take_slot(Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r1"))
        ended = terminal.run("run", "nightly", "--run-id", "r1")
        assert ended.status == ExitStatus.SERVER
        error = catalogue.run("r1").error
        assert error is not None
        (slot,) = catalogue.slots(job="nightly")
        assert slot.retry_at is not None
        assert timedelta(minutes=14) < slot.retry_at - now < timedelta(minutes=16)
        catalogue.slot_ended(slot, exit_status=ended.status)
    assert "try 2 of 3" in ended.stderr
    listed = terminal.run("schedule", "list").stdout.splitlines()[1]
    assert listed.endswith(f" failed, next try {slot.retry_at:%H:%M} UTC: {error.first_line}")
    assert terminal.run("schedule", "list", "--json").document["schedules"][0]["last"]["error"] == error.first_line


def test_a_run_that_comes_once_its_slot_has_ended_begins_nothing(terminal: Terminal) -> None:
    """Systemd took too long to answer, and has started it all the same, hours later."""
    now = datetime.now(UTC)
    with terminal.world.catalogue() as catalogue:
        catalogue.take_slot(slot := Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r1"))
        catalogue.slot_ended(slot, exit_status=1)
        ended = terminal.run("run", "nightly", "--run-id", "r1")
        assert (ended.status, ended.stdout) == (ExitStatus.CANCELLED, "")
        assert "error: run r1 does not begin: the slot that it was started in has ended" in ended.stderr
        assert (catalogue.runs(), catalogue.slots()[0].exit_status) == ([], 1)
    assert (terminal.world.left(), terminal.world.stored()) == ([], [])


@pytest.mark.parametrize("stopped", [False, True])
def test_a_good_run_that_is_asked_for_once_more_is_no_new_backup(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    """A command line out of the journal is typed again, or stopped as it begins; that run's process is long gone."""
    now, heard = datetime.now(UTC), Mock(Notifier)
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.OK
    with closing(sqlite3.connect(terminal.world.places.catalogue)) as database, database:
        database.execute("UPDATE runs SET pid = 1")
    monkeypatch.setattr(wiring, "notifier", lambda _configuration: heard)
    with terminal.world.catalogue() as catalogue:
        catalogue.take_slot(slot := Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r1"))
        if stopped:
            monkeypatch.setattr(wiring, "tools", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        else:
            catalogue.slot_ended(slot, exit_status=0)
        again = terminal.run("run", "nightly", "--run-id", "r1")
        assert (again.status, again.stdout, heard.tell.call_args_list) == (ExitStatus.CANCELLED, "", [])
        assert [run.run_id for run in catalogue.runs()] == ["r1"]


def test_a_slot_that_ended_in_failure_shows_the_error_of_its_own_run(terminal: Terminal) -> None:
    now = datetime.now(UTC)
    with terminal.world.catalogue() as catalogue:
        catalogue.take_slot(slot := Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r1"))
        for run_id, words in (("r1", "the server is away\nsince noon"), ("r2", "by hand")):
            with suppress(ServerError), catalogue.open_run("nightly", "db1", run_id=run_id):
                raise ServerError(words, hint="")
        catalogue.slot_ended(slot, exit_status=ExitStatus.SERVER)
    meaning = ExitStatus.SERVER.meaning
    listed = terminal.run("schedule", "list").stdout.splitlines()[1]
    assert listed.endswith(f"  {now:%Y-%m-%d %H:%M} {meaning}: the server is away")


@pytest.mark.parametrize(
    ("slot_of", "typed", "kept"),
    [
        ("prune", ("prune", "nightly"), ExitStatus.OK),
        ("verify", ("verify", "--job", "nightly"), ExitStatus.TARGET),
        ("check", ("check", "nightly", "--notify"), ExitStatus.REFUSED),
        ("verify", ("schedule", "list"), None),
    ],
)
def test_what_a_schedule_has_started_leaves_its_status_in_its_slot_and_what_that_starts_does_not(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, slot_of: str, typed: tuple[str, ...], kept: int | None
) -> None:
    now = datetime.now(UTC)
    assert terminal.run("run", "nightly").status == 0
    if kept:
        shutil.rmtree(terminal.world.vault)
    slot = Slot("nightly", Activity(slot_of), now, SlotState.STARTED, now)
    monkeypatch.setenv("BACKUPD_SLOT", mark_of(slot))
    with terminal.world.catalogue() as catalogue:
        catalogue.take_slot(slot)
        ended = terminal.run(*typed)
        (found,) = catalogue.slots(job="nightly")
    assert (found.state, found.exit_status) == (SlotState.STARTED, kept)
    assert kept in (ended.status, None)


# --- next -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give either a job or --cron"),
        (("nightly", "--cron", "* * * * *"), "give either a job or --cron"),
        (("nightly", "--tz", "UTC"), "--tz is for --cron"),
        ((*BERLIN, "--activity", "probe"), "--activity is for a job"),
        (("--cron", "30 2 * *"), "has 4 fields"),
        (("--cron", "0 30 2 * * *"), "has 6 fields"),
        (("--cron", "61 2 * * *"), '"61" is not a valid minute'),
        (("--cron", "0 0 31 2 *"), "never occurs: there is no such day"),
        (("--cron", "@daily"), "does not have five cron fields"),
        (("--cron", "@daily\n0"), "has 2 fields"),
        (("--cron", "0 0 * * *", "--tz", "Europe/Berln"), 'unknown time zone "Europe/Berln"'),
        (("--cron", "0 0 * * *", "--tz", "../../etc/passwd"), "unknown time zone"),
        ((*BERLIN, "--from", "tomorrow"), "'tomorrow' is not a time"),
        ((*BERLIN, "--from", "2026-02-30"), "'2026-02-30' is not a time"),
        ((*BERLIN, "--from", "9999-12-31T23:00:00Z"), "it is never due between"),
        ((*BERLIN, "--from", "0001-01-01T00:00:00+14:00"), "is not a time"),
        (("weekly",), "no job 'weekly'"),
        (("nightly", "--activity", "drill"), "job nightly has no schedule for drill"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_a_hint(
    terminal: Terminal, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = terminal.run("schedule", "next", *arguments, "--json")
    assert ended.status == ExitStatus.USAGE
    first, second = ended.stderr.splitlines()
    assert first.startswith("error: ")
    assert sentence in first
    assert second.startswith("hint: ")
    assert ended.document["error"]["message"] in first


@pytest.mark.parametrize("count", ["0", "-1", "1000001", "x"])
def test_a_count_that_cannot_be_is_refused(terminal: Terminal, count: str) -> None:
    assert terminal.run("schedule", "next", *BERLIN, "--count", count).status == ExitStatus.USAGE


def test_times_are_told_in_utc_and_none_is_skipped_where_the_clock_jumps(terminal: Terminal) -> None:
    ended = terminal.run("schedule", "next", *BERLIN, *FROM, "--count", "3", "--json")
    assert ended.status == 0
    assert ended.document == {
        "schema": 1,
        "times": ["2026-03-28T01:30:00+00:00", "2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00"],
    }


def test_people_are_told_both_clocks(terminal: Terminal) -> None:
    ended = terminal.run("schedule", "next", *BERLIN, *FROM, "--count", "2")
    head, first, second = ended.stdout.splitlines()
    assert head.split() == ["EUROPE/BERLIN", "UTC"]
    assert first.split() == ["Sat", "2026-03-28", "02:30:00", "+0100", "2026-03-28", "01:30:00"]
    assert second.split() == ["Sun", "2026-03-29", "03:00:00", "+0200", "2026-03-29", "01:00:00"]


def test_a_time_without_an_offset_is_of_the_zones_clock(terminal: Terminal) -> None:
    ended = terminal.run("schedule", "next", *BERLIN, "--from", "2026-06-01T02:29", "--count", "1", "--json")
    assert ended.document["times"] == ["2026-06-01T00:30:00+00:00"]
    ended = terminal.run("schedule", "next", *BERLIN, "--from", "2026-06-01 02:30", "--count", "1", "--json")
    assert ended.document["times"] == ["2026-06-02T00:30:00+00:00"]


def test_an_expression_needs_no_configuration_and_goes_by_the_machines_zone_then(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setattr("backupd.operations.context.DEFAULT_PATH", tmp_path / "none.toml")
    monkeypatch.setenv("BACKUPD_CONFIG", str(tmp_path / "none.toml"))
    ended = terminal.type("schedule", "next", "--cron", "0 6 * * *", *FROM, "--count", "1", "--json")
    assert ended.document["times"] == ["2026-03-28T00:15:00+00:00"]


def test_an_expression_without_a_zone_goes_by_the_services(terminal: Terminal) -> None:
    ended = terminal.run("schedule", "next", "--cron", "30 2 * * *", *FROM, "--count", "1", "--json")
    assert ended.document["times"] == ["2026-03-28T01:30:00+00:00"]


def test_a_jobs_times_have_the_offset_that_belongs_to_this_host(terminal: Terminal) -> None:
    offset = timedelta(seconds=stable_offset(3600, "db1.example", "nightly", "backup"))
    assert offset > timedelta(0)
    ended = terminal.run("schedule", "next", "nightly", *FROM, "--count", "1", "--json")
    due = datetime(2026, 3, 28, 1, 30, tzinfo=UTC) + offset
    assert ended.document["times"] == [due.isoformat()]
    ended = terminal.run("schedule", "next", "nightly", "--activity", "probe", *FROM, "--count", "1", "--json")
    assert ended.document["times"] == ["2026-03-29T08:00:00+00:00"]


# --- list, pause, resume ----------------------------------------------------------------------------------------------


def test_a_list_of_no_schedules_says_so(world: World, terminal: Terminal) -> None:
    text = terminal.configuration.read_text()
    terminal.configuration.write_text(text.replace(SCHEDULES, ""))
    assert terminal.run("schedule", "list").stdout == "no job has a schedule\n"
    assert terminal.run("schedule", "list", "--json").document == {"schema": 1, "schedules": []}
    refused = terminal.run("schedule", "pause", "nightly")
    assert (refused.status, refused.stdout) == (ExitStatus.USAGE, "")
    assert "job nightly has no schedule" in refused.stderr


def test_the_list_has_every_schedule_with_its_next_time_by_both_clocks(terminal: Terminal) -> None:
    backup, probe = terminal.run("schedule", "list", "--json").document["schedules"]
    assert (backup["job"], backup["activity"], backup["cron"], backup["zone"]) == (
        "nightly",
        "backup",
        "30 2 * * *",
        "Europe/Berlin",
    )
    assert (probe["zone"], probe["start_within_seconds"], probe["offset_seconds"]) == ("America/New_York", 5400, 0)
    due = datetime.fromisoformat(probe["next_due"])
    assert due > datetime.now(UTC)
    local = datetime.fromisoformat(probe["next_due_local"])
    assert (local, local.isoweekday(), local.hour, local.minute) == (due, 7, 4, 0)
    assert (probe["paused"], probe["last"]) == (None, None)


@pytest.mark.parametrize("command", [("schedule", "list"), ("status",)])
def test_where_a_daemon_goes_by_a_configuration_of_before_that_is_said(
    terminal: Terminal, command: tuple[str, ...]
) -> None:
    configuration = load(terminal.configuration)
    with terminal.world.catalogue() as catalogue:
        catalogue.go_by(timetables(configuration), since=datetime.now(UTC))
    with Claims(configuration.paths.run).daemon():
        assert "systemctl reload" not in terminal.run(*command).stderr
        text = terminal.configuration.read_text()
        terminal.configuration.write_text(text.replace('"30 2 * * *"', '"30 22 * * *"'))
        assert "the daemon's schedules differ from the configuration's" in terminal.run(*command).stderr
    assert "systemctl reload" not in terminal.run(*command).stderr


def test_the_list_says_what_became_of_the_last_slot(world: World, terminal: Terminal) -> None:
    with world.catalogue() as catalogue:
        ended = Slot("nightly", Activity.BACKUP, IN_WINTER, SlotState.STARTED, IN_WINTER, run_id="r1")
        catalogue.take_slot(ended)
        catalogue.slot_ended(ended, exit_status=ExitStatus.BUSY)
        late = IN_WINTER + timedelta(days=1)
        missed = Slot("nightly", Activity.PROBE, IN_WINTER, SlotState.MISSED, late, reason="it could not start")
        catalogue.take_slot(missed)
        ahead = datetime.now(UTC) + timedelta(days=3650)  # by a clock that was
        catalogue.take_slot(Slot("nightly", Activity.PROBE, ahead, SlotState.MISSED, ahead))
    lines = terminal.run("schedule", "list").stdout.splitlines()
    assert lines[1].endswith("2026-01-10 12:00 busy: another process holds what this needs")
    assert lines[2].endswith("  2026-01-10 12:00 missed: it could not start")
    backup, probe = terminal.run("schedule", "list", "--json").document["schedules"]
    assert (backup["last"]["run_id"], backup["last"]["exit_status"]) == ("r1", ExitStatus.BUSY)
    assert (probe["last"]["state"], probe["last"]["due_at"]) == ("missed", IN_WINTER.isoformat())


def test_a_pause_stays_until_it_is_taken_back(terminal: Terminal) -> None:
    assert terminal.run("schedule", "pause", "nightly", "--note", "new disks").stdout == (
        "job nightly is paused: new disks\n"
    )
    assert "paused" in terminal.run("schedule", "list").stdout
    entries = terminal.run("schedule", "list", "--json").document["schedules"]
    assert [entry["paused"]["note"] for entry in entries] == ["new disks", "new disks"]
    assert terminal.run("schedule", "resume", "nightly").stdout == "job nightly runs on schedule again\n"
    assert "paused" not in terminal.run("schedule", "list").stdout
    assert terminal.run("schedule", "resume", "nightly").stdout == "job nightly was not paused\n"


def test_who_pauses_a_job_is_told_of_a_timer_that_knows_no_pause(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.cli.timers.ENABLED", tmp_path)
    assert "timer" not in terminal.run("schedule", "pause", "nightly").stderr
    (tmp_path / "backupd-run@nightly.timer").symlink_to("/usr/lib/systemd/system/backupd-run@.timer")
    assert "systemctl stop backupd-run@nightly.timer" in terminal.run("schedule", "pause", "nightly").stderr


def test_a_job_that_left_the_configuration_can_still_be_resumed_and_no_other(world: World, terminal: Terminal) -> None:
    with world.catalogue() as catalogue:
        catalogue.pause("gone", "")
    assert terminal.run("schedule", "resume", "gone").status == 0
    assert terminal.run("schedule", "resume", "gone").status == ExitStatus.USAGE
    assert terminal.run("schedule", "pause", "gone").status == ExitStatus.USAGE
