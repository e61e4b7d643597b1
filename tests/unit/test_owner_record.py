"""Who wrote last into a machine's folder: the record survives being stored, and nothing else passes for it."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backupd.policy.owner_record import OwnerRecord, from_text, to_text
from backupd.vocabulary.errors import VerificationError

RECORD = OwnerRecord("db1-0a1b2c3d", 7, "0f" * 16, "db1", datetime(2026, 11, 26, 18, tzinfo=UTC))
WHERE = "owner.7.json on target nas"
TEXT = (
    '{\n  "machine": "db1-0a1b2c3d",\n  "number": 7,\n  "incarnation": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",\n'
    '  "host": "db1",\n  "at": "2026-11-26T18:00:00+00:00"\n}\n'
)


def read(text: str | bytes, machine: str = RECORD.machine, number: int = 7) -> OwnerRecord:
    return from_text(text, machine=machine, number=number, where=WHERE)


def with_value(key: str, value: object) -> str:
    return json.dumps({**json.loads(TEXT), key: value})


def test_a_record_is_readable_and_survives_being_stored() -> None:
    assert to_text(RECORD) == TEXT
    assert read(TEXT) == read(TEXT.encode()) == RECORD


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", "7", b"\xff", "[" * 100_000),
        json.dumps({key: value for key, value in json.loads(TEXT).items() if key != "host"}),
        with_value("another", 1),
        *(with_value("machine", value) for value in (None, 7, "db1\n-0a1b2c3d", "\x1b[1m")),
        *(with_value("number", value) for value in (None, "7", 7.0, True)),
        *(with_value("incarnation", value) for value in (None, 7, "0f" * 15, "0f" * 17, "0F" * 16, "0f" * 16 + "\n")),
        *(with_value("host", value) for value in (None, 7, "db1\n")),
        *(with_value("at", value) for value in (None, 7, "today", "2026-11-26T18:00:00")),
        *(with_value("at", value) for value in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")),
    ],
)
def test_what_is_not_as_it_is_written_is_no_record(text: str | bytes) -> None:
    with pytest.raises(VerificationError) as refused:
        read(text)
    assert refused.value.message == f"{WHERE} is not an owner record"
    assert refused.value.hint == "if this folder is this machine's, take it over with `backupd identity adopt`"


def test_a_number_that_is_true_is_no_number_even_of_the_first_record() -> None:
    with pytest.raises(VerificationError, match="is not an owner record"):
        read(with_value("number", True), number=1)


@pytest.mark.parametrize("other", [replace(RECORD, machine="db2-0a1b2c3d"), replace(RECORD, number=8)])
def test_another_record_is_named_as_what_it_is(other: OwnerRecord) -> None:
    with pytest.raises(VerificationError) as refused:
        read(to_text(other))
    assert refused.value.message == f"{WHERE} is owner record {other.number} of machine {other.machine}"
    assert "`backupd identity adopt`" in refused.value.hint
