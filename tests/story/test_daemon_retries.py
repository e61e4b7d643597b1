"""A backup that failed for a cause that passes is tried again: once per try, in its slot, whatever restarts."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest

from backupd.cli.failure_answers import failure_answers
from backupd.config import BackupScheduleConfig
from backupd.host.claims import Claims
from backupd.operations.upkeep import notices
from backupd.policy.retries import RetryPlan
from backupd.service import retries
from backupd.service.job_status import job_statuses
from backupd.service.launch import mark_of
from backupd.service.machine_view import LiveHere
from backupd.service.site import Site
from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.errors import BackupdError, Busy, Cancelled, LockNotGranted, SnapshotError, Terminated
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.schedule import Blackout, Notice, NoticeKind, SlotState
from backupd.vocabulary.storage import Backup
from tests.story.daemon_world import HOURLY, Machine, job, machine

NIGHT = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TRIED = BackupScheduleConfig(cron="0 3 * * *", retries=2)
REFUSED_LOCK = LockNotGranted("ftwrl was not granted in 10 tries: a long statement")
BUSY = Busy("volume group vg0 is held by run b1")
REBOOT = Terminated("terminated by SIGTERM")
whatever_passes = pytest.mark.parametrize("cause", [REFUSED_LOCK, BUSY, REBOOT], ids=["lock", "busy", "reboot"])


class Told:
    """A notifier that keeps what it is told."""

    def __init__(self, notices: list[Notice]) -> None:
        self.notices = notices

    def tell(self, notice: Notice) -> None:
        self.notices.append(notice)


class Clock(datetime):
    """What the run's process takes for now."""

    at = NIGHT

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return cls.at


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose nightly backup has just been started."""
    monkeypatch.setattr(retries, "datetime", Clock)
    with machine(tmp_path) as made:
        made.start(job("nightly", backup=TRIED))
        made.at(NIGHT)
        yield made


def fail(
    daemon: Machine, error: BackupdError = REFUSED_LOCK, *, leaving: Holding | None = None, looking: bool = True
) -> RetryPlan | None:
    """The run that was started last fails as a run's process does, and ends."""
    Clock.at, run_id = daemon.now, daemon.newest().run_id
    plans: list[RetryPlan | None] = []

    def plan(error: BaseException) -> RetryPlan | None:
        plans.append(retries.plan_retry(daemon.configuration, daemon.catalogue, "nightly", run_id, error))
        return plans[0]

    answers = failure_answers(daemon.configuration)
    with (
        suppress(BackupdError),
        notices.outcome_told(Told(daemon.told), daemon.catalogue, "nightly", run_id, answers=answers, plan=plan),
        daemon.catalogue.open_run("nightly", "db1", run_id=run_id) as run,
    ):
        if leaving is not None:
            run.hold(leaving)
        raise error
    daemon.process().end(int(error.exit_status))
    if looking:
        daemon.dispatch.look()
    return plans[0]


def kinds(daemon: Machine) -> list[NoticeKind]:
    return [notice.kind for notice in daemon.told]


def fail_thrice(daemon: Machine, *errors: BackupdError) -> None:
    """Each try of the night ends with its error."""
    for number, error in enumerate(errors):
        daemon.at(NIGHT + 15 * number * MINUTE)
        fail(daemon, error)


def good(daemon: Machine, run_id: str) -> NoticeKind:
    """A run has a backup; as what it is told."""
    with daemon.catalogue.open_run("nightly", "db1", run_id=run_id) as run:
        run.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
    return notices.ended(daemon.catalogue, daemon.catalogue.run(run_id)).kind


def failures(daemon: Machine) -> list[str]:
    """The alarms of that, as every face shows them. Runs are dated by the real clock."""
    site = Site(daemon.configuration, daemon.catalogue, lambda: datetime.now(UTC))
    (status,) = job_statuses(site, LiveHere(daemon.folder))
    return [alarm.text for alarm in status.alarms if alarm.kind is AlarmKind.FAILED]


@whatever_passes
def test_the_next_try_starts_at_its_time_as_a_run_of_its_own(daemon: Machine, cause: BackupdError) -> None:
    fail(daemon, cause)
    slot = daemon.newest()
    status = int(cause.exit_status)
    assert (slot.state, slot.retry_at, slot.exit_status) == (SlotState.RETRYING, NIGHT + 15 * MINUTE, status)
    daemon.at(NIGHT + 14 * MINUTE)
    assert len(daemon.launcher.started) == 1
    daemon.at(NIGHT + 15 * MINUTE)
    slot = daemon.newest()
    assert (slot.state, slot.run_id, slot.tried, slot.number) == (SlotState.STARTED, "r2", ("r1",), 2)
    assert (slot.retry_at, slot.exit_status, slot.ended_at) == (None, None, None)
    first, second = daemon.launcher.started
    assert mark_of(first) != mark_of(second)
    daemon.process().end(0)
    daemon.after(hours=1)
    assert daemon.slots() == [(NIGHT, SlotState.ENDED)]


def test_the_next_try_of_a_host_that_went_on_alone_waits_while_the_control_host_is_back(daemon: Machine) -> None:
    in_fleet = replace(TRIED, fallback_after_seconds=3600.0)
    daemon.schedule(job("nightly", backup=in_fleet))
    fail(daemon)
    daemon.catalogue.control_host_asked(["nightly"], at=daemon.now, backupd="0.9")
    daemon.at(NIGHT + 15 * MINUTE)
    assert daemon.newest().state is SlotState.RETRYING
    assert len(daemon.launcher.started) == 1
    daemon.at(NIGHT + 61 * MINUTE)
    assert daemon.newest().state is not SlotState.RETRYING


@whatever_passes
def test_failed_is_told_after_the_last_try_and_retrying_before(daemon: Machine, cause: BackupdError) -> None:
    fail(daemon, cause)
    assert kinds(daemon) == [NoticeKind.RETRYING]
    assert "; next try 03:15 UTC (try 2 of 3); the run left nothing on the host" in daemon.told[0].text
    daemon.at(NIGHT + 15 * MINUTE)
    fail(daemon, cause)
    daemon.at(NIGHT + 30 * MINUTE)
    last = RetryPlan(3, 3, reason="it was the last of 3 tries", first_cause=cause.message)
    assert fail(daemon, cause) == last
    assert kinds(daemon) == [NoticeKind.RETRYING, NoticeKind.RETRYING, NoticeKind.FAILED]
    assert daemon.told[-1].text.endswith("; it is not tried again: it was the last of 3 tries")
    daemon.after(hours=2)
    assert daemon.slots() == [(NIGHT, SlotState.ENDED)]
    assert [slot.run_id for slot in daemon.launcher.started] == ["r1", "r2", "r3"]
    assert daemon.newest().tried == ("r1", "r2")


@pytest.mark.parametrize("errors", [(REFUSED_LOCK, BUSY, BUSY), (BUSY, BUSY, BUSY), (BUSY, REFUSED_LOCK, BUSY)])
def test_a_night_whose_last_try_was_busy_is_one_failure_until_the_next_good_one(
    daemon: Machine, errors: tuple[BackupdError, ...]
) -> None:
    fail_thrice(daemon, *errors)
    assert kinds(daemon) == [NoticeKind.RETRYING, NoticeKind.RETRYING, NoticeKind.FAILED]
    text = daemon.told[-1].text
    assert text.startswith(f"the backup of job nightly failed: {BUSY.message}; ")
    assert f"; the first try failed: {errors[0].message}; it is not tried again: it was the last of 3 tries" in text
    assert {"another good copy", "next try", "type now"} <= daemon.told[-1].detail.keys()
    assert failures(daemon) == [f"the last backup failed: {BUSY.message}"]
    daemon.fail_run("by-hand")
    with suppress(BackupdError), daemon.catalogue.open_run("nightly", "db1", run_id="cancelled"):
        raise Cancelled("a person did not want it")
    assert failures(daemon) == [f"the last backup failed: {BUSY.message}"], "no backup was taken since"
    daemon.at(NIGHT + 24 * HOUR)  # the next one is going on
    assert failures(daemon) == [f"the last backup failed: {BUSY.message}"]
    assert good(daemon, "r4") is NoticeKind.RECOVERED
    assert failures(daemon) == []
    assert good(daemon, "r5") is NoticeKind.SUCCEEDED


def test_a_backup_without_retries_that_was_busy_is_told_by_itself_and_once(daemon: Machine) -> None:
    daemon.schedule(job("nightly", backup=BackupScheduleConfig(cron="0 3 * * *")))
    assert fail(daemon, BUSY) == RetryPlan(1, 1, reason="it was the last of 1 tries")
    assert kinds(daemon) == [NoticeKind.FAILED]
    assert daemon.told[0].text == f"the backup of job nightly failed: {BUSY.message}; the run left nothing on the host"
    assert failures(daemon) == [f"the last backup failed: {BUSY.message}"]
    assert good(daemon, "by-hand") is NoticeKind.RECOVERED


def test_a_backup_that_a_good_one_kept_from_starting_is_no_alarm_any_more(daemon: Machine) -> None:
    """The other began before it, and has ended well meanwhile."""
    daemon.schedule(job("nightly", backup=BackupScheduleConfig(cron="0 3 * * *")))
    with daemon.catalogue.open_run("nightly", "db1", run_id="by-hand") as run:
        fail(daemon, BUSY)
        assert failures(daemon) == [f"the last backup failed: {BUSY.message}"]
        run.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
    assert failures(daemon) == []
    assert notices.ended(daemon.catalogue, daemon.catalogue.run("by-hand")).kind is NoticeKind.RECOVERED


@pytest.mark.parametrize("error", [BUSY, REBOOT])
def test_a_run_that_no_schedule_has_started_and_that_was_busy_or_terminated_wakes_nobody(error: BackupdError) -> None:
    assert notices.failed("nightly", "by-hand", error, answers=lambda _: {}) is None


def test_what_a_reboot_ended_is_tried_again_after_it_and_an_alarm_stands_until_a_backup_is_good(
    daemon: Machine,
) -> None:
    fail(daemon, SnapshotError("the volume group has no room"))
    assert failures(daemon) == ["the last backup failed: the volume group has no room"]
    daemon.at(NIGHT + 24 * HOUR)
    fail(daemon, REBOOT, looking=False)
    daemon.start()  # the machine has booted
    assert failures(daemon) == ["the last backup failed: the volume group has no room"]
    assert kinds(daemon) == [NoticeKind.FAILED, NoticeKind.RETRYING]
    for _ in range(2):
        daemon.after(minutes=15)
        fail(daemon, REBOOT)
    assert kinds(daemon)[2:] == [NoticeKind.RETRYING, NoticeKind.FAILED]
    assert failures(daemon) == ["the last backup failed: terminated by SIGTERM"]
    assert good(daemon, "by-hand") is NoticeKind.RECOVERED


def test_what_a_person_has_cancelled_is_no_failure(daemon: Machine) -> None:
    fail(daemon, Cancelled("cancelled by SIGINT"))
    assert (daemon.newest().state, kinds(daemon), failures(daemon)) == (SlotState.ENDED, [], [])


def test_what_could_not_be_started_is_an_alarm_until_the_next_good_one(daemon: Machine) -> None:
    daemon.process().end(0)
    daemon.launcher.broken = True
    daemon.at(NIGHT + 24 * HOUR)
    assert failures(daemon) == ["the backup of 2026-11-23 03:00 UTC failed (internal error: a bug in backupd)"]
    assert good(daemon, "by-hand") is NoticeKind.RECOVERED
    assert failures(daemon) == []


def test_what_does_not_pass_is_told_at_once_and_not_tried_again(daemon: Machine) -> None:
    assert fail(daemon, SnapshotError("the snapshot failed")) == RetryPlan(1, 3)
    assert kinds(daemon) == [NoticeKind.FAILED]
    daemon.after(hours=1)
    assert (daemon.newest().state, len(daemon.launcher.started)) == (SlotState.ENDED, 1)


def test_a_run_that_left_something_is_not_tried_again(daemon: Machine) -> None:
    plan = fail(daemon, leaving=Holding(HoldingKind.SNAPSHOT, "vg0/bk_r1"))
    assert plan == RetryPlan(1, 3, reason="something that the run held is left on the host")
    assert kinds(daemon) == [NoticeKind.FAILED]


def test_a_run_that_no_schedule_has_started_is_not_tried_again(daemon: Machine) -> None:
    assert retries.plan_retry(daemon.configuration, daemon.catalogue, "nightly", "by-hand", REFUSED_LOCK) is None


def test_a_good_try_is_no_recovery_of_a_failure_that_nobody_was_told_of(daemon: Machine) -> None:
    fail(daemon)
    daemon.at(NIGHT + 15 * MINUTE)
    with daemon.catalogue.open_run("nightly", "db1", run_id="r2") as run:
        run.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
    assert notices.ended(daemon.catalogue, daemon.catalogue.run("r2")).kind is NoticeKind.SUCCEEDED


# --- restarts --------------------------------------------------------------------------------------------------------


def test_a_daemon_that_is_restarted_between_tries_starts_the_next_one_once(daemon: Machine) -> None:
    fail(daemon)
    daemon.start()
    daemon.at(NIGHT + 15 * MINUTE)
    daemon.start()
    daemon.start()
    daemon.after(minutes=20)
    assert [slot.run_id for slot in daemon.launcher.started] == ["r1", "r2"]
    assert daemon.newest().state is SlotState.STARTED


def test_a_run_that_ends_while_no_daemon_runs_is_tried_again_by_the_next(daemon: Machine) -> None:
    fail(daemon, looking=False)
    assert daemon.newest().state is SlotState.STARTED
    daemon.now = NIGHT + 20 * MINUTE
    daemon.start()
    assert [slot.run_id for slot in daemon.launcher.started] == ["r1", "r2"]


def test_a_daemon_that_comes_too_late_tells_that_the_backup_has_failed(daemon: Machine) -> None:
    fail(daemon)
    daemon.now = NIGHT + 5 * HOUR
    daemon.start()
    assert daemon.newest().state is SlotState.ENDED
    assert kinds(daemon) == [NoticeKind.RETRYING, NoticeKind.FAILED]
    detail = daemon.told[1].detail
    assert detail["another good copy"] == "NO: no good backup of this job is left"
    assert detail["type now"].splitlines()[0].startswith("backupd log r1  #")
    assert "failed: ftwrl was not granted in 10 tries: a long statement; it is not tried again: " in daemon.told[1].text
    daemon.start()
    assert len(daemon.told) == 2


def test_the_daemon_of_a_reload_does_not_adopt_a_run_twice(daemon: Machine) -> None:
    daemon.catalogue.plan_retry(daemon.newest(), NIGHT + HOUR)
    assert daemon.dispatch.going.adopt() == ()


# --- what else is in the way -----------------------------------------------------------------------------------------


def test_a_try_waits_for_another_run_and_a_pause(daemon: Machine) -> None:
    fail(daemon)
    claims = Claims(daemon.configuration.paths.run)
    with claims.job("nightly", "by hand"):
        daemon.at(NIGHT + 15 * MINUTE)
        assert daemon.dispatch.restless
    daemon.catalogue.pause("nightly", "new disks")
    daemon.after(minutes=1)
    assert len(daemon.launcher.started) == 1
    daemon.catalogue.resume("nightly")
    daemon.after(minutes=1)
    assert len(daemon.launcher.started) == 2


def test_a_slot_that_is_due_meanwhile_takes_the_place_of_a_waiting_try(daemon: Machine) -> None:
    daemon.schedule(job("nightly", backup=BackupScheduleConfig(cron="*/20 * * * *", retries=2)))
    fail(daemon)
    with Claims(daemon.configuration.paths.run).job("nightly", "by hand"):
        daemon.at(NIGHT + 15 * MINUTE)
    daemon.at(NIGHT + 20 * MINUTE)
    assert daemon.slots() == [(NIGHT, SlotState.ENDED), (NIGHT + 20 * MINUTE, SlotState.STARTED)]
    assert daemon.told[-1].text.endswith("it is not tried again: the next backup is due before that")


def test_a_blackout_before_the_next_try_ends_it(daemon: Machine) -> None:
    black = Blackout(frozenset(range(7)), time(3, 10), time(4))
    daemon.schedule(job("nightly", backup=BackupScheduleConfig(cron="0 3 * * *", retries=2, blackout=(black,))))
    assert fail(daemon) == RetryPlan(1, 3, reason="the next try would fall into a blackout")
    assert kinds(daemon) == [NoticeKind.FAILED]


def test_a_job_that_has_left_the_configuration_is_not_tried_again(daemon: Machine) -> None:
    fail(daemon)
    daemon.schedule(job("other", backup=HOURLY))
    daemon.after(minutes=15)
    assert daemon.newest().state is SlotState.ENDED
    assert kinds(daemon) == [NoticeKind.RETRYING, NoticeKind.FAILED]


def test_what_cannot_be_started_again_is_told(daemon: Machine) -> None:
    fail(daemon)
    daemon.launcher.broken = True
    daemon.at(NIGHT + 15 * MINUTE)
    assert kinds(daemon)[-1] is NoticeKind.FAILED
    assert "could not be started" in daemon.told[-1].text


def test_what_was_owed_when_its_timetable_changed_is_tried_again_as_nothing_is_due_in_between(daemon: Machine) -> None:
    daemon.process().end()
    daemon.catalogue.pause("nightly", "the disks are being changed")
    daemon.at(NIGHT + 24 * HOUR)
    daemon.after(hours=2)
    daemon.schedule(job("nightly", backup=replace(TRIED, cron="15 3 * * *")))
    daemon.catalogue.resume("nightly")
    daemon.after(minutes=1)
    plan = fail(daemon)
    assert plan is not None
    assert (plan.next_at, plan.reason) == (daemon.now + 15 * MINUTE, "")
