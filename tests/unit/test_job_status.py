"""What deserves an alarm, and what the service says of a job: by a real catalogue and a clock that is set."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from backupd.catalogue.moment_proofs import LastMomentDrill
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.host.live_progress import Progress
from backupd.report.words import instant
from backupd.service.job_report import JobReport, job_report_text, job_reports
from backupd.service.job_status import (
    JobStatus,
    Running,
    job_statuses,
    remaining_seconds,
)
from backupd.service.machine_view import LiveHere
from backupd.service.site import Site
from backupd.service.site_status import SiteStatus
from backupd.vocabulary.alarms import Alarm, AlarmKind, Severity
from backupd.vocabulary.errors import Cancelled, ExitStatus, Refused, TargetError
from backupd.vocabulary.records import Check, Drill, DrilledMoment, Phase, RunDetails, RunStatus
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.storage import Backup
from tests.docs.places import ROOT
from tests.fakes.target import MACHINE

STARTED = datetime(2026, 3, 1, 2, tzinfo=UTC)
COPY = Backup("disk", "/backups/nightly/r1", 1000, 400, 12, "ab" * 32)
DAY = timedelta(days=1)
DRILLS = {"drill": {"cron": "0 4 * * *", "zone": "UTC"}}


@pytest.fixture
def catalogue(path_in_memory: Path) -> Iterator[Catalogue]:
    with Catalogue.open(path_in_memory / "catalogue.sqlite") as opened:
        yield opened


@pytest.fixture
def live(path_in_memory: Path) -> LiveHere:
    return LiveHere(path_in_memory)


def configured(**job: Any) -> Configuration:
    whole = {"host": "db1", "targets": ("disk",), **job}
    targets = {"disk": {"type": "directory", "path": "/backups"}}
    read = TypeAdapter(Configuration).validate_python
    return read({"hosts": {"db1": {}}, "targets": targets, "jobs": {"nightly": whole}})


def status(
    catalogue: Catalogue, live: LiveHere, configuration: Configuration, later: timedelta = timedelta()
) -> JobStatus:
    now = datetime.now(UTC) + later
    (found,) = job_statuses(Site(configuration, catalogue, lambda: now), live)
    return found


def kinds(found: JobStatus) -> list[AlarmKind]:
    return [alarm.kind for alarm in found.alarms]


def good(catalogue: Catalogue, run_id: str, attention: str = "") -> None:
    with catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.took(Phase.COPY, 100.0)
        run.took(Phase.VERIFY, 20.0)
        if attention:
            run.attention(attention)
        run.complete((COPY,))


def text_of(found: JobStatus) -> str:
    return job_report_text(JobReport(found))


def ended_by(catalogue: Catalogue, run_id: str, error: Exception) -> None:
    with pytest.raises(type(error)), catalogue.open_run("nightly", "db1", run_id=run_id):
        raise error


def missed(activity: Activity, due_at: datetime) -> Slot:
    return Slot("nightly", activity, due_at, SlotState.MISSED, due_at, reason="the machine was off")


def test_a_job_without_a_good_backup_is_an_alarm(catalogue: Catalogue, live: LiveHere) -> None:
    found = status(catalogue, live, configured())

    assert (found.last_run, found.last_good) == (None, None)
    assert [alarm.text for alarm in found.alarms] == ["there is no good backup"]


def test_a_fresh_good_backup_is_none(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")

    found = status(catalogue, live, configured())

    assert found.last_good is not None
    assert (found.last_good.run_id, found.last_good.backups, found.alarms) == ("r1", (COPY,), ())


def test_a_failure_after_a_good_backup_is_told_in_its_own_words(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    ended_by(catalogue, "r2", TargetError("the disk is full\nand more", hint="make room"))

    found = status(catalogue, live, configured())

    assert found.alarms == (Alarm(AlarmKind.FAILED, "the last backup failed: the disk is full", "r2", about="backup"),)
    assert found.last_good is not None
    assert found.last_good.run_id == "r1"


def test_an_alarm_is_as_grave_as_in_the_rules_for_prometheus() -> None:
    (group,) = yaml.safe_load((ROOT / "configs" / "alerts.yml").read_text())["groups"]
    by_kind = {
        AlarmKind(kind): rule["labels"]["severity"]
        for rule in group["rules"]
        for kind in re.findall(r'backupd_(?:target_)?alarms\{kind="([\w-]+)"\}', rule["expr"])
    }
    otherwise = {"BackupdBackupTooOld": AlarmKind.OVERDUE, "BackupdTargetNotSeen": AlarmKind.STORAGE_UNREACHABLE}
    for rule in group["rules"]:
        if (kind := otherwise.get(rule["alert"])) is not None:
            by_kind[kind] = rule["labels"]["severity"]
    assert by_kind == {kind: Alarm(kind, "").severity.value for kind in AlarmKind}


def test_a_job_is_as_grave_as_its_gravest_alarm(catalogue: Catalogue, live: LiveHere) -> None:
    assert status(catalogue, live, configured()).severity is Severity.CRITICAL
    good(catalogue, "r1")
    assert status(catalogue, live, configured()).severity is Severity.OK
    ended_by(catalogue, "r2", TargetError("the disk is full"))
    assert status(catalogue, live, configured()).severity is Severity.WARNING
    late = status(catalogue, live, configured(), 2 * DAY)
    assert (late.severity, late.allowed_seconds) == (Severity.CRITICAL, 1.5 * 86400)


def test_a_refusal_is_an_alarm_and_a_cancelled_run_is_none(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    ended_by(catalogue, "r2", Refused("no room"))
    assert kinds(status(catalogue, live, configured())) == [AlarmKind.FAILED]

    ended_by(catalogue, "r3", Cancelled("stopped"))
    assert kinds(status(catalogue, live, configured())) == []


def test_a_backup_is_overdue_half_an_interval_late(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")

    assert kinds(status(catalogue, live, configured(), timedelta(hours=35.9))) == []
    late = status(catalogue, live, configured(), timedelta(hours=36.1))
    assert [alarm.text for alarm in late.alarms] == ["the last good backup is 36 hours old"]


def test_a_weekly_schedule_is_not_overdue_before_its_slot(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    weekday = (datetime.now(UTC) - DAY).isoweekday() % 7  # its next slot is six or seven days off
    weekly = configured(schedules={"backup": {"cron": f"0 2 * * {weekday}", "zone": "UTC"}})

    assert kinds(status(catalogue, live, weekly, 5 * DAY)) == []
    assert kinds(status(catalogue, live, weekly, 9 * DAY)) == [AlarmKind.OVERDUE]


def test_what_is_missed_is_an_alarm_until_it_was_done_again(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    now = datetime.now(UTC)
    catalogue.take_slot(missed(Activity.BACKUP, now - DAY))  # before the good one: made good already
    assert kinds(status(catalogue, live, configured(schedules=DRILLS))) == []

    catalogue.take_slot(missed(Activity.BACKUP, now))
    catalogue.take_slot(missed(Activity.DRILL, now))
    found = status(catalogue, live, configured(schedules=DRILLS))
    assert [alarm.text for alarm in found.alarms] == [
        "a backup was missed since the last good one: the machine was off",
        f"the drill of {instant(now)} was missed: the machine was off",
    ]
    assert found.missed_total == {Activity.BACKUP: 2, Activity.DRILL: 1}

    good(catalogue, "r2")
    again = Slot("nightly", Activity.DRILL, datetime.now(UTC), SlotState.STARTED, now)
    catalogue.take_slot(again)
    assert kinds(status(catalogue, live, configured(schedules=DRILLS))) == []


@pytest.mark.parametrize(
    ("exit_status", "became"), [(9, "failed (verification)"), (14, "was undecided: it ran into a limit of its own")]
)
def test_a_scheduled_drill_that_did_not_prove_its_backup_is_an_alarm(
    catalogue: Catalogue, live: LiveHere, exit_status: int, became: str
) -> None:
    good(catalogue, "r1")
    slot = Slot("nightly", Activity.DRILL, datetime.now(UTC), SlotState.STARTED, datetime.now(UTC))
    catalogue.take_slot(slot)
    catalogue.slot_ended(slot, exit_status=exit_status)

    found = status(catalogue, live, configured(schedules=DRILLS))

    assert [alarm.text for alarm in found.alarms] == [f"the drill of {instant(slot.due_at)} {became}"]
    assert found.last_slots[Activity.DRILL].exit_status == exit_status


def test_what_has_no_schedule_any_more_is_no_alarm_for_ever(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    catalogue.take_slot(slot := Slot("nightly", Activity.DRILL, datetime.now(UTC), SlotState.STARTED, STARTED))
    catalogue.slot_ended(slot, exit_status=9)
    assert kinds(status(catalogue, live, configured(schedules=DRILLS))) == [AlarmKind.FAILED]
    assert kinds(status(catalogue, live, configured())) == []


def test_a_proof_grows_old_and_counts_from_the_first_backup(catalogue: Catalogue, live: LiveHere) -> None:
    within = configured(drill_within=f"{7 * 86400}s", every="100d")
    good(catalogue, "r1")
    assert kinds(status(catalogue, live, within, 6 * DAY)) == []
    assert [alarm.text for alarm in status(catalogue, live, within, 8 * DAY).alarms] == [
        "no drill has ever proven a backup"
    ]

    proof = datetime.now(UTC) + 3 * DAY
    for ok, at in ((True, proof), (False, proof + DAY)):
        catalogue.record_drill(Drill("r1", ok, (Check("starts", ok, "yes", "yes" if ok else "no"),), 60.0, at))
    found = status(catalogue, live, within, 9 * DAY)
    assert (found.proven_at, kinds(found)) == (proof, [AlarmKind.FAILED])
    assert kinds(status(catalogue, live, within, 11 * DAY)) == [AlarmKind.FAILED, AlarmKind.DRILL_OVERDUE]


def test_a_failed_drill_is_an_alarm_whoever_did_it_until_one_is_good(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    at = datetime.now(UTC)
    catalogue.record_drill(Drill("r1", False, (), 1.0, at, undecided="it ended without a result: no room"))
    assert status(catalogue, live, configured()).alarms == ()

    catalogue.record_drill(Drill("r1", False, (Check("starts", False, "yes", "no"),), 60.0, at))
    catalogue.record_drill(Drill("r1", False, (), 1.0, datetime.now(UTC), undecided="stopped"))
    good(catalogue, "r2")
    text = f"the drill of {instant(at)} failed, and none has proven a backup since"
    found = status(catalogue, live, configured())
    assert found.alarms == (Alarm(AlarmKind.FAILED, text, "r1", about="drill"),)
    assert re.search(r"  proof +never, no limit set; the last drill FAILED, .+ \(run r1\)\n", text_of(found))

    catalogue.pause("nightly", "new disks")
    catalogue.take_slot(missed(Activity.DRILL, datetime.now(UTC)))
    assert status(catalogue, live, configured(schedules=DRILLS)).alarms == found.alarms

    catalogue.record_drill(Drill("r2", True, (), 60.0, datetime.now(UTC)))
    proven = status(catalogue, live, configured(schedules=DRILLS))
    assert proven.alarms == ()
    assert "FAILED" not in text_of(proven)


def test_a_scheduled_drill_that_failed_is_one_alarm_until_one_is_good_whoever_does_it(
    catalogue: Catalogue, live: LiveHere
) -> None:
    good(catalogue, "r1")
    at = datetime.now(UTC)
    slot = Slot("nightly", Activity.DRILL, at, SlotState.STARTED, at)
    catalogue.take_slot(slot)
    catalogue.record_drill(Drill("r1", False, (), 60.0, at))
    texts = [f"the drill of {instant(at)} failed, and none has proven a backup since"]
    before = status(catalogue, live, configured(schedules=DRILLS))
    catalogue.slot_ended(slot, exit_status=9)
    after = status(catalogue, live, configured(schedules=DRILLS))
    assert [[alarm.text for alarm in found.alarms] for found in (before, after)] == [texts, texts]
    catalogue.record_drill(Drill("r1", True, (), 60.0, datetime.now(UTC)))
    assert status(catalogue, live, configured(schedules=DRILLS)).alarms == ()


def test_a_scheduled_drill_whose_end_nobody_saw_is_an_alarm_until_one_is_good(
    catalogue: Catalogue, live: LiveHere
) -> None:
    good(catalogue, "r1")
    slot = Slot("nightly", Activity.DRILL, datetime.now(UTC), SlotState.STARTED, datetime.now(UTC))
    catalogue.take_slot(slot)
    catalogue.slot_ended(slot, exit_status=None)
    (alarm,) = status(catalogue, live, configured(schedules=DRILLS)).alarms
    assert alarm.text == f"the drill of {instant(slot.due_at)} ended, result unknown"
    catalogue.record_drill(Drill("r1", True, (), 60.0, datetime.now(UTC)))
    assert status(catalogue, live, configured(schedules=DRILLS)).alarms == ()


def test_where_drills_are_of_moments_a_plain_one_is_no_proof_of_any(catalogue: Catalogue, live: LiveHere) -> None:
    within = configured(drill_within=f"{7 * 86400}s", every="100d", drill={"moment": "random"}, binlog={})
    good(catalogue, "r1")
    proof = datetime.now(UTC)
    catalogue.record_drill(Drill("r1", True, (), 60.0, proof + 8 * DAY))
    found = status(catalogue, live, within, 9 * DAY)
    assert [(alarm.text, alarm.about) for alarm in found.alarms] == [("no drill has ever proven a moment", "moment")]

    moment = DrilledMoment("2026-11-20 03:12:44 UTC", proof)
    for ok, at in ((True, proof + 9 * DAY), (False, proof + 10 * DAY)):
        catalogue.record_drill(Drill("r1", ok, (), 60.0, at, moment=moment))
    catalogue.record_drill(Drill("r1", False, (), 60.0, proof + 11 * DAY, moment=moment, undecided="stopped"))
    failed = f"the drill of {instant(proof + 10 * DAY)} failed, and none has proven a moment since"
    found = status(catalogue, live, within, 12 * DAY)
    assert [alarm.text for alarm in found.alarms] == [failed]
    assert found.last_moment == LastMomentDrill(
        proof + 10 * DAY, moment, ok=False, run_id="r1", proven_at=proof + 9 * DAY
    )
    assert not catalogue.run("r1").doubted  # what a moment lacks may be the log's
    late = [alarm.text for alarm in status(catalogue, live, within, 17 * DAY).alarms]
    overdue = [f"the last drill that proved a {what} is 8 days old" for what in ("backup", "moment")]
    assert late == [failed, *overdue]

    catalogue.record_drill(Drill("r1", True, (), 60.0, proof + 13 * DAY))
    assert [alarm.text for alarm in status(catalogue, live, within, 14 * DAY).alarms] == [failed]


def test_a_failure_that_is_tried_again_is_an_alarm_after_the_last_try(catalogue: Catalogue, live: LiveHere) -> None:
    retried = configured(schedules={"backup": {"cron": "0 2 * * *", "zone": "UTC", "retries": 1}})
    good(catalogue, "r1")
    ended_by(catalogue, "r2", TargetError("away"))
    now = datetime.now(UTC)
    slot = Slot("nightly", Activity.BACKUP, now, SlotState.STARTED, now, "r2")
    catalogue.take_slot(slot)
    assert catalogue.plan_retry(slot, now + timedelta(minutes=15))
    assert kinds(status(catalogue, live, retried)) == []
    catalogue.slot_ended(slot, exit_status=8)

    assert kinds(status(catalogue, live, retried)) == []
    assert kinds(status(catalogue, live, retried, timedelta(hours=5))) == [AlarmKind.FAILED]  # nobody has tried

    again = replace(slot, run_id="r3", tried=("r2",))
    assert catalogue.take_retry(slot, again)
    assert not catalogue.take_retry(slot, again)
    assert kinds(status(catalogue, live, retried)) == []
    ended_by(catalogue, "r3", TargetError("away"))
    assert kinds(status(catalogue, live, retried)) == [AlarmKind.FAILED]
    catalogue.slot_ended(again, exit_status=8)
    assert kinds(status(catalogue, live, retried)) == [AlarmKind.FAILED]


def test_attention_and_a_broken_copy_are_alarms(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1", attention="the mount could not be given back")
    assert [alarm.text for alarm in status(catalogue, live, configured()).alarms] == [
        "the mount could not be given back"
    ]

    catalogue.found_broken("r1", "disk", "a frame's digest differs")
    found = status(catalogue, live, configured())
    assert kinds(found) == [AlarmKind.BROKEN, AlarmKind.OVERDUE]
    assert "cannot be restored: a frame's digest differs" in found.alarms[0].text

    catalogue.removed("r1", "disk", because="expired")
    assert kinds(status(catalogue, live, configured())) == [AlarmKind.OVERDUE]


def test_the_last_good_backup_is_one_that_can_still_be_had(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    good(catalogue, "r2")
    with catalogue.open_run("nightly", "db1", run_id="r3") as run:
        run.complete((replace(COPY, target="burnt"),))  # which the configuration has no more

    def last_good() -> str | None:
        found = status(catalogue, live, configured()).last_good
        return None if found is None else found.run_id

    assert last_good() == "r2"
    catalogue.removed("r2", "disk", because="no longer on the target")
    assert last_good() == "r1"
    catalogue.removed("r1", "disk", because="no longer on the target")
    found = status(catalogue, live, configured())
    assert (found.last_good, [alarm.text for alarm in found.alarms]) == (None, ["there is no good backup"])


def test_what_was_made_good_stays_so_though_the_backup_is_gone_by_now(catalogue: Catalogue, live: LiveHere) -> None:
    catalogue.take_slot(missed(Activity.BACKUP, datetime.now(UTC) - timedelta(days=200)))
    slot = Slot("nightly", Activity.BACKUP, datetime.now(UTC), SlotState.STARTED, datetime.now(UTC), "r1", "")
    catalogue.take_slot(slot)
    ended_by(catalogue, "r1", TargetError("the disk is full"))
    catalogue.slot_ended(slot, exit_status=ExitStatus.TARGET)
    assert kinds(status(catalogue, live, configured())) == [AlarmKind.FAILED, AlarmKind.OVERDUE, AlarmKind.MISSED]

    good(catalogue, "r2")
    assert kinds(status(catalogue, live, configured())) == []
    catalogue.removed("r2", "disk", because="no longer on the target")
    found = status(catalogue, live, configured())
    assert [alarm.text for alarm in found.alarms] == ["there is no good backup"]


def test_a_live_run_shows_its_progress_and_a_dead_one_is_an_alarm(
    catalogue: Catalogue, live: LiveHere, path_in_memory: Path
) -> None:
    good(catalogue, "r1")
    told = Progress(Phase.SETTLE, since=1.0, at=2.0)
    with catalogue.open_run("nightly", "db1", run_id="r2") as run:
        live.tell("r2", told)
        found = status(catalogue, live, configured())
        assert [(one.run.run_id, one.run.pid, one.alive, one.progress) for one in found.running] == [
            ("r2", os.getpid(), True, told)
        ]
        assert found.alarms == ()

        with closing(sqlite3.connect(path_in_memory / "catalogue.sqlite")) as file, file:
            file.execute("UPDATE runs SET process_start = 1 WHERE run_id = 'r2'")  # of a process with our pid, before
        found = status(catalogue, live, configured())
        assert [(one.alive, one.progress) for one in found.running] == [(False, None)]
        assert [(alarm.kind, alarm.run_id) for alarm in found.alarms] == [(AlarmKind.DIED, "r2")]
        run.complete((COPY,))

    assert status(catalogue, live, configured()).running == ()


def test_a_job_that_is_paused_says_so_without_an_alarm(catalogue: Catalogue, live: LiveHere) -> None:
    good(catalogue, "r1")
    catalogue.pause("nightly", "the disks are changed")

    found = status(catalogue, live, configured(schedules={"backup": {"cron": "0 2 * * *", "zone": "UTC"}}))

    assert found.pause is not None
    assert (found.pause.note, found.alarms) == ("the disks are changed", ())
    assert found.next_due[Activity.BACKUP].hour == 2


def test_what_is_missed_is_no_alarm_while_the_job_is_paused_but_too_old_a_backup_is(
    catalogue: Catalogue, live: LiveHere
) -> None:
    good(catalogue, "r1")
    catalogue.pause("nightly", "the disks are changed")
    for activity in (Activity.BACKUP, Activity.DRILL):
        catalogue.take_slot(missed(activity, datetime.now(UTC)))
    assert kinds(status(catalogue, live, configured(schedules=DRILLS))) == []
    assert kinds(status(catalogue, live, configured(schedules=DRILLS), 2 * DAY)) == [AlarmKind.OVERDUE]

    catalogue.resume("nightly")
    assert kinds(status(catalogue, live, configured(schedules=DRILLS))) == [AlarmKind.MISSED, AlarmKind.MISSED]


def test_what_a_clock_that_was_ahead_has_left_counts_when_its_time_has_come(
    catalogue: Catalogue, live: LiveHere, path_in_memory: Path
) -> None:
    """Neither does a good backup of years to come hide that there is none since, nor a slot of then cry until then."""
    overdue = configured(schedules=DRILLS)
    proven = configured(schedules=DRILLS, drill_within="7d", every="100d")
    good(catalogue, "r1")
    good(catalogue, "r2")
    now = datetime.now(UTC)
    ahead = now + 3650 * DAY
    with closing(sqlite3.connect(path_in_memory / "catalogue.sqlite")) as file, file:
        file.execute("UPDATE runs SET started_at = ?, ended_at = ? WHERE run_id = 'r2'", [ahead.isoformat()] * 2)
    for activity in (Activity.BACKUP, Activity.DRILL):
        catalogue.take_slot(missed(activity, ahead - DAY))
    catalogue.record_drill(Drill("r2", True, (), 60.0, ahead))

    found = status(catalogue, live, overdue)
    assert (found.last_good and found.last_good.run_id, found.last_run and found.last_run.run_id) == ("r1", "r1")
    assert found.alarms == ()
    assert kinds(status(catalogue, live, overdue, 2 * DAY)) == [AlarmKind.OVERDUE]
    assert kinds(status(catalogue, live, proven, 8 * DAY)) == [AlarmKind.DRILL_OVERDUE]
    assert status(catalogue, live, proven, 3651 * DAY).proven_at == ahead


def test_what_is_stored_is_as_old_as_its_newest_up_to_now(
    catalogue: Catalogue, live: LiveHere, path_in_memory: Path
) -> None:
    """Until the time has come that a clock which was ahead has left, what it left is there and has no age."""

    def stored(configuration: Configuration, later: timedelta) -> str:
        now = datetime.now(UTC) + later
        site = Site(configuration, catalogue, lambda: now)
        (found,) = job_reports(site, SiteStatus(now, job_statuses(site, live)))
        (line,) = [line for line in job_report_text(found).splitlines() if line.startswith("  stored")]
        return line.removeprefix("  stored").strip()

    good(catalogue, "r1")
    ahead = (datetime.now(UTC) + 365 * DAY).isoformat()
    with closing(sqlite3.connect(path_in_memory / "catalogue.sqlite")) as file, file:
        file.execute("UPDATE runs SET started_at = ?, ended_at = ?", [ahead, ahead])
    assert stored(configured(), DAY) == "1 backup on disk, 1 not verified"
    good(catalogue, "r2")
    assert stored(configured(), DAY) == "2 backups on disk, the newest 24 h old, 2 not verified"
    assert stored(configured(), 366 * DAY) == "2 backups on disk, the newest 24 h old, 2 not verified"


# --- how long it may still take --------------------------------------------------------------------------------------

PAST = RunDetails(
    "r1", "nightly", "db1", MACHINE, RunStatus.SUCCESS, STARTED - DAY, phases={Phase.COPY: 100.0, Phase.VERIFY: 20.0}
)
GOING = RunDetails("r2", "nightly", "db1", MACHINE, RunStatus.RUNNING, STARTED)


def copying(done: int, total: int) -> Running:
    since = STARTED.timestamp() + 10
    return Running(GOING, True, Progress(Phase.COPY, since=since, at=since + 50, done=done, total=total))


@pytest.mark.parametrize(
    ("running", "past", "seconds"),
    [
        (copying(25, 100), PAST, 150 - 5 + 20),  # by its own rate, told 5 s ago, and verified as long as the last one
        (copying(25, 100), None, 150 - 5),
        (copying(0, 100), PAST, 120 - 65),  # nothing told yet: as long as the last one
        (copying(25, 0), PAST, 120 - 65),
        (Running(GOING, True, None), PAST, 120 - 65),
        (Running(GOING, True, None), None, None),
        (Running(GOING, False, None), PAST, None),
        (Running(replace(GOING, started_at=STARTED - DAY), True, None), PAST, None),  # longer than the last one by now
    ],
)
def test_the_time_that_is_left_comes_from_the_rate_or_from_the_last_good_run(
    running: Running, past: RunDetails | None, seconds: float | None
) -> None:
    assert remaining_seconds(running, past, now=STARTED + timedelta(seconds=65)) == seconds
