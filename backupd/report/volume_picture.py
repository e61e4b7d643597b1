"""Volume groups drawn for a terminal: what is on each PV, and how each volume's segments follow one another.

Knows: columns. No line is wider than it is told, and with ASCII only it says the same. A PV's bar is as long as it is
large beside the group's largest; a volume shows in it with at least one letter, as far as there are columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backupd.report.volume_words import letters, segment_words, short
from backupd.report.words import many, size
from backupd.vocabulary.extents import Occupied, PhysicalVolume, PlacedGroup, PlacedSegment, PlacedVolume

_FREE, _FRAME, _FILL = {False: "·", True: "."}, {False: "│", True: "|"}, {False: "─", True: "-"}  # by ASCII only
_SPARE = "+"  # hidden, and of no volume
_ELLIPSIS = {False: "…", True: "~"}
_LEAST_BAR = 8
_LONGEST_NAME = 20
_INDENT = "   "


def group_picture(group: PlacedGroup, *, width: int = 80, ascii_only: bool = False) -> str:
    """A bar for each PV, from its first extent to its last."""
    signs = letters(group)
    named = [_cut(short(pv.name), min(_LONGEST_NAME, width // 4), ascii_only=ascii_only) for pv in group.pvs]
    label = max(map(len, named), default=0)
    cells = max(width - label - 3, _LEAST_BAR)
    largest = max((pv.extents for pv in group.pvs), default=0)
    frame, lines = _FRAME[ascii_only], []
    for pv, name in zip(group.pvs, named, strict=True):
        own = max(round(cells * pv.extents / largest), min(_LEAST_BAR, cells)) if largest else cells
        lines.append(f"{name.ljust(label)} {frame}{_bar(pv, signs, own, ascii_only=ascii_only)}{frame}")
    every = size(largest / cells * group.room.extent_size) if largest else "-"
    legend = [f"{_FREE[ascii_only]} free", f"a column is {every}"]
    if group.spares:
        legend.insert(1, f"{_SPARE} spare for a pool's metadata")
    return "\n".join((*lines, _cut(", ".join(legend), width, ascii_only=ascii_only)))


def volume_picture(placed: PlacedVolume, letter: str, *, width: int = 80, ascii_only: bool = False) -> str:
    """Its segments one after the other, each with its stripes (or legs) below one another; thin ones have none."""
    volume = placed.volume
    head = f"{letter}  {volume.name}: {many(placed.extents, 'extent')}, {volume.layout}"
    if not any(segment.places for segment in placed.segments):
        beneath = f", in pool {volume.pool.name}" if volume.pool is not None else ""
        return _cut(head + beneath, width, ascii_only=ascii_only)
    boxes = [_boxed(segment) for segment in placed.segments]
    lines = [head]
    for row in _rows(boxes, width - len(_INDENT) - 1):
        lines += [_INDENT + line for line in _drawn(row, width - len(_INDENT), ascii_only=ascii_only)]
    return "\n".join(_cut(line, width, ascii_only=ascii_only) for line in lines)


# --- a PV -------------------------------------------------------------------------------------------------------------


def _bar(pv: PhysicalVolume, signs: dict[str, str], cells: int, *, ascii_only: bool) -> str:
    """In each column what takes most of it; then a letter for whatever would not show."""
    drawn = [_FREE[ascii_only]] * cells
    if not pv.extents:
        return "".join(drawn)
    scale = cells / pv.extents
    taken = [piece for piece in pv.occupied if piece.volume or piece.part]
    most = [0.0] * cells
    for piece in taken:
        begin, end = piece.first * scale, (piece.first + piece.count) * scale
        for cell in range(int(begin), min(int(end) + 1, cells)):
            share = min(end, cell + 1) - max(begin, cell)
            if share > max(most[cell], 0.5 if share < 1 else 0.0):
                most[cell], drawn[cell] = share, _sign(piece, signs)
    for piece in taken:
        begin, end = int(piece.first * scale), min(int((piece.first + piece.count) * scale), cells - 1)
        if _sign(piece, signs) not in drawn[begin : end + 1]:
            free = [cell for cell in range(begin, end + 1) if drawn[cell] == _FREE[ascii_only]]
            drawn[free[0] if free else begin] = _sign(piece, signs)
    return "".join(drawn)


def _sign(piece: Occupied, signs: dict[str, str]) -> str:
    return signs[piece.volume] if piece.volume else _SPARE


# --- a volume ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Box:
    """A segment as it is to be drawn: its heading, its stripes, its share of the volume."""

    title: str
    stripes: Sequence[str]
    extents: int

    @property
    def least(self) -> int:
        """Columns that its words take, with a frame before them and a blank behind."""
        return max(map(len, (self.title, *self.stripes))) + 2


def _boxed(segment: PlacedSegment) -> _Box:
    stripes = ["+".join(f"{short(piece.pv)}:{piece.first}-{piece.last}" for piece in place) for place in segment.places]
    return _Box(f"{segment.first}-{segment.last} {segment_words(segment)}", stripes, segment.count)


def _rows(boxes: Sequence[_Box], width: int) -> Iterator[list[_Box]]:
    """As many segments beside one another as have room for their words."""
    row: list[_Box] = []
    for box in boxes:
        if row and sum(other.least for other in row) + box.least > width:
            yield row
            row = []
        row.append(box)
    yield row


def _drawn(row: Sequence[_Box], width: int, *, ascii_only: bool) -> Iterator[str]:
    """What is left of the width is shared out by size."""
    frame, fill = _FRAME[ascii_only], _FILL[ascii_only]
    spare = max(width - 1 - sum(box.least for box in row), 0)
    whole = sum(box.extents for box in row)
    widths = [box.least + spare * box.extents // whole for box in row]
    yield "".join(f"{frame}{box.title}".ljust(columns) for box, columns in zip(row, widths, strict=True)) + frame
    for number in range(max(len(box.stripes) for box in row)):
        line, before = "", False
        for box, columns in zip(row, widths, strict=True):
            here = number < len(box.stripes)
            edge = frame if here or before else " "  # a stripe has a frame at both ends
            line += f"{edge}{box.stripes[number]} ".ljust(columns, fill) if here else edge.ljust(columns)
            before = here
        yield (line + (frame if before else "")).rstrip()


def _cut(line: str, width: int, *, ascii_only: bool) -> str:
    return line if len(line) <= width else line[: max(width - 1, 0)] + _ELLIPSIS[ascii_only]
