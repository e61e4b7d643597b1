"""Documents from strangers: what is refused, in which words, and what digests are of."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from string import ascii_letters
from typing import Any

import pytest

from backupd.policy.typed_json import DocumentKind, canonical, digests, plain
from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.escaping import Prose


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    """A document within another one."""

    name: str
    pair: tuple[int, str] = (1, "a")
    many: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outer:
    """With one field of each type."""

    name: str
    said: Prose
    count: int
    share: float
    sure: bool
    at: datetime
    where: Path
    colour: Colour
    inner: Inner
    perhaps: Inner | None
    named: Mapping[str, int]
    later: int = field(default=7, metadata={"minor": 1})
    apart: str = field(default="-", metadata={"apart": True})


KIND = DocumentKind("note", 3, 1000, 20, "it was damaged", "it is a stranger's", "use a newer one")
LENIENT = DocumentKind("note", 3, 1000, 20, "", "", "", with_defaults=True)
BODY: dict[str, Any] = {
    "name": "n",
    "said": "two\nlines",
    "count": 1,
    "share": 0.5,
    "sure": True,
    "at": "2026-01-02T03:04:05+00:00",
    "where": "/a/b",
    "colour": "red",
    "inner": {"name": "i", "pair": [2, "b"], "many": [1.5, 2]},
    "perhaps": None,
    "named": {"a": 1},
    "later": 8,
}
WHOLE = Outer(
    "n", "two\nlines", 1, 0.5, True, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), Path("/a/b"), Colour.RED,
    Inner("i", (2, "b"), (1.5, 2.0)), None, {"a": 1}, 8,
)  # fmt: skip


def typed(changed: dict[str, Any], kind: DocumentKind = KIND) -> Any:
    return kind.typed(Outer, {**BODY, **changed}, "it")


def test_each_type_is_read_as_it_was_written() -> None:
    found = typed({})
    assert found == WHOLE
    assert type(found.inner.many[1]) is float
    assert typed({"perhaps": BODY["inner"]}).perhaps == WHOLE.inner
    assert typed({"share": 2}).share == 2.0
    assert type(typed({"share": 2}).share) is float
    assert {**plain(WHOLE), "inner": plain(WHOLE.inner)}.keys() == BODY.keys()


def test_what_nobody_knows_yet_is_ignored_and_what_a_minor_added_has_its_default() -> None:
    assert typed({"of_tomorrow": 1}) == WHOLE
    body = {key: value for key, value in BODY.items() if key != "later"}
    assert KIND.typed(Outer, body, "it").later == 7


def test_only_of_what_nobody_keeps_may_a_field_with_a_default_be_missing() -> None:
    assert typed({"inner": {"name": "i"}}, LENIENT).inner == Inner("i")
    with pytest.raises(Unreadable) as refused:
        typed({"inner": {"name": "i"}})
    assert refused.value.message == "the note lacks it.inner.many"
    assert refused.value.hint == "it is a stranger's"
    with pytest.raises(Unreadable, match=r"the note lacks it\.inner\.name"):
        typed({"inner": {}}, LENIENT)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": 1}, "no valid it.name: 1"),
        ({"name": "a\nb"}, r"no valid it.name: 'a\nb'"),
        ({"name": "x" * 4097}, "no valid it.name: 'xxx"),
        ({"said": 1}, "no valid it.said: 1"),
        ({"count": True}, "no valid it.count: True"),
        ({"count": 1.0}, "no valid it.count: 1.0"),
        ({"count": 1 << 63}, "no valid it.count: 9223372036854775808"),
        ({"share": "1"}, "no valid it.share: '1'"),
        ({"share": True}, "no valid it.share: True"),
        ({"share": float("inf")}, "no valid it.share: inf"),
        ({"share": float("nan")}, "no valid it.share: nan"),
        ({"share": 1 << 63}, "no valid it.share: 9223372036854775808"),
        ({"sure": 1}, "no valid it.sure: 1"),
        ({"at": "2026-01-02T03:04:05"}, "no valid it.at: '2026-01-02T03:04:05'"),
        ({"at": "today"}, "no valid it.at: 'today'"),
        ({"at": 1}, "no valid it.at: 1"),
        ({"where": "/a\n"}, r"no valid it.where: '/a\n'"),
        ({"where": 1}, "no valid it.where: 1"),
        ({"colour": "blue"}, "no valid it.colour: 'blue'"),
        ({"inner": []}, "no valid it.inner: []"),
        ({"inner": None}, "no valid it.inner: None"),
        ({"perhaps": 1}, "no valid it.perhaps: 1"),
        ({"named": {"a\n": 1}}, r"no valid it.named's key: 'a\n'"),
        ({"named": {"a": "1"}}, "no valid it.named.a: '1'"),
        ({"named": []}, "no valid it.named: []"),
        ({"inner": {**BODY["inner"], "pair": {}}}, "no valid it.inner.pair: {}"),
        ({"inner": {**BODY["inner"], "pair": [2, 3]}}, "no valid it.inner.pair[1]: 3"),
        ({"inner": {**BODY["inner"], "many": [1.0, "x"]}}, "no valid it.inner.many[1]: 'x'"),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Unreadable) as refused:
        typed(changed)
    assert refused.value.message.startswith(f"the note has {said}")
    assert len(refused.value.message) < 130
    assert refused.value.hint == "it is a stranger's"


@pytest.mark.parametrize("parts", [[], [1], [1, "a", "b"]])
def test_a_pair_of_another_number_is_refused_with_both_numbers(parts: list[Any]) -> None:
    with pytest.raises(Unreadable) as refused:
        typed({"inner": {**BODY["inner"], "pair": parts}})
    assert refused.value.message == f"the note's it.inner.pair has {len(parts)} parts instead of 2"
    assert refused.value.hint == "it is a stranger's"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "x" * 4096),
        ("count", (1 << 63) - 1),
        ("count", 1 - (1 << 63)),
        ("share", 1 << 62),
        ("at", "2000-01-01T00:00:00+00:00"),
        ("at", "2999-12-31T23:59:59+00:00"),
        ("said", "\x1b[1m" + "x" * 5000),
    ],
)
def test_what_is_at_the_limit_is_read(key: str, value: Any) -> None:
    read = getattr(typed({key: value}), key)
    assert read == (datetime.fromisoformat(value) if key == "at" else value)


@pytest.mark.parametrize(
    ("at", "in_utc"),
    [
        ("2026-11-26T01:00:00+01:00", "2026-11-26T00:00:00+00:00"),
        ("2026-11-26T00:00:00+00:00:30", "2026-11-25T23:59:30+00:00"),
    ],
)
def test_an_instant_is_read_in_utc_whatever_its_offset(at: str, in_utc: str) -> None:
    read: datetime = typed({"at": at}).at
    assert read.isoformat() == in_utc


@pytest.mark.parametrize("at", ["1999-12-31T23:59:59+00:00", "3000-01-01T00:00:00+00:00"])
def test_an_instant_of_no_year_with_backups_is_refused(at: str) -> None:
    with pytest.raises(Unreadable, match=r"no valid it\.at"):
        typed({"at": at})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "it is not a JSON object"),
        ('{"a": 1, "a": 1}', "a key occurs twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_what_cannot_be_parsed_is_damage(text: str | bytes, why: str) -> None:
    with pytest.raises(VerificationError) as refused:
        KIND.parsed(text)
    assert refused.value.message == f"the note cannot be parsed: {why}"
    assert refused.value.hint == "it was damaged"
    assert type(refused.value) is VerificationError


def test_bytes_and_texts_are_parsed_alike() -> None:
    assert KIND.parsed('{"ä": 1}') == KIND.parsed('{"ä": 1}'.encode()) == KIND.parsed(bytearray('{"ä": 1}'.encode()))


def test_no_more_bytes_or_values_are_read_than_anybody_ever_wrote() -> None:
    sentence = "the note is larger than 1 kB, or has more than 20 values: backupd never writes one that large"
    begin, end = '{"a":"', '"}'
    fits = begin + (ascii_letters * 20)[: 1000 - len(begin + end)] + end  # many letters, and one value
    assert KIND.parsed(fits)
    assert KIND.parsed('{"a":[' + ",".join(["1"] * 19) + "]}")
    for much in (fits.replace("x", "xx", 1), '{"a":[' + ",".join(["1"] * 20) + "]}", '{"a":' + "[" * 20):
        with pytest.raises(VerificationError) as refused:
            KIND.parsed(much)
        assert (refused.value.message, refused.value.hint) == (sentence, "it was damaged")


def test_of_a_size_alone_no_values_are_counted() -> None:
    replace(KIND, most_values=0).require_modest(KIND.most_bytes)


def test_a_document_of_this_major_is_read_whatever_its_minor() -> None:
    KIND.require_major({"major": 3, "minor": 0})
    KIND.require_major({"major": 3, "minor": 99, "of_tomorrow": 1})


def test_a_newer_major_is_no_damage() -> None:
    with pytest.raises(Unreadable) as refused:
        KIND.require_major({"major": 4, "minor": 2})
    assert refused.value.message == "the note was written by a newer backupd: its schema is 4.2, this one supports 3"
    assert refused.value.hint == "use a newer one"


@pytest.mark.parametrize("schema", [None, {"major": 2, "minor": 0}, {"major": True, "minor": 0}, {"major": 3}, "3.0"])
def test_any_other_schema_is_none(schema: object) -> None:
    with pytest.raises(Unreadable) as refused:
        KIND.require_major(schema)
    assert refused.value.message == f"the note has no valid schema: {schema!r}"
    assert refused.value.hint == "it is a stranger's"


def test_the_digest_is_of_one_line_with_its_keys_in_order() -> None:
    body = {"b": [1, {"d": 2, "c": "ä"}], "a": None, "signature": {"key": "k"}, "z": (WHOLE.inner,), "e": []}
    line = (
        '{"a":null,"b":[1,{"c":"\\u00e4","d":2}],"e":[],"signature":{"key":"k"},'
        '"z":[{"many":[1.5,2.0],"name":"i","pair":[2,"b"]}]}'
    )
    assert canonical(body) == line
    unsigned = line.replace('{"key":"k"}', "null")
    assert digests(body) == tuple(hashlib.sha256(text.encode()).hexdigest() for text in (line, unsigned))
    assert digests({}) == (hashlib.sha256(b"{}").hexdigest(),) * 2


def test_what_json_has_no_kind_for_is_written_as_it_is_read() -> None:
    text = json.dumps(WHOLE, default=plain)
    assert KIND.typed(Outer, json.loads(text), "it") == WHOLE
    assert "apart" not in json.loads(text)
    assert list(plain(Outer(**{**vars(WHOLE), "named": {"b": 1, "a": 2}}))["named"]) == ["a", "b"]
    with pytest.raises(TypeError, match=r"^a document cannot have a set$"):
        plain({1})
    with pytest.raises(TypeError, match=r"^a document cannot have a type$"):
        plain(Inner)
