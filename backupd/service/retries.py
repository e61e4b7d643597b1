"""The tries of a slot: what a run that failed is told with, and what the daemon goes by.

Knows: how the configuration's words become the policy's, and that the run writes its next try into the slot's row,
before it ends: then whoever looks at that row next, a daemon that was started anew too, starts it, once.
"""

import logging
from datetime import UTC, datetime

from backupd.catalogue.store import Catalogue
from backupd.config import BackupScheduleConfig, Configuration
from backupd.policy.retries import Again, NotAgain, RetryPlan, RetryRules, passes, planned
from backupd.service.slot_errors import error_of
from backupd.service.timetables import timetables, zone_of
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.schedule import Activity, Slot

log = logging.getLogger(__name__)

_LEFT = "something that the run held is left on the host"


def rules_of(schedule: BackupScheduleConfig, zone: str) -> RetryRules:
    """What this schedule says of tries, by the clock of this zone."""
    return RetryRules(
        schedule.retries, schedule.retry_after_seconds, schedule.start_within_seconds, schedule.blackout, zone
    )


def plan_retry(
    configuration: Configuration, catalogue: Catalogue, job: str, run_id: str, error: BaseException
) -> RetryPlan | None:
    """The next try of a backup that has just failed is in its slot's row, where there is to be one.

    None where it was not started by a schedule, or nothing can be found out: then nobody will try again.
    """
    try:
        slot = catalogue.slot_of(run_id, job)
        schedule = None if slot is None else configuration.jobs[job].schedules.backup
        if slot is None or schedule is None:
            return None
        rules = rules_of(schedule, zone_of(configuration, schedule))
        first = first_cause(catalogue, slot)
        if not passes(error):
            return RetryPlan(slot.number, rules.tries, first_cause=first)
        match _verdict(configuration, catalogue, slot, rules):
            case Again(at) if catalogue.plan_retry(slot, at):
                return RetryPlan(slot.number, rules.tries, at, first_cause=first)
            case NotAgain(reason):
                return RetryPlan(slot.number, rules.tries, reason=reason, first_cause=first)
    except BackupdError as trouble:
        log.warning("no other try is planned: %s", trouble.message)
    return None


def first_cause(catalogue: Catalogue, slot: Slot) -> str:
    """Why the first try failed, where the newest is a later one.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    return error_of(catalogue, slot.tried[0]) if slot.tried else ""


def _verdict(configuration: Configuration, catalogue: Catalogue, slot: Slot, rules: RetryRules) -> Again | NotAgain:
    if any(run_id == slot.run_id for run_id, _ in catalogue.holdings()):
        return NotAgain(_LEFT)
    key = slot.job, Activity.BACKUP
    scheduled = catalogue.gone_by().get(key)
    # What was owed when its timetable changed is followed by nothing from before that.
    after = slot.due_at if scheduled is None else max(slot.due_at, scheduled.since)
    next_due = timetables(configuration)[key].after(after)
    return planned(rules, slot.due_at, number=slot.number, ended_at=datetime.now(UTC), next_due=next_due)
