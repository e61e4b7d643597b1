"""A night as a chart for a terminal: a line for each slot of each target, on it what is in the slot and when.

Knows: how spans become cells. Nothing is ever wider than it was told.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from backupd.policy.fleet_plan import SharedTarget
from backupd.policy.fleet_timetable import PlannedRun
from backupd.report.words import in_ascii, many
from backupd.vocabulary.escaping import on_one_line

_LEAST_COLUMNS = 24
_STEPS = (5, 10, 15, 30, 60, 120, 180, 240, 360)  # minutes between the axis's times
_LABEL = 6  # columns that a time and the space behind it take


def gantt(
    runs: Sequence[PlannedRun], targets: Mapping[str, SharedTarget], *, zone: str, width: int, ascii_only: bool
) -> str:
    """Each target with its backups, over the time from the first beginning to the last end; empty without runs."""
    if not runs:
        return ""
    begin, end = min(run.begins_at for run in runs), max(run.ends_at for run in runs)
    lines = list(_Chart(begin, end, width=max(width - 4, _LEAST_COLUMNS), zone=zone).lines(runs, targets))
    return "\n".join(in_ascii(line.replace("━", "=").replace("╺", "[")) if ascii_only else line for line in lines)


class _Chart:
    """Columns that are spans of time of one length."""

    def __init__(self, begin: datetime, end: datetime, *, width: int, zone: str) -> None:
        self._begin, self._width, self._clock = begin, width, ZoneInfo(zone)
        self._column = max((end - begin).total_seconds(), 1.0) / width  # seconds

    def lines(self, runs: Sequence[PlannedRun], targets: Mapping[str, SharedTarget]) -> Iterator[str]:
        lanes: dict[tuple[str, int], list[PlannedRun]] = defaultdict(list)
        for run in runs:
            for target, slot in zip(run.owed.targets, run.slots, strict=True):
                lanes[target, slot].append(run)
        yield "    " + self._axis()
        for name in sorted({target for target, _ in lanes}):
            yield f"{name}: {many(targets[name].slots, 'slot')}"
            for slot in range(targets[name].slots):
                yield f"{slot + 1:>3} {self._lane(lanes.get((name, slot), ()))}".rstrip()
        if free := sum(not run.owed.targets for run in runs):
            yield f"beside these, {many(free, 'backup')} of which no target is shared"

    def _lane(self, runs: Sequence[PlannedRun]) -> str:
        cells = [" "] * self._width
        for run in runs:
            first, last = self._cell(run.begins_at), max(self._cell(run.ends_at), self._cell(run.begins_at) + 1)
            for at in range(first, min(last, self._width)):
                cells[at] = "━"
            cells[min(first, self._width - 1)] = "╺"
            label = on_one_line(run.owed.cluster)[: max(last - first - 2, 0)]
            cells[first + 1 : first + 1 + len(label)] = label
        return "".join(cells)

    def _cell(self, at: datetime) -> int:
        return min(int((at - self._begin).total_seconds() / self._column), self._width)

    def _axis(self) -> str:
        """Round times of the zone's clock, as many as there is room for."""
        most = max(self._width // (_LABEL + 4), 1)
        minutes = next((step for step in _STEPS if self._column * self._width / 60 / step <= most), _STEPS[-1] * 4)
        step = timedelta(minutes=minutes)
        shown = self._begin.astimezone(self._clock)
        midnight = shown.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        at = self._begin - (shown.replace(tzinfo=None) - midnight.replace(tzinfo=None)) % step
        cells = ""
        while (column := self._cell(at)) < self._width - _LABEL + 1:
            if at >= self._begin and column >= len(cells):
                cells = cells.ljust(column) + f"{at.astimezone(self._clock):%H:%M} "
            at += step
        return cells.rstrip()
