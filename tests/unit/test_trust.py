"""Which backup is believed: the one on record, else one that a known key has signed, else none; and why not."""

import logging
from dataclasses import replace

import pytest

from backupd.policy import manifest as manifests
from backupd.policy.trust import Trust
from backupd.vocabulary.errors import Untrusted
from backupd.vocabulary.storage import Backup, Manifest
from tests.signers import signer
from tests.unit.test_manifest import ONE

OURS, THEIRS = signer(), signer()
REPLACED = "it was replaced: check who can write to the target, and take a new backup"
SIGNED = manifests.signed(ONE, OURS)
UNSIGNED = manifests.from_text(manifests.to_text(ONE))
KEYS = frozenset({OURS.public})
ENCRYPTED = manifests.signed(
    replace(ONE, recipients=("age1x",), objects=tuple(replace(one, name=one.encrypted_name) for one in ONE.objects)),
    OURS,
)


def row(of: Manifest, **changed: object) -> Backup:
    """As the catalogue has it."""
    (stored,) = of.objects
    found = Backup(
        "nas", "there", stored.plain_bytes, stored.stored_bytes, stored.files, stored.stored_sha256,
        manifest_digest=of.digest, recipients=of.recipients,
    )  # fmt: skip
    return replace(found, **changed)  # type: ignore[arg-type]


def refused(trust: Trust, manifest: Manifest) -> Untrusted:
    with pytest.raises(Untrusted) as found:
        trust.require(manifest)
    return found.value


def test_what_a_known_key_has_signed_is_believed_and_nothing_else_unless_a_person_says_so() -> None:
    assert Trust(KEYS).believes(SIGNED.signature)
    assert not Trust(KEYS).believes(None)
    assert not Trust(frozenset({THEIRS.public})).believes(SIGNED.signature)
    assert Trust(unsigned=True).believes(None)
    assert not Trust().believes(SIGNED.signature)


def test_what_is_not_on_record_has_to_be_signed_by_a_known_key() -> None:
    Trust(KEYS).require(SIGNED)
    Trust(unsigned=True).require(UNSIGNED)
    stranger = manifests.signed(ONE, THEIRS)
    told = refused(Trust(KEYS), stranger)
    assert told.message == (
        f"run {ONE.run_id} is signed by {THEIRS.public}, which is not a known key of machine {ONE.machine}"
    )
    assert told.hint == (
        "if `backupd identity show` prints that key on that machine, or did before it failed:"
        " `backupd catalogue rebuild --trust KEY`; otherwise do not use these backups"
    )
    told = refused(Trust(KEYS), UNSIGNED)
    assert told.message == f"run {ONE.run_id} is not signed: its origin is unknown"
    assert told.hint == (
        "early versions of backupd did not sign; `backupd catalogue rebuild --unsigned` trusts whoever could write"
        " there"
    )


def test_what_is_on_record_is_believed_by_its_digest_alone() -> None:
    Trust(recorded=row(UNSIGNED)).require(UNSIGNED)
    Trust(recorded=row(ENCRYPTED)).require(ENCRYPTED)
    anew = manifests.signed(replace(ONE, host="db2"), OURS)
    told = refused(Trust(KEYS, recorded=row(SIGNED)), anew)
    assert told.message == (
        f"the manifest of run {ONE.run_id} on target nas is not the one on record: its digest is {anew.digest[:16]}…,"
        f" and the catalogue has {SIGNED.digest[:16]}…"
    )
    assert told.hint == REPLACED


def test_a_plain_backup_does_not_pass_for_the_encrypted_one_on_record() -> None:
    told = refused(Trust(KEYS, recorded=row(ENCRYPTED, recipients=("age1x", "age1y"))), SIGNED)
    assert told.message == (
        f"run {ONE.run_id} was recorded as encrypted for age1x, age1y, but the copy on target nas is not encrypted"
    )
    assert told.hint == REPLACED


def test_a_backup_is_encrypted_or_plain_as_a_whole() -> None:
    named = replace(ONE, recipients=("age1x", "age1y"))
    told = refused(Trust(unsigned=True), named)
    assert told.message == f"run {ONE.run_id} is marked as encrypted, and its data-1.tar.zst is not"
    assert told.hint == REPLACED
    told = refused(Trust(unsigned=True), replace(ENCRYPTED, recipients=()))
    assert told.message == f"run {ONE.run_id} is marked as plain, and its data-1.tar.zst.age is not"


def test_a_row_without_a_digest_is_compared_and_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    early = row(UNSIGNED, manifest_digest="")
    with caplog.at_level(logging.WARNING):
        Trust(KEYS, recorded=early).require(UNSIGNED)
    assert caplog.messages == [
        f"run {ONE.run_id} was recorded before backups were signed: its manifest matches the catalogue in its first"
        " object, sizes and files; the rest cannot be proven"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        Trust(KEYS, recorded=early).require(SIGNED)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"sha256": "c" * 64}, f"first object: expected {'c' * 64}, found {'b' * 64}"),
        ({"bytes_read": 1001}, "bytes read: expected 1001, found 1000"),
        ({"bytes_stored": 99}, "stored bytes: expected 99, found 100"),
        ({"files": 13}, "files: expected 13, found 12"),
    ],
)
def test_a_row_without_a_digest_refuses_what_is_another(changed: dict[str, object], what: str) -> None:
    told = refused(Trust(KEYS, recorded=row(UNSIGNED, manifest_digest="", **changed)), UNSIGNED)
    assert told.message == f"run {ONE.run_id} on target nas is not the one on record: {what}"
    assert told.hint == REPLACED


def test_a_backup_of_nothing_has_no_first_object() -> None:
    empty = replace(UNSIGNED, objects=())
    early = Backup("nas", "there", 0, 0, 0, "")
    Trust(unsigned=True, recorded=early).require(empty)
    told = refused(Trust(unsigned=True, recorded=replace(early, sha256="b" * 64)), empty)
    assert told.message.endswith(f"first object: expected {'b' * 64}, found ")


def test_a_copy_of_a_known_run_is_what_the_others_are() -> None:
    other = row(UNSIGNED, target="vault")
    Trust(others=(other,)).require(UNSIGNED)
    Trust(others=(row(SIGNED), other)).require(UNSIGNED)
    anew = manifests.signed(replace(ONE, host="db2"), THEIRS)
    assert "is not the one on record" in refused(Trust(KEYS, others=(other,)), anew).message
    assert "on target vault" in refused(Trust(KEYS, others=(other, row(SIGNED))), anew).message


def test_a_copy_that_was_encrypted_anew_has_the_machines_own_word_and_opens_to_as_much() -> None:
    Trust(KEYS, others=(row(SIGNED),)).require(ENCRYPTED)
    larger = manifests.signed(replace(ONE, objects=(replace(ONE.objects[0], plain_bytes=1001),)), OURS)
    assert "is not the one on record" in refused(Trust(KEYS, others=(row(SIGNED),)), larger).message
    more = manifests.signed(replace(ONE, objects=(replace(ONE.objects[0], files=13),)), OURS)
    assert "is not the one on record" in refused(Trust(KEYS, others=(row(SIGNED),)), more).message
    assert "is not the one" in refused(Trust(frozenset({THEIRS.public}), others=(row(SIGNED),)), ENCRYPTED).message


def test_of_the_other_copies_those_with_a_digest_count() -> None:
    early = row(UNSIGNED, target="old", manifest_digest="")
    Trust(others=(early, row(SIGNED))).require(SIGNED)
    anew = manifests.signed(replace(ONE, host="db2"), THEIRS)
    assert "on target nas is not" in refused(Trust(KEYS, others=(early, row(SIGNED))), anew).message
    Trust(KEYS, others=(early,)).require(SIGNED)
    told = refused(Trust(KEYS, others=(replace(early, files=1),)), UNSIGNED)
    assert "on target old is not the one on record: files: expected 1, found 12" in told.message
