"""What nobody is told by a run's own end: that an alarm has started, still stands a day later, or is over; the digest.

Knows: the words of alarms, and that what is told is remembered before it is told: a daemon that starts again repeats
nothing. What is lost between the two is told again a day later, while the alarm stands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from backupd.policy.alarm_lives import AlarmChanges, alarm_changes
from backupd.report.words import age, instant
from backupd.service.digest import digest, digest_due
from backupd.service.job_status import job_statuses
from backupd.service.outlook import Live, Rooms
from backupd.service.remedies import remedy
from backupd.service.site import Site
from backupd.service.storage import StorageStatus, storage_statuses
from backupd.vocabulary.alarms import OF_TARGETS, Alarm, StandingAlarm
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.schedule import Notice, NoticeKind, SlotState

EVERY_SECONDS = 600.0
_LOOK_SECONDS = 0.2  # that looks at folders are waited for; what they find later counts the next time


def remind(site: Site, live: Live, rooms: Rooms, tell: Callable[[Notice], None]) -> None:
    """People hear of every alarm what they have not heard of it yet today, and get the digest when it is due.

    Raises:
        CatalogueError: the catalogue cannot be used; nothing is told then.
        ConfigurationError: the machine's time zone cannot be had.
    """
    now = site.now()
    seen = rooms.seen(within_seconds=_LOOK_SECONDS)
    site.catalogue.remember_rooms({name: one.free for name, one in seen.items() if one.free is not None}, at=now)
    statuses, storage = job_statuses(site, live), storage_statuses(site, seen)
    known, lost = _judged(site.catalogue.standing_alarms(), storage)
    changes = alarm_changes(
        now,
        alarms={
            **{status.job: status.alarms for status in statuses},
            "": [alarm for one in storage for alarm in one.alarms],
        },
        known=known,
        undone={
            (status.job, activity)
            for status in statuses
            for activity, slot in status.last_slots.items()
            if slot.state is not SlotState.ENDED or slot.exit_status not in (ExitStatus.OK, ExitStatus.ATTENTION)
        },
    )
    site.catalogue.remember_alarms(changes.remembered, over=(*changes.forgotten, *lost))
    for notice in _notices(changes, site, storage):
        tell(notice)
    if (due_at := digest_due(site)) is not None:
        notice = digest(site, statuses, storage, due_at=due_at)
        if site.catalogue.first_told(notice.kind, notice.job, notice.subject):
            tell(notice)


def _judged(
    standing: Sequence[StandingAlarm], storage: Sequence[StorageStatus]
) -> tuple[list[StandingAlarm], list[StandingAlarm]]:
    """Those of which it is known whether they stand, and those of targets that nobody looks at any more.

    A target that was not looked at yet, or is away, is no reason to say that what was told of it is over.
    """
    folders = {one.config.name: one.judged for one in storage if one.is_folder}
    of_targets = [one for one in standing if one.kind in OF_TARGETS]
    known = [one for one in standing if one.kind not in OF_TARGETS or one.kind in folders.get(one.about, ())]
    return known, [one for one in of_targets if one.about not in folders]


def _notices(changes: AlarmChanges, site: Site, storage: Sequence[StorageStatus]) -> Iterator[Notice]:
    now = site.now()
    writers = {one.config.name: one.jobs for one in storage}
    for one in changes.began:
        yield _notice(NoticeKind.ALARM, one, site, one.text, writers)
    for one in changes.stands:
        lasted = f"seen for {age((now - one.since).total_seconds())}, since {instant(one.since)}"
        yield _notice(NoticeKind.ALARM, one, site, f"{one.text} ({lasted})", writers)
    for one in changes.over:
        began = f"it was seen first {instant(one.since)}"
        yield _notice(NoticeKind.OVER, one, site, f"over since {instant(now)}: {one.text} ({began})", writers)


def _notice(
    kind: NoticeKind, one: StandingAlarm, site: Site, text: str, writers: Mapping[str, tuple[str, ...]]
) -> Notice:
    severity = Alarm(one.kind, one.text).severity
    subject = " ".join(filter(None, (one.kind, one.about, f"since {one.since.isoformat()}")))
    detail = {"alarm": one.kind.value, "severity": severity.value}
    if one.kind in OF_TARGETS:
        jobs = writers.get(one.about, ())
        more = remedy(one.kind, job="", run_id="", about=one.about, jobs=jobs)
        detail |= {"jobs": ", ".join(jobs) or "none", "more": more}
        text = f"target {one.about}: {text}"
        return Notice(kind, "", site.now(), subject, text, detail, target=one.about, concerns=jobs)
    run = {"run": one.run_id} if one.run_id else {}
    more = f"backupd show {one.run_id}" if one.run_id else f"backupd status {one.job}"
    return Notice(kind, one.job, site.now(), subject, f"job {one.job}: {text}", {**detail, **run, "more": more})
