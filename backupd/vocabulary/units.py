"""Sizes and durations as people write them: "64KiB" is bytes, "500ms" is seconds, and back.

Knows: the units, and that `format` then `parse` gives the same number; what is rounded is only for reading. Refuses to
guess: a bare `64K` is 65536 to LVM and to MySQL but 64000 to a disk's label, so it is refused with both ways to write
it.
"""

import re
from decimal import Decimal

from backupd.vocabulary.faults import BadValue, quoted

_BINARY_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_DECIMAL_SIZES = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_SIZES = _BINARY_SIZES | _DECIMAL_SIZES | {"B": 1}
_ROUNDED = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
LARGEST_SIZE = (1 << 63) - 1  # what a file offset and SQLite's INTEGER can hold

_DURATIONS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_LONGEST_SECONDS = 100 * 366 * 86400  # a century; beyond it, dates overflow

_MOST = Decimal(1 << 64)  # in any unit more than may be; with more digits than Decimal's precision, arithmetic raises
_NUMBER_AND_UNIT = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)

SIZE_HINT = 'use a number of bytes, or a size such as "64KiB", "5GiB" (1024) or "100MB" (1000)'
DURATION_HINT = 'use a number of seconds, or a duration such as "500ms", "10s", "5m", "2h" or "7d"'


def parse_size(value: object) -> int:
    """Bytes.

    Raises:
        BadValue: not a size, no such unit, or not a whole number of bytes.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _size_in_range(Decimal(value), quoted(value))
    number, unit = _split(value, "size", SIZE_HINT)
    if unit not in _SIZES:
        raise _unknown_size_unit(value, unit)
    return _size_in_range(number * _SIZES[unit], quoted(value))


def size_words(size: int) -> str:
    """Exactly this many bytes, in the largest unit that divides them: `512 B`, `16 KiB`, `100 MB`."""
    for unit, factor in (_BINARY_SIZES | _DECIMAL_SIZES).items():
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def format_size(size: int) -> str:
    """The same in one word, which `parse_size` reads as exactly this many bytes."""
    return size_words(size).replace(" ", "")


def rounded_size(size: float) -> str:
    """Bytes as a person reads them: 75665256448 is `70.5 GiB`."""
    for unit in _ROUNDED:
        if abs(size) < 1024 or unit == _ROUNDED[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def compared_sizes(one: int, other: int) -> tuple[str, str]:
    """Both rounded; where that would make two of them look the same, exactly."""
    words = rounded_size(one), rounded_size(other)
    return words if words[0] != words[1] else (f"{one} bytes", f"{other} bytes")


def parse_duration(value: object) -> float:
    """Seconds.

    Raises:
        BadValue: not a duration, no such unit, negative, or longer than a century.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _duration_in_range(value, quoted(value))
    number, unit = _split(value, "duration", DURATION_HINT)
    if unit == "ms":
        return _duration_in_range(number / 1000, quoted(value))
    if unit not in _DURATIONS:
        raise BadValue(f"{quoted(value)} has no known unit of time", DURATION_HINT)
    return _duration_in_range(number * _DURATIONS[unit], quoted(value))


def format_duration(seconds: float) -> str:
    """A text that `parse_duration` reads as exactly this many seconds."""
    if seconds and float(seconds).is_integer():
        unit, factor = next((unit, factor) for unit, factor in _DURATIONS.items() if seconds % factor == 0)
        return f"{int(seconds) // factor}{unit}"
    exact = Decimal(repr(seconds))
    if seconds and (exact * 1000) % 1 == 0:
        return f"{int(exact * 1000)}ms"
    return f"{exact.normalize():f}s"


def _split(value: object, kind: str, hint: str) -> tuple[Decimal, str]:
    match = _NUMBER_AND_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise BadValue(f"{quoted(value)} is not a {kind}", hint)
    return min(Decimal(match["number"]), _MOST), match["unit"]


def _unknown_size_unit(value: object, unit: str) -> BadValue:
    letter = unit[:1].upper()
    if letter and letter in "KMGT":
        decimal = "kB" if letter == "K" else f"{letter}B"
        return BadValue(f"{quoted(value)} is ambiguous", f"write {letter}iB for powers of 1024, {decimal} for 1000")
    return BadValue(f"{quoted(value)} has no known unit of size", SIZE_HINT)


def _size_in_range(size: Decimal, text: str) -> int:
    if not 0 <= size <= LARGEST_SIZE:
        raise BadValue(f"{text} is {'negative' if size < 0 else 'too large'}", SIZE_HINT)
    if size % 1:
        raise BadValue(f"{text} is not a whole number of bytes", SIZE_HINT)
    return int(size)


def _duration_in_range(seconds: Decimal | float, text: str) -> float:
    if not 0 <= seconds <= _LONGEST_SECONDS:  # nan neither
        raise BadValue(f"{text} is {'negative' if seconds < 0 else 'no length of time'}", DURATION_HINT)
    return float(seconds)
