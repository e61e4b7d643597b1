"""The history: which runs are asked for, and what is shown of each.

Knows: filters as a form and as a link carry them, and a run's figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlencode

from backupd.catalogue.costs import RunCost
from backupd.catalogue.details import Filter
from backupd.catalogue.endings import GOOD
from backupd.report.costs import copy_rate, hold_seconds, penalties
from backupd.service.site import Site
from backupd.service.web.asked import day
from backupd.service.web.refusals import BadQuestion, NotFound
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunDetails, RunKind, RunStatus

PAGE = 50  # runs


class RunFilter(StrEnum):
    """What a person asks for; a run's statuses are finer."""

    GOOD = "good"
    FAILED = "failed"
    RUNNING = "running"
    OTHER = "other"

    @property
    def statuses(self) -> tuple[RunStatus, ...]:
        """Those that count as this."""
        return _STATUSES[self]


_STATUSES = {
    RunFilter.GOOD: GOOD,
    RunFilter.FAILED: (RunStatus.FAILED, RunStatus.REFUSED),
    RunFilter.RUNNING: (RunStatus.RUNNING,),
    RunFilter.OTHER: (RunStatus.BUSY, RunStatus.CANCELLED),
}


@dataclass(frozen=True)
class RunFigures:
    """What a run cost. Seconds, bytes, bytes a second; penalties are baseline ÷ measured; null: not measured."""

    run_id: str
    job: str
    machine: str
    kind: RunKind
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None
    seconds: float | None
    lock_wait_seconds: float | None
    lock_hold_seconds: float | None
    transactions_lost: float | None  # by the server's own counters; 0.0: not to be told from the noise
    transactions_expected: float | None
    penalty_first: float | None
    penalty_settled: float | None
    settle_seconds: float | None
    copy_seconds: float | None
    copy_bytes_per_second: float | None
    cow_peak: float | None  # of the COW area, 0.0 to 1.0
    read_bytes: int | None
    stored_bytes: int | None  # of one copy
    error: str | None

    @classmethod
    def of(cls, cost: RunCost) -> "RunFigures":
        """The figures that follow from what is recorded."""
        first, settled = penalties(cost)
        ended, peak = cost.ended_at, cost.cow_used_peak
        return cls(
            run_id=cost.run_id,
            job=cost.job,
            machine=cost.machine,
            kind=cost.kind,
            status=cost.status,
            started_at=cost.started_at,
            ended_at=ended,
            seconds=None if ended is None else (ended - cost.started_at).total_seconds(),
            lock_wait_seconds=cost.lock_wait_seconds,
            lock_hold_seconds=hold_seconds(cost),
            transactions_lost=cost.transactions_lost,
            transactions_expected=cost.transactions_expected,
            penalty_first=first,
            penalty_settled=settled,
            settle_seconds=cost.settle_seconds,
            copy_seconds=cost.copy_seconds,
            copy_bytes_per_second=copy_rate(cost),
            cow_peak=peak / cost.cow_size if peak is not None and cost.cow_size else None,
            read_bytes=cost.bytes_read,
            stored_bytes=cost.bytes_stored,
            error=cost.message,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """The form as it was filled in: what is empty does not count."""

    job: str = ""
    since: str = ""  # days, in UTC, both included
    until: str = ""
    outcome: str = ""

    def filter(self) -> Filter:
        """The runs that are meant.

        Raises:
            BadQuestion: a field cannot be parsed.
        """
        try:
            statuses = RunFilter(self.outcome).statuses if self.outcome else ()
        except ValueError as error:
            hint = "use one of: " + ", ".join(RunFilter)
            raise BadQuestion('"outcome" is not a known outcome', hint=hint) from error
        return Filter(self.job or None, day("from", self.since), day("to", self.until, end=True), statuses)

    def query(self, **more: str) -> str:
        """As a link carries it."""
        fields = {"job": self.job, "from": self.since, "to": self.until, "outcome": self.outcome, **more}
        return urlencode({name: value for name, value in fields.items() if value})


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One page of the list."""

    runs: Sequence[RunFigures]
    older: str  # the run to go on after; empty on the last page


def history_page(site: Site, asked: Asked, *, before: str) -> HistoryPage:
    """The runs after `before`, or the newest.

    Raises:
        BadQuestion: a field cannot be parsed.
        UsageError: there is no run `before`.
    """
    found = site.catalogue.costs_page(asked.filter(), before=before or None, limit=PAGE + 1)
    shown = [RunFigures.of(run) for run in found[:PAGE]]
    return HistoryPage(shown, shown[-1].run_id if len(found) > PAGE else "")


def run_named(site: Site, run_id: str) -> RunDetails:
    """All that is known of the run with exactly this id: `latest` and beginnings are for people at a command line.

    Raises:
        NotFound: there is none.
    """
    try:
        found = site.catalogue.run(run_id)
    except UsageError as error:
        raise NotFound(f"there is no run {run_id}", hint="look for it in the history") from error
    if found.run_id != run_id:
        raise NotFound(f"there is no run {run_id}", hint="look for it in the history")
    return found
