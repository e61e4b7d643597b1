"""Lines over time for a terminal and a log file: braille dots, or plain ASCII where those cannot be shown.

Knows: canvas, axes, legend. Nothing is ever wider than it was told.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from textwrap import wrap

from backupd.report.lines import finite
from backupd.report.probe_combinations import Series
from backupd.report.scale import Scale, named_scale, scale
from backupd.report.words import in_ascii

_Point = tuple[float, float]  # seconds, value

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # a braille cell's bits, by row and column
_BRAILLE = 0x2800
_MARKERS = "●▲■◆○△□◇"
_MARKERS_IN_ASCII = "*xo+#@%&"
_LEAST_COLUMNS = 8  # of the drawing; what is narrower is cut off


@dataclass(frozen=True, slots=True)
class PlotFrame:
    """How a plot is to look, and what it shows beside its lines."""

    unit: str = ""  # what the values are, written above their axis
    across: str = "seconds since the snapshot"  # written below the other
    width: int = 72  # characters, labels included
    height: int = 12  # lines between the axes
    margin: int = 0  # characters left of the axis, at least: plots below each other then share their columns
    reach: tuple[float, ...] = ()  # values that the upright axis must hold
    span: tuple[float, ...] = ()  # and the other
    names: tuple[tuple[float, str], ...] = ()  # values of the other that go by a name; none: round numbers
    threshold: float | None = None
    mark_at: float | None = None  # seconds
    mark: str = ""  # what happened there
    ascii_only: bool = False


def plot(series: Sequence[Series], frame: PlotFrame) -> str:
    """All series in one plot, each with a marker of its own where there are several; `nothing to draw` without points.

    No line of the text is longer than the frame is wide. What is no finite number is left out.
    """
    lines = [finite(line) for one in series for line in one.lines]
    if not any(lines):
        text = [f"{frame.unit}: nothing to draw" if frame.unit else "nothing to draw"]
    else:
        text = _Drawing(series, frame, points=[point for line in lines for point in line]).text()
    return "\n".join((in_ascii(line) if frame.ascii_only else line)[: max(frame.width, 0)].rstrip() for line in text)


def draws_dots(encoding: str | None, terminal: str | None = None) -> bool:
    """Whether braille can be shown: in this encoding, on this kind of terminal ($TERM).

    The kernel's own console (`linux`) has room for 512 glyphs, and its fonts have no braille.
    """
    try:
        (chr(_BRAILLE) + _MARKERS).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return terminal != "linux"


@dataclass(slots=True)
class _Canvas:
    """Cells, and the finer dots that they are made of."""

    columns: int
    rows: int
    dots: dict[tuple[int, int], int] = field(default_factory=dict)  # (column, row) -> braille bits
    glyphs: dict[tuple[int, int], str] = field(default_factory=dict)
    faint: dict[tuple[int, int], str] = field(default_factory=dict)  # only where nothing else is

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """The cell of a place, each coordinate 0.0 to 1.0, y upwards."""
        column, row = self._dot(x, y)
        return _nearest(column) // 2, _nearest(row) // 4

    def line(self, start: _Point, end: _Point) -> None:
        """Dots from one place to another, both included."""
        x, y = self._dot(*start)
        across, down = self._dot(*end)[0] - x, self._dot(*end)[1] - y
        steps = max(1, ceil(max(abs(across), abs(down))))
        for step in range(steps + 1):
            column, row = _nearest(x + across * step / steps), _nearest(y + down * step / steps)
            cell = column // 2, row // 4
            self.dots[cell] = self.dots.get(cell, 0) | _DOTS[row % 4][column % 2]

    def _dot(self, x: float, y: float) -> _Point:
        return x * (2 * self.columns - 1), (1 - y) * (4 * self.rows - 1)

    def text(self, *, ascii_only: bool) -> list[str]:
        """The rows from the top."""
        return ["".join(self._glyph((x, y), ascii_only) for x in range(self.columns)) for y in range(self.rows)]

    def _glyph(self, cell: tuple[int, int], ascii_only: bool) -> str:
        if cell in self.glyphs:
            return self.glyphs[cell]
        if cell in self.dots:
            return "." if ascii_only else chr(_BRAILLE + self.dots[cell])
        return self.faint.get(cell, " ")


class _Drawing:
    """One plot: canvas in the middle, axes around it, a legend below."""

    def __init__(self, series: Sequence[Series], frame: PlotFrame, *, points: Sequence[_Point]) -> None:
        self._series = series
        self._frame = frame
        level = () if frame.threshold is None else (frame.threshold,)
        self._upright = scale([*(y for _, y in points), *frame.reach, *level], count=max(2, frame.height // 2))
        marked = () if frame.mark_at is None else (frame.mark_at,)
        across = [*(x for x, _ in points), *frame.span, *marked]
        named = named_scale(frame.names, across) if frame.names else None
        self._across = named or scale(across, count=frame.width // 14, tight=True)
        self._gutter = max(frame.margin, *map(len, self._upright.labels()))
        self._canvas = _Canvas(max(frame.width - self._gutter - 2, _LEAST_COLUMNS), max(frame.height, 2))

    def text(self) -> list[str]:
        """Every line of it."""
        self._draw_level_and_mark()
        markers = _MARKERS_IN_ASCII if self._frame.ascii_only else _MARKERS
        several = len(self._series) > 1
        for i, one in enumerate(self._series):
            for line in map(finite, one.lines):
                marked = several or self._frame.ascii_only or len(line) == 1  # one dot of braille is easily missed
                self._draw(line, markers[i % len(markers)] if marked else "")
        head = [self._frame.unit] if self._frame.unit else []
        return [*head, *self._rows(), *self._foot(), *self._legend(markers if several else "")]

    def _draw(self, line: Sequence[_Point], marker: str) -> None:
        places = [(self._across.place(x), self._upright.place(y)) for x, y in line]
        for start, end in zip(places, [*places[1:], places[-1]] if places else [], strict=True):
            self._canvas.line(start, end)
            if marker:
                self._canvas.glyphs[self._canvas.cell(*start)] = marker

    def _draw_level_and_mark(self) -> None:
        canvas, frame = self._canvas, self._frame
        if frame.mark_at is not None:
            column, _ = canvas.cell(self._across.place(frame.mark_at), 0)
            canvas.faint.update({(column, row): _UPRIGHT[frame.ascii_only] for row in range(canvas.rows)})
        if frame.threshold is not None:
            _, row = canvas.cell(0, self._upright.place(frame.threshold))
            canvas.faint.update({(column, row): _LEVEL[frame.ascii_only] for column in range(canvas.columns)})

    def _rows(self) -> Iterable[str]:
        beside = {
            self._canvas.cell(0, self._upright.place(value))[1]: label
            for value, label in zip(self._upright.ticks, self._upright.labels(), strict=True)
        }
        wall, notch = ("|", "+") if self._frame.ascii_only else ("│", "┤")
        for row, drawn in enumerate(self._canvas.text(ascii_only=self._frame.ascii_only)):
            yield f"{beside.get(row, ''):>{self._gutter}} {notch if row in beside else wall}{drawn}"

    def _foot(self) -> list[str]:
        corner, floor, notch = ("+", "-", "+") if self._frame.ascii_only else ("└", "─", "┬")
        columns = [self._canvas.cell(self._across.place(value), 0)[0] for value in self._across.ticks]
        axis = [notch if column in columns else floor for column in range(self._canvas.columns)]
        below = _spread(columns, self._across, self._canvas.columns)
        blank = " " * self._gutter
        return [f"{blank} {corner}{''.join(axis)}", f"{blank}  {below}", f"{blank}  {self._frame.across}"]

    def _legend(self, markers: str) -> list[str]:
        frame = self._frame
        parts = [f"{markers[i % len(markers)]} {one.label}" for i, one in enumerate(self._series)] if markers else []
        if frame.threshold is not None:
            parts.append(f"{_LEVEL[frame.ascii_only] * 2} threshold {frame.threshold:g}")
        if frame.mark_at is not None and frame.mark:
            parts.append(f"{_UPRIGHT[frame.ascii_only]} {frame.mark}")
        indent = " " * (self._gutter + 2)
        unbroken = "   ".join(part.replace(" ", "\0") for part in parts)
        lines = wrap(unbroken, max(frame.width, 1), initial_indent=indent, subsequent_indent=indent) if parts else []
        return [line.replace("\0", " ") for line in lines]


_UPRIGHT = {False: "╎", True: ":"}  # by whether only ASCII will do
_LEVEL = {False: "┈", True: "-"}


def _spread(columns: Sequence[int], axis: Scale, width: int) -> str:
    """Labels in one line, each around its column; one that would touch the last is left out."""
    text = ""
    for column, label in zip(columns, axis.labels(), strict=True):
        start = min(max(column - len(label) // 2, 0), max(width - len(label), 0))
        if not text or start > len(text):
            text = text.ljust(start) + label
    return text


def _nearest(place: float) -> int:
    """Halves always upwards: rounding them to even numbers leaves gaps in lines."""
    return floor(place + 0.5)
