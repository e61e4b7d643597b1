"""How many rows an event has: exactly, or nothing is told."""

import struct
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.mysql.binlog.changes import ChangeTally
from backupd.mysql.binlog.events import ImpossibleEvent
from backupd.mysql.binlog.expanding import MOST_PLAIN_BYTES, mariadb_part, mysql_events
from backupd.mysql.binlog.row_images import MappedTable, count_rows, mapped_table
from backupd.vocabulary.binlogs import ChangeKind, TableChange
from tests.share import examples

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WRITE, UPDATE, WRITE_COMPRESSED = 23, 24, 166
INT, OLD_TIMESTAMP, VARCHAR = 3, 7, 15


HEAD = bytes(19 + 8)  # of the event, number of the table, flags


def table(types: bytes, metadata: bytes = b"") -> MappedTable:
    names = b"\x04shop\0\x01t\0"
    return mapped(HEAD + names + bytes([len(types)]) + types + bytes([len(metadata)]) + metadata + b"\0")


def mapped(event: bytes) -> MappedTable:
    return mapped_table(event, len(event))


def rows(count: int, *images: bytes, columns: int = 1) -> bytes:
    bitmap = bytes([(1 << columns) - 1])
    return HEAD + bytes([columns]) + bitmap * count + b"".join(images)


def counted(kind: int, event: bytes, of: MappedTable) -> int | None:
    """Behind an event there may be anything: its checksum."""
    found = count_rows(kind, event, len(event), of)
    assert count_rows(kind, event + b"\xff\x01\0\0", len(event), of) == found
    return found


def row(value: int) -> bytes:
    return b"\xfe" + struct.pack("<i", value)


@given(st.integers(1, 300))
def test_rows_are_counted(count: int) -> None:
    body = rows(1, *(row(number) for number in range(count)))
    assert counted(WRITE, body, table(bytes([INT]))) == count


def test_a_large_event_is_walked_without_a_copy_of_it() -> None:
    body = rows(1, (b"\0" + struct.pack("<8i", *range(8))) * 32_000, columns=8)
    assert len(body) > 1 << 20
    tracemalloc.start()
    count = count_rows(WRITE, body, len(body), table(bytes([INT]) * 8))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 32_000
    assert peak < 100_000


def test_an_update_has_two_images_of_a_row() -> None:
    assert counted(UPDATE, rows(2, *(row(number) for number in range(8))), table(bytes([INT]))) == 4


def test_null_takes_no_room() -> None:
    assert counted(WRITE, rows(1, b"\xff", row(1), b"\xff"), table(bytes([INT]))) == 3


@pytest.mark.parametrize("kind", [0, OLD_TIMESTAMP, 11, 12, 99, 243])
def test_of_a_type_whose_size_is_not_told_no_row_is_counted(kind: int) -> None:
    assert counted(WRITE, rows(1, row(1), row(2)), table(bytes([kind]))) is None


def test_rows_that_do_not_end_where_the_event_does_are_not_counted() -> None:
    body = rows(1, row(1), row(2)[:-1])
    assert counted(WRITE, body, table(bytes([INT]))) is None


def test_rows_of_another_shape_than_the_table_are_not_counted() -> None:
    assert counted(WRITE, rows(1, row(1), columns=2), table(bytes([INT]))) is None


def test_rows_without_a_column_are_not_counted() -> None:
    body = HEAD + b"\0" + b"x"
    assert counted(WRITE, body, table(b"")) is None


def test_compressed_rows_that_expand_to_too_much_are_not_counted() -> None:
    stored = b"\x84" + (1 << 30).to_bytes(4, "big") + zlib.compress(bytes(1 << 20))
    assert counted(WRITE_COMPRESSED, rows(1, stored), table(bytes([INT]))) is None


@pytest.mark.parametrize("stored", [b"", b"\x02", b"\x81\x05", b"\x81\x05xx", b"\x81\x09" + zlib.compress(b"short")])
def test_a_damaged_part_is_not_expanded(stored: bytes) -> None:
    assert mariadb_part(memoryview(stored)) is None


@given(st.binary(max_size=80), st.binary(max_size=80), st.sampled_from([23, 24, 30, 31, 39, 166, 169]))
@settings(max_examples=examples(500))
def test_whatever_a_table_and_its_rows_are_the_count_is_a_number_or_none(
    columns: bytes, body: bytes, kind: int
) -> None:
    try:
        of = mapped(HEAD + b"\0\0\0\0" + columns)
    except IndexError:
        return
    count = counted(kind, bytes(19) + body, of)
    assert count is None or count >= 0


def payload(plain: bytes, *, method: int = 0) -> memoryview:
    stored = zstd.compress(plain) if method == 0 else plain
    return memoryview(b"\x02\x01" + bytes([method]) + b"\x00" + stored)


def inner(length: int) -> bytes:
    return struct.pack("<IBIIIH", 0, 200, 1, length, 0, 0)


@pytest.mark.parametrize("method", [0, 255])
def test_a_packed_transaction_has_the_events_that_were_packed(method: int) -> None:
    first, second = inner(19 + 3 * (1 << 20)) + bytes(3 << 20), inner(20) + b"x"
    if method == 0:
        assert list(mysql_events(payload(first + second))) == [first, second]
    else:
        assert list(mysql_events(memoryview(b"\x02\x03\xfc\xff\x00\x00" + first + second))) == [first, second]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (payload(inner(MOST_PLAIN_BYTES + 1)), "cannot be"),
        (payload(inner(50)), "within an event"),
        (payload(inner(19))[:-4], "cut off"),
        (memoryview(b"\x00not zstd at all"), "damaged"),
        (payload(b"", method=7), "unknown method, 7"),
        (memoryview(b"\x02"), "head is cut off"),
    ],
)
def test_a_packed_transaction_that_cannot_be_read_changes_what_is_not_known(body: memoryview, said: str) -> None:
    with pytest.raises(ImpossibleEvent, match=said):
        list(mysql_events(body))
    tally = ChangeTally()
    event = bytes(19) + body
    tally.add(40, event, len(event))
    assert tally.changes == (TableChange("", "", ChangeKind.OTHER),)
