"""What tells one series from the next in a picture, and the legend that says which is which.

Knows: colours and dashes by number, and how many entries a line holds.
"""

from collections.abc import Sequence

from backupd.report.svg import COLOURS, element, label

LINE = 22  # height of one line of a legend
LETTER = 7.2  # width of one, about
_DASHES = ("", "7 4", "2 4")  # a second sign beside the colour, from the seventh series on


def fill(index: int) -> str:
    """The class of an area of this series."""
    return f"fill-{COLOURS[index % len(COLOURS)]}"


def stroke(index: int) -> str:
    """The class of a line of this series."""
    return f"line-{COLOURS[index % len(COLOURS)]}"


def dash(index: int) -> dict[str, str]:
    """Attributes of a line of this series, beside its class."""
    dashes = _DASHES[index // len(COLOURS) % len(_DASHES)]
    return {"stroke_dasharray": dashes} if dashes else {}


def line_sign(index: int) -> str:
    """What stands for a line of this series."""
    return element("line", x1=0, x2=22, y1=-4, y2=-4, cls=stroke(index), stroke_width=3, **dash(index))


def area_sign(cls: str) -> str:
    """What stands for an area of this class."""
    return element("rect", width=14, height=12, y=-10, cls=cls)


def keys(entries: Sequence[tuple[str, str]], left: float, top: float, width: float) -> tuple[list[str], int]:
    """Words and the sign of each, as many to a line as there is room for, and the number of lines."""
    parts, x, line = [], left, 0
    for words, sign in entries:
        wide = 30 + len(words) * LETTER + 22
        if x > left and x + wide > width:
            x, line = left, line + 1
        place = f"translate({x:.1f} {top + line * LINE:.1f})"
        parts.append(element("g", sign + label(30, 0, words, cls="small fill-ink"), transform=place))
        x += wide
    return parts, line + 1 if entries else 0
