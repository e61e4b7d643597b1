"""An alarm in a report of `backupd status`: what it says, and what to type first.

Knows: the lines and the keys, the same for jobs and targets.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from backupd.service.site_status import SiteAlarm


def alarm_lines(alarms: Sequence[SiteAlarm]) -> Iterator[tuple[str, str]]:
    """Every alarm, then each command once."""
    for one in alarms:
        run = f" (run {one.alarm.run_id})" if one.alarm.run_id else ""
        yield "alarm", f"{one.alarm.text}{run}"
    yield from (("type now", command) for command in dict.fromkeys(one.command for one in alarms))


def alarm_document(one: SiteAlarm) -> dict[str, Any]:
    """For a program."""
    alarm = one.alarm
    return {
        "kind": alarm.kind,
        "severity": alarm.severity,
        "text": alarm.text,
        "run_id": alarm.run_id or None,
        "command": one.command,
    }
