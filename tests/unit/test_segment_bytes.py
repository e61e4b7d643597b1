"""A segment's events, stored and read back: whole and unchanged, or an error."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.archive.encryption import Identities, read_identities
from backupd.archive.segment_bytes import SealedBytes, require_key, seal, unseal
from backupd.vocabulary.binlogs import BinlogSegment
from backupd.vocabulary.errors import NoKey, UsageError, VerificationError
from tests.binlog_segments import FIRST

EVENTS = [b"first event" * 50, b"", b"\0" * 5000, b"last"]


def described(sealed: SealedBytes, recipients: Sequence[str] = ()) -> BinlogSegment:
    return replace(
        FIRST,
        plain_bytes=sealed.plain_bytes,
        plain_sha256=sealed.plain_sha256,
        stored_bytes=len(sealed.content),
        stored_sha256=sealed.sha256,
        recipients=tuple(recipients),
    )


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    import pyrage

    file: Path = tmp_path_factory.mktemp("key") / "identity.txt"
    file.write_text(f"{pyrage.x25519.Identity.generate()}\n")
    file.chmod(0o600)
    return read_identities(file)


@given(events=st.lists(st.binary(max_size=300), max_size=20), cut=st.integers(1, 50))
def test_what_was_sealed_is_unsealed_however_it_arrives(events: list[bytes], cut: int) -> None:
    sealed = seal(events, recipients=(), level=3)
    stored = [sealed.content[at : at + cut] for at in range(0, len(sealed.content), cut)]
    assert b"".join(unseal(described(sealed), stored, None)) == b"".join(events)


def test_who_has_the_identity_reads_it_and_nobody_else(key: Identities) -> None:
    sealed = seal(EVENTS, recipients=key.recipients, level=3)
    segment = described(sealed, key.recipients)
    assert sealed.content.startswith(b"age-encryption.org/v1\n")
    assert b"".join(unseal(segment, [sealed.content], key)) == b"".join(EVENTS)
    with pytest.raises(NoKey, match="is encrypted for age1"):
        list(unseal(segment, [sealed.content], None))
    stranger = replace(segment, recipients=("age1" + "q" * 58,))
    with pytest.raises(NoKey, match=r"none of the identities in .* can read the binlog segment"):
        require_key(stranger, key)


@pytest.mark.parametrize("encrypted", [False, True])
def test_any_flipped_byte_is_an_error(encrypted: bool, key: Identities) -> None:
    recipients = key.recipients if encrypted else ()
    sealed = seal(EVENTS, recipients=recipients, level=3)
    for at in range(len(sealed.content)):
        changed = bytearray(sealed.content)
        changed[at] ^= 1
        with pytest.raises((VerificationError, UsageError)):
            list(unseal(described(sealed, recipients), [bytes(changed)], key))


@pytest.mark.parametrize("stored", [[], [b"x"], None], ids=["nothing", "something else", "more"])
def test_other_bytes_than_those_described_are_an_error(stored: list[bytes] | None) -> None:
    sealed = seal(EVENTS, recipients=(), level=3)
    with pytest.raises(VerificationError):
        list(unseal(described(sealed), [sealed.content, b"more"] if stored is None else stored, None))
