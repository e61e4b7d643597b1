"""How targets stand, for a person who asks once: what fits on one screen, as text and as a document.

Knows: the lines and the keys. What is an alarm, and how grave, is `storage`'s to say.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from backupd.report.words import age, columns, size
from backupd.service.alarm_report import alarm_document, alarm_lines
from backupd.service.site_status import SiteAlarm
from backupd.service.storage import StorageStatus


def target_report_text(status: StorageStatus, alarms: Sequence[SiteAlarm]) -> str:
    """The target and how it stands, then a line for each question."""
    rows = [("", name, text) for name, text in _lines(status, alarms)]
    return f"target {status.config.name}: {status.severity.upper()}\n{columns(rows)}"


def full_words(status: StorageStatus) -> str:
    """When it will be full, or why nobody can tell."""
    if status.seen is None:
        return "not looked at yet" if status.is_folder else f"unknown ({status.config.type})"
    if not status.seen.up:
        return "UNREACHABLE"
    full = status.full_in_seconds
    return "does not fill, or not known yet" if full is None else age(full)


def _lines(status: StorageStatus, alarms: Sequence[SiteAlarm]) -> Iterator[tuple[str, str]]:
    yield from alarm_lines(alarms)
    seen = status.seen
    if seen is not None and seen.up and seen.free is not None:
        yield "free", f"{size(seen.free)} of {size(seen.size)}"
    yield "full in", full_words(status)
    yield "jobs", ", ".join(status.jobs) or "none"


def target_report_document(status: StorageStatus, alarms: Sequence[SiteAlarm]) -> dict[str, Any]:
    """One target; what is not known is null."""
    seen = status.seen
    return {
        "target": status.config.name,
        "severity": status.severity,
        "alarms": [alarm_document(one) for one in alarms],
        "jobs": list(status.jobs),
        "up": None if seen is None else seen.up,
        "free": None if seen is None else seen.free,
        "size": None if seen is None else seen.size,
        "full_in_seconds": status.full_in_seconds,
    }
