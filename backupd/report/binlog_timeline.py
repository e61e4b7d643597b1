"""What can be restored as a bar over time, with the backups on it, for a terminal.

Knows: columns. What cannot be restored has a mark even where it is far too short to be seen at that scale.
"""

from collections.abc import Sequence
from datetime import datetime

from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.reach import Reach
from backupd.report.words import instant

_LEAST_COLUMNS = 40  # two instants side by side, and something between them
_BACKUP, _BAR, _HOLE = {False: "◆", True: "*"}, {False: "█", True: "#"}, {False: "·", True: "."}  # True: only ASCII


def archive_timeline(
    reach: Reach, backups: Sequence[PlacedBackup], *, at: datetime, width: int = 72, ascii_only: bool = False
) -> str:
    """From the first moment that can be restored up to `at`; nothing where no moment can be."""
    if not reach.stretches:
        return ""
    scale = _Scale(reach.stretches[0].since, at, max(width, _LEAST_COLUMNS))
    bar = scale.filled(_HOLE[ascii_only])
    for stretch in reach.stretches:
        scale.draw(bar, stretch.since, stretch.until, _BAR[ascii_only])
    for hole in reach.holes:
        scale.draw(bar, hole.since, hole.until, _HOLE[ascii_only])
    marks = scale.filled(" ")
    for backup in backups:
        if backup.taken_at >= scale.begin:
            scale.draw(marks, backup.taken_at, backup.taken_at, _BACKUP[ascii_only])
    begin, end = instant(scale.begin), instant(at)
    legend = [f"{_BACKUP[ascii_only]} a backup", f"{_BAR[ascii_only]} every moment can be restored"]
    if _HOLE[ascii_only] in bar:
        legend.append(f"{_HOLE[ascii_only]} none can")
    axis = f"{begin}{end.rjust(scale.cells - len(begin))}"
    return "\n".join(("".join(marks).rstrip(), "".join(bar), axis, "   ".join(legend)))


class _Scale:
    """Instants as columns."""

    def __init__(self, begin: datetime, end: datetime, cells: int) -> None:
        self.begin, self.cells = begin, cells
        self._seconds = max((end - begin).total_seconds(), 1.0)

    def filled(self, sign: str) -> list[str]:
        return [sign] * self.cells

    def draw(self, line: list[str], since: datetime, until: datetime, sign: str) -> None:
        """Never beyond the last cell, and never nothing."""
        first = self._cell(since)
        for cell in range(first, max(self._cell(until), first) + 1):
            line[cell] = sign

    def _cell(self, at: datetime) -> int:
        share = (at - self.begin).total_seconds() / self._seconds
        return min(max(int(share * self.cells), 0), self.cells - 1)
