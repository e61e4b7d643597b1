"""APScheduler as the clock: it rings when something is due, and every so often besides.

Knows: nothing but when to ring. What is due, and whether it is started, is decided from the catalogue by whoever hears
it, so that a ring too many or too few does no harm. Jobs are kept in memory: schedules are configuration.

The trigger is our own: APScheduler's for cron leaves out whole days and doubles others where a zone's clock changes
(3.11.3, seen with zoneinfo's zones).
"""

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from backupd.policy.timetable import Timetable

BEAT_SECONDS = 20.0
_STUCK_SECONDS = 3 * BEAT_SECONDS


class _ByTimetable(BaseTrigger):  # type: ignore[misc]  # APScheduler has no annotations
    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """What was due before now is not made up for here."""
        del previous_fire_time
        return self._timetable.after(now)


class Clock:
    """A thread that rings; `start` it once, and `stop` it."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._beaten_at = time.monotonic()
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            daemon=True,
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )

    def start(self) -> None:
        """It rings from now on."""
        self._scheduler.start()

    def go_by(self, timetables: Iterable[Timetable]) -> None:
        """It rings by these, and by no earlier ones.

        To be called again when the machine's clock was set: APScheduler waits by what the clock said before, and would
        be silent for as long as the clock was set back.
        """
        self._scheduler.remove_all_jobs()
        for timetable in set(timetables):
            self._scheduler.add_job(self._ring, _ByTimetable(timetable))
        self._beaten_at = time.monotonic()
        self._scheduler.add_job(self._beat, IntervalTrigger(seconds=BEAT_SECONDS, timezone=UTC))

    @property
    def alive(self) -> bool:
        """Whether it has been heard lately."""
        return time.monotonic() - self._beaten_at < _STUCK_SECONDS

    def stop(self) -> None:
        """It rings no more. Within a second, whatever it is at: its threads end with the process."""
        ending = threading.Thread(target=self._scheduler.shutdown, kwargs={"wait": False}, daemon=True)
        ending.start()
        ending.join(1.0)

    def _beat(self) -> None:
        self._beaten_at = time.monotonic()
        self._ring()
