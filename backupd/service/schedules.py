"""What the daemon goes by: one `KeptSchedule` for each activity of a job, and how far its slots were decided.

Knows: since when a timetable counts, and what is due still of the one before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from backupd.catalogue.schedule_records import Key, Scheduled
from backupd.config import ScheduleConfig
from backupd.policy.timetable import ChangedTimetable, Timetable, is_zone
from backupd.service.site import Site
from backupd.service.timetables import zone_of
from backupd.vocabulary.schedule import Activity

_MOMENT = timedelta(microseconds=1)


@dataclass(slots=True)
class KeptSchedule:
    """One activity of a job, and how far it was decided."""

    job: str
    activity: Activity
    config: ScheduleConfig
    zone: str
    timetable: Timetable
    since: datetime  # nothing is owed of the time before; it is yet to come where the clock was ahead, or is behind
    decided: datetime  # every slot up to here
    next_due: datetime | None = None
    why: str = ""  # the newest slot that is due was not started yet

    @property
    def key(self) -> Key:
        """What it is of."""
        return self.job, self.activity

    def decide_up_to(self, instant: datetime) -> None:
        """What was due until then needs no decision any more."""
        self.decided, self.why = instant, ""
        self.next_due = self.timetable.after(instant)

    def is_due(self, now: datetime) -> bool:
        """A slot awaits its decision. Where the clock was restored, what has a row there is not done again."""
        if self.decided > now:
            self.decide_up_to(now)
        elif self.decided < self.since <= now:
            self.decide_up_to(self.since)
        return self.next_due is not None and self.next_due <= now


def replaced_by(wanted: Mapping[Key, Timetable], gone_by: Mapping[Key, Scheduled]) -> dict[Key, Scheduled]:
    """Those that have other timetables now; without any whose zone this machine has no more, as after an upgrade."""
    changed = {key: one for key, one in gone_by.items() if one.timetable != wanted.get(key, one.timetable)}
    return {key: one for key, one in changed.items() if is_zone(one.timetable.zone)}


def schedules(
    site: Site, scheduled: Mapping[Key, Scheduled], now: datetime, *, before: Iterable[KeptSchedule]
) -> list[KeptSchedule]:
    """Each as the catalogue has it; what still waits does so for the reason that it had `before`.

    Raises:
        CatalogueError, ConfigurationError: the catalogue cannot be read, or this machine's zone cannot be told.
    """
    newest = site.catalogue.newest_slots(before=now)
    waiting = {one.key: one.why for one in before}
    found = []
    for (job, activity), known in scheduled.items():
        config = getattr(site.configuration.jobs[job].schedules, activity.value)
        zone, timetable, since = zone_of(site.configuration, config), known.timetable, known.since
        if known.owed is not None:
            timetable = ChangedTimetable(**asdict(timetable), owed=known.owed, since=since)
            since = known.owed - _MOMENT
        decided = max(filter(None, (min(now, since), newest.get((job, activity)))))
        one = KeptSchedule(job, activity, config, zone, timetable, since, decided)
        one.decide_up_to(decided)
        if one.is_due(now):
            one.why = waiting.get(one.key, "")
        found.append(one)
    return found
