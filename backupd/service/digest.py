"""The digest: how all jobs and targets stand, when service.digest says, whether or not anything is wrong.

Knows: when it is due, what is in it, and its words: what is wrong comes first. A digest that was due while no daemon
ran is told once by the next one, however many were.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backupd.catalogue.costs import Beside, RunCost
from backupd.catalogue.job_status import StoredOnTarget
from backupd.policy.lateness import due_slots
from backupd.policy.timetable import Timetable
from backupd.report.words import age, columns, count, duration, instant, many, size
from backupd.service.job_status import HARMLESS, JobStatus
from backupd.service.site import Site
from backupd.service.site_status import SiteAlarm, SiteStatus
from backupd.service.target_report import full_words
from backupd.service.timetables import zone_of
from backupd.vocabulary.alarms import AlarmKind, OpenAlarm
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import GOOD, RunStatus
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, NoticeTable, SlotState

WEEK = timedelta(days=7)

_FAILED = {RunStatus.FAILED, RunStatus.REFUSED}
_SKIPPED = {RunStatus.BUSY, RunStatus.CANCELLED}
_SKIPPED_VERIFY: Mapping[int, str] = {ExitStatus.BUSY: "was busy ", ExitStatus.CANCELLED: "was cancelled "}


@dataclass(frozen=True, slots=True)
class DigestFacts:
    """All that is in one."""

    status: SiteStatus
    stored: Sequence[StoredOnTarget]
    runs: Mapping[str, Sequence[RunCost]]  # of the week, by job
    besides: Mapping[str, Beside]
    standing: Sequence[OpenAlarm]  # what people know of


def digest_due(site: Site) -> datetime | None:
    """When the digest was due that is to be told now; None where none is. It counts as told by `first_told`.

    Where none was ever due before, as in a configuration that is new, those count that are due from now on. Instants
    that lie ahead were written while the machine's clock did.

    Raises:
        CatalogueError: the catalogue cannot be used.
        ConfigurationError: the machine's time zone cannot be had.
    """
    cron, now = site.configuration.service.digest, site.now()
    if cron is None:
        return None
    told = map(datetime.fromisoformat, site.catalogue.told(NoticeKind.DIGEST, job=""))
    last = max((at for at in told if at <= now), default=None)
    if last is None:
        site.catalogue.first_told(NoticeKind.DIGEST, "", now.isoformat())
        return None
    return due_slots(Timetable(cron, zone_of(site.configuration)), since=last, now=now).newest


def digest(site: Site, status: SiteStatus, *, due_at: datetime | None = None) -> Notice:
    """What is told now, by the catalogue; `due_at` is when it was due, where a person has not asked for it.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    now, catalogue = status.now, site.catalogue
    runs: dict[str, list[RunCost]] = defaultdict(list)
    for run in catalogue.costs(since=now - WEEK, until=now, ours=True):
        runs[run.job].append(run)
    besides = catalogue.besides(since=now - WEEK, until=now)
    facts = DigestFacts(status, catalogue.stored(at=now), runs, besides, catalogue.open_alarms())
    late = {"due": instant(due_at.astimezone(UTC))} if due_at is not None and now - due_at > timedelta(hours=1) else {}
    page = {"page": site.configuration.service.public_url} if site.configuration.service.public_url else {}
    subject = (now if due_at is None else due_at).isoformat()
    concerns = tuple(one.job for one in status.jobs)
    tables = dict(_sections(facts))
    detail = {**late, **{name: _in_columns(table) for name, table in tables.items()}, "more": "backupd status", **page}
    return Notice(NoticeKind.DIGEST, "", now, subject, _sentence(status), detail, concerns=concerns, tables=tables)


def _in_columns(table: NoticeTable) -> str:
    return columns([table.head, *table.rows] if table.head else table.rows, right=table.right)


def _sentence(status: SiteStatus) -> str:
    """Of numbers and words of ours only: it goes into a mail's subject."""
    jobs = [bool(one.alarms) for one in status.jobs]
    targets = [bool(one.alarms) for one in status.storage]
    if not any((*jobs, *targets)):
        return f"all is well with {many(len(jobs), 'job')} and {many(len(targets), 'target')}"
    both = ((jobs, "job"), (targets, "target"))
    bad = [f"{sum(found)} of {many(len(found), noun)}" for found, noun in both if any(found)]
    return f"{' and '.join(bad)} {'needs' if sum((*jobs, *targets)) == 1 else 'need'} attention"


def _sections(facts: DigestFacts) -> Iterator[tuple[str, NoticeTable]]:
    """By name, in their order."""
    if alarms := facts.status.alarms:
        yield "alarms", _headed(_alarms(facts, alarms))
        yield "type now", NoticeTable(tuple(_commands(alarms)))
    if paused := [status.pause for status in facts.status.jobs if status.pause is not None]:
        rows = tuple((one.job, f"since {instant(one.at)}", one.note) for one in paused)
        yield "paused, and nothing is started by schedule", NoticeTable(rows)
    yield "newest good copies", _headed(_copies(facts), right=(3,))
    since = instant(facts.status.now - WEEK)
    yield f"backups since {since}, transactions lost, write penalty", _headed(_week(facts), right=tuple(range(1, 8)))
    yield "drills and verifications", _headed(_proofs(facts))
    yield "room on targets", _headed(_rooms(facts), right=(1, 2))


def _headed(rows: Iterator[tuple[str, ...]], *, right: tuple[int, ...] = ()) -> NoticeTable:
    head, *others = rows
    return NoticeTable(tuple(others), head, right)


# --- what is wrong ---------------------------------------------------------------------------------------------------


def _alarms(facts: DigestFacts, alarms: Sequence[SiteAlarm]) -> Iterator[tuple[str, ...]]:
    now, since = facts.status.now, {(one.job, one.kind, one.about): one.since for one in facts.standing}
    yield "SEVERITY", "OF", "WHAT"
    for one in alarms:
        alarm, began = one.alarm, since.get((one.job, one.alarm.kind, one.alarm.about), now)
        lasted = f" (for {age((now - began).total_seconds())})" if began < now else ""
        yield alarm.severity.upper(), one.name, f"{alarm.text}{lasted}"


def _commands(alarms: Sequence[SiteAlarm]) -> Iterator[tuple[str, str]]:
    """Each command once, however many ask for it."""
    why: dict[str, list[str]] = defaultdict(list)
    for one in alarms:
        why[one.command].append(f"{one.name} {one.alarm.kind}")
    return ((command, f"# {', '.join(reasons)}") for command, reasons in why.items())


# --- how all stand ---------------------------------------------------------------------------------------------------


def _copies(facts: DigestFacts) -> Iterator[tuple[str, ...]]:
    yield "JOB", "TARGET", "NEWEST GOOD COPY", "AGE", "READ BACK", ""
    now = facts.status.now
    there = {(one.job, one.target): one for one in facts.stored}
    for status in facts.status.jobs:
        former = sorted(target for job, target in there if job == status.job and target not in status.config.targets)
        for target in (*status.config.targets, *former):
            copy = there.get((status.job, target))
            broken = f"{copy.broken} broken" if copy is not None and copy.broken else ""
            doubts = ", ".join(filter(None, (broken, "no longer a target of the job" if target in former else "")))
            if copy is None or copy.newest_good_at is None:
                yield status.job, target, "NONE", "-", "-", doubts
            else:
                read = _ago(copy.verified_at, now)
                made = instant(copy.newest_good_at)
                yield (
                    status.job,
                    target,
                    made,
                    age((now - copy.newest_good_at).total_seconds()),
                    read,
                    doubts,
                )


def _week(facts: DigestFacts) -> Iterator[tuple[str, ...]]:
    yield "JOB", "GOOD", "FAILED", "SKIPPED", "MISSED", "DRILLS", "LOST", "PENALTY"
    for status in facts.status.jobs:
        runs, beside = facts.runs.get(status.job, ()), facts.besides.get(status.job, Beside())
        lost = [run.transactions_lost for run in runs if run.transactions_lost is not None]
        penalty = [run.penalty_seconds for run in runs if run.penalty_seconds is not None]
        yield (
            status.job,
            *(str(sum(run.status in wanted for run in runs)) for wanted in (GOOD, _FAILED, _SKIPPED)),
            str(beside.missed),
            f"{beside.drills}" + (f" ({beside.drills_failed} failed)" if beside.drills_failed else ""),
            count(sum(lost)) if lost else "-",
            duration(sum(penalty)) if penalty else "-",
        )


def _proofs(facts: DigestFacts) -> Iterator[tuple[str, ...]]:
    yield "JOB", "PROVEN BY A DRILL", "AT LEAST EVERY", "SCHEDULED VERIFICATION"
    for status in facts.status.jobs:
        overdue = any(alarm.kind is AlarmKind.DRILL_OVERDUE for alarm in status.alarms)
        within = status.config.drill_within_seconds
        proven = _ago(status.proven_at, facts.status.now) + (", OVERDUE" if overdue else "")
        yield status.job, proven, "no limit set" if within is None else age(within), _verified(status)


def _verified(status: JobStatus) -> str:
    slot = status.last_slots.get(Activity.VERIFY)
    if slot is None:
        return "none yet" if status.config.schedules.verify is not None else "no schedule"
    when = _ago(slot.due_at, status.now)
    if slot.state is SlotState.MISSED:
        return f"MISSED {when}, OVERDUE"
    if slot.state is not SlotState.ENDED:
        return f"started {when}"
    if slot.exit_status is None:
        return f"ended, result unknown, {when}"
    if slot.exit_status not in HARMLESS:
        return f"FAILED {when}, OVERDUE"
    return _SKIPPED_VERIFY.get(slot.exit_status, "") + when


def _rooms(facts: DigestFacts) -> Iterator[tuple[str, ...]]:
    yield "TARGET", "FREE", "SIZE", "FULL IN"
    for one in facts.status.storage:
        seen = one.seen if one.seen is not None and one.seen.up else None
        room = ("-", "-") if seen is None else (size(seen.free), size(seen.size))
        yield one.config.name, *room, full_words(one)


def _ago(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{age((now - at).total_seconds())} ago"
