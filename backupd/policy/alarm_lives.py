"""The life of an alarm: people hear of its start, once a day that it stands, and of its end.

Pure: from what stands now, what people were told and the time follow what is told now and what is remembered of it.
What a run, a drill, a verification, a copy or the daemon tells at once when it happens counts as told by that: a
failure, a missed slot, a backup that needs attention, and each of them that comes after it; of these only whole days
without one are told here. A backup that is good again tells so as well.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from backupd.vocabulary.alarms import Alarm, AlarmKind, OpenAlarm
from backupd.vocabulary.schedule import Activity

AGAIN_AFTER = timedelta(days=1)

_START_IS_TOLD = frozenset({AlarmKind.FAILED, AlarmKind.MISSED, AlarmKind.ATTENTION})  # by what happened
_END_IS_TOLD = frozenset({AlarmKind.FAILED, AlarmKind.MISSED})  # of backups, by the run that is good again


@dataclass(frozen=True, slots=True)
class AlarmChanges:
    """What has become of alarms since the last look; `began` and `stands` are told, and so is `over`."""

    began: tuple[OpenAlarm, ...] = ()
    stands: tuple[OpenAlarm, ...] = ()  # for another day
    over: tuple[OpenAlarm, ...] = ()
    remembered: tuple[OpenAlarm, ...] = ()  # every one that is new or has changed, whether or not it is told
    forgotten: tuple[OpenAlarm, ...] = ()  # every one that is over, whether or not that is told


def alarm_changes(
    now: datetime,
    *,
    alarms: Mapping[str, Iterable[Alarm]],
    known: Iterable[OpenAlarm],
    undone: Collection[tuple[str, Activity]] = (),
) -> AlarmChanges:
    """What is told now: `alarms` is what stands, by each configured job; `known` what is remembered.

    `undone` are activities, each with its job, whose newest slot has not ended well: it goes on, was cancelled, or was
    missed during a pause. What failed there or was missed is not over, although it is no alarm at the moment.
    Of a job that is not configured any more nobody is told that its alarms are over: they were not cleared.
    """
    before = {(one.job, one.kind, one.about): one for one in known}
    present = {(job, alarm.kind, alarm.about): alarm for job, found in alarms.items() for alarm in found}
    began: list[OpenAlarm] = []
    stands: list[OpenAlarm] = []
    quiet: list[OpenAlarm] = []
    for (job, kind, about), alarm in present.items():
        was = before.get((job, kind, about))
        new = was or OpenAlarm(job, kind, about, alarm.text, now, None, alarm.run_id)
        told = replace(new, text=alarm.text, told_at=now, run_id=alarm.run_id)
        if kind in _START_IS_TOLD and (was is None or (was.text, was.run_id) != (alarm.text, alarm.run_id)):
            quiet.append(told)
        elif _is_due(new, alarm, now):
            (began if new.told_at is None else stands).append(told)
        elif was is None:
            quiet.append(new)
    gone = tuple(one for key, one in before.items() if key not in present and not _is_undone(one, undone))
    return AlarmChanges(
        tuple(began),
        tuple(stands),
        tuple(one for one in gone if one.job in alarms and _is_end_told(one)),
        (*began, *stands, *quiet),
        gone,
    )


def _is_due(was: OpenAlarm, alarm: Alarm, now: datetime) -> bool:
    """An instant that lies ahead was written while the machine's clock was: it silences nothing."""
    if was.told_at is None:
        return not timedelta() <= now - was.since < alarm.patience
    return not timedelta() <= now - was.told_at < AGAIN_AFTER


def _is_undone(one: OpenAlarm, undone: Collection[tuple[str, Activity]]) -> bool:
    """Not of backups: these may be made by hand as well, and a good one tells that all is well."""
    of_others = one.kind in _START_IS_TOLD and one.about != Activity.BACKUP
    return of_others and any((one.job, one.about) == (job, activity) for job, activity in undone)


def _is_end_told(one: OpenAlarm) -> bool:
    """Only of what people know of, and of what no run tells."""
    return one.told_at is not None and not (one.kind in _END_IS_TOLD and one.about == Activity.BACKUP)
