"""A manifest survives being written and read, and nothing else passes for one."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd import manifest as manifests
from backupd.errors import VerificationError
from backupd.model import (
    Flavour,
    Frame,
    Layout,
    LockReceipt,
    Manifest,
    Outcome,
    Phase,
    Position,
    Reason,
    ReplicaPosition,
    RunDetails,
    RunStatus,
    ServerFacts,
    SnapshotFacts,
    StoredObject,
    Throughput,
    Verdict,
)

NUMBERS = st.integers(0, 1 << 60)
TEXTS = st.text(max_size=12)
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12).map(Path)
INSIDE = st.lists(st.text("ab.#- ", min_size=1, max_size=4).filter(lambda part: part != ".."), max_size=3).map("/".join)
OBJECTS = st.builds(
    StoredObject,
    name=TEXTS,
    plain_bytes=NUMBERS,
    stored_bytes=NUMBERS,
    plain_sha256=TEXTS,
    stored_sha256=TEXTS,
    files=NUMBERS,
    frames=st.lists(st.builds(Frame, NUMBERS, NUMBERS, TEXTS), max_size=3).map(tuple),
)
SERVERS = st.builds(
    ServerFacts,
    flavour=st.sampled_from(Flavour),
    version=TEXTS,
    version_number=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    datadir=PATHS,
    socket=st.none() | PATHS,
    binlog_basename=st.none() | PATHS,
    binlog_expire_seconds=st.none() | NUMBERS,
    read_only=st.booleans(),
    is_replica=st.booleans(),
    redo_logging=st.booleans(),
    page_size=NUMBERS,
    settings=st.dictionaries(TEXTS, TEXTS, max_size=4),
)
POSITIONS = st.builds(
    Position,
    binlog_file=st.none() | TEXTS,
    binlog_offset=st.none() | NUMBERS,
    gtid=st.none() | TEXTS,
    replicas=st.lists(st.builds(ReplicaPosition, TEXTS, TEXTS, NUMBERS, TEXTS), max_size=2).map(tuple),
)
SECONDS = st.floats(0, 1e9)
INSTANTS = st.datetimes(timezones=st.just(UTC))
RUNS = st.builds(
    RunDetails,
    run_id=TEXTS,
    job=TEXTS,
    host=TEXTS,
    status=st.sampled_from(RunStatus),
    started_at=INSTANTS,
    ended_at=st.none() | INSTANTS,
    phases=st.dictionaries(st.sampled_from(Phase), SECONDS),
    verdict=st.none() | st.builds(Verdict, st.sampled_from(Outcome), st.sampled_from(Reason), TEXTS, SECONDS),
    position=st.none() | POSITIONS,
    lock=st.none() | st.builds(LockReceipt, TEXTS, NUMBERS, SECONDS, SECONDS, TEXTS, st.none() | NUMBERS),
    snapshot=st.none()
    | st.builds(SnapshotFacts, TEXTS, TEXTS, st.sampled_from(Layout), NUMBERS, st.none() | NUMBERS, NUMBERS, NUMBERS),
    attention=st.lists(TEXTS, max_size=2).map(tuple),
    throughput=st.lists(st.builds(Throughput, TEXTS, NUMBERS, SECONDS), max_size=2).map(tuple),
)
MANIFESTS = st.builds(
    Manifest,
    run_id=TEXTS,
    job=TEXTS,
    host=TEXTS,
    created_at=st.datetimes(timezones=st.just(UTC)),
    objects=st.lists(OBJECTS, max_size=3).map(tuple),
    server=SERVERS,
    position=POSITIONS,
    lsn=st.none() | NUMBERS,
    layout=st.sampled_from(Layout),
    volume=TEXTS,
    datadir=INSIDE,
    binlog=st.none() | INSIDE,
    canary=st.none() | TEXTS,
    recipients=st.lists(TEXTS, max_size=2).map(tuple),
    run=st.none() | RUNS,
)

ONE = Manifest(
    run_id="20260102T030405Z-ab12",
    job="nightly",
    host="db1",
    created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    objects=(StoredObject("data.tar.zst", 1000, 100, "a" * 64, "b" * 64, 12),),
    server=ServerFacts(
        flavour=Flavour.MARIADB,
        version="10.11.6-MariaDB",
        version_number=(10, 11, 6),
        datadir=Path("/var/lib/mysql"),
        socket=Path("/run/mysqld/mysqld.sock"),
        binlog_basename=Path("/var/lib/mysql/binlog"),
        binlog_expire_seconds=None,
        read_only=False,
        is_replica=True,
        redo_logging=True,
        page_size=16384,
        settings={"innodb_page_size": "16384", "version_compile_os": "Linux"},
    ),
    position=Position("binlog.000007", 4711, "0-1-99", (ReplicaPosition("", "source.000003", 42),)),
    lsn=123456,
    layout=Layout.STRIPED,
    volume="vg0/data",
    datadir="mysql",
    binlog="mysql/binlog.000007",
)


def sealed(body: dict[str, Any]) -> str:
    """A document whose digest is right, whatever it says: what a newer or a broken writer could have made."""
    body = {key: value for key, value in body.items() if key != "digest"}
    return json.dumps({**body, "digest": manifests._digest(body)})


@given(MANIFESTS)
def test_manifest_survives_being_written_and_read(manifest: Manifest) -> None:
    assert manifests.from_text(manifests.to_text(manifest)) == manifest
    assert manifests.from_text(manifests.to_text(manifest).encode()) == manifest


def test_document_is_readable_and_stable() -> None:
    text = manifests.to_text(ONE)
    assert text.startswith('{\n  "schema": 1,\n  "run_id": "20260102T030405Z-ab12",\n')
    assert text.endswith("}\n")
    reordered = replace(ONE, server=replace(ONE.server, settings=dict(reversed(list(ONE.server.settings.items())))))
    assert manifests.to_text(reordered) == text


def test_a_number_that_another_writer_rounded_is_read_as_it_was_meant() -> None:
    run = RunDetails("r1", "nightly", "db1", RunStatus.RUNNING, ONE.created_at, phases={Phase.COPY: 2.0})
    body = json.loads(manifests.to_text(replace(ONE, run=run)))
    body["run"]["phases"]["copy"] = 2
    assert manifests.from_text(sealed(body)).run == run


def test_an_unknown_phase_is_told() -> None:
    run = RunDetails("r1", "nightly", "db1", RunStatus.RUNNING, ONE.created_at)
    body = json.loads(manifests.to_text(replace(ONE, run=run)))
    body["run"]["phases"]["siesta"] = 2.0
    with pytest.raises(VerificationError, match="siesta"):
        manifests.from_text(sealed(body))


def test_a_manifest_of_an_older_release_is_read_with_what_it_has() -> None:
    """Fields that came later may be missing: nothing was encrypted then, and the run was not in it."""
    body = json.loads(manifests.to_text(ONE))
    for name in ("filesystem", "recipients", "audit_head", "run"):
        del body[name]
    for stored in body["objects"]:
        del stored["frames"]
    assert manifests.from_text(sealed(body)) == ONE


def test_order_of_keys_and_blanks_mean_nothing() -> None:
    body = json.loads(manifests.to_text(ONE))
    assert manifests.from_text(json.dumps(dict(reversed(body.items())), separators=(",", ":"))) == ONE


@pytest.mark.parametrize("schema", [2, 0, "1", None, True, 1.5])
def test_unknown_schema_is_refused(schema: Any) -> None:
    body = {**json.loads(manifests.to_text(ONE)), "schema": schema}
    with pytest.raises(VerificationError, match="unknown schema"):
        manifests.from_text(sealed(body))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, (*path, i))]
    return [path]


def changed(body: Any, path: tuple[Any, ...], to: Any) -> Any:
    folder = body
    for step in path[:-1]:
        folder = folder[step]
    folder[path[-1]] = to
    return body


BODY = json.loads(manifests.to_text(ONE))


@pytest.mark.parametrize("path", leaves(BODY), ids=lambda path: ".".join(map(str, path)))
def test_no_value_can_be_changed_unseen(path: tuple[Any, ...]) -> None:
    others: list[Any] = ["something else", 12345678, None, True, [], {}]
    for other in others:
        body = json.loads(manifests.to_text(ONE))
        if changed(body, path, other) != BODY:
            with pytest.raises(VerificationError):
                manifests.from_text(json.dumps(body))


@pytest.mark.parametrize("path", [p for p in leaves(BODY) if p[0] not in {"digest", "schema"}], ids=str)
def test_value_of_another_kind_is_refused_even_with_a_proper_digest(path: tuple[Any, ...]) -> None:
    for other in (["x"], {"x": 1}, 1.5, "\0" if path[-1] == "created_at" else ["y"]):
        with pytest.raises(VerificationError):
            manifests.from_text(sealed(changed(json.loads(manifests.to_text(ONE)), path, other)))


@pytest.mark.parametrize("key", ["run_id", "objects", "server", "position", "created_at"])
def test_missing_key_is_named(key: str) -> None:
    body = json.loads(manifests.to_text(ONE))
    del body[key]
    with pytest.raises(VerificationError, match=f"lacks manifest.{key}"):
        manifests.from_text(sealed(body))


def test_unknown_key_is_named() -> None:
    with pytest.raises(VerificationError, match=r"unknown key manifest\.encryption"):
        manifests.from_text(sealed({**BODY, "encryption": "age"}))


@pytest.mark.parametrize("key", ["datadir", "binlog"])
@pytest.mark.parametrize("path", ["/var/lib/mysql", "../mysql", "mysql/../../live", ".."])
def test_a_path_that_leads_out_of_the_restored_folder_is_refused(key: str, path: str) -> None:
    """There a drill would start its server, and a clone remove binlogs: those of this host."""
    with pytest.raises(VerificationError, match=f"the manifest's {key} leads out of the backup: '{path}'"):
        manifests.from_text(sealed({**BODY, key: path}))


def test_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(VerificationError, match="created_at"):
        manifests.from_text(sealed({**BODY, "created_at": "2026-01-02T03:04:05"}))


@settings(max_examples=300)
@given(st.data())
def test_no_mutation_of_the_text_passes_or_crashes_the_reader(data: st.DataObject) -> None:
    text = bytearray(manifests.to_text(ONE).encode())
    kind = data.draw(st.sampled_from(["flip", "cut", "append", "drop"]))
    at = data.draw(st.integers(0, len(text) - 1))
    if kind == "flip":
        text[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del text[at:]
    elif kind == "append":
        text += data.draw(st.binary(min_size=1, max_size=8))
    else:
        del text[at]
    try:
        read = manifests.from_text(bytes(text))
    except VerificationError:
        return
    assert read == ONE  # blanks between values are all that may differ
    assert json.loads(text) == BODY


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "1", '"x"', "{}", "\0", "[" * 100_000, '{"schema": 1}', '{"schema": NaN}', b"\xff\xfe"]
)
def test_what_is_no_manifest_is_refused(text: str | bytes) -> None:
    with pytest.raises(VerificationError):
        manifests.from_text(text)


def test_key_that_is_there_twice_is_refused() -> None:
    text = manifests.to_text(ONE).replace('"schema": 1,', '"schema": 1, "schema": 1,')
    with pytest.raises(VerificationError, match="twice"):
        manifests.from_text(text)
