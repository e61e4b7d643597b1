"""How figures are worded: sizes, times, ratios, shares, and columns of them. One format for each, everywhere.

Knows: nothing but numbers and strings. What was not measured, and what is no number, is a dash.
"""

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from io import StringIO
from math import isfinite

from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.units import rounded_size

_MULTIPLES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are their full-width forms
_IN_ASCII = str.maketrans({"÷": "/", "±": "+-", "…": "...", "\N{EN DASH}": "-", "\N{MULTIPLICATION SIGN}": "x"})


def size(count: float | None) -> str:
    """Bytes as a person reads them."""
    return "-" if count is None or not isfinite(count) else rounded_size(count)


def speed(count: float | None) -> str:
    """Bytes a second."""
    return "-" if count is None or not isfinite(count) else f"{size(count)}/s"


def duration(seconds: float | None) -> str:
    """Seconds as a person reads them: milliseconds under a second, minutes above one."""
    if seconds is None or not isfinite(seconds):
        return "-"
    if seconds < 0.9995:  # what would be rounded up is of the next unit
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def age(seconds: float | None) -> str:
    """Seconds that passed, in the one unit that says enough: `5 min`, `30 h`, `12 days`."""
    if seconds is None or not isfinite(seconds):
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def ratio(value: float | None) -> str:
    """How many times slower."""
    return "-" if value is None or not isfinite(value) else f"{value:.2f}x"


def share(value: float | None) -> str:
    """A part of a whole that is 1, in percent."""
    return "-" if value is None or not isfinite(value) else f"{value:.0%}"


def count(value: float | None) -> str:
    """How many, in whole ones."""
    return "-" if value is None or not isfinite(value) else f"{value:,.0f}"


def figure(value: float | None, digits: int = 2) -> str:
    """A number with `digits` after its point; from 100 on without any, as nothing here is measured that well."""
    if value is None or not isfinite(value):
        return "-"
    return f"{value:.{0 if abs(value) >= 99.95 else digits}f}"


def tick(value: float) -> str:
    """A number beside an axis, in at most ten characters."""
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.1e}"
    multiple, letter = next((pair for pair in _MULTIPLES if abs(value) >= pair[0]), (1.0, ""))
    return f"{value / multiple:.4g}{letter}"


def instant(at: datetime | None) -> str:
    """To the minute, with its zone."""
    return "-" if at is None else to_the_minute(at)


def too_long(seconds: float, within_seconds: float | None) -> str:
    """What is said of a drill or a restore that took longer than its job allows; empty where it did not."""
    if within_seconds is None or seconds <= within_seconds:
        return ""
    return f"longer than restore_within: {duration(seconds)} instead of {duration(within_seconds)}"


def many(count: int, noun: str) -> str:
    """A number of things: `1 thread`, `2 threads`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def columns(rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Rows as aligned columns, two spaces apart; those in `right`, counted from 0, end together. A row is one line."""
    rows = [[on_one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    )


def csv_text(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A header, and one line for each row; what is None is empty, and no text is a formula to a spreadsheet."""
    out = StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()})
    return out.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet computes what begins like a formula, and may run a program for it: an apostrophe makes it text."""
    shown = on_one_line(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULAS) else shown


def in_ascii(text: str) -> str:
    """The same in ASCII only; what has no such likeness becomes a question mark."""
    return text.translate(_IN_ASCII).encode("ascii", "replace").decode("ascii")
