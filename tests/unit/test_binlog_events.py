"""The events of a binlog from its bytes: any pieces give the same, and nothing that was changed passes."""

import struct
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.mysql.binlog.events import MOST_EVENT_BYTES, EventStream, LogEvent, detached
from backupd.vocabulary.errors import ServerError
from tests.binlog_texts import binlog
from tests.share import examples

MYSQL = binlog("mysql-9.7.4-gtids")
MAGIC = b"\xfebin"
FORMAT, QUERY, HEARTBEAT, ENCRYPTION = 15, 2, 27, 164


def event(kind: int, body: bytes, *, end: int, flags: int = 0) -> bytes:
    plain = struct.pack("<IBIIIH", 7, kind, 1, 19 + len(body) + 4, end & 0xFFFF_FFFF, flags) + body
    return plain + struct.pack("<I", zlib.crc32(plain))


def description(*, checksums: int = 1, end: int = 0) -> bytes:
    return event(FORMAT, struct.pack("<H50sIB", 4, b"10.11", 0, 19) + bytes(40) + bytes([checksums]), end=end)


def events(*pieces: bytes, stream: EventStream | None = None) -> list[LogEvent]:
    stream = stream or EventStream("bin.000001")
    return [found for piece in pieces for found in stream.feed(piece)]


WHOLE = events(MYSQL)


def test_events_follow_one_another_to_the_files_end() -> None:
    assert b"".join(one.raw for one in WHOLE) == MYSQL[4:]
    assert [one.start for one in WHOLE] == [4, *(one.end for one in WHOLE[:-1])]
    assert WHOLE[-1].end == len(MYSQL)
    assert not any(one.artificial for one in WHOLE)
    assert bytes(WHOLE[-1].body).endswith(b"bin.000006")


def test_the_events_from_any_place_on_are_read_by_the_files_detached_description() -> None:
    for number in range(1, len(WHOLE)):
        stream = EventStream("bin.000001", start=WHOLE[number].start)
        described, *found = events(MAGIC + detached(WHOLE[0].raw), MYSQL[WHOLE[number].start :], stream=stream)
        assert described.artificial
        assert found == WHOLE[number:]


@given(st.lists(st.integers(0, len(MYSQL)), max_size=40))
@settings(max_examples=examples(200))
def test_any_pieces_give_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(MYSQL)]
    stream = EventStream("bin.000001")
    found = []
    for start, end in pairwise(edges):
        found += events(MYSQL[start:end], stream=stream)
        fed = max((one.end for one in found), default=4)
        assert stream.pending == (end - fed if end >= 4 else end)
    assert found == WHOLE


@given(st.integers(0, len(MYSQL) - 1), st.integers(1, 255))
@settings(max_examples=examples(300))
def test_a_changed_byte_is_an_error_or_changes_no_event(at: int, flipped: int) -> None:
    changed = bytearray(MYSQL)
    changed[at] ^= flipped
    found = []
    try:
        for one in EventStream("bin.000001").feed(bytes(changed)):
            found.append(one)
    except ServerError:
        assert found == WHOLE[: len(found)]
        return
    if at == 4 + 17:  # that the server has the file open is in no checksum
        assert flipped & 1
        return
    assert found == WHOLE[: len(found)]
    assert len(found) < len(WHOLE)  # it waits for the end of an event


def test_what_a_client_received_from_an_offset_on_has_the_servers_positions() -> None:
    received = MAGIC + description() + event(QUERY, b"one", end=1026) + event(QUERY, b"two", end=1052)
    first, *others = events(received)
    assert first.artificial
    assert [(one.start, one.end) for one in others] == [(1000, 1026), (1026, 1052)]


def test_positions_go_on_beyond_four_gib() -> None:
    size = 19 + 3 + 4
    begun = (1 << 32) - size - 10
    received = MAGIC + description() + b"".join(event(QUERY, b"abc", end=begun + size * n) for n in (1, 2, 3))
    assert [one.end for one in events(received)[1:]] == [begun + size * n for n in (1, 2, 3)]


def test_a_client_that_begins_beyond_four_gib_says_so() -> None:
    begun = (3 << 32) + 500
    received = MAGIC + description() + event(QUERY, b"abc", end=begun + 26)
    assert events(received, stream=EventStream("f", start=begun))[1].start == begun


def test_what_tells_no_place_within_a_transaction_is_where_it_follows() -> None:
    begun, within, ended = event(162, bytes(19), end=142), event(QUERY, bytes(40), end=0), event(16, bytes(8), end=236)
    stream = EventStream("bin.000001", start=100)
    _, *found = events(MAGIC + description(), begun + within + ended, stream=stream)
    assert [(one.start, one.end, one.artificial) for one in found] == [
        (100, 142, False),
        (142, 205, False),
        (205, 236, False),
    ]


def test_a_heartbeat_is_in_no_file() -> None:
    received = MAGIC + description() + event(HEARTBEAT, b"bin.000001", end=1000) + event(QUERY, b"one", end=1026)
    assert [one.artificial for one in events(received)] == [True, True, False]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"-- dump", "is not a binlog"),
        (b"\xfd\x01\x00\x00", "is not a binlog"),
        (MAGIC + event(QUERY, b"", end=27), "does not begin with a format description"),
        (MAGIC + description(checksums=7), "checksums are of an unknown kind, 7"),
        (MAGIC + description() + event(QUERY, b"a", end=500) + event(QUERY, b"a", end=600), "should end at 524"),
        (MAGIC + description() + event(QUERY, b"a", end=500)[:-1] + b"?", "checksum"),
        (MAGIC + description() + struct.pack("<IBIIIH", 0, 2, 1, MOST_EVENT_BYTES + 1, 0, 0), "cannot be"),
        (MAGIC + description() + struct.pack("<IBIIIH", 0, 2, 1, 18, 0, 0), "cannot be"),
    ],
)
def test_what_no_server_wrote_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ServerError, match=said) as refused:
        events(content)
    assert refused.value.hint


@pytest.mark.parametrize("checksums", [0, 1])
@pytest.mark.parametrize("garbage", [b"\x93" * 200, struct.pack("<IBIIIH", 9, 9, 9, 40, 9, 9) + bytes(21)])
def test_an_encrypted_file_is_refused_where_it_cannot_be_read(checksums: int, garbage: bytes) -> None:
    begun = description(checksums=checksums)
    begun = description(checksums=checksums, end=4 + len(begun))
    size = 19 + 20 + 4
    encryption = event(ENCRYPTION, bytes(20), end=4 + len(begun) + size)
    with pytest.raises(ServerError, match=r"bin\.000001 is encrypted"):
        events(MAGIC + begun + encryption + garbage)


def test_without_checksums_a_body_is_whole() -> None:
    plain = struct.pack("<IBIIIH", 7, QUERY, 1, 19 + 3, 122, 0) + b"abc"
    _, found = events(MAGIC + description(checksums=0) + plain)
    assert bytes(found.body) == b"abc"


def test_a_large_event_is_held_once() -> None:
    size = 32 << 20
    content = MAGIC + description() + event(QUERY, bytes(size), end=size + 100)
    stream = EventStream("bin.000001")
    pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)]
    del content
    tracemalloc.start()
    found = events(*pieces, stream=stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found[-1].body) == size
    assert peak < 1.5 * size
