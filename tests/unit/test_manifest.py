"""A manifest survives being written and read, and nothing else passes for one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.archive.frames import LARGEST_FRAME
from backupd.archive.stations import MOST_FRAME_BYTES
from backupd.policy import manifest as manifests
from backupd.policy.manifest import MOST_FRAMES, MOST_OBJECTS
from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.escaping import is_one_line
from backupd.vocabulary.run_section import (
    BillSection,
    LockSection,
    LossesSection,
    RunSection,
    SnapshotSection,
    StageSection,
    VerdictSection,
)
from backupd.vocabulary.servers import Flavour, Position, ReplicaPosition, ServerFacts
from backupd.vocabulary.storage import Frame, Manifest, StoredObject
from backupd.vocabulary.volumes import Layout
from tests.fakes.target import MACHINE
from tests.mutations import add_of_tomorrow
from tests.share import examples
from tests.signers import signer

NUMBERS = st.integers(0, 1 << 60)
PROSE = st.text(max_size=12)
TURNS = "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))  # the way of writing
ONE_LINE = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters=TURNS)
TEXTS = st.text(ONE_LINE, max_size=12)
PATHS = st.text(ONE_LINE, min_size=1, max_size=12).map(Path)
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
    settings=st.dictionaries(TEXTS, PROSE, max_size=4),
)
POSITIONS = st.builds(
    Position,
    binlog_file=st.none() | TEXTS,
    binlog_offset=st.none() | NUMBERS,
    gtid=st.none() | TEXTS,
    replicas=st.lists(st.builds(ReplicaPosition, TEXTS, TEXTS, NUMBERS, TEXTS), max_size=2).map(tuple),
)
SECONDS = st.floats(0, 1e9)
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))
WORDS = TEXTS  # a later backupd may have more of them than this one knows
RUNS = st.builds(
    RunSection,
    started_at=INSTANTS,
    phases=st.dictionaries(WORDS, SECONDS, max_size=3),
    verdict=st.none() | st.builds(VerdictSection, WORDS, WORDS, PROSE, SECONDS),
    lock=st.none() | st.builds(LockSection, TEXTS, NUMBERS, SECONDS, SECONDS, TEXTS, st.none() | NUMBERS),
    snapshot=st.none()
    | st.builds(
        SnapshotSection,
        *[TEXTS, TEXTS, WORDS, NUMBERS, st.none() | NUMBERS, NUMBERS, NUMBERS, st.none() | NUMBERS, st.none() | TEXTS],
        chunk_reason=PROSE,
        cow_extended=NUMBERS,
        size_reason=PROSE,
        redo_left_out=NUMBERS,
        taken_at=st.none() | INSTANTS,
    ),
    attention=st.lists(PROSE, max_size=2).map(tuple),
    throughput=st.lists(st.builds(StageSection, WORDS, NUMBERS, SECONDS), max_size=2).map(tuple),
)
MANIFESTS = st.builds(
    Manifest,
    run_id=TEXTS,
    job=TEXTS,
    host=TEXTS,
    machine=TEXTS,
    created_at=INSTANTS,
    objects=st.lists(OBJECTS, max_size=3).map(tuple),
    server=SERVERS,
    position=POSITIONS,
    lsn=st.none() | NUMBERS,
    layout=WORDS,
    volume=TEXTS,
    datadir=INSIDE,
    binlog=st.none() | INSIDE,
    canary=st.none() | TEXTS,
    recipients=st.lists(TEXTS, max_size=2).map(tuple),
    run=RUNS,
)

ONE = Manifest(
    run_id="20260102T030405Z-ab12",
    job="nightly",
    host="db1",
    machine=MACHINE,
    created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    objects=(StoredObject("data-1.tar.zst", 1000, 100, "a" * 64, "b" * 64, 12, (Frame(1000, 100, "b" * 64),)),),
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
    run=RunSection(
        datetime(2026, 1, 2, 3, 0, tzinfo=UTC),
        phases={"copy": 2.5},
        verdict=VerdictSection("start", "settled", "3 windows within 10 %", 61.5),
        lock=LockSection("backup-stage", 2, 0.5, 0.031, "metadata-locks", 123456),
        snapshot=SnapshotSection("bk_r1", "vg0/data", "striped", 3, 65536, 4096, 1 << 30, 700, None, "", 0, ""),
        attention=("look",),
        throughput=(StageSection("read", 1000, 0.5),),
        bill=BillSection(50.5, 12.25, 1 << 20, 3, 30.5, 7.5),
        losses=LossesSection("logged", 50.5, 110.5, 104.5, 4000, 60.5),
    ),
    binlog="mysql/binlog.000007",
)

SIGNER, OTHER = signer(), signer()

JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(TEXTS, below, max_size=2),
    max_leaves=4,
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
    assert text.startswith(
        '{\n  "schema": {\n    "major": 1,\n    "minor": 3\n  },\n  "run_id": "20260102T030405Z-ab12",\n'
    )
    assert text.endswith("}\n")
    reordered = replace(ONE, server=replace(ONE.server, settings=dict(reversed(list(ONE.server.settings.items())))))
    assert manifests.to_text(reordered) == text


def test_a_number_that_another_writer_rounded_is_read_as_it_was_meant() -> None:
    body = json.loads(manifests.to_text(replace(ONE, run=replace(ONE.run, phases={"copy": 2.0}))))
    body["run"]["phases"]["copy"] = 2
    assert manifests.from_text(sealed(body)).run.phases == {"copy": 2.0}


@given(st.data())
def test_what_a_later_minor_adds_is_ignored_wherever_it_adds_it(data: st.DataObject) -> None:
    body = json.loads(manifests.to_text(ONE))
    add_of_tomorrow(body, lambda: data.draw(st.integers(0, 2)) == 0, lambda: data.draw(JSON))
    assert manifests.from_text(sealed(body)) == ONE


def test_what_a_later_minor_added_cannot_be_changed_unseen_either() -> None:
    body = json.loads(manifests.to_text(ONE))
    add_of_tomorrow(body, lambda: True, lambda: "sunny")
    text = sealed(body)
    assert manifests.from_text(text) == ONE
    with pytest.raises(VerificationError, match="changed after it was written"):
        manifests.from_text(text.replace("sunny", "rainy", 1))


def test_a_later_minors_words_are_kept_as_they_are() -> None:
    body = json.loads(manifests.to_text(ONE))
    body["layout"] = body["run"]["snapshot"]["layout"] = "zoned"
    body["run"]["phases"]["siesta"] = 2.0
    body["run"]["verdict"]["outcome"] = "negotiate"
    read = manifests.from_text(sealed(body))
    assert (read.layout, read.run.phases) == ("zoned", {"copy": 2.5, "siesta": 2.0})
    assert read.run.verdict is not None
    assert read.run.verdict.outcome == "negotiate"


def test_a_word_that_a_restore_depends_on_must_be_known() -> None:
    body = json.loads(manifests.to_text(ONE))
    body["server"]["flavour"] = "postgresql"
    with pytest.raises(VerificationError, match=r"no valid manifest\.server.flavour: 'postgresql'"):
        manifests.from_text(sealed(body))


def test_a_document_without_a_schema_is_none_of_ours() -> None:
    body = {key: value for key, value in json.loads(manifests.to_text(ONE)).items() if key != "schema"}
    with pytest.raises(Unreadable, match="the manifest has no valid schema: None"):
        manifests.from_text(sealed(body))


def test_order_of_keys_and_blanks_mean_nothing() -> None:
    body = json.loads(manifests.to_text(ONE))
    assert manifests.from_text(json.dumps(dict(reversed(body.items())), separators=(",", ":"))) == ONE


# --- signed ----------------------------------------------------------------------------------------------------------


@given(MANIFESTS)
def test_a_signed_manifest_survives_too_and_knows_its_documents_digest(manifest: Manifest) -> None:
    signed = manifests.signed(manifest, SIGNER)
    read = manifests.from_text(manifests.to_text(signed))
    assert read == signed
    assert read.signature is not None
    assert read.signature.key == SIGNER.public
    assert read.digest == signed.digest == json.loads(manifests.to_text(signed))["digest"]


def test_nothing_of_a_signed_manifest_can_be_changed_by_whoever_can_only_make_digests() -> None:
    body = json.loads(manifests.to_text(manifests.signed(ONE, SIGNER)))
    assert manifests.from_text(sealed(body)).signature is not None
    for key, value in list(body.items()):
        if key in ("schema", "digest", "signature"):
            continue
        changed = {**body, key: "x" if value != "x" else "y"}
        with pytest.raises(VerificationError):
            manifests.from_text(sealed(changed))
    with pytest.raises(VerificationError, match="changed after it was signed"):
        manifests.from_text(sealed({**body, "run_id": "another"}))
    with pytest.raises(VerificationError, match="changed after it was signed"):
        manifests.from_text(sealed({**body, "of_tomorrow": 1}))
    with pytest.raises(VerificationError, match="changed after it was signed"):
        manifests.from_text(sealed({**body, "schema": {"major": 1, "minor": 1}}))


@pytest.mark.parametrize(
    "signature",
    [
        {"key": "backupd-ed25519:", "value": ""},
        {"key": "backupd-ed25519:" + "A" * 43 + "=", "value": "A" * 86 + "=="},
        {"key": "ssh-ed25519 AAAA", "value": "AAAA"},
        {"key": SIGNER.public, "value": "no base64"},
        {"key": SIGNER.public, "value": "A" * 86 + "=="},
    ],
)
def test_a_signature_that_is_none_is_refused(signature: dict[str, str]) -> None:
    body = json.loads(manifests.to_text(manifests.signed(ONE, SIGNER)))
    with pytest.raises(VerificationError, match="its signature is wrong"):
        manifests.from_text(sealed({**body, "signature": signature}))


def test_another_key_signs_another_document() -> None:
    """Whose name is changed in the signature has signed nothing; who signs anew is told by its own key."""
    body = json.loads(manifests.to_text(manifests.signed(ONE, SIGNER)))
    forged = {**body, "signature": {**body["signature"], "key": OTHER.public}}
    with pytest.raises(VerificationError, match="its signature is wrong"):
        manifests.from_text(sealed(forged))
    anew = manifests.from_text(manifests.to_text(manifests.signed(ONE, OTHER)))
    assert anew.signature is not None
    assert anew.signature.key == OTHER.public


def test_what_was_written_before_there_were_signatures_can_be_read() -> None:
    body = json.loads(manifests.to_text(ONE))
    del body["signature"]
    body["schema"] = {"major": 1, "minor": 1}
    read = manifests.from_text(sealed(body))
    assert (read, read.signature) == (ONE, None)
    assert read.digest == json.loads(sealed(body))["digest"]


@pytest.mark.parametrize("schema", [{"major": 2, "minor": 0}, {"major": 17, "minor": 3, "patch": 1}])
def test_a_newer_major_is_told_from_damage(schema: Any) -> None:
    """What else it has cannot be known; that it is whole can."""
    text = sealed({"schema": schema, "everything": "else"})
    with pytest.raises(Unreadable, match=rf"written by a newer backupd: its schema is {schema['major']}\."):
        manifests.from_text(text)
    with pytest.raises(VerificationError, match="changed after it was written") as damaged:
        manifests.from_text(text.replace("else", "other"))
    assert not isinstance(damaged.value, Unreadable)


@pytest.mark.parametrize(
    "schema",
    [
        *(2, 1, "1", None, True, [1, 0], {}, {"major": 1}),
        *({"major": major, "minor": 0} for major in (0, -1, "1", 1.5)),
    ],
)
def test_unknown_schema_is_refused(schema: Any) -> None:
    body = {**json.loads(manifests.to_text(ONE)), "schema": schema}
    with pytest.raises(Unreadable, match="no valid schema"):
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
INSTANTS_AT = {"created_at", "started_at"}
FLOATS = {
    *("copy", "waited_seconds", "wait_seconds", "hold_seconds", "busy_seconds"),
    *("seconds", "penalty_seconds", "disk_seconds", "disk_read_seconds", "rate_before", "rate_after", "noise"),
    *("position_seconds", "flush_seconds", "proof_seconds", "unlock_seconds"),
}


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
    for other in (["x"], {"x": 1}, "1.5" if path[-1] in FLOATS else 1.5, "\0" if path[-1] in INSTANTS_AT else ["y"]):
        with pytest.raises(VerificationError):
            manifests.from_text(sealed(changed(json.loads(manifests.to_text(ONE)), path, other)))


def keys(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a field of the document is: the server's settings and the phases are no fields."""
    if isinstance(value, dict):
        below = [] if path[-1:] in (("settings",), ("phases",)) else list(value)
        return [found for key in below for found in ((*path, key), *keys(value[key], (*path, key)))]
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in keys(item, (*path, i))]
    return []


ADDED = {("run", "snapshot", "redo_left_out"), ("run", "snapshot", "taken_at"), ("signature",)}  # by a minor
OF_OLD = [path for path in keys(BODY) if path[0] not in {"digest", "schema"} and path not in ADDED]


@pytest.mark.parametrize("path", sorted(ADDED), ids=str)
def test_a_document_from_before_a_minor_has_its_keys_defaults(path: tuple[Any, ...]) -> None:
    body = json.loads(manifests.to_text(ONE))
    folder = body
    for step in path[:-1]:
        folder = folder[step]
    del folder[path[-1]]
    assert manifests.from_text(sealed(body)) == ONE


@pytest.mark.parametrize(
    "path", [p for p in keys(BODY) if p[0] not in {"digest", "schema"} and p not in ADDED], ids=str
)
def test_missing_key_is_named(path: tuple[Any, ...]) -> None:
    body = json.loads(manifests.to_text(ONE))
    folder = body
    for step in path[:-1]:
        folder = folder[step]
    del folder[path[-1]]
    with pytest.raises(VerificationError, match=rf"lacks manifest\b.*\.{path[-1]}"):
        manifests.from_text(sealed(body))


@pytest.mark.parametrize("key", ["datadir", "binlog"])
@pytest.mark.parametrize("path", ["/var/lib/mysql", "../mysql", "mysql/../../live", ".."])
def test_a_path_that_leads_out_of_the_restored_folder_is_refused(key: str, path: str) -> None:
    """There a drill would start its server, and a clone remove binlogs: those of this host."""
    with pytest.raises(VerificationError, match=f"the manifest's {key} points outside of the backup: '{path}'"):
        manifests.from_text(sealed({**BODY, key: path}))


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63), 1 << 4000])
def test_a_number_that_no_catalogue_keeps_is_refused(number: int) -> None:
    snapshot = {**BODY["run"]["snapshot"], "redo_left_out": number}
    with pytest.raises(VerificationError, match=r"no valid manifest\.run\.snapshot\.redo_left_out"):
        manifests.from_text(sealed({**BODY, "run": {**BODY["run"], "snapshot": snapshot}}))


PROSE_AT = {("run", "attention"), ("server", "settings")}
REASONS = {"detail", "chunk_reason", "size_reason"}
IN_LINES = {"gtid"}  # MySQL breaks a long set
NAMES_AT = [
    path
    for path in leaves(BODY)
    if path[0] not in {"digest", "schema"} and path[:2] not in PROSE_AT and path[-1] not in REASONS | IN_LINES
]


@pytest.mark.parametrize("hostile", ["a\nb", "\x1b]0;x\x07", "a\rb", "\0", "\x9b2J", "\u2028", "\u202egnp.exe"])
def test_no_name_has_a_control_character(hostile: str) -> None:
    for path in NAMES_AT:
        with pytest.raises(Unreadable, match="no valid manifest") as refused:
            manifests.from_text(sealed(changed(json.loads(manifests.to_text(ONE)), path, hostile)))
        assert is_one_line(refused.value.message)
    for mapping in (("server", "settings"), ("run", "phases")):
        with pytest.raises(Unreadable, match="key"):
            manifests.from_text(sealed(changed(json.loads(manifests.to_text(ONE)), (*mapping, hostile), "1")))


def test_what_a_server_or_a_program_said_may_have_several_lines() -> None:
    """MySQL's tablespaces outside of the datadir are one setting, a line each."""
    said = {"run": {**BODY["run"], "attention": ["it said\n\x1b[1mno"]}}
    read = manifests.from_text(sealed({**BODY, **said}))
    assert read.run.attention == ("it said\n\x1b[1mno",)
    changed_settings = {"server": {**BODY["server"], "settings": {"external_tablespaces": "/a.ibd\n/b.ibd"}}}
    assert manifests.from_text(sealed({**BODY, **changed_settings})).server.settings == {
        "external_tablespaces": "/a.ibd\n/b.ibd"
    }


def test_a_name_of_bytes_that_are_no_text_is_kept() -> None:
    assert manifests.from_text(sealed({**BODY, "datadir": "caf\udce9"})).datadir == "caf\udce9"


@pytest.mark.parametrize("name", ["half \ud800", "db1\udfff", "\ude00\ud83d", "x" * 4097])
def test_a_name_that_is_no_text_and_one_longer_than_any_path_are_refused(name: str) -> None:
    with pytest.raises(Unreadable, match=r"no valid manifest\.host") as refused:
        manifests.from_text(sealed({**BODY, "host": name}))
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_an_instant_that_nothing_can_be_reckoned_with_is_refused(instant: str) -> None:
    with pytest.raises(Unreadable, match=r"no valid manifest\.created_at"):
        manifests.from_text(sealed({**BODY, "created_at": instant}))


def test_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(VerificationError, match="created_at"):
        manifests.from_text(sealed({**BODY, "created_at": "2026-01-02T03:04:05"}))


@settings(max_examples=examples(300))
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
    text = manifests.to_text(ONE).replace('"major": 1,', '"major": 1, "major": 1,')
    with pytest.raises(VerificationError, match="twice"):
        manifests.from_text(text)


def test_what_was_signed_is_published_as_it_is_and_what_was_not_gets_a_digest_of_now() -> None:
    signed = manifests.from_text(manifests.to_text(manifests.signed(ONE, SIGNER)))
    assert manifests.to_publish(signed) is signed
    unsigned = manifests.to_publish(manifests.from_text(manifests.to_text(ONE)))
    assert (unsigned, unsigned.digest) == (ONE, "")
    newer = json.loads(manifests.to_text(signed))
    lost = replace(signed, digest=manifests._digest({**newer, "of_tomorrow": 1}))
    with pytest.raises(Unreadable) as refused:
        manifests.to_publish(lost)
    assert refused.value.message == (
        f"the manifest of run {ONE.run_id} was written by a newer backupd: this one cannot write it unchanged"
    )
    assert refused.value.hint == "use that newer backupd; nothing is wrong with the backup"


def test_what_is_signed_again_has_the_new_signature_alone_and_the_digest_of_its_document() -> None:
    again = manifests.signed(manifests.signed(ONE, SIGNER), OTHER)
    read = manifests.from_text(manifests.to_text(again))
    assert read == again
    assert read.signature is not None
    assert read.signature.key == OTHER.public
    assert again.digest == read.digest == json.loads(manifests.to_text(again))["digest"]


def test_a_signature_and_a_digest_that_are_wrong_are_told_with_what_to_do() -> None:
    body = json.loads(manifests.to_text(manifests.signed(ONE, SIGNER)))
    hint = "it was damaged or changed on the target; restore another backup"
    for text, message in (
        (json.dumps({**body, "host": "x"}), "the manifest was changed after it was written: its digest differs"),
        (sealed({**body, "host": "x"}), "the manifest was changed after it was signed: its signature is wrong"),
    ):
        with pytest.raises(VerificationError) as refused:
            manifests.from_text(text)
        assert (refused.value.message, refused.value.hint) == (message, hint)
    with pytest.raises(Unreadable) as outside:
        manifests.from_text(sealed({**BODY, "datadir": "/x"}))
    assert outside.value.hint == "something other than backupd wrote it: restore another backup"


def test_the_largest_backup_has_a_manifest_that_is_read_back() -> None:
    frame = Frame(MOST_FRAME_BYTES, MOST_FRAME_BYTES, "f" * 64)
    empty = StoredObject(f"data-{MOST_OBJECTS}.tar.zst.age", 1 << 50, 1 << 50, "f" * 64, "f" * 64, 1 << 40, ())

    def document(*objects: StoredObject) -> tuple[int, int]:
        text = manifests.to_text(replace(ONE, objects=objects))
        return len(text), sum(map(text.count, ",[{"))

    size, values = document(empty)
    framed, framed_values = document(replace(empty, frames=(frame,) * 1000))
    second, second_values = document(empty, empty)
    frames = MOST_FRAMES + MOST_OBJECTS  # each object has a frame that is not full
    least = size + (framed - size) * frames // 1000 + (second - size) * MOST_OBJECTS
    assert least < manifests.MOST_BYTES - (1 << 20)  # what a run tells of itself is less
    assert values + (framed_values - values) * frames // 1000 + (second_values - values) * MOST_OBJECTS < 1 << 20
    assert MOST_FRAME_BYTES + (1 << 20) < LARGEST_FRAME  # what does not compress grows


def test_a_manifest_that_nobody_could_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = manifests.to_text(ONE)
    monkeypatch.setattr(manifests, "MOST_BYTES", len(text))
    assert manifests.to_text(ONE) == text
    monkeypatch.setattr(manifests, "MOST_BYTES", len(text) - 1)
    with pytest.raises(VerificationError, match="the manifest would be larger than") as refused:
        manifests.to_text(ONE)
    assert refused.value.hint


def test_no_more_is_read_than_any_manifest_has() -> None:
    text = manifests.to_text(ONE).encode()
    assert manifests.from_chunks([text[:100], memoryview(text[100:])]) == ONE
    taken: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(manifests.MOST_BYTES // 2)
            yield bytes(taken[-1])

    with pytest.raises(VerificationError, match="the manifest is larger than 32 MiB"):
        manifests.from_chunks(endless())
    assert len(taken) == 3
