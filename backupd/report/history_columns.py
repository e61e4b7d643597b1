"""The columns of the history, once for the terminal and for the page: their headings, and what is said of each run.

What tells one run from another (its id, its job, its status and when it began) is not among them: each face shows that
in its own way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backupd.catalogue.costs import RunCost
from backupd.report.costs import copy_rate, cow_peak, hold_seconds, penalties
from backupd.report.words import columns, count, duration, ratio, share, size, speed


@dataclass(frozen=True, slots=True)
class HistoryColumn:
    """One column. A heading that is empty leaves it out on that face."""

    words: Callable[[RunCost], str]
    terminal: str = ""
    page: str = ""


def _penalty(cost: RunCost) -> str:
    first, settled = penalties(cost)
    return "-" if first is None else f"{ratio(first)}, {ratio(settled)}"


def _stored(cost: RunCost) -> str:
    """The size of what is there, and in how many copies; or what became of it."""
    if cost.copies:
        return size(cost.bytes_stored) + (f" x {cost.copies}" if cost.copies > 1 else "")
    if cost.bytes_stored is None:
        return "-"
    return "BROKEN" if cost.copies_broken else "removed"


def _verified(cost: RunCost) -> str:
    return "-" if cost.verified_at is None else f"{cost.verified_at:%Y-%m-%d}"


def _proven(cost: RunCost) -> str:
    """The last word counts: what could be restored once may have been damaged since."""
    if not cost.drills:
        return "not yet" if cost.copies else "-"
    said = "undecided" if cost.drill_ok is None else "yes" if cost.drill_ok else "FAILED"
    return said if cost.drill_moment is None else f"{said}, to {cost.drill_moment.name}"


HISTORY = (
    HistoryColumn(lambda cost: duration(hold_seconds(cost)), "LOCK HELD", "Lock held"),
    HistoryColumn(lambda cost: count(cost.transactions_lost), "LOST", "Lost"),
    HistoryColumn(lambda cost: count(cost.stalled), "STALLED", "Stalled"),
    HistoryColumn(_penalty, page="Penalty, settled"),
    HistoryColumn(lambda cost: duration(cost.settle_seconds), "SETTLE WAIT", "Settle wait"),
    HistoryColumn(lambda cost: duration(cost.copy_seconds), "COPIED IN"),
    HistoryColumn(lambda cost: speed(copy_rate(cost)), page="Copied at"),
    HistoryColumn(lambda cost: share(cow_peak(cost)), page="COW peak"),
    HistoryColumn(_stored, "STORED", "Stored"),
    HistoryColumn(_verified, "VERIFIED"),
    HistoryColumn(_proven, "PROVEN"),
)
_PINNED = HistoryColumn(lambda cost: "-" if cost.pinned is None else cost.pinned or "yes", "PINNED")
_MACHINE = HistoryColumn(lambda cost: cost.machine, "MACHINE")
_NONE_ROLLED: Mapping[str, datetime] = {}


def _rolls_to(rolled: Mapping[str, datetime]) -> HistoryColumn:
    """Up to when each run can be rolled forward by the binlog archive."""

    def words(cost: RunCost) -> str:
        until = rolled.get(cost.run_id)
        return "-" if until is None else f"{until:%Y-%m-%d %H:%M}"

    return HistoryColumn(words, "ROLLS TO (UTC)", "Rolls to (UTC)")


def page_columns(rolled: Mapping[str, datetime]) -> list[HistoryColumn]:
    """Those of the page, where `rolled` has up to when runs can be rolled forward."""
    shown = [column for column in HISTORY if column.page]
    return [*shown, _rolls_to(rolled)] if rolled else shown


def history_table(runs: Sequence[RunCost], *, own: str, rolled: Mapping[str, datetime] = _NONE_ROLLED) -> str:
    """Runs, newest first, a line each; where some are not of the machine `own`, each has its machine's name.

    Where some can be rolled forward by the binlog archive, it is told up to when.
    """
    shown = [column for column in HISTORY if column.terminal]
    shown += [_rolls_to(rolled)] * any(run.run_id in rolled for run in runs)
    shown += [_PINNED] * any(run.pinned is not None for run in runs)
    shown += [_MACHINE] * any(run.machine != own for run in runs)
    rows = [("RUN", "JOB", "STATUS", "STARTED (UTC)", *(column.terminal for column in shown))]
    for run in runs:
        began = f"{run.started_at:%Y-%m-%d %H:%M}"
        rows.append((run.run_id, run.job, run.status.value, began, *(column.words(run) for column in shown)))
    return columns(rows)
