"""A host's own schedule beside a fleet's: who starts what is due, by when a control host asked this host last.

Knows: where that is recorded, and that people are told once when a host goes on alone.
"""

from collections.abc import Callable
from datetime import datetime

from backupd.catalogue.store import Catalogue
from backupd.config import BackupScheduleConfig, ScheduleConfig
from backupd.policy.fallback import FallbackRule
from backupd.vocabulary.schedule import Notice, NoticeKind, Slot


def fallback_rule(job: str, config: ScheduleConfig | None, catalogue: Catalogue) -> FallbackRule | None:
    """By which a backup of this job and schedule is left to a fleet; None where it never is.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    if not isinstance(config, BackupScheduleConfig) or config.fallback_after_seconds is None:
        return None
    return FallbackRule(config.fallback_after_seconds, catalogue.control_host_asked_at(job))


def tell_once_alone(
    catalogue: Catalogue, slot: Slot, rule: FallbackRule, now: datetime, tell: Callable[[Notice], None]
) -> None:
    """The slot starts here because the control host is away: told with the first that does so since it went away.

    Raises:
        CatalogueError: the catalogue cannot be read or written.
    """
    since = "ever" if rule.asked_at is None else rule.asked_at.isoformat()
    subject = f"fallback since {since}"
    if catalogue.first_told(NoticeKind.ATTENTION, slot.job, subject):
        text = f"job {slot.job}: {rule.words(now)}"
        detail = {"activity": slot.activity.value, "due_at": slot.due_at.isoformat(), "run_id": slot.run_id}
        tell(Notice(NoticeKind.ATTENTION, slot.job, now, subject, text, detail))
