"""How many rows a rows event has: by walking over their images, of which no value is read.

Knows: how many bytes a value of each type takes, from the table map's types and metadata. A row that cannot be walked
exactly to the event's end is not counted, because a wrong figure is worse than none: a type that is not known, and
those of before MySQL 5.6, of which the table map does not tell the size (`mysql56_temporal_format`).

The sizes are MySQL's (`calc_field_size` in `libs/mysql/binlog/event/binary_log_funcs.cpp`) and MariaDB's
(`sql/rpl_utility.cc`, `sql/field.cc`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from backupd.mysql.binlog import layout
from backupd.mysql.binlog.expanding import mariadb_part, packed

_POST_HEADER = 8  # bytes of a table map, and of a rows event of version 1: number of the table, flags
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

_COPIED = 1 << 20  # bytes of rows that are copied, because a walk over bytes is the faster; larger ones are held once

Width = tuple[int, int]  # bytes of a fixed value, and 0; or 0, and the bytes of the length before it
Steps = tuple[tuple[int, int], ...]  # bytes to pass, then the bytes of a length (0: none) by which to pass


@dataclass(frozen=True, slots=True)
class MappedTable:
    """What a table map tells of a table."""

    schema: str
    table: str
    widths: tuple[Width | None, ...]  # of each column; None: not known
    documents: int  # how many columns are MySQL's JSON


def table_number(body: memoryview) -> int:
    """By which rows events name the table that a table map has told of."""
    return int.from_bytes(body[:6], "little")


def mapped_table(body: memoryview) -> MappedTable:
    """What a table map tells.

    Raises:
        IndexError: it is cut off.
    """
    schema, at = _name(body, _POST_HEADER)
    table, at = _name(body, at)
    count, at = packed(body, at)
    if at + count > len(body):
        raise IndexError
    types = bytes(body[at : at + count])
    length, at = packed(body, at + count)
    metadata = bytes(body[at : at + length])
    return MappedTable(schema, table, _widths(types, metadata), types.count(_JSON))


def rows_table_number(body: memoryview) -> int:
    """Of which table a rows event has rows."""
    return int.from_bytes(body[:6], "little")


def count_rows(kind: int, body: memoryview, table: MappedTable) -> int | None:
    """How many rows were written, changed or deleted by this event; None: it cannot be told."""
    try:
        at = _POST_HEADER
        if kind in layout.ROWS_V2:
            at += int.from_bytes(body[at : at + 2], "little")
        count, at = packed(body, at)
        if count != len(table.widths):
            return None
        bitmap = (count + 7) // 8
        images = [_present(body[at : at + bitmap], count)]
        if kind in layout.UPDATE_ROWS:
            at += bitmap
            images.append(_present(body[at : at + bitmap], count))
        rows: bytes | memoryview | None = body[at + bitmap :]
        if kind in layout.ROWS_COMPRESSED:
            rows = mariadb_part(body[at + bitmap :])
        if rows is None:
            return None
        if len(rows) <= _COPIED:
            rows = bytes(rows)
        return _walk(rows, table, images, partial=kind == layout.PARTIAL_UPDATE_ROWS)
    except (IndexError, _UnknownWidth):
        return None


def _walk(rows: bytes | memoryview, table: MappedTable, images: list[tuple[int, ...]], *, partial: bool) -> int | None:
    at, count, size = 0, 0, len(rows)
    plans: list[tuple[int, dict[bytes | memoryview, Steps], tuple[int, ...]]] = [
        ((len(present) + 7) // 8, {}, present) for present in images
    ]
    while at < size:
        before = at
        for number, (nulls, known, present) in enumerate(plans):
            if partial and number:
                at = _partial_head(rows, at, table.documents)
            null = rows[at : at + nulls]  # of a view too: it is equal to the same bytes, and has their hash
            steps = known.get(null)
            if steps is None:
                if len(null) < nulls:
                    return None
                steps = known[bytes(null)] = _steps(table.widths, present, bytes(null))
            at += nulls
            for skipped, length in steps:
                at += skipped
                if length == 1:
                    at += 1 + rows[at]
                elif length:
                    at += length + int.from_bytes(rows[at : at + length], "little")
            if at > size:
                return None
        if at == before:
            return None  # rows without a column: nothing tells them apart
        count += 1
    return count


def _partial_head(rows: bytes | memoryview, at: int, documents: int) -> int:
    """Of an image in which documents may be told as differences: each is as long as it says, as documents are."""
    options, at = packed(rows, at)
    return at + ((documents + 7) // 8 if options & 1 else 0)


@lru_cache(maxsize=256)
def _steps(widths: tuple[Width | None, ...], present: tuple[int, ...], nulls: bytes) -> Steps:
    steps: list[tuple[int, int]] = []
    skipped = 0
    for number, column in enumerate(present):
        if nulls[number >> 3] >> (number & 7) & 1:
            continue
        width = widths[column]
        if width is None:
            raise _UnknownWidth
        skipped += width[0]
        if width[1]:
            steps.append((skipped, width[1]))
            skipped = 0
    return (*steps, (skipped, 0)) if skipped else tuple(steps)


class _UnknownWidth(Exception):
    """A column's values may be of any length."""


def _present(bitmap: memoryview, count: int) -> tuple[int, ...]:
    return tuple(column for column in range(count) if bitmap[column >> 3] >> (column & 7) & 1)


@lru_cache(maxsize=1024)
def _widths(types: bytes, metadata: bytes) -> tuple[Width | None, ...]:
    widths: list[Width | None] = []
    at = 0
    for kind in types:
        size = _METADATA.get(kind, 0)
        widths.append(_width(kind, metadata[at : at + size]) if at + size <= len(metadata) else None)
        at += size
    return tuple(widths)


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


def _name(body: memoryview, at: int) -> tuple[str, int]:
    """A stranger's: of any characters. A zero byte follows it."""
    length = body[at]
    if at + length + 2 > len(body):
        raise IndexError
    return bytes(body[at + 1 : at + 1 + length]).decode(errors="replace"), at + length + 2
