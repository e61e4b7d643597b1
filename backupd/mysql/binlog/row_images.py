"""How many rows a rows event has: by walking over their images, of which no value is read.

Knows: how many bytes a value of each type takes, from the table map's types and metadata. A row that cannot be walked
exactly to the event's end is not counted, because a wrong figure is worse than none: a type that is not known, and
those of MySQL before 5.6, of which the table map does not tell the size (`mysql56_temporal_format`).

The sizes are MySQL's (`calc_field_size` in `libs/mysql/binlog/event/binary_log_funcs.cpp`) and MariaDB's
(`sql/rpl_utility.cc`, `sql/field.cc`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.expanding import mariadb_part, packed

_NUMBER_AT: Final = layout.HEADER_BYTES  # of a table map, and of a rows event: 6 bytes, and 2 of flags
_BEHIND_FLAGS: Final = _NUMBER_AT + 8
_FIXED: Final = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 0, 8: 8, 9: 3, 10: 3, 13: 1, 14: 3}  # by type: bytes of a value
_WITH_FRACTION: Final = {17: 4, 18: 5, 19: 3}  # timestamp, datetime, time since MySQL 5.6: bytes without a fraction
_METADATA: Final = {4: 1, 5: 1, 15: 2, 16: 2, 17: 1, 18: 1, 19: 1, 242: 1, 245: 1, 246: 2} | {
    **{247: 2, 248: 2, 249: 1, 250: 1, 251: 1, 252: 1, 253: 2, 254: 2, 255: 1},
    **{140: 1, 141: 2},  # MariaDB's compressed columns
}
_BLOBS: Final = frozenset((140, 242, 245, 249, 250, 251, 252, 255))  # metadata: bytes of the length
_VARYING: Final = frozenset((15, 141, 253))
_STRING, _BIT, _DECIMAL, _JSON = 254, 16, 246, 245
_PACKED_LISTS: Final = frozenset((247, 248))  # enum, set
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of up to nine digits of a decimal
_SHORT = 255  # bytes: a string that can be longer has a length of two bytes

# What a stranger's log makes us remember stays below some MiB, whatever its tables are.
_MOST_REMEMBERED: Final = 2 << 10  # bytes of a table's description, and columns of a table
_MOST_STEPS: Final = 1024  # of one shape of rows, about

Width = tuple[int, int]  # bytes of a fixed value, and 0; or 0, and the bytes of the length before it
Steps = tuple[tuple[int, int], ...]  # bytes to pass, then the bytes of a length (0: none) by which to pass


@dataclass(frozen=True, slots=True, eq=False)
class MappedTable:
    """What a table map tells of a table. The same description makes the same one, mostly: it is known by identity."""

    schema: str
    table: str
    widths: tuple[Width | None, ...]  # of each column; None: not known
    documents: int  # how many columns are MySQL's JSON
    bitmap: int  # bytes that have a bit for each column
    head: int  # bytes of the number of columns and one such bitmap, behind which a rows event has rows


@dataclass(frozen=True, slots=True, eq=False)
class _Image:
    """How to pass the images of rows of one table that have these columns."""

    widths: tuple[Width | None, ...]
    nulls: int  # bytes that tell which of them are NULL
    known: dict[bytes, Steps]  # by these bytes


def table_number(event: bytes) -> bytes:
    """By which rows events name the table that a table map has told of: of either of the two events."""
    return event[_NUMBER_AT : _NUMBER_AT + 6]


def mapped_table(event: bytes, end: int) -> MappedTable:
    """What a table map tells whose body ends there.

    Raises:
        IndexError: it is cut off.
    """
    described = event[_BEHIND_FLAGS:end]
    return _remembered_table(described) if len(described) <= _MOST_REMEMBERED else _table(described)


def _table(described: bytes) -> MappedTable:
    schema, at = _name(described, 0)
    table, at = _name(described, at)
    before = at
    count, at = packed(described, at)
    if at + count > len(described):
        raise IndexError
    bitmap = (count + 7) // 8
    head = at - before + bitmap
    types = described[at : at + count]
    length, at = packed(described, at + count)
    widths = _widths(types, described[at : at + length])
    return MappedTable(schema, table, widths, types.count(_JSON), bitmap, head)


_remembered_table = lru_cache(maxsize=512)(_table)


def count_rows(kind: int, event: bytes, end: int, table: MappedTable) -> int | None:
    """How many rows were written, changed or deleted by this event, whose body ends there; None: it cannot be told."""
    at = _BEHIND_FLAGS
    try:
        if kind in layout.ROWS_V2:
            at += int.from_bytes(event[at : at + 2], "little")
        behind = at + table.head
        if kind in layout.UPDATE_ROWS:
            behind += table.bitmap
        if behind > end:
            return None
        small = len(table.widths) <= _MOST_REMEMBERED
        images = (_remembered_images if small else _images)(table, event[at:behind])
        if kind in layout.ROWS_COMPRESSED:
            rows = mariadb_part(memoryview(event)[behind:end])
            return None if rows is None else _walk(rows, 0, len(rows), images)
        documents = table.documents if kind == layout.PARTIAL_UPDATE_ROWS else None
        return _walk(event, behind, end, images, documents=documents)
    except (IndexError, _UnknownWidth):
        return None


def _images(table: MappedTable, head: bytes) -> tuple[_Image, ...]:
    """What a rows event's head makes of its table: one image of each row, or two."""
    count, at = packed(head, 0)
    if count != len(table.widths):
        raise IndexError
    found = []
    while at < len(head):
        bits = head[at : at + table.bitmap]
        widths = tuple(width for column, width in enumerate(table.widths) if bits[column >> 3] >> (column & 7) & 1)
        found.append(_Image(widths, (len(widths) + 7) // 8, {}))
        at += table.bitmap
    return tuple(found)


_remembered_images = lru_cache(maxsize=256)(_images)


def _walk(rows: bytes, at: int, end: int, images: tuple[_Image, ...], *, documents: int | None = None) -> int | None:
    """How many rows there are up to the end; `documents` where their second images may have parts of as many."""
    count = 0
    while at < end:
        before = at
        for number, image in enumerate(images):
            if documents is not None and number:
                at = _partial_head(rows, at, documents)
            null = rows[at : at + image.nulls]
            steps = image.known.get(null)
            if steps is None:
                steps = _steps(image, null)
            at += image.nulls
            for skipped, length in steps:
                at += skipped
                if length == 1:
                    at += 1 + rows[at]
                elif length:
                    at += length + int.from_bytes(rows[at : at + length], "little")
        if at > end or at == before:
            return None  # of rows without a column nothing tells one from the next
        count += 1
    return count


def _partial_head(rows: bytes, at: int, documents: int) -> int:
    """Of an image in which documents may be told as differences: each is as long as it says, as documents are."""
    options, at = packed(rows, at)
    return at + ((documents + 7) // 8 if options & 1 else 0)


def _steps(image: _Image, null: bytes) -> Steps:
    """How to pass an image of which these are NULL.

    Raises:
        IndexError: it is cut off.
    """
    if len(null) < image.nulls:
        raise IndexError
    steps: list[tuple[int, int]] = []
    skipped = 0
    for number, width in enumerate(image.widths):
        if null[number >> 3] >> (number & 7) & 1:
            continue
        if width is None:
            raise _UnknownWidth
        skipped += width[0]
        if width[1]:
            steps.append((skipped, width[1]))
            skipped = 0
    found = (*steps, (skipped, 0)) if skipped else tuple(steps)
    if (len(image.known) + 1) * len(image.widths) > _MOST_STEPS:
        image.known.clear()
    image.known[null] = found
    return found


class _UnknownWidth(Exception):
    """A column's values may be of any length."""


def _widths(types: bytes, metadata: bytes) -> tuple[Width | None, ...]:
    widths: list[Width | None] = []
    at = 0
    for kind in types:
        size = _METADATA.get(kind, 0)
        widths.append(_width(kind, metadata[at : at + size]) if at + size <= len(metadata) else None)
        at += size
    return tuple(widths)


@lru_cache(maxsize=1024)
def _width(kind: int, metadata: bytes) -> Width | None:
    if kind in _FIXED:
        return _FIXED[kind], 0
    if kind in _WITH_FRACTION:
        return _WITH_FRACTION[kind] + (metadata[0] + 1) // 2, 0
    if kind in _BLOBS:
        return (0, metadata[0]) if 1 <= metadata[0] <= 4 else None
    if kind in _VARYING:
        return 0, 1 if int.from_bytes(metadata, "little") <= _SHORT else 2
    if kind == _BIT:
        return metadata[1] + (metadata[0] > 0), 0
    if kind == _DECIMAL:
        return _decimal_bytes(metadata[0], metadata[1])
    if kind in _PACKED_LISTS:
        return metadata[1], 0
    return _string_width(metadata) if kind == _STRING else None


def _string_width(metadata: bytes) -> Width | None:
    """Of a CHAR, or an ENUM or SET in its guise: bits of a length above 255 are hidden in the type."""
    kind, length = metadata
    if kind & 0x30 != 0x30:
        length |= ((kind & 0x30) ^ 0x30) << 4
        kind |= 0x30
    if kind in _PACKED_LISTS:
        return length, 0
    return (0, 1 if length <= _SHORT else 2) if kind == _STRING else None


def _decimal_bytes(precision: int, scale: int) -> Width | None:
    if scale > precision:
        return None
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9], 0


def _name(body: bytes, at: int) -> tuple[str, int]:
    """A stranger's: of any characters. A zero byte follows it."""
    length = body[at]
    if at + length + 2 > len(body):
        raise IndexError
    return body[at + 1 : at + 1 + length].decode(errors="replace"), at + length + 2
