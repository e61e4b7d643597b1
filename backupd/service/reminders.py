"""What nobody is told by a run's own end: that an alarm has started, still stands a day later, or is over; the digest.

Knows: the words of alarms, and that what is told is remembered before it is told: a daemon that starts again repeats
nothing. What is lost between the two is told again a day later, while the alarm stands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from backupd.policy.alarm_lives import AlarmChanges, alarm_changes
from backupd.report.words import age, instant
from backupd.service.digest import digest, digest_due
from backupd.service.job_status import JobStatus, drilled_well_since
from backupd.service.machine_view import Live, Rooms
from backupd.service.remedies import remedy
from backupd.service.site import Site
from backupd.service.site_status import SiteStatus, site_status
from backupd.vocabulary.alarms import OF_TARGETS, Alarm, OpenAlarm
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, Slot, SlotState

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
    status = site_status(site, live, seen)
    known, lost = _configured(site.catalogue.open_alarms(), status)
    changes = alarm_changes(
        now,
        alarms={
            **{one.job: one.alarms for one in status.jobs},
            "": [alarm for one in status.storage for alarm in one.alarms],
        },
        known=known,
        undone={
            (one.job, activity)
            for one in status.jobs
            for activity, slot in one.last_slots.items()
            if not _has_ended_well(slot, one)
        },
    )
    site.catalogue.remember_alarms(changes.remembered, over=(*changes.forgotten, *lost))
    for notice in _notices(changes, status):
        tell(notice)
    if (due_at := digest_due(site)) is not None:
        notice = digest(site, status, due_at=due_at)
        if site.catalogue.first_told(notice.kind, notice.job, notice.subject):
            tell(notice)


def _has_ended_well(slot: Slot, status: JobStatus) -> bool:
    """By itself, or by a drill that somebody did after it."""
    if slot.activity is Activity.DRILL and drilled_well_since(slot.decided_at, status.config, status):
        return True
    return slot.state is SlotState.ENDED and slot.exit_status in (ExitStatus.OK, ExitStatus.ATTENTION)


def _configured(standing: Sequence[OpenAlarm], status: SiteStatus) -> tuple[list[OpenAlarm], list[OpenAlarm]]:
    """Those of jobs and of targets that are looked at, and those of targets that nobody looks at any more."""
    folders = {one.config.name for one in status.storage if one.is_folder}
    lost = [one for one in standing if one.kind in OF_TARGETS and one.about not in folders]
    return [one for one in standing if one not in lost], lost


def _notices(changes: AlarmChanges, status: SiteStatus) -> Iterator[Notice]:
    now = status.now
    writers = {one.config.name: one.jobs for one in status.storage}
    for one in changes.began:
        yield _notice(NoticeKind.ALARM, one, one.text, writers, now=now)
    for one in changes.stands:
        lasted = f"seen for {age((now - one.since).total_seconds())}, since {instant(one.since)}"
        yield _notice(NoticeKind.ALARM, one, f"{one.text} ({lasted})", writers, now=now)
    for one in changes.over:
        began = f"first seen {instant(one.since)}"
        yield _notice(NoticeKind.OVER, one, f"over since {instant(now)}: {one.text} ({began})", writers, now=now)


def _notice(
    kind: NoticeKind, one: OpenAlarm, text: str, writers: Mapping[str, tuple[str, ...]], *, now: datetime
) -> Notice:
    subject = " ".join(filter(None, (one.kind, one.about, f"since {one.since.isoformat()}")))
    detail = {"alarm": one.kind.value, "severity": Alarm(one.kind, one.text).severity.value}
    target = one.about if one.kind in OF_TARGETS else ""
    jobs = writers.get(target, ())
    detail |= {"jobs": ", ".join(jobs) or "none"} if target else {}
    detail |= {"run": one.run_id} if one.run_id else {}
    if kind is NoticeKind.ALARM:
        detail["type now"] = remedy(one.kind, job=one.job, run_id=one.run_id, about=one.about, jobs=jobs)
    text = f"{f'target {target}' if target else f'job {one.job}'}: {text}"
    return Notice(kind, one.job, now, subject, text, detail, target=target, concerns=jobs)
