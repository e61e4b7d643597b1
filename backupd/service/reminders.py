"""What nobody is told by a run's own end: that an alarm has started, still stands a day later, or is over.

Knows: the words, and that what is told is remembered before it is told: a daemon that starts again repeats nothing.
What is lost between the two is told again a day later, while the alarm stands.
"""

from collections.abc import Callable, Iterator

from backupd.policy.alarm_lives import AlarmChanges, alarm_changes
from backupd.report.words import age, instant
from backupd.service.job_status import job_statuses
from backupd.service.outlook import Live
from backupd.service.site import Site
from backupd.vocabulary.alarms import Alarm, StandingAlarm
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.schedule import Notice, NoticeKind, SlotState

EVERY_SECONDS = 600.0


def remind(site: Site, live: Live, tell: Callable[[Notice], None]) -> None:
    """People hear of every alarm what they have not heard of it yet today.

    Raises:
        CatalogueError: the catalogue cannot be used; nothing is told then.
        ConfigurationError: the machine's time zone cannot be had.
    """
    now = site.now()
    statuses = job_statuses(site, live)
    changes = alarm_changes(
        now,
        alarms={status.job: status.alarms for status in statuses},
        known=site.catalogue.standing_alarms(),
        undone={
            (status.job, activity)
            for status in statuses
            for activity, slot in status.last_slots.items()
            if slot.state is not SlotState.ENDED or slot.exit_status not in (ExitStatus.OK, ExitStatus.ATTENTION)
        },
    )
    site.catalogue.remember_alarms(changes.remembered, over=changes.forgotten)
    for notice in _notices(changes, site):
        tell(notice)


def _notices(changes: AlarmChanges, site: Site) -> Iterator[Notice]:
    now = site.now()
    for one in changes.began:
        yield _notice(NoticeKind.ALARM, one, site, one.text)
    for one in changes.stands:
        lasted = f"seen for {age((now - one.since).total_seconds())}, since {instant(one.since)}"
        yield _notice(NoticeKind.ALARM, one, site, f"{one.text} ({lasted})")
    for one in changes.over:
        began = f"it was seen first {instant(one.since)}"
        yield _notice(NoticeKind.OVER, one, site, f"over since {instant(now)}: {one.text} ({began})")


def _notice(kind: NoticeKind, one: StandingAlarm, site: Site, text: str) -> Notice:
    severity = Alarm(one.kind, one.text).severity
    run = {"run": one.run_id} if one.run_id else {}
    more = f"backupd show {one.run_id}" if one.run_id else f"backupd status {one.job}"
    detail = {"alarm": one.kind.value, "severity": severity.value, **run, "more": more}
    subject = " ".join(filter(None, (one.kind, one.about, f"since {one.since.isoformat()}")))
    return Notice(kind, one.job, site.now(), subject, f"job {one.job}: {text}", detail)
