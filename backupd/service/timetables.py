"""From the configuration to what is due when: the timetable of each job's activities, in a zone that is known.

Knows: this machine's name and zone.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from backupd.config import Configuration, ScheduleConfig
from backupd.policy.timetable import Timetable, require_zone, stable_offset
from backupd.vocabulary.errors import ConfigurationError, UsageError
from backupd.vocabulary.schedule import Activity

_LOCALTIME = Path("/etc/localtime")
_DEBIANS_NOTE = Path("/etc/timezone")
_ZONES = "zoneinfo/"


def timetables(configuration: Configuration) -> dict[tuple[str, Activity], Timetable]:
    """Of every job and each of its activities that has a schedule.

    Raises:
        ConfigurationError: a schedule goes by this machine's zone, which cannot be told.
    """
    host = socket.gethostname()
    return {
        (job.name, activity): timetable_of(
            schedule, zone=zone_of(configuration, schedule), names=(host, job.name, activity.value)
        )
        for job in configuration.jobs.values()
        for activity, schedule in job.schedules.items()
    }


def timetable_of(schedule: ScheduleConfig, *, zone: str, names: tuple[str, ...]) -> Timetable:
    """Its times by this zone's clock, each later by the part of the spread that belongs to these names."""
    return Timetable(schedule.cron, zone, stable_offset(schedule.spread_seconds, *names))


def zone_of(configuration: Configuration, schedule: ScheduleConfig | None = None) -> str:
    """The zone of this schedule: its own, else the service's, else this machine's.

    Raises:
        ConfigurationError: neither names one, and this machine's cannot be told.
    """
    named = schedule.zone if schedule is not None else None
    return named or configuration.service.zone or zone_of_machine(os.environ)


def zone_of_machine(environment: Mapping[str, str], *, localtime: Path = _LOCALTIME, note: Path = _DEBIANS_NOTE) -> str:
    """IANA's name of the zone that this machine goes by: of TZ, of what /etc/localtime links to, or of /etc/timezone.

    UTC where there is none of them, as glibc has it.

    Raises:
        ConfigurationError: there is one of them, but it names no zone.
    """
    candidates = (environment.get("TZ", "").removeprefix(":"), _linked(localtime), _noted(note))
    name = next(filter(None, candidates), "UTC" if not localtime.exists() else "")
    try:
        return require_zone(name)
    except UsageError as error:
        raise _unknown(name) from error


def marks_of_machine() -> tuple[str, ...]:
    """What of this machine timetables follow from, while we run: its name, and what tells its zone. Never raises."""
    return socket.gethostname(), _linked(_LOCALTIME), _noted(_DEBIANS_NOTE)


def _linked(localtime: Path) -> str:
    try:
        _, _, name = localtime.readlink().as_posix().rpartition(_ZONES)
    except OSError:  # it is a file, or not there
        return ""
    return name.removeprefix("posix/").removeprefix("right/")


def _noted(note: Path) -> str:
    try:
        return note.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _unknown(name: str) -> ConfigurationError:
    what = f'"{name}" is not an IANA time zone' if name else "/etc/localtime is a file, not a link to a time zone"
    return ConfigurationError(
        f"cannot determine the time zone of this machine: {what}",
        hint='set it in the configuration: zone = "Europe/Berlin" in [service]',
    )
