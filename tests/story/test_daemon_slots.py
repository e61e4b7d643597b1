"""What is due is started once, or is missed and told: whatever the clock, the daemon's life and other runs do."""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import BackupScheduleConfig, SchedulesConfig
from backupd.host.claims import Claims
from backupd.policy.timetable import Timetable
from backupd.service.digest import digest
from backupd.service.job_status import job_statuses
from backupd.service.machine_view import LiveHere
from backupd.service.site import Site
from backupd.service.site_status import SiteStatus
from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import Holding, HoldingKind, RunKind, SnapshotFacts
from backupd.vocabulary.schedule import Activity, Blackout, NoticeKind, SlotState
from backupd.vocabulary.volumes import Layout
from tests.fakes.benched import a_bench
from tests.fakes.measured import measurement
from tests.story.daemon_world import HOURLY, MORNING, NIGHTLY, Machine, job, machine

STARTED, ENDED, MISSED = SlotState.STARTED, SlotState.ENDED, SlotState.MISSED
NIGHT = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Machine]:
    """A machine with a nightly job, and a daemon that has just begun for the first time."""
    with machine(tmp_path) as made:
        made.start(job("nightly", backup=NIGHTLY))
        yield made


# --- on time ---------------------------------------------------------------------------------------------------------


def test_a_backup_starts_when_it_is_due_and_its_end_is_written_down(daemon: Machine) -> None:
    daemon.at(NIGHT - timedelta(seconds=1))
    assert daemon.slots() == []
    daemon.at(NIGHT)
    assert daemon.slots() == [(NIGHT, STARTED)]
    daemon.fail_run("r1")
    daemon.process().end(6)
    daemon.at(NIGHT + HOUR)
    slot = daemon.newest()
    assert (slot.state, slot.exit_status, slot.run_id, slot.reason) == (ENDED, 6, "r1", "")
    assert daemon.told == []


def test_looking_often_starts_nothing_twice(daemon: Machine) -> None:
    for second in range(0, 7200, 60):
        daemon.at(NIGHT + timedelta(seconds=second))
    assert len(daemon.launcher.started) == 1


def test_a_job_that_is_seen_for_the_first_time_owes_nothing(daemon: Machine) -> None:
    daemon.start(job("nightly", backup=NIGHTLY), job("new", backup=HOURLY))
    assert daemon.slots() == []


def test_a_job_that_was_added_while_the_daemon_was_down_owes_nothing(daemon: Machine) -> None:
    daemon.at(NIGHT)
    daemon.now += 3 * DAY
    daemon.start(job("new", backup=HOURLY))
    assert daemon.slots("new") == []
    assert daemon.told == []


def test_a_changed_schedule_owes_nothing_from_before_its_change(daemon: Machine) -> None:
    daemon.at(NIGHT)
    daemon.process().end()
    daemon.now = NIGHT + 9 * HOUR + timedelta(minutes=10)
    daemon.start(job("nightly", backup=HOURLY))
    assert daemon.slots() == [(NIGHT, ENDED)]
    daemon.after(hours=1)
    assert daemon.slots()[1:] == [(NIGHT + 10 * HOUR, STARTED)]


@pytest.mark.parametrize(
    "changed",
    [
        BackupScheduleConfig(cron="0 3 * * *", spread_seconds=3600.0),
        BackupScheduleConfig(cron="30 3 * * *"),
        BackupScheduleConfig(cron="0 3 * * *", zone="America/New_York"),
    ],
    ids=["spread", "cron", "zone"],
)
@pytest.mark.parametrize("restarts", [True, False])
def test_what_waits_is_due_still_where_its_timetable_changes(
    daemon: Machine, changed: BackupScheduleConfig, restarts: bool
) -> None:
    daemon.catalogue.pause("nightly", "the disks are being changed")
    daemon.at(NIGHT + HOUR)
    daemon.schedule(job("nightly", backup=changed))
    daemon.after(minutes=1)
    if restarts:
        daemon.start()
    daemon.catalogue.resume("nightly")
    daemon.after(minutes=1)
    assert daemon.slots() == [(NIGHT, STARTED)]
    assert "the job was paused" in daemon.newest().reason or restarts
    daemon.process().end()
    daemon.start()
    daemon.after(hours=1)
    assert daemon.slots() == [(NIGHT, ENDED)], "what the new timetable has of the time before it is not owed"
    daemon.at(NIGHT + 2 * DAY)
    assert len(daemon.slots()) > 1


def test_what_waited_too_long_or_for_a_later_one_is_missed_and_told_though_its_timetable_has_changed(
    daemon: Machine,
) -> None:
    daemon.now = NIGHT + DAY + HOUR  # the machine was off for two nights
    daemon.start(job("nightly", backup=HOURLY))
    assert daemon.slots() == [(NIGHT, MISSED), (NIGHT + DAY, MISSED)]
    assert [notice.kind for notice in daemon.told] == [NoticeKind.MISSED, NoticeKind.MISSED]


def test_a_timetable_of_a_zone_that_is_no_more_owes_nothing(daemon: Machine) -> None:
    known = {("nightly", Activity.BACKUP): Timetable("0 3 * * *", "Mars/Olympus")}
    daemon.catalogue.go_by(known, since=MORNING)
    daemon.now = NIGHT + HOUR
    daemon.start()
    assert daemon.slots() == []


# --- late and missed -------------------------------------------------------------------------------------------------


def test_a_daemon_that_was_down_starts_what_is_late_and_says_why(daemon: Machine) -> None:
    daemon.now = NIGHT + 2 * HOUR
    daemon.start()
    assert daemon.slots() == [(NIGHT, STARTED)]
    assert daemon.newest().reason == "the daemon was not running when it was due"


def test_what_is_too_late_is_missed_written_down_and_told_once(daemon: Machine) -> None:
    daemon.now = NIGHT + 5 * HOUR
    daemon.start()
    daemon.start()
    assert daemon.slots() == [(NIGHT, MISSED)]
    assert "could not start within 4h: the daemon was not running" in daemon.newest().reason
    (notice,) = daemon.told
    assert (notice.kind, notice.job) == (NoticeKind.MISSED, "nightly")
    assert "due at 2026-11-22 03:00 UTC was missed: it could not start within 4h" in notice.text


def test_after_a_week_off_the_newest_slot_starts_and_the_older_ones_are_missed_with_one_word(daemon: Machine) -> None:
    daemon.now = NIGHT + 6 * DAY + HOUR
    daemon.start()
    assert daemon.slots() == [*((NIGHT + n * DAY, MISSED) for n in range(6)), (NIGHT + 6 * DAY, STARTED)]
    (notice,) = daemon.told
    assert "2026-11-27 03:00 UTC was missed (and 5 before it)" in notice.text


def test_a_second_daemon_on_the_catalogue_starts_nothing_again(daemon: Machine, tmp_path: Path) -> None:
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        other = Machine(tmp_path, catalogue)
        other.start(job("nightly", backup=NIGHTLY))
        daemon.at(NIGHT)
        other.at(NIGHT)
        daemon.at(NIGHT + 9 * DAY)
        other.at(NIGHT + 9 * DAY)
        started = [slot.due_at for slot in (*daemon.launcher.started, *other.launcher.started)]
        assert started == [NIGHT, NIGHT + 9 * DAY]
        assert len(daemon.told) + len(other.told) == 1
        assert len(daemon.slots()) == 10


# --- the clock jumps -------------------------------------------------------------------------------------------------


def test_a_clock_that_was_put_on_makes_what_it_passed_due(daemon: Machine) -> None:
    daemon.at(NIGHT + HOUR)
    assert daemon.slots() == [(NIGHT, STARTED)]
    assert "its clock was changed" in daemon.newest().reason


def test_a_clock_that_was_put_back_starts_nothing_again_and_goes_on(daemon: Machine) -> None:
    daemon.at(NIGHT)
    daemon.process().end()
    daemon.at(NIGHT - HOUR)
    daemon.at(NIGHT)
    assert len(daemon.launcher.started) == 1
    daemon.at(NIGHT + DAY)
    assert [slot.due_at for slot in daemon.launcher.started] == [NIGHT, NIGHT + DAY]


def test_a_clock_that_was_years_ahead_does_not_silence_the_years_until_then(daemon: Machine) -> None:
    ahead = NIGHT + 80 * DAY
    daemon.at(ahead)
    daemon.process().end()
    daemon.at(NIGHT - HOUR)
    assert (NIGHT, MISSED) in daemon.slots()
    daemon.at(NIGHT)
    assert [slot.due_at for slot in daemon.launcher.started] == [ahead, NIGHT]
    assert daemon.slots()[0] == (NIGHT, STARTED)


# A machine that boots without a battery for its clock, and is told the time later; or one whose clock is set wrongly.
@pytest.mark.parametrize("restarted", [True, False])
def test_a_clock_that_was_years_behind_owes_nothing_of_the_time_before_there_was_a_schedule(
    daemon: Machine, restarted: bool
) -> None:
    daemon.at(NIGHT)
    daemon.process().end()
    daemon.now = datetime(2020, 1, 1, tzinfo=UTC)
    if restarted:
        daemon.start()
    daemon.at(daemon.now + HOUR)
    daemon.at(NIGHT + HOUR)
    assert daemon.slots() == [(NIGHT, ENDED)]
    assert [notice for notice in daemon.told if notice.kind is NoticeKind.MISSED] == []
    daemon.at(NIGHT + 2 * DAY)
    assert daemon.slots() == [(NIGHT, ENDED), (NIGHT + DAY, MISSED), (NIGHT + 2 * DAY, STARTED)]


# --- what stands in the way ------------------------------------------------------------------------------------------


def test_a_paused_job_waits_and_starts_when_it_is_resumed_in_time(daemon: Machine) -> None:
    daemon.catalogue.pause("nightly", "the disks are being changed")
    daemon.at(NIGHT)
    daemon.at(NIGHT + HOUR)
    assert daemon.slots() == []
    daemon.catalogue.resume("nightly")
    daemon.at(NIGHT + 2 * HOUR)
    assert daemon.slots() == [(NIGHT, STARTED)]


def test_what_a_pause_has_cost_is_written_down_and_alarms_nobody(daemon: Machine) -> None:
    daemon.catalogue.pause("nightly", "the disks are being changed")
    daemon.at(NIGHT)
    daemon.start()
    daemon.at(NIGHT + 3 * DAY)
    daemon.at(NIGHT + 3 * DAY + 5 * HOUR)
    assert daemon.slots() == [(NIGHT + n * DAY, MISSED) for n in range(4)]
    assert daemon.newest().reason == "it could not start within 4h: the job was paused"
    assert daemon.told == []


def test_a_blackout_is_waited_for(daemon: Machine) -> None:
    until_five = Blackout(frozenset(range(7)), NIGHT.time(), (NIGHT + 2 * HOUR).time())
    daemon.start(job("nightly", backup=BackupScheduleConfig(cron="0 3 * * *", blackout=(until_five,))))
    daemon.at(NIGHT + HOUR)
    assert daemon.slots() == []
    daemon.at(NIGHT + 2 * HOUR)
    assert daemon.slots() == [(NIGHT, STARTED)]
    assert daemon.newest().reason == "a blackout lasted until 2026-11-22 05:00 UTC"


def test_what_a_blackout_keeps_from_starting_is_missed_for_that_alone(daemon: Machine) -> None:
    by_day = Blackout(frozenset(range(7)), NIGHT.time(), (NIGHT + 9 * HOUR).time())
    daemon.start(job("nightly", backup=BackupScheduleConfig(cron="0 3 * * *", blackout=(by_day,))))
    daemon.at(NIGHT)
    assert daemon.newest().reason == "a blackout lasts longer than the 4h within which it may start"
    daemon.now = NIGHT + DAY + HOUR
    daemon.start()
    assert daemon.newest().reason.endswith("it may start: the daemon was not running when it was due")


def test_one_run_of_a_job_at_a_time_and_the_next_slot_takes_the_place_of_one_that_waits(daemon: Machine) -> None:
    daemon.start(job("nightly", backup=HOURLY))
    first = MORNING + HOUR
    daemon.at(first)
    daemon.at(first + HOUR)
    assert daemon.slots() == [(first, STARTED)]
    daemon.at(first + HOUR + timedelta(minutes=31))
    assert daemon.slots() == [(first, STARTED), (first + HOUR, MISSED)]
    assert "the backup before it was still running" in daemon.newest().reason
    daemon.at(first + 2 * HOUR)
    daemon.process().end()
    daemon.after(minutes=5)
    assert daemon.slots()[2:] == [(first + 2 * HOUR, STARTED)]


def test_a_host_has_one_run_at_a_time_and_the_oldest_slot_goes_first(daemon: Machine) -> None:
    daemon.start(job("nightly", backup=HOURLY), job("b", backup=NIGHTLY), job("a", backup=HOURLY))
    daemon.at(NIGHT)
    assert [slot.job for slot in daemon.launcher.started] == ["a"]
    daemon.process("a").end()
    daemon.after(minutes=1)
    assert [slot.job for slot in daemon.launcher.started] == ["a", "b"]


def test_so_many_runs_go_on_as_the_configuration_wants(daemon: Machine) -> None:
    jobs = [job(f"of-{host}", host=host, backup=NIGHTLY) for host in ("db1", "db2", "db3")]
    daemon.start(*jobs, max_runs=2)
    daemon.at(NIGHT)
    assert len(daemon.launcher.started) == 2
    daemon.process("of-db1").end()
    daemon.after(minutes=1)
    assert len(daemon.launcher.started) == 3


def test_a_run_that_a_person_has_started_is_waited_for(daemon: Machine) -> None:
    def by_hand() -> None:
        with Claims(daemon.configuration.paths.run).job("nightly", "by-hand"):
            daemon.at(NIGHT)
            assert daemon.slots() == []
        daemon.after(minutes=1)
        assert daemon.slots() == []

    daemon.fail_run("by-hand", after=by_hand)
    daemon.after(minutes=1)
    assert daemon.slots() == [(NIGHT, STARTED)]
    assert daemon.newest().reason == "another run of job nightly was still running"


def test_a_bench_and_the_probe_that_it_is_at_are_one_of_the_runs_that_may_go_on(daemon: Machine) -> None:
    daemon.start(job("of-db1", backup=NIGHTLY), job("of-db2", host="db2", backup=NIGHTLY), max_runs=2)
    with (
        daemon.catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as bench,
        daemon.catalogue.open_run("", "", run_id="b1-1", kind=RunKind.PROBE) as probe,
    ):
        daemon.at(NIGHT)
        assert [slot.job for slot in daemon.launcher.started] == ["of-db1"]
        probe.measured(measurement())
        bench.benched(a_bench())
    daemon.after(minutes=1)
    assert [slot.job for slot in daemon.launcher.started] == ["of-db1", "of-db2"]


def test_a_job_waits_for_the_bench_in_its_volume_group(daemon: Machine) -> None:
    with daemon.catalogue.open_run("nightly", "db1", run_id="r0") as before:
        before.snapshot(SnapshotFacts("bk_r0", "labvg/data", Layout.LINEAR, 1, None, 4096, 1 << 30))
        before.complete(())
    with daemon.catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as bench:
        with Claims(daemon.configuration.paths.run).volume_group("labvg", "b1"):
            daemon.at(NIGHT)
            assert daemon.slots() == []
            bench.benched(a_bench())
        daemon.after(minutes=2)
    assert daemon.slots() == [(NIGHT, STARTED)]
    assert daemon.newest().reason.startswith("volume group labvg was held by run b1 ")


def test_drills_and_verifications_wait_for_no_backup_but_for_their_own_kind(daemon: Machine) -> None:
    daemon.start(job("nightly", backup=HOURLY, drill=HOURLY, verify=HOURLY, prune=HOURLY, probe=HOURLY))
    daemon.after(hours=1)
    going = {slot.activity for slot in daemon.launcher.started}
    assert going == {Activity.BACKUP, Activity.DRILL, Activity.VERIFY}


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_restarted_daemon_sees_the_end_of_what_another_has_started(daemon: Machine) -> None:
    daemon.at(NIGHT)
    daemon.after(minutes=5)
    daemon.start()
    daemon.after(minutes=5)
    assert daemon.slots() == [(NIGHT, STARTED)]
    daemon.process().end(7)
    daemon.after(minutes=5)
    assert daemon.newest().state is ENDED
    assert daemon.newest().exit_status is None


def test_the_status_that_nobody_saw_is_that_of_the_run(daemon: Machine) -> None:
    daemon.at(NIGHT)
    daemon.start()
    daemon.fail_run("r1")
    daemon.process().end(None)
    daemon.after(minutes=5)
    assert daemon.newest().exit_status == ExitStatus.SERVER


@pytest.mark.parametrize(
    ("status", "said", "shown"),
    [
        (0, [], "60 min ago"),
        (8, ["ended with exit status 8 (target, or the spool)"], "FAILED 60 min ago, OVERDUE"),
        (15, ["ended with exit status 15 (terminated by the system: SIGTERM or SIGHUP)"], "FAILED 60 min ago, OVERDUE"),
        (4, ["ended with exit status 4 ("], "was busy 60 min ago"),
        (11, [], "was cancelled 60 min ago"),
        (None, ["ended with unknown exit status: see "], "ended, result unknown, 60 min ago"),
    ],
)
def test_what_a_verification_ended_with_is_told_though_the_daemon_was_restarted_meanwhile(
    daemon: Machine, status: int | None, said: list[str], shown: str
) -> None:
    daemon.start(job("nightly", verify=NIGHTLY))
    daemon.at(NIGHT)
    daemon.start()
    slot = daemon.newest()
    if status is not None:  # else it was killed
        assert daemon.catalogue.slot_ends(slot, exit_status=status)
    daemon.dispatch.adopt()
    daemon.launcher.processes[slot].end(None)
    daemon.after(hours=1)
    assert (daemon.newest().state, daemon.newest().exit_status) == (ENDED, status)
    assert len(daemon.told) == len(said)
    assert all(words in notice.text for words, notice in zip(said, daemon.told, strict=True))
    site = Site(daemon.configuration, daemon.catalogue, lambda: daemon.now)
    (found,) = job_statuses(site, LiveHere(daemon.folder))
    alarms = [alarm for alarm in found.alarms if alarm.kind is AlarmKind.FAILED]
    assert [alarm.about for alarm in alarms] == [Activity.VERIFY] * (status not in (0, 4, 11))
    assert all(alarm.text.endswith(" ended, result unknown") is (status is None) for alarm in alarms)
    facts = digest(site, SiteStatus(daemon.now, (found,), ()))
    assert facts.tables["drills and verifications"].rows[0][-1] == shown


def test_a_slot_whose_process_never_came_to_be_ends_and_is_told(daemon: Machine) -> None:
    daemon.at(NIGHT)
    daemon.launcher.processes.clear()
    daemon.start()
    assert daemon.slots() == [(NIGHT, STARTED)]  # it may be on its way
    daemon.after(minutes=2)
    assert daemon.slots() == [(NIGHT, ENDED)]
    assert [notice.kind for notice in daemon.told] == [NoticeKind.FAILED]


def test_what_cannot_be_started_is_told_and_the_clock_goes_on(daemon: Machine) -> None:
    daemon.launcher.broken = True
    daemon.at(NIGHT)
    assert daemon.slots() == [(NIGHT, ENDED)]
    assert "could not be started: program not found" in daemon.told[0].text
    daemon.launcher.broken = False
    daemon.at(NIGHT + DAY)
    assert daemon.slots()[1:] == [(NIGHT + DAY, STARTED)]


@pytest.mark.parametrize(
    ("activity", "status", "told"),
    [
        *(("verify", 9, 1), ("verify", 0, 0), ("probe", 15, 1), ("probe", 11, 0)),  # that was a person's `cancel`
        *(("drill", status, 0) for status in (5, 9, 14)),
        *(("drill", status, 1) for status in (1, 2, 13, 15, 137, 255, None)),
    ],
)
def test_a_failure_is_told_where_the_program_itself_does_not(
    daemon: Machine, activity: str, status: int | None, told: int
) -> None:
    daemon.start(replace(job("nightly"), schedules=SchedulesConfig(**{activity: NIGHTLY})))
    daemon.at(NIGHT)
    daemon.process().end(status)
    daemon.after(minutes=1)
    assert len(daemon.told) == told
    assert daemon.newest().exit_status == status


@pytest.mark.parametrize(
    ("status", "said"), [(137, "killed by signal 9"), (255, "killed by a signal"), (77, "unknown")]
)
def test_what_was_killed_is_called_so(daemon: Machine, status: int, said: str) -> None:
    daemon.start(job("nightly", verify=NIGHTLY))
    daemon.at(NIGHT)
    daemon.process().end(status)
    daemon.after(minutes=1)
    assert daemon.told[0].text.endswith(f"ended with exit status {status} ({said})")


def test_a_dead_run_is_cleaned_up_after_once_by_a_process_of_its_own(daemon: Machine) -> None:
    pid = os.fork()
    if pid == 0:
        catalogue = Catalogue.open(daemon.folder / "catalogue.sqlite")
        with catalogue.open_run("nightly", "db1", run_id="dead"):
            os._exit(1)
    os.waitpid(pid, 0)
    daemon.start()
    daemon.after(seconds=30)
    assert len(daemon.launcher.recoveries) == 1
    daemon.launcher.recoveries[0].end()
    daemon.after(minutes=1)
    assert len(daemon.launcher.recoveries) == 1
    daemon.after(minutes=10)
    assert len(daemon.launcher.recoveries) == 2


def leave_a_mount(daemon: Machine, run_id: str = "ended") -> Holding:
    """A run that has ended, and could not give this back."""
    mount = Holding(HoldingKind.MOUNT, "/run/backupd/mnt/ended", {"run": run_id})
    daemon.fail_run(run_id)
    daemon.catalogue.hold(run_id, mount)
    return mount


def test_what_a_run_could_not_give_back_is_given_back_soon_after_its_end(
    daemon: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("backupd.service.running_slots.run_is_alive", lambda *_: False)  # the run was this very process
    mount = leave_a_mount(daemon)
    daemon.after(seconds=30)
    assert len(daemon.launcher.recoveries) == 1
    assert "mount /run/backupd/mnt/ended of run ended was not released" in caplog.text
    daemon.launcher.recoveries[0].end()
    daemon.after(minutes=10)
    assert len(daemon.launcher.recoveries) == 2, "it was busy still, and is tried again"
    daemon.launcher.recoveries[1].end()
    daemon.catalogue.released("ended", mount)
    daemon.after(minutes=20)
    assert len(daemon.launcher.recoveries) == 2


def test_what_somebody_holds_who_acts_for_the_run_is_left_to_them(
    daemon: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore into a volume holds its mount in the name of the run, which ended long ago."""
    monkeypatch.setattr("backupd.service.running_slots.run_is_alive", lambda *_: False)
    leave_a_mount(daemon)
    with Claims(daemon.configuration.paths.run).run("ended"):
        daemon.after(seconds=30)
    assert daemon.launcher.recoveries == []


# --- a check by day --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "kinds"), [(0, []), (5, []), (6, [NoticeKind.FAILED]), (137, [NoticeKind.FAILED])])
def test_a_check_tells_itself_what_it_refuses_and_the_daemon_all_else(
    daemon: Machine, status: int, kinds: list[NoticeKind]
) -> None:
    daemon.start(job("nightly", check=HOURLY))
    daemon.after(hours=1)
    daemon.process().end(status)
    daemon.after(minutes=1)
    assert [notice.kind for notice in daemon.told] == kinds
    assert daemon.newest().exit_status == status


@pytest.mark.parametrize("status", [0, 3, 5])
def test_a_check_tells_by_itself_what_it_has_found(daemon: Machine, status: int) -> None:
    daemon.start(job("nightly", check=HOURLY))
    daemon.after(hours=1)
    daemon.process().end(status)
    daemon.after(minutes=1)
    assert daemon.told == []


def test_a_check_waits_for_the_backup_of_its_job_and_no_backup_for_a_check(daemon: Machine) -> None:
    check = replace(HOURLY, cron="30 9 * * *", start_within_seconds=7200)
    daemon.start(job("nightly", backup=HOURLY, check=check))
    daemon.after(hours=1)
    daemon.after(minutes=30)
    assert [slot.activity for slot in daemon.launcher.started] == [Activity.BACKUP]
    daemon.process().end(0)
    daemon.after(minutes=1)
    assert [slot.activity for slot in daemon.launcher.started] == [Activity.BACKUP, Activity.CHECK]
    daemon.after(minutes=29)
    assert [slot.activity for slot in daemon.launcher.started][-1] is Activity.BACKUP
