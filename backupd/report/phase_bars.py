"""The phases of a run as bars over the time that it took, for a terminal.

Knows: columns. A phase has a mark even where it is far too short to be seen at that scale, and the one in which the
server was locked a mark of its own.
"""

from collections.abc import Mapping

from backupd.report.timeline import PhaseSpan, spans
from backupd.report.words import columns, duration
from backupd.vocabulary.records import Phase

_LEAST_COLUMNS = 8
_BAR, _LOCK = {False: "█", True: "#"}, {False: "◆", True: "*"}  # by whether only ASCII will do
_LOCKED = (Phase.LOCK_HOLD,)


def phase_bars(phases: Mapping[Phase, float], *, width: int = 72, ascii_only: bool = False) -> str:
    """A line for each phase, in the order in which they happened: its name, how long it took, when that was."""
    found = spans(phases)
    words = [(span.phase.value, duration(span.seconds)) for span in found]
    taken = max((len(line) for line in columns(words, right=(1,)).splitlines()), default=0) + 2
    cells = max(width - taken, _LEAST_COLUMNS)
    whole = max((span.end for span in found), default=0.0)
    lines = [(*word, _line(span, whole, cells, ascii_only=ascii_only)) for word, span in zip(words, found, strict=True)]
    legend = []
    if any(span.phase in _LOCKED for span in found):
        legend = [f"{_LOCK[ascii_only]} the server was locked"]
    return "\n".join([columns(lines, right=(1,)), *legend]) if lines else ""


def _line(span: PhaseSpan, whole: float, cells: int, *, ascii_only: bool) -> str:
    """Never beyond the last cell, and never nothing."""
    scale = cells / whole if whole > 0 else 0.0
    begin = min(int(span.begin * scale), cells - 1)
    end = min(max(round(span.end * scale), begin + 1), cells)
    sign = (_LOCK if span.phase in _LOCKED else _BAR)[ascii_only]
    return " " * begin + sign * (end - begin)
