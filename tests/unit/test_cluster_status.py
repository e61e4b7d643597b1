"""How a cluster of a fleet stands: what is overdue, and in which order clusters need somebody."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from backupd.policy.cluster_status import (
    ClusterStatus,
    FleetAlarmKind,
    WatchedCluster,
    cluster_statuses,
)
from backupd.vocabulary.alarms import Severity, gravest
from backupd.vocabulary.fleet import ClusterSummary, FleetBackup, FleetState, OwedBackup

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TERMS = WatchedCluster("shop", ("db1", "db2"), ("nightly",), every_seconds=86_400.0, drill_within_seconds=30 * 86_400.0)


def owed(cluster: str = "shop", night: date = date(2026, 11, 25)) -> OwedBackup:
    begin = datetime(night.year, night.month, night.day, 22, tzinfo=UTC)
    return OwedBackup(night, cluster, "nightly", ("db1",), ("nas1",), begin, begin + DAY / 3, 0, 60.0, 1)


def summary(good: timedelta | None, proven: timedelta | None, **newest: object) -> ClusterSummary:
    backup = FleetBackup(owed(), FleetState.DONE)
    return ClusterSummary(
        "shop",
        newest=replace(backup, **newest),  # type: ignore[arg-type]
        last_good=backup,
        last_good_at=None if good is None else NOW - good,
        last_proven_at=None if proven is None else NOW - proven,
    )


def status(found: ClusterSummary | None, terms: WatchedCluster = TERMS) -> ClusterStatus:
    (one,) = cluster_statuses([terms], {} if found is None else {"shop": found}, now=NOW)
    return one


def kinds(found: ClusterSummary | None, terms: WatchedCluster = TERMS) -> list[FleetAlarmKind]:
    return [alarm.kind for alarm in status(found, terms).alarms]


def test_a_cluster_is_well_whose_backup_and_proof_are_young() -> None:
    assert kinds(summary(DAY, DAY)) == []
    assert gravest(alarm.severity for alarm in status(summary(DAY, DAY)).alarms) is Severity.OK


def test_a_job_that_failed_is_told_though_another_of_the_cluster_is_newer_and_good() -> None:
    failed = FleetBackup(owed(), FleetState.FAILED, said="the disk is full")
    found = replace(summary(DAY, DAY), troubled=(failed,))
    (alarm,) = status(found).alarms
    assert (alarm.kind, alarm.text) == (FleetAlarmKind.FAILED, "the backup of 2026-11-25 failed: the disk is full")
    (alarm,) = status(found, replace(TERMS, jobs=("nightly", "weekly"))).alarms
    assert alarm.text == "the backup of 2026-11-25 of job nightly failed: the disk is full"


def test_of_members_that_each_owe_a_backup_the_bad_one_is_named() -> None:
    each = replace(TERMS, every_member=True)
    failed = FleetBackup(replace(owed(), only="db2"), FleetState.FAILED, said="no room")
    (alarm,) = status(replace(summary(DAY, DAY), troubled=(failed,)), each).alarms
    assert alarm.text == "the backup of 2026-11-25 of db2 failed: no room"
    (alarm,) = status(replace(summary(None, None), lacking=("nightly", "db1")), each).alarms
    assert (alarm.kind, alarm.text) == (FleetAlarmKind.NEVER, "the fleet has made no good backup of db1")
    (alarm,) = status(summary(DAY, None), each).alarms
    assert alarm.text == "no drill has ever proven a backup of each member"


def test_a_cluster_is_overdue_after_one_and_a_half_intervals_and_not_before() -> None:
    assert kinds(summary(DAY * 1.5, DAY)) == []
    assert kinds(summary(DAY * 1.5 + timedelta(seconds=1), DAY)) == [FleetAlarmKind.OVERDUE]
    weekly = replace(TERMS, every_seconds=7 * 86_400.0)
    assert kinds(summary(DAY * 8, DAY), weekly) == []


def test_a_cluster_that_was_never_backed_up_is_as_grave_as_one_that_is_overdue() -> None:
    assert kinds(None) == [FleetAlarmKind.NEVER]
    assert gravest(alarm.severity for alarm in status(None).alarms) is Severity.CRITICAL
    assert gravest(alarm.severity for alarm in status(summary(2 * DAY, DAY)).alarms) is Severity.CRITICAL


def test_a_backup_that_a_host_made_without_the_fleet_is_named_where_the_fleet_s_own_is_missing_or_too_old() -> None:
    made = ("db2", NOW - DAY / 2)
    (alarm,) = status(replace(summary(2 * DAY, DAY), alone=made)).alarms
    assert alarm.text == "the fleet's last good backup is too old; db2 made one without it at 2026-11-26 00:00 UTC"
    (alarm,) = status(replace(summary(None, None), lacking=("nightly", ""), alone=made)).alarms
    assert alarm.text == "the fleet has made no good backup; db2 made one without it at 2026-11-26 00:00 UTC"
    assert kinds(replace(summary(DAY, DAY), alone=made)) == []


def test_a_proof_is_missed_only_where_one_is_asked_for_and_there_is_something_to_prove() -> None:
    assert kinds(summary(DAY, 31 * DAY)) == [FleetAlarmKind.PROOF_OVERDUE]
    assert kinds(summary(DAY, None)) == [FleetAlarmKind.PROOF_OVERDUE]
    assert kinds(summary(DAY, None), replace(TERMS, drill_within_seconds=None)) == []
    assert FleetAlarmKind.PROOF_OVERDUE not in kinds(None)


def test_a_night_that_failed_says_why_and_one_that_goes_on_is_no_alarm() -> None:
    (alarm,) = status(summary(DAY, DAY, state=FleetState.FAILED, said="no room")).alarms
    assert (alarm.kind, alarm.text) == (FleetAlarmKind.FAILED, "the backup of 2026-11-25 failed: no room")
    assert alarm.severity is Severity.WARNING
    assert kinds(summary(DAY, DAY, state=FleetState.MISSED)) == [FleetAlarmKind.MISSED]
    assert kinds(summary(DAY, DAY, state=FleetState.WAITING)) == []
    assert status(summary(DAY, DAY, state=FleetState.RUNNING)).going is not None


def test_whoever_needs_somebody_most_comes_first() -> None:
    terms = [replace(TERMS, cluster=name) for name in ("well", "soon", "failed", "late", "latest", "never")]
    found = {
        "well": summary(timedelta(hours=1), DAY),
        "soon": summary(DAY, DAY),
        "failed": summary(DAY, DAY, state=FleetState.FAILED),
        "late": summary(2 * DAY, DAY),
        "latest": summary(3 * DAY, DAY),
    }
    ordered = [one.cluster for one in cluster_statuses(terms, found, now=NOW)]
    assert ordered == ["never", "latest", "late", "failed", "soon", "well"]
