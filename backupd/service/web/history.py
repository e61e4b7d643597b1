"""The history: which runs are asked for.

Knows: filters as a form and as a link carry them. Refuses to know HTML, and what is shown of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

from backupd.catalogue.costs import RunCost
from backupd.catalogue.details import Filter
from backupd.service.site import Site
from backupd.service.web.asked import day
from backupd.service.web.refusals import BadQuestion, NotFound
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import GOOD, RunDetails, RunStatus

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

    runs: Sequence[RunCost]
    older: str  # the run to go on after; empty on the last page


def history_page(site: Site, asked: Asked, *, before: str) -> HistoryPage:
    """The runs after `before`, or the newest.

    Raises:
        BadQuestion: a field cannot be parsed.
        UsageError: there is no run `before`.
    """
    found = site.catalogue.costs_page(asked.filter(), before=before or None, limit=PAGE + 1)
    shown = found[:PAGE]
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
