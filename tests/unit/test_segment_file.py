"""What is told of a segment survives being written and read, and nothing else passes for it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.policy import segment_file
from backupd.policy.segment_file import LONGEST_LINE, LONGEST_SET, MOST_CHANGES, from_line, to_line
from backupd.policy.trust import Trust
from backupd.policy.typed_json import digests
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, SegmentOrigin, TableChange
from backupd.vocabulary.errors import ServerError, Unreadable, VerificationError
from backupd.vocabulary.servers import Flavour
from tests.binlog_segments import FIRST, UUID, following, summed
from tests.share import examples
from tests.signers import signer

NAMES = st.text(max_size=8)
CHANGES = st.builds(TableChange, NAMES, NAMES, st.sampled_from(ChangeKind), st.integers(0, 1000))
INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))
MYSQL = SegmentOrigin(Flavour.MYSQL, "8.4.3", 7, UUID)


def changed(**values: Any) -> bytes:
    """The line of somebody who has no key, and made the digest right."""
    body = json.loads(to_line(FIRST))
    del body["digest"]
    body = {**body, **values}
    return json.dumps({**body, "digest": digests(body)[0]}).encode() + b"\n"


@settings(max_examples=examples(100))
@given(
    changes=st.lists(CHANGES, max_size=5),
    instant=INSTANTS,
    recipients=st.lists(st.just("age1abc"), max_size=2),
    sign=st.booleans(),
)
def test_a_segment_is_read_as_it_was_written(
    changes: list[TableChange], instant: datetime, recipients: list[str], sign: bool
) -> None:
    told, everything = summed(changes)
    segment = replace(
        FIRST, changes=told, all_changes=everything, last_at=instant, recipients=tuple(recipients), digest=""
    )
    written = segment_file.signed(segment, signer()) if sign else segment
    line = to_line(written)
    assert line.count(b"\n") == 1
    found = from_line(line)
    assert found == (written if sign else replace(segment, digest=found.digest))
    assert to_line(found) == line


def test_a_signature_is_believed_where_its_key_is_known() -> None:
    ours, theirs = signer(), signer()
    found = from_line(to_line(segment_file.signed(FIRST, theirs)))
    assert Trust(frozenset({theirs.public})).believes(found.signature)
    assert not Trust(frozenset({ours.public})).believes(found.signature)
    assert not Trust(frozenset({ours.public})).believes(from_line(to_line(FIRST)).signature)


@pytest.mark.parametrize("key", sorted(json.loads(to_line(FIRST))))
def test_a_line_without_one_of_its_keys_is_not_read(key: str) -> None:
    body = json.loads(to_line(FIRST))
    del body[key]
    if key != "digest":
        del body["digest"]
        body["digest"] = digests(body)[0]
    with pytest.raises(VerificationError):
        from_line(json.dumps(body).encode() + b"\n")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("machine", value) for value in ("db1", "../x-0a1b2c3d", "", None)),
        *(("job", value) for value in ("", "Nightly", "a/b", "a\nb", 7)),
        *(("chain", value) for value in ("", "..", "20261120T040000Z-0123ABCD", "20261120T040000Z-0123abcd\n")),
        *(("number", value) for value in (0, -1, 10**10, True, 1.0, "1")),
        *(("previous", value) for value in ("a" * 64, "a", None)),  # of the first
        *(("origin", value) for value in (None, {"flavour": "mariadb"})),
        ("origin", {"flavour": "mariadb", "version": "10.11", "server_id": 1 << 32, "uuid": ""}),
        ("origin", {"flavour": "mariadb", "version": "10.11", "server_id": 1, "uuid": UUID}),
        ("origin", {"flavour": "mysql", "version": "8.4.3", "server_id": 1, "uuid": ""}),
        ("origin", {"flavour": "oracle", "version": "23", "server_id": 1, "uuid": ""}),
        *(("file", value) for value in ("binlog", "../binlog.000001", "binlog.00001", "a\n.000001", "a';.000001", "")),
        *(("start", value) for value in (0, -4, 1004, 1 << 64)),
        *(("end", value) for value in (4, 1 << 41, -1)),
        ("file_ended", 1),
        *(("format", value) for value in ("", "é", "AAAA", "A" * 4097, "not base64!" * 8)),
        *(("gtid_end", value) for value in ("0-1", f"{UUID}:1-5", "0-1-1 ", "x" * (LONGEST_SET + 1))),
        *(("transactions", value) for value in (-1, 0, 2000)),
        *(("first_at", value) for value in (None, "2026-11-20T04:00:00", "1969-12-31T23:59:59+00:00", "soon")),
        *(("last_at", value) for value in (None, "9999-01-01T00:00:00+00:00")),
        ("received_at", None),
        ("changes", None),
        ("changes", [{"schema": "a", "table": "b", "kind": "insert", "rows": -1}]),
        ("changes", [{"schema": "a", "table": "b", "kind": "insert", "rows": 1}] * 2),
        ("changes", [{"schema": "a", "table": "b" * 65, "kind": "insert", "rows": 1}]),
        ("changes", [{"schema": "a", "table": f"{n}", "kind": "drop", "rows": 0} for n in range(MOST_CHANGES + 1)]),
        *(("plain_bytes", value) for value in (-1, 999, 1001)),
        *(("plain_sha256", value) for value in ("", "A" * 64, "a" * 63)),
        *(("stored_bytes", value) for value in (0, -1, 1 << 41)),
        ("stored_sha256", "z" * 64),
        *(("recipients", value) for value in ("age1", ["a\x1b[2J"], ["age1"] * 2049)),
        *(("schema", value) for value in (1, {"major": 1}, {"major": True, "minor": 0}, {"major": 0, "minor": 1})),
        *(("signature", value) for value in ("", {"key": "", "value": ""}, {"key": "k"})),
    ],
)
def test_what_no_segment_can_be_is_not_read(key: str, value: object) -> None:
    with pytest.raises(VerificationError) as refused:
        from_line(changed(**{key: value}))
    assert refused.value.hint
    assert len(refused.value.message) < 400


def test_the_line_that_the_test_above_changes_is_read() -> None:
    assert from_line(changed()).name == "20261120T040000Z-0123abcd-0000000001.binlog"


def test_a_segment_of_a_host_whose_clock_was_never_set_is_read() -> None:
    unset = datetime(1970, 1, 1, tzinfo=UTC)
    origin = replace(FIRST.origin, whole_since=unset)
    segment = replace(FIRST, origin=origin, first_at=unset, last_at=unset, received_at=unset)
    assert replace(from_line(to_line(segment)), digest=FIRST.digest) == segment


def test_a_later_segment_follows_one_and_mysqls_sets_are_read() -> None:
    later = replace(following(FIRST), origin=MYSQL, gtid_start=f"{UUID}:1-5", gtid_end=f"{UUID}:1-9:11,{UUID}:tag:1")
    assert from_line(to_line(later)).gtid_end == later.gtid_end
    with pytest.raises(Unreadable, match=r"segment\.previous"):
        from_line(to_line(replace(later, previous="")))
    with pytest.raises(Unreadable, match=r"segment\.gtid_start"):
        from_line(to_line(replace(later, gtid_start="0-1-5")))


def test_a_newer_minor_may_add_keys_and_a_newer_major_is_no_damage() -> None:
    assert from_line(changed(schema={"major": 1, "minor": 9}, weather="fair")).file == FIRST.file
    with pytest.raises(Unreadable, match="newer backupd") as refused:
        from_line(changed(schema={"major": 2, "minor": 0}))
    assert "nothing is wrong" in refused.value.hint


@settings(max_examples=examples(200))
@given(data=st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    line = bytearray(to_line(segment_file.signed(FIRST, KEY)))
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] ^= data.draw(st.integers(1, 255))
    try:
        found = from_line(bytes(line))
    except VerificationError:
        return
    assert found == segment_file.signed(FIRST, KEY)  # a letter in another way of writing it


KEY = signer()


def test_a_value_that_was_changed_with_its_digest_is_noticed_by_the_signature() -> None:
    body = json.loads(to_line(segment_file.signed(FIRST, KEY)))
    body["stored_sha256"] = "c" * 64
    del body["digest"]
    line = json.dumps({**body, "digest": digests(body)[0]}).encode() + b"\n"
    with pytest.raises(VerificationError, match="changed after it was signed"):
        from_line(line)


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b"[]\n", b"{}", b"{}\n{}\n", b"\xff\n", b'{"a":1,"a":1}\n'])
def test_what_is_no_description_is_not_read(line: bytes) -> None:
    with pytest.raises(VerificationError):
        from_line(line)


@pytest.mark.parametrize("filling", [b"[", b"{", b"[],", b" ", b"1"])
def test_a_line_is_not_read_beyond_its_bound(filling: bytes) -> None:
    for size in (LONGEST_LINE, LONGEST_LINE + 1):
        with pytest.raises(VerificationError):
            from_line((filling * size)[: size - 1] + b"\n")


def test_the_longest_names_and_sets_fit_into_a_line_that_is_read() -> None:
    changes = [TableChange("\U0001f600" * 64, f"{n:04}" + "\U0001f600" * 60, ChangeKind.INSERT, n) for n in range(1000)]
    told, everything = summed(changes)
    assert (len(told), everything) == (MOST_CHANGES, False)
    longest = ",".join(f"{n}-{n}-{n}" for n in range(1 << 16))[:LONGEST_SET].rpartition(",")[0]
    segment = replace(FIRST, changes=told, all_changes=False, gtid_start=longest, gtid_end=longest)
    assert from_line(to_line(segment)).gtid_end == longest
    with pytest.raises(ServerError, match="too long to be archived"):
        to_line(replace(segment, gtid_end=longest + ",1-1-1" * 1000))


# --- the sum of changes ----------------------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(st.lists(st.builds(TableChange, *[st.sampled_from("ab")] * 2, st.sampled_from(ChangeKind), st.integers(0, 9))))
def test_the_sum_has_the_rows_of_each_table_and_kind_once(changes: list[TableChange]) -> None:
    told, everything = summed(changes)
    assert everything
    for change in told:
        same = [c for c in changes if (c.schema, c.table, c.kind) == (change.schema, change.table, change.kind)]
        assert change.rows == sum(c.rows for c in same)
    assert {(c.schema, c.table, c.kind) for c in told} == {(c.schema, c.table, c.kind) for c in changes}
    assert len(told) == len({(c.schema, c.table, c.kind) for c in told})


def test_of_too_many_changes_the_first_are_told_with_all_of_their_rows() -> None:
    first, second, third = (TableChange("shop", name, ChangeKind.DELETE, 1) for name in ("a", "b", "c"))
    assert summed([first, second, third, first], at_most=2) == ((replace(first, rows=2), second), False)
    assert summed([first, second, first], at_most=2) == ((replace(first, rows=2), second), True)


def test_a_name_that_no_server_gives_is_not_told() -> None:
    strange = TableChange("shop", "t" * 65, ChangeKind.DROP)
    assert summed([strange]) == ((), False)


def test_a_table_whose_name_has_a_line_feed_is_told() -> None:
    told, everything = summed([TableChange("shop", "or\nders", ChangeKind.DROP)])
    assert everything
    segment: BinlogSegment = replace(FIRST, changes=told)
    assert from_line(to_line(segment)).changes == told
